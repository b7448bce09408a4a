"""One registry and one reference of every kind of run for all crashes; the figures are printed at the end."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.run.journal.reader import JournalReader
from tests.crash.crash_daemon import Place, make_registry, running, submit, wait_ended
from tests.crash.crash_runs import KINDS, Outcome, outcome_of

FIGURES = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry of one small model."""
    return make_registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, registry: Path) -> Mapping[str, Outcome]:
    """What each kind of run comes to where nothing goes wrong."""
    place = Place.within(tmp_path_factory.mktemp("undisturbed"), registry)
    with running(place) as daemon, daemon.client() as client:
        runs = {kind: submit(client, body, kind) for kind, body in KINDS.items()}
        for run in runs.values():
            wait_ended(client, run)
    with JournalReader.open_to_read(place.home) as journal:
        return {kind: outcome_of(journal, run) for kind, run in runs.items()}


@pytest.fixture
def place(tmp_path: Path, registry: Path) -> Place:
    """A place where no run was ever accepted."""
    made = Place.within(tmp_path, registry)
    made.home.mkdir(mode=0o700)
    return made


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Take a line of figures, to be printed at the end."""
    told = request.config.stash.setdefault(FIGURES, {})
    return lambda line: told.update({request.node.name: line})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures."""
    if told := config.stash.get(FIGURES, {}):
        terminalreporter.section("crashes")
        for name, line in told.items():
            terminalreporter.write_line(f"{name}: {line}")
