"""Let the user say, while work is being done, that it goes first.

`hurried_by` sets the urgency of all work inside its block, in any task. Whoever does a part of it heeds that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Urgency:
    """Whether some work goes before other work. Once hurried, it stays so."""

    def __init__(self) -> None:
        self._hurried = False
        self._heeding: set[Callable[[], None]] = set()

    def hurry(self) -> None:
        self._hurried = True
        for act in tuple(self._heeding):
            act()

    @contextmanager
    def heeded(self, act: Callable[[], None]) -> Iterator[None]:
        if self._hurried:
            act()
        self._heeding.add(act)
        try:
            yield
        finally:
            self._heeding.discard(act)


_urgency: ContextVar[Urgency | None] = ContextVar("urgency", default=None)


@contextmanager
def hurried_by(urgency: Urgency) -> Iterator[None]:
    """Let an urgency be that of all work inside the block."""
    token = _urgency.set(urgency)
    try:
        yield
    finally:
        _urgency.reset(token)


@contextmanager
def heeding(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` when the work around this block is hurried, or at once if it was before. `act` must not raise."""
    urgency = _urgency.get()
    if urgency is None:
        yield
        return
    with urgency.heeded(act):
        yield
