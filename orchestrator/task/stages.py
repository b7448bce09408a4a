"""Pass signals between a run and what works for it: stages, waits and urgency.

Each is set by a context manager, and applies inside its block, in any task.

- Stages report what happens before and after there is text: queues, prompt processing, gates. Nothing depends on a
  stage, and nothing journals it.
- A request for a model that has failed too often does not fail while the model is paused; it waits until the model is
  tried again. Its caller sets how long it may wait.
- The user may say, while work is being done, that it goes first.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A request waits until this model is loaded."""

    model: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A request is with an engine on this node of a cluster, or with this server."""

    node: str


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A request waits in an engine's queue."""

    ahead: int


@dataclass(frozen=True, slots=True)
class PromptRead:
    """An engine has processed `tokens` of a request's prompt, cached ones included."""

    tokens: int
    prompt_tokens: int  # of the whole prompt


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate runs. If it `waits`, then for a core or for its turn in the sandbox."""

    gate: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class GateEnd:
    """A gate has ended or was cancelled."""

    gate: str


Stage = ModelLoad | Placed | QueuePlace | PromptRead | GateRun | GateEnd
OnStage = Callable[[Stage], None]

_listener: ContextVar[OnStage | None] = ContextVar("listener", default=None)
_gate: ContextVar[str] = ContextVar("gate", default="")


@contextmanager
def following(on_stage: OnStage) -> Iterator[None]:
    """Call `on_stage` for each stage inside the block. It must not raise."""
    token = _listener.set(on_stage)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> OnStage | None:
    """Return the current listener, or None."""
    return _listener.get()


def tell(stage: Stage) -> None:
    if (on_stage := _listener.get()) is not None:
        on_stage(stage)


@contextmanager
def checking(gate: str) -> Iterator[None]:
    """Report a run of the gate for the duration of the block."""
    token = _gate.set(gate)
    tell(GateRun(gate))
    try:
        yield
    finally:
        tell(GateEnd(gate))
        _gate.reset(token)


@contextmanager
def waiting_for_core() -> Iterator[None]:
    """Report that the gate around this block, if any, waits for a core."""
    gate = _gate.get()
    if not gate:
        yield
        return
    tell(GateRun(gate, waits=True))
    try:
        yield
    finally:
        tell(GateRun(gate))


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
