"""What speaks against an answer, and the answer itself."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks against an answer, in one sentence. `output` is None if it is about no single output."""

    text: str
    output: str | None = None
    corrected: str | None = None  # that output as the request wants it, if nothing but this is left to choose
    # What to ask the next answer for, in one sentence; empty if the doubt and the answer itself help more.
    demand: str = ""
    void: bool = False  # the output is no answer at all, so that any other one is better


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The texts that belong to an answer, by name."""

    outputs: Mapping[str, str]  # the outputs that are the answer
    written: Mapping[str, str]  # all outputs of the run
    inputs: Mapping[str, str]  # what its steps have read, if known
