import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.filesystem import environment, host_filesystem
from orchestrator.run.sandbox.sandbox import Sandbox, UidPool
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK, python

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, of which a sandbox has its own


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder in memory with a note, next to another one."""
    if not os.access(MEMORY, os.W_OK):
        pytest.skip(f"{MEMORY} cannot be written")
    with TemporaryDirectory(dir=MEMORY) as folder, TemporaryDirectory(dir=MEMORY):
        Path(folder).chmod(0o755)
        Path(folder, "note").write_text("read me")
        yield Path(folder)


def test_the_view_shows_the_installation_and_no_more() -> None:
    readable = [Path(folder) for folder in host_filesystem().readable]
    for needed in (Path(sys.prefix), Path(sys.base_prefix), Path("/usr")):
        assert any(needed.is_relative_to(folder) for folder in readable)
    for hidden in (Path.home(), Path("/etc"), Path("/var"), Path.cwd(), Path("/")):
        assert not any(hidden.is_relative_to(folder) for folder in readable if folder != Path("/usr"))


@pytest.mark.parametrize("prefix", [Path("/"), Path.home(), Path.home().parent])
def test_an_installation_that_would_show_a_home_is_refused(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(SandboxUnavailable, match="needs a folder of its own"):
        host_filesystem()


def test_the_environment_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment(host_filesystem())
    monkeypatch.setenv("API_KEY", "ours")
    monkeypatch.setenv("LD_PRELOAD", "/ours.so")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert environment(host_filesystem()) == before
    assert not {"API_KEY", "LD_PRELOAD", "PYTHONPATH"} & set(before)


def test_uids_are_lent_once_at_a_time() -> None:
    uids = UidPool(5000, 2)
    with uids.acquire() as first, uids.acquire() as second:
        assert {first, second} == {5000, 5001}
    with uids.acquire() as again:
        assert again in (5000, 5001)


async def test_a_folder_in_memory_is_shown_in_the_memory_of_the_sandbox(sandbox: Sandbox, in_memory: Path) -> None:
    code = (
        "import os, sys\n"
        "print(open(sys.argv[1] + '/note').read(), os.listdir('/dev/shm'))\n"
        "try: open(sys.argv[1] + '/note', 'w')\n"
        "except OSError as error: print(error.errno)\n"
        "try:\n"
        "    for name in 'ab': open('/dev/shm/' + name, 'wb').write(bytes(int(sys.argv[2])))\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = await sandbox.showing([str(in_memory)]).run(python(code, str(in_memory), str(QUICK.disk)))
    assert done.stdout.decode().splitlines() == [f"read me ['{in_memory.name}']", str(errno.EROFS), str(errno.ENOSPC)]
