"""Make situations, episodes and outcomes for the tests of what learns from them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Neighbour, Outcome, Recalled, Situation

SMALL = Action("worker", model="small")
LARGE = Action("worker", model="large")
SITUATION = Situation(task_type="doc", kind="generate", role="worker", text="Summarize the harbour's records.")


def situation(text: str, **fields: object) -> Situation:
    """Return a situation with this text, and other fields as given."""
    return replace(SITUATION, text=text, **fields)  # type: ignore[arg-type]


def outcome(success: float | None, **fields: object) -> Outcome:
    """Return an outcome that a gate has decided."""
    return replace(Outcome(success=success, source="gate", by="unit"), **fields)  # type: ignore[arg-type]


def neighbour(action: Action, q: float, similarity: float, *, count: int = 1, number: int = 0) -> Neighbour:
    """Return an episode with this Q that is so similar."""
    return Neighbour(Recalled(id=number, action=action, q=q, count=count, weight=count, last_seen=0.0), similarity)


def unit(rng: np.random.Generator, dimensions: int) -> NDArray[np.float32]:
    """Return a random vector of length 1."""
    vector = rng.normal(size=dimensions)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)
