"""State folders for the command line's tests: empty ones, and one with finished runs."""

from pathlib import Path

import pytest
from cli_command import FANOUT, RECORDS, REQUEST, Cli, Finished, make_cli


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    """The command line on an empty state folder."""
    return make_cli(home)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Both examples, run by the embedded models."""
    folder = tmp_path_factory.mktemp("finished")
    cli = make_cli(folder / "home")
    request = cli("run", REQUEST, "--dir", RECORDS, "--json", "--out", folder / "out")
    fanout = cli("run", FANOUT, "--dir", RECORDS)
    return Finished(cli, folder / "out", request, fanout)
