"""Kill processes that execute procedures, by SIGKILL, and check that nothing half-changed is left.

This runs as a program of its own, with one thread, so that it can fork: `python -m tests.procedures.kill_points FOLDER
--every N` and so on. It prints one JSON object with how many processes it has killed, and raises AssertionError.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.procedures.maintained import contents, everything, execute, make_engine, make_world

Execute = Callable[[Callable[[str], None]], None]


class World:
    """The folder that is changed and the state folder, which can be put back to what they were."""

    def __init__(self, folder: Path, *, resume: bool, fail: bool) -> None:
        self.world, self.home = folder / "world", folder / "home"
        self._kept = folder / "kept"
        self._fail, self._resume = fail, resume
        shutil.rmtree(folder, ignore_errors=True)
        make_world(self.world)
        self.home.mkdir()
        make_engine(self.home, self.world, everything(resume=resume)).close()
        self.before = contents(self.world)
        self.keep("fresh")
        self.after = self.before
        if not fail:
            self.execute(lambda _place: None)
            self.after = contents(self.world, times=False)
            self.restore("fresh")

    def keep(self, name: str) -> None:
        """Copy both folders."""
        for folder in (self.world, self.home):
            shutil.copytree(folder, self._kept / name / folder.name, symlinks=True, dirs_exist_ok=True)

    def restore(self, name: str) -> None:
        """Put both folders back as they were copied."""
        for folder in (self.world, self.home):
            shutil.rmtree(folder)
            shutil.copytree(self._kept / name / folder.name, folder, symlinks=True)

    def drop(self, name: str) -> None:
        """Forget a copy."""
        shutil.rmtree(self._kept / name)

    def execute(self, before_write: Callable[[str], None]) -> None:
        """Execute the procedure from planning to its end."""
        engine = make_engine(self.home, self.world, before_write=before_write)
        execute(engine, "everything", folder=str(self.world), fail=self._fail)
        engine.close()

    def recover(self, before_write: Callable[[str], None]) -> None:
        """Bring what was interrupted to its end."""
        engine = make_engine(self.home, self.world, before_write=before_write)
        engine.recover()
        engine.close()

    def check(self, story: str) -> None:
        """Raise AssertionError unless everything is as before or as after, and the log is whole and says which."""
        engine = make_engine(self.home, self.world)
        engine.audit.verify()
        executions = engine.executions()
        state = executions[0].state if executions else "planned"
        engine.close()
        wanted = self.after if state == "done" else self.before
        found = contents(self.world, times=state != "done")
        differing = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        assert not differing, f"{story}: {state}, and these differ: {differing}"
        accepted = {"planned", "approved", "rolled back", "done"}
        assert state in accepted, f"{story}: {state}"
        if self._resume and not self._fail:
            assert state != "rolled back", f"{story}: {state}"


def kill_at(work: Execute, point: int) -> bool:
    """Do `work` in a child that is killed at its write number `point`. Return whether it came that far."""

    def child() -> None:
        left = point

        def before_write(_place: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        work(before_write)

    return _child(child, None)


def kill_after(work: Execute, seconds: float) -> bool:
    """Do `work` in a child that is killed after some seconds. Return whether it was killed before it had ended."""
    return _child(lambda: work(lambda _place: None), seconds)


def _child(work: Callable[[], None], seconds: float | None) -> bool:
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent has to see it
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, os.WTERMSIG(status)
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the child has failed; its traceback is above"
    return False


def at_every_write(world: World, step: int, twice: int) -> dict[str, Any]:
    """Kill at every write, or every `step`-th; after every `twice`-th kill, do the same to who recovers."""
    kills = second_kills = 0
    point = 1
    while kill_at(world.execute, point):
        kills += 1
        if twice and kills % twice == 0:
            world.keep("killed")
            second = 1
            while kill_at(world.recover, second):
                second_kills += 1
                world.recover(lambda _place: None)
                world.check(f"killed at write {point}, and while it recovered at write {second}")
                world.restore("killed")
                second += step
            world.drop("killed")
        else:
            world.recover(lambda _place: None)
        world.check(f"killed at write {point}")
        world.restore("fresh")
        point += step
    world.check("not killed")
    return {"kills": kills, "second_kills": second_kills, "writes": point - 1}


def at_random(world: World, count: int, seed: int) -> dict[str, Any]:
    """Kill at random moments, and who recovers too, every other time."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    begun = time.monotonic()
    world.execute(lambda _place: None)
    longest = time.monotonic() - begun
    kills = second_kills = 0
    for number in range(count):
        world.restore("fresh")
        kills += kill_after(world.execute, chance.uniform(0, longest))
        if number % 2:
            second_kills += kill_after(world.recover, chance.uniform(0, longest / 2))
        world.recover(lambda _place: None)
        world.check(f"random kill {number} of seed {seed}")
    return {"kills": kills, "second_kills": second_kills}


def main() -> None:
    """Kill as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--step", type=int, default=0, help="kill at every so many writes")
    parser.add_argument("--twice", type=int, default=0, help="after every so many kills, kill who recovers too")
    parser.add_argument("--random", type=int, default=0, help="kill at so many random moments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fail", action="store_true", help="the last step fails, so that all is rolled back")
    parser.add_argument("--resume", action="store_true", help="what was interrupted goes on")
    given = parser.parse_args()
    world = World(given.folder, resume=given.resume, fail=given.fail)
    done: dict[str, Any] = {}
    if given.step:
        done |= at_every_write(world, given.step, given.twice)
    if given.random:
        done["random"] = at_random(world, given.random, given.seed)
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
