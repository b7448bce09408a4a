"""The contract of a drafting method."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.idle import RepeatedCalibration
from orchestrator.engine.worker.sequence import Sequence

UNUSABLE_FILE: Final = ("missing", "unreadable", "not-gguf", "corrupt")
"""The kinds of CannotLoad for an absent or broken file."""

Beat = Callable[[float], None]
"""Is called before each computation of a drafter, with the seconds that it may take."""


class CannotDraft(Exception):
    """A drafter's files cannot be used. The engine runs without it, since drafts only save time."""


class Offer(NamedTuple):
    length: int  # the most tokens that could be drafted now
    expected: int | None = None  # the first of them, if it costs nothing to tell


class Drafter(Protocol):
    """Drafts tokens for the sequences of one engine. The defaults are those of a method that computes nothing."""

    seconds: float = 0.0  # time spent computing so far
    reads_states: bool = False  # whether it wants `follow` to be called

    def accept(self, sequence: Sequence, most: int) -> Offer:
        """Take up the output of a sequence so far. Return what could be drafted after it, `most` tokens or fewer."""

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        """Return the next `lengths` tokens of each sequence, as many as were offered or fewer."""

    def follow(self, sequence: Sequence, states: npt.NDArray[np.float32]) -> None:
        """Take up the target's states from which the last tokens of a sequence were chosen, a row for each.

        Called after steps that computed the sequence, unless no drafts are considered for the next one. The rows are
        valid until the next step.
        """
        return None

    def forget(self, sequence: Sequence) -> None:
        """Drop what is held for a sequence that ends or is preempted; it may be unknown."""

    def seconds_per_token(self, width: int) -> float:
        """Return what a token costs if `width` sequences draft."""
        return 0.0

    def catch_up_seconds(self, sequence: Sequence) -> float:
        """Return what a draft of this sequence costs before its first token."""
        return 0.0

    def set_threads(self, threads: int) -> None:
        """Compute with this number of threads from now on."""

    def calibrations(self) -> tuple[RepeatedCalibration, ...]:
        """Return measurements for idle times."""
        return ()


MakeDrafter = Callable[[EngineSpec, Llama, Beat], Drafter]
"""Makes a drafter for a loaded model. Raises CannotLoad, or CannotDraft if its files cannot be used."""
