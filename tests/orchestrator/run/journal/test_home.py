import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.run.journal.errors import HomeLocked, JournalError
from orchestrator.run.journal.home import Home, HomeLock, home_path

HOLD = """
import sys, time
from pathlib import Path
from orchestrator.run.journal.home import Home, HomeLock
with HomeLock(Home(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ORCHESTRATOR_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"ORCHESTRATOR_HOME": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/orchestrator"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/c"}, "/c/.local/state/orchestrator"),
        ({"HOME": "/c"}, "/c/.local/state/orchestrator"),
    ],
)
def test_home_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert home_path(environ) == Path(expected)


def test_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert home_path({"ORCHESTRATOR_HOME": "state"}) == tmp_path / "state"


def test_created_home_is_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.create()
    home.create()
    assert home.path.stat().st_mode & 0o777 == 0o700


def test_a_home_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    Home(tmp_path / "home").create()
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_home_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(JournalError, match=r"home: cannot be the state folder: File exists"):
        Home(tmp_path / "home").create()


@pytest.mark.parametrize("run", ["", "..", "a/b", ".hidden", "a\n", "x" * 65])
def test_names_that_are_no_runs_are_refused(tmp_path: Path, run: str) -> None:
    with pytest.raises(JournalError, match="not a run id"):
        Home(tmp_path).artifacts(run)


def test_second_owner_names_the_first(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HomeLocked, match=f"process {holder.pid} owns") as caught:
            HomeLock(Home(tmp_path)).acquire()
        assert caught.value.holder == holder.pid
        holder.kill()
    with HomeLock(Home(tmp_path)):  # a killed holder holds nothing
        assert Home(tmp_path).lock_file.read_text() == f"{os.getpid()}\n"


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with HomeLock(Home(tmp_path)):
            pass
