"""An event loop with virtual time: when nothing is ready, its clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Final

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import Event, ToolCalled

EPOCH: Final = 1_800_000_000.0  # what the virtual clock shows at the start, in seconds since the epoch


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Sleeps, timeouts and timers take no real time, and fire in the order of their times.

    Work outside of the loop, as in threads, takes real time but no virtual time: the virtual clock stops until it ends.
    The loop knows of threads that it starts itself; other work has to be wrapped in `outside`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._until: float | None = None
        self._outside = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual time, in seconds since the loop was made."""
        return self._now

    def run_for(self, seconds: float) -> None:
        """Run the loop for this many virtual seconds; with 0, run what is ready now."""
        self._until = self._now + seconds
        try:
            self.run_forever()
        finally:
            self._until = None

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Stop the virtual clock for the block, which waits for work outside of the loop."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a thread, while the virtual clock stops."""
        future = super().run_in_executor(executor, func, *args)
        self._outside += 1
        future.add_done_callback(self._back)
        return future

    def _back(self, future: asyncio.Future[Any]) -> None:
        self._outside -= 1

    def pass_time(self, timeout: float | None) -> bool:
        """Advance the clock by `timeout` seconds to the next timer. Returns False if the loop has to wait."""
        if self._outside:
            return False
        if self._until is not None and (timeout is None or self._now + timeout > self._until):
            self._now = self._until
            self.stop()
            return True
        if timeout is None:
            return False
        self._now += timeout
        return True


class _Selector(selectors.DefaultSelector):
    """Waits for files only when no virtual time can pass instead."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0 or self._loop.pass_time(timeout):
            return ready
        return super().select(None)


def run_virtually(main: Callable[[], Any]) -> Any:
    """Run a coroutine function to its end in a new loop with virtual time, and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


class VirtualClock:
    """Tells the loop's time, as seconds since the epoch."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Return the virtual time."""
        return EPOCH + self._loop.time()


class StillJournal(Journal):
    """A journal that takes virtual time as set by its fields, by default none, independent of the real disk."""

    commit_seconds = 0.0  # how long it takes until events are durable
    call_seconds = 0.0  # what a run's loop takes for each reported tool call

    async def append(self, run: str, events: Sequence[Event]) -> None:
        """Append events while the virtual clock stops, and then advance it by the time that this takes."""
        with virtual_loop().outside():
            await super().append(run, events)
        seconds = self.commit_seconds + self.call_seconds * sum(isinstance(event, ToolCalled) for event in events)
        if seconds > 0:
            await asyncio.sleep(seconds)


def virtual_loop() -> VirtualTimeLoop:
    """Return the running loop, which has to be one with virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "only a loop with virtual time runs simulations"
    return loop
