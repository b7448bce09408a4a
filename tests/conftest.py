"""Settings of all tests, and their order."""

import asyncio
import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.forked_engines import forked_engines

# An example may take long because of other processes or a suspended machine, which is not a defect. Examples are drawn
# anew in each run, so a few in every run find what many in one run would; `make test-slow` draws many, too.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=10)
settings.register_profile("thorough", settings.get_profile("suite"), max_examples=200)
settings.load_profile("suite")

# Tests start hundreds of processes of this program. Where Python may not keep the modules that it has compiled, each of
# them compiles everything anew, and so does each process of pytest with all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Models in the process of a test must not spin for milliseconds next to those of other tests.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Tests write thousands of small files and wait until each is on the disk. What they end is processes, never the
# machine, so a file system in memory shows the same in less time.
MEMORY = "/dev/shm"  # noqa: S108
MEMORY_BYTES = 2 << 30  # that have to be free, several times what the tests need at a time
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

TESTS = Path(__file__).parent
DAEMONS = (
    "tests/orchestrator/api/",
    "tests/clients/",
    "tests/memrl/test_endpoints.py",
    "tests/procedures/test_endpoints.py",
)
"""How the names of the tests begin that start daemons. They take a fifth of the time of all tests."""
PAGE = "tests/orchestrator/api/page/"
"""How the names of the tests begin that use a browser, which take as long as all others that start daemons."""
LONGEST = (
    "orchestrator/api",
    "orchestrator/api/page",
    "orchestrator/run/gates/test_tools.py",
    "procedures/test_library.py",
    "orchestrator/cli/test_interrupts.py",
    "orchestrator/run/steps/tools/test_servers.py",
    "orchestrator/cli/test_daemon_commands.py",
    "benchmarks/test_simulate.py",
    "orchestrator/run/steps/repl/test_repl_session.py",
    "registry/sources/test_sources.py",
    "orchestrator/run/gates/test_schema.py",
    "registry/test_chat_template.py",
    "orchestrator/cli/test_runs.py",
    "orchestrator/service/test_service.py",
    "memrl/test_memory.py",
    "orchestrator/engine/test_engine_faults.py",
    "orchestrator/run/gates/test_in_a_run.py",
    "procedures/test_procedure_runs.py",
    "orchestrator/engine/test_speculation.py",
    "procedures/test_engine.py",
    "memrl/test_graph.py",
)
"""The files that take longest, and the folder of the daemon's tests, which one process runs.

They come first, because a process that took one of them last would work alone.
"""

ALL_SLOW = ("orchestrator/api/test_contract.py",)
"""Files whose tests are all slow."""


@pytest.fixture(scope="session", autouse=True)
def _engines_are_forked() -> Iterator[None]:
    """Have engines forked from a process that has imported their program: the tests start hundreds."""
    with forked_engines():
        yield


@pytest.fixture(scope="session")
def probed_sandbox() -> Sandbox | str:
    """The sandbox of this machine, or why there is none."""
    try:
        return asyncio.run(Sandbox.probe())
    except SandboxUnavailable as error:
        return error.reason


@pytest.fixture(scope="session")
def sandbox(probed_sandbox: Sandbox | str) -> Sandbox:
    """The sandbox of this machine. Tests that need it are skipped where there is none."""
    if isinstance(probed_sandbox, str):
        pytest.skip(probed_sandbox)
    return probed_sandbox


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first, and leave the others in their order."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    last = len(places)
    items.sort(key=lambda item: min(places.get(item.path, last), places.get(item.path.parent, last)))


class OneProcessStartsDaemons(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Has each file run by one of xdist's processes, all tests that start daemons by the same one, and so the page's.

    Before a process of tests can start its first daemon, seconds of processor time go into importing the program.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PAGE):
            return PAGE
        return DAEMONS[0] if nodeid.startswith(DAEMONS) else super()._split_scope(nodeid)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return the scheduler of `--dist loadfile`, and None where tests are distributed in another way."""
    return OneProcessStartsDaemons(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, which are none, and never look through them later."""
    gc.disable()
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(config: pytest.Config) -> None:
    """Have each of xdist's processes begin its collection with another share of the files.

    Importing a file that has changed also compiles it, and what one process has compiled the others only read. All of
    them collect in the same order, so that each would compile everything itself, which in a new clone takes 12 s of
    processor time.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    folders = [Path(config.invocation_params.dir, argument) for argument in config.args]
    files = {file for folder in folders if folder.is_relative_to(TESTS) for file in folder.rglob("test_*.py")}
    collected = [file for file in files if not pytest_ignore_collect(file, config)]
    for file in sorted(collected, key=lambda file: (file.stat().st_size, file))[number % count :: count]:
        # Why a file cannot be imported, or is skipped, is reported where it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests are all slow, and whose imports take a second, where no slow tests are run."""
    is_slow = collection_path.is_relative_to(TESTS) and collection_path.relative_to(TESTS).as_posix() in ALL_SLOW
    return True if is_slow and "not slow" in config.option.markexpr else None
