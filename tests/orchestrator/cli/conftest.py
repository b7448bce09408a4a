"""State folders for the command line's tests: empty ones, and one with finished runs."""

import os
from pathlib import Path

import pytest

from tests.orchestrator.cli.cli_command import (
    FANOUT,
    RECORDS,
    REQUEST,
    Cli,
    Finished,
    make_command,
    run_here,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line inside of this process, on an empty state folder. A test may set further variables."""
    for name in [name for name in os.environ if name.startswith(("ORCHESTRATOR_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))
    return run_here


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Both examples, run by the embedded models."""
    folder = tmp_path_factory.mktemp("finished")
    command = make_command(folder / "home")
    request = command("run", REQUEST, "--dir", RECORDS, "--json", "--out", folder / "out")
    fanout = command("run", FANOUT, "--dir", RECORDS)
    return Finished(command, folder / "out", request, fanout)
