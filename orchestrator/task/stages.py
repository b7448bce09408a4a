"""Report what happens before and after there is text: queues, prompt processing, gates.

`following` sets the listener for all stages of models and gates inside its block, in any task. Nothing depends on a
stage, and nothing journals it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A request waits until this model is loaded."""

    model: str


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


Stage = ModelLoad | QueuePlace | PromptRead | GateRun | GateEnd
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
