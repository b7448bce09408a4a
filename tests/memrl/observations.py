"""Make situations, outcomes and memories for the tests of the memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Outcome, Reward, Situation
from orchestrator.memrl.memory import NOBODY, Memory, MemoryOptions, Observed, Teacher
from orchestrator.task.lexical import embed

DIMENSIONS = 256
CODER = Action("coder", "terse", "small")
WRITER = Action("writer", "", "large")


def vectors_of(texts: Sequence[str]) -> NDArray[np.float32]:
    return embed(texts, DIMENSIONS)


def vector_of(text: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = vectors_of([text])[0]
    return vector


def opened(folder: Path, settings: MemoryOptions | None = None, embedder: str = "lexical") -> Memory:
    return Memory.open(folder, embedder, DIMENSIONS, settings)


def situation(text: str, **fields: Any) -> Situation:
    return Situation(**{"task_type": "code", "kind": "generate", "role": "coder", **fields}, text=text)


def outcome(success: float | None, **fields: Any) -> Outcome:
    return Outcome(**{"source": "gate", "by": "tests", **fields}, success=success)


def told(
    memory: Memory,
    text: str,
    success: float | None = 1.0,
    action: Action = CODER,
    *,
    key: tuple[str, str, int] | None = None,
    at: float = 1000.0,
    after: Sequence[str] = (),
    about: Situation | None = None,
    teacher: Teacher = NOBODY,
    **fields: Any,
) -> Observed:
    """Observe an attempt whose reward is its success; without a key it is one that was not observed before."""
    return memory.observe(
        about or situation(text),
        vector_of(text),
        action,
        outcome=outcome(success, **fields),
        reward=Reward(total=success or 0.0, parts={"success": success or 0.0}),
        propensity=0.5,
        at=at,
        key=key or ("run", "step", memory.stats().outcomes + memory.stats().unused + 1),
        after=after,
        teacher=teacher,
    )
