"""State folders for the command line's tests: empty ones, and one with finished runs."""

import os
from pathlib import Path

import pytest

from orchestrator.cli.main import app
from tests.orchestrator.cli.cli_command import FANOUT, RECORDS, REQUEST, Cli, Finished, Result, make_cli


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    """The command line on an empty state folder."""
    return make_cli(home)


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """The command line inside of this process, which saves the second that starting another one takes."""
    for name in [name for name in os.environ if name.startswith(("ORCHESTRATOR_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))

    def run(*arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments])
        written = capfd.readouterr()
        return Result(int(ended.value.code or 0), written.out, written.err)

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Both examples, run by the embedded models."""
    folder = tmp_path_factory.mktemp("finished")
    cli = make_cli(folder / "home")
    request = cli("run", REQUEST, "--dir", RECORDS, "--json", "--out", folder / "out")
    fanout = cli("run", FANOUT, "--dir", RECORDS)
    return Finished(cli, folder / "out", request, fanout)
