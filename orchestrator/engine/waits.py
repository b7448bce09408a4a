"""Wait for a model that has failed too often and is paused.

Requests do not fail in the pause; they wait until the model is tried again. Context managers set how the requests
inside of their block wait, in all its tasks.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

PATIENCE_SECONDS: Final = 30.0  # the longest wait outside of `waiting_for_models`


@dataclass(frozen=True, slots=True)
class ModelWait:
    """A wait for a model; it is tried again in `seconds`, or None if that depends on another request."""

    model: str
    reason: str
    seconds: float | None


# Called with None when the wait ends.
OnWait = Callable[[ModelWait | None], None]

_listeners: ContextVar[tuple[OnWait, ...]] = ContextVar("listeners", default=())
_patient: ContextVar[bool] = ContextVar("patient", default=False)


@contextmanager
def waiting_for_models(on_wait: OnWait) -> Iterator[None]:
    """Let requests inside of the block wait without limit. `on_wait` is called for each of their waits."""
    patient = _patient.set(True)
    try:
        with _listening(on_wait):
            yield
    finally:
        _patient.reset(patient)


@contextmanager
def pausing(limit: asyncio.Timeout) -> Iterator[None]:
    """Pause the time limit, already entered, while a request inside of the block waits."""
    pause = _Pause(limit)
    try:
        with _listening(pause):
            yield
    finally:
        pause.end()


@contextmanager
def wait_noted(wait: ModelWait) -> Iterator[None]:
    """Notify the listeners that the block waits for a model."""
    listeners = _listeners.get()
    for listener in listeners:
        listener(wait)
    try:
        yield
    finally:
        for listener in listeners:
            listener(None)


def is_patient() -> bool:
    """Return whether requests wait without limit instead of for PATIENCE_SECONDS."""
    return _patient.get()


@contextmanager
def _listening(listener: OnWait) -> Iterator[None]:
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


class _Pause:
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
        self._ended = True
