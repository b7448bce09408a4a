"""Choose the LoRA adapters of the next step, where sequences with different ones are in the cache. Pure.

One call of llama_decode computes everything with the same adapters, so sequences with different ones take turns. After
a change llama.cpp plans its computation anew, which takes about as long as a step that decodes. So a turn has several
steps: as many as keep what the changes cost small beside what they serve, and few enough that no stream of text halts.
"""

from collections.abc import Mapping

from orchestrator.engine.worker.batching import CHUNK
from orchestrator.engine.worker.priority import ALIKE
from registry.options import Adapters

TURN_STEPS = 8
"""The most steps of a turn."""
TURN_TOKENS = CHUNK
"""A turn is over as soon as it has computed so many tokens: beside them, what a change costs is small."""
MAX_TURNS_AHEAD = 3
"""Adapters whose sequences are more urgent get so many turns for one turn of each of the others."""
_LEARNING_RATE = 0.1
"""The fraction of an observed difference that is learned at once."""
_MAX_COST_RATIO = 4.0
"""The most times that a step with adapters is believed to take as long as one without. Larger ones are disturbances."""


class AdapterTurns:
    """Which adapters computed lately, and how long the others with work have waited."""

    def __init__(self) -> None:
        self.current: Adapters = ()
        """The adapters that have the turn, beside the model's own."""
        self._steps = self._tokens = 0
        self._turns_left_out: dict[Adapters, int] = {}

    def choose(self, urgency: Mapping[Adapters, float]) -> Adapters:
        """Return the adapters of the next step. `urgency` has the smallest priority of the sequences of each, as
        `priority.priority` returns it, and is not empty.

        The turn goes to the most urgent. Of several that are equally urgent it goes to the one that was left out
        longest, and nobody is left out for more than `MAX_TURNS_AHEAD` turns for each of the others.
        """
        waited = self._turns_left_out = {lora: self._turns_left_out.get(lora, 0) for lora in urgency}
        over = self._steps >= TURN_STEPS or self._tokens >= TURN_TOKENS
        if self.current in urgency and (len(urgency) == 1 or not over):
            return self.current
        longest = MAX_TURNS_AHEAD * (len(urgency) - 1)
        most_urgent = min(urgency.values())
        candidates = [lora for lora in urgency if waited[lora] >= longest] or [
            lora for lora in urgency if urgency[lora] <= most_urgent + ALIKE
        ]
        had = self.current if over else None
        chosen = max(candidates, key=lambda lora: (waited[lora], lora != had, -urgency[lora]))
        for lora in waited:
            waited[lora] += 1
        waited[chosen] = 0
        self.current, self._steps, self._tokens = chosen, 0, 0
        return chosen

    def record(self, tokens: int) -> None:
        """Note that a step with the current adapters has computed so many tokens."""
        self._steps += 1
        self._tokens += tokens


class AdapterCosts:
    """How many times as long steps with adapters take as without them, learned from steps that only decode."""

    def __init__(self) -> None:
        self._ratios: dict[Adapters, float] = {}

    def ratio(self, lora: Adapters) -> float:
        """Return the factor for these adapters, beside the model's own."""
        return self._ratios.get(lora, 1.0)

    def observe(self, lora: Adapters, seconds: float, expected: float) -> None:
        """Learn from a step that took `seconds`, and that should take `expected` seconds without the adapters."""
        seen = max(1.0, min(seconds / expected, _MAX_COST_RATIO))
        known = self._ratios.setdefault(lora, seen)
        self._ratios[lora] = known + _LEARNING_RATE * (seen - known)
