"""What is done to the daemon while it works. A seed decides what comes when."""

import asyncio
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.chaos.daemon import HarmedDaemon, signal_process

WEIGHTS: Final[Mapping[str, int]] = {
    "engine killed": 3,
    "engine stopped": 2,
    "daemon killed": 2,
    "disk filled": 1,
    "run cancelled": 3,
}  # how often each fault comes, relative to the others
FULL_SECONDS: Final = 4.0  # how long the disk stays full
DISK_BYTES: Final = 512 << 20

Say = Callable[[str], None]


class Faults:
    """Does harm to a daemon. `choose` returns a run that may be cancelled, or None if there is none."""

    def __init__(self, daemon: HarmedDaemon, seed: int, disk: Path | None, choose: Callable[[], str | None]) -> None:
        self.done = Counter[str]()
        """How often each fault was carried out."""
        self.stopped: list[int] = []
        """The engines that were stopped."""
        self._daemon = daemon
        self._disk = disk
        self._choose = choose
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self._actions: Mapping[str, Callable[[], Awaitable[bool]]] = {
            "engine killed": self._kill_engine,
            "engine stopped": self._stop_engine,
            "daemon killed": self._kill_daemon,
            "disk filled": self._fill_disk,
            "run cancelled": self._cancel,
        }

    async def do(self, seconds: float, pause: float, say: Say) -> None:
        """Carry out faults for `seconds`, one after the other, with a mean pause of `pause` seconds between them."""
        order, end = fault_order(self._seed), asyncio.get_running_loop().time() + seconds
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * pause)
            if asyncio.get_running_loop().time() > end:
                return
            name = next(order)
            if await self._actions[name]():
                self.done[name] += 1
                say(f"fault {self.done.total()}: {name}")

    async def _kill_engine(self) -> bool:
        return await self._signal_engine(signal.SIGKILL) is not None

    async def _stop_engine(self) -> bool:
        pid = await self._signal_engine(signal.SIGSTOP)
        self.stopped += [pid] if pid is not None else []
        return pid is not None

    async def _signal_engine(self, number: signal.Signals) -> int | None:
        pids = await self._daemon.engines()
        if not pids:
            return None
        pid = self._chance.choice(pids)
        return pid if signal_process(pid, number) else None

    async def _kill_daemon(self) -> bool:
        await self._daemon.kill()
        await self._daemon.start()
        return True

    async def _fill_disk(self) -> bool:
        if self._disk is None:
            return False
        ballast = self._disk / "ballast"
        try:
            await asyncio.to_thread(fill, ballast)
            await asyncio.sleep(FULL_SECONDS)
        finally:
            ballast.unlink()
        return True

    async def _cancel(self) -> bool:
        run = self._choose()
        return run is not None and (await self._daemon.ask("POST", f"/v1/runs/{run}/cancel")).is_success


def fault_order(seed: int) -> Iterator[str]:
    """Yield the names of faults in shuffled rounds: in the first one each once, later as often as its weight says."""
    chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
    names = [*WEIGHTS]
    while True:
        chance.shuffle(names)
        yield from names
        names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]


def fill(ballast: Path) -> None:
    """Take all space that is left on the disk, with this file."""
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a disk of its own at a folder, in memory. Yield the folder, or None if this user may not mount."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", os.fspath(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - fixed words
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", os.fspath(folder)], check=True)  # noqa: S603, S607 - fixed words
