"""Waiting for a model that has failed too often: who is told, whose time limits stand still, and who waits how long.

A request does not fail because its model rests. It waits until the model is tried again. Callers say by context
managers how that concerns them, for all that is asked of models inside of the block, in whatever task.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

PATIENCE_SECONDS: Final = 30.0
"""How long a request waits at most unless its caller waits inside of `waiting_for_models`."""


@dataclass(frozen=True, slots=True)
class ModelWait:
    """A wait for a model: why, and in how many seconds it is tried again; None if that depends on another request."""

    model: str
    reason: str
    seconds: float | None


OnWait = Callable[[ModelWait | None], None]
"""Called when a wait begins, and with None when it ends."""

_listeners: ContextVar[tuple[OnWait, ...]] = ContextVar("listeners", default=())
_patient: ContextVar[bool] = ContextVar("patient", default=False)


@contextmanager
def waiting_for_models(on_wait: OnWait) -> Iterator[None]:
    """Let requests inside of the block wait as long as it takes. `on_wait` is called for each of their waits."""
    patient = _patient.set(True)
    try:
        with _listening(on_wait):
            yield
    finally:
        _patient.reset(patient)


@contextmanager
def pausing(limit: asyncio.Timeout) -> Iterator[None]:
    """Let the time limit, which has been entered, stand still while a request inside of the block waits."""
    pause = _Pause(limit)
    try:
        with _listening(pause):
            yield
    finally:
        pause.end()


@contextmanager
def wait_noted(wait: ModelWait) -> Iterator[None]:
    """Tell the callers that the block waits for a model."""
    listeners = _listeners.get()
    for listener in listeners:
        listener(wait)
    try:
        yield
    finally:
        for listener in listeners:
            listener(None)


def is_patient() -> bool:
    """Return whether a request waits as long as it takes. Others wait for PATIENCE_SECONDS at most."""
    return _patient.get()


@contextmanager
def _listening(listener: OnWait) -> Iterator[None]:
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


class _Pause:
    """Stops a time limit while any of the waits that it is told of lasts."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._waits = 0
        self._left: float | None = None
        self._ended = False

    def __call__(self, wait: ModelWait | None) -> None:
        if self._ended or self._limit.expired():
            return
        now, end = asyncio.get_running_loop().time(), self._limit.when()
        self._waits += 1 if wait is not None else -1
        if wait is not None and self._waits == 1 and end is not None:
            self._left = end - now
            self._limit.reschedule(None)
        elif not self._waits and self._left is not None:
            self._limit.reschedule(now + self._left)
            self._left = None

    def end(self) -> None:
        """Leave the limit alone from now on."""
        self._ended = True
