"""The kinds of steps, and how they differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

StepKind = Literal["generate", "repl", "tool"]


@dataclass(frozen=True, slots=True)
class KindRow:
    description: str  # what such a step does, for TaskIR's JSON Schema
    runner: str  # makes what carries it out, as `MODULE:FUNCTION` in `orchestrator.run.steps`
    acts: bool = True  # does more than write text, even without tools: so it may have no outputs, and its order matters
    calls_tools: bool = False  # must have tools; may be one call that the document gives
    sandboxed: bool = False  # runs code in the sandbox


KINDS: Final[Mapping[StepKind, KindRow]] = {
    "generate": KindRow("generate text", "generate:runner", acts=False),
    "repl": KindRow("work in a REPL", "repl.attempt:runner", sandboxed=True),
    "tool": KindRow("use tools", "tools.attempt:runner", calls_tools=True),
}
