"""Choose the LoRA adapters of the next step, when sequences with different ones are in the cache. Pure."""

from collections.abc import Mapping

from orchestrator.engine.worker.batching import CHUNK
from orchestrator.engine.worker.priority import ALIKE
from orchestrator.registry.options import Adapters

# One call of llama_decode has one set of adapters, so sequences with different ones take turns. After a change
# llama.cpp plans its computation again, which takes about as long as a decode step. So a turn has several steps.
TURN_STEPS = 8  # the most steps of a turn: more would halt the text streams of other adapters
# A turn ends after this many tokens: next to them, a change costs little.
TURN_TOKENS = CHUNK
# Adapters with more urgent sequences get this many turns for each turn of each of the others.
MAX_TURNS_AHEAD = 3
_LEARNING_RATE = 0.1  # the fraction of an observed difference that is learned at once
# A step with adapters takes at most this many times as long as one without. Larger ratios are disturbances.
_MAX_COST_RATIO = 4.0


class AdapterTurns:
    """Which adapters computed lately, and how long others have waited."""

    def __init__(self) -> None:
        self.current: Adapters = ()  # in addition to the model's own adapters
        self._steps = self._tokens = 0
        self._turns_left_out: dict[Adapters, int] = {}

    def choose(self, urgency: Mapping[Adapters, float]) -> Adapters:
        """Return the adapters of the next step. `urgency` has the smallest priority of each one's sequences.

        The turn goes to the most urgent; of equals, to the one that was left out longest.
        """
        waited = self._turns_left_out = {lora: self._turns_left_out.get(lora, 0) for lora in urgency}
        over = self._steps >= TURN_STEPS or self._tokens >= TURN_TOKENS
        if self.current in urgency and (len(urgency) == 1 or not over):
            return self.current
        # nobody is left out for more turns
        longest = MAX_TURNS_AHEAD * (len(urgency) - 1)
        most_urgent = min(urgency.values())
        candidates = [lora for lora in urgency if waited[lora] >= longest] or [
            lora for lora in urgency if urgency[lora] <= most_urgent + ALIKE
        ]
        previous = self.current if over else None
        next_lora = max(candidates, key=lambda lora: (waited[lora], lora != previous, -urgency[lora]))
        for lora in waited:
            waited[lora] += 1
        waited[next_lora] = 0
        self.current, self._steps, self._tokens = next_lora, 0, 0
        return next_lora

    def record(self, tokens: int) -> None:
        self._steps += 1
        self._tokens += tokens


class AdapterCosts:
    """How many times as long steps take with adapters as without."""

    def __init__(self) -> None:
        self._ratios: dict[Adapters, float] = {}

    def ratio(self, lora: Adapters) -> float:
        return self._ratios.get(lora, 1.0)

    def observe(self, lora: Adapters, seconds: float, expected: float) -> None:
        """Learn from a step that only decodes. It took `seconds`, and `expected` seconds without the adapters."""
        ratio = max(1.0, min(seconds / expected, _MAX_COST_RATIO))
        average = self._ratios.setdefault(lora, ratio)
        self._ratios[lora] = average + _LEARNING_RATE * (ratio - average)
