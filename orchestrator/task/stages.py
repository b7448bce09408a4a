"""What happens before there is text, or after it: a place in a queue, a prompt that is read, gates; and who is told.

A caller says by `following` who receives the stages of models and gates inside of the block, in whatever task.
Nothing depends on a stage, and nothing journals it.
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
    """A request waits in the queue of an engine behind this number of others."""

    ahead: int


@dataclass(frozen=True, slots=True)
class PromptRead:
    """An engine has computed this many tokens of a request's prompt, those that it had in its cache included."""

    tokens: int
    prompt_tokens: int
    """How many tokens the whole prompt has."""


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate checks. Its job may wait for a core, or for its turn in the sandbox."""

    gate: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class GateEnd:
    """A gate has ended, or was cancelled."""

    gate: str


Stage = ModelLoad | QueuePlace | PromptRead | GateRun | GateEnd
OnStage = Callable[[Stage], None]

_listener: ContextVar[OnStage | None] = ContextVar("listener", default=None)
_gate: ContextVar[str] = ContextVar("gate", default="")


@contextmanager
def following(on_stage: OnStage) -> Iterator[None]:
    """Call `on_stage` for each stage inside of the block. It must not raise."""
    token = _listener.set(on_stage)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> OnStage | None:
    """Return who follows what is asked here and now; None if nobody does."""
    return _listener.get()


def tell(stage: Stage) -> None:
    """Tell whoever follows this block of a stage."""
    if (on_stage := _listener.get()) is not None:
        on_stage(stage)


@contextmanager
def checking(gate: str) -> Iterator[None]:
    """Tell that a gate checks for as long as the block lasts."""
    token = _gate.set(gate)
    tell(GateRun(gate))
    try:
        yield
    finally:
        tell(GateEnd(gate))
        _gate.reset(token)


@contextmanager
def waiting_for_core() -> Iterator[None]:
    """Tell that the gate in whose block this is, if any, waits for a core for as long as this block lasts."""
    gate = _gate.get()
    if not gate:
        yield
        return
    tell(GateRun(gate, waits=True))
    try:
        yield
    finally:
        tell(GateRun(gate))
