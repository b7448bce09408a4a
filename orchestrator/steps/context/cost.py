"""Weigh the ways to make room in a conversation by what they make the engine compute. Pure.

Whatever changes in a conversation, all behind it loses its KV cells and is computed again. So each way has a price:
tokens computed only because of it, for each token that it frees.

- *Sweeping* the turns of pruned documents out computes what stays behind the first of them.
- *Condensing* computes the question and the summary twice, as it is written and as it is read; it frees the most.
- *Asking* for pruning computes the turn in which the model names documents, and what sweeping them will. How many it
  will name is not known, so asking pays by the share of the room that was gathered since it was asked last.

Tokens are estimated from characters, by the ratio that the whole conversation has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from orchestrator.steps.context.condensing import ASKING
from orchestrator.steps.context.marks import Marks
from orchestrator.steps.context.window import Turn, Window

WORTH_ASKING = 0.25
"""The share of the room that documents which nobody has judged have to take before pruning is asked for."""

INSISTING = 2
"""How many these have to be past the hard mark, where a model that needs them all could only finish."""

FAIR = 1.0
"""The price up to which room is made before it is needed: no more is computed again than is freed."""

SUMMARY = 800
"""Characters that a first summary and its reminder are taken to have; later ones are taken to be like the last."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to make room, in tokens: what it frees, and what is computed only because of it."""

    computed: float
    freed: float

    @property
    def price(self) -> float:
        """Tokens computed for each that is freed."""
        return self.computed / self.freed if self.freed > 0 else inf


def asking_pays(window: Window, tokens: int, marks: Marks) -> bool:
    """Whether enough has been gathered since the last pruning to ask for another one; `tokens` are the window's."""
    if tokens >= marks.hard and len(window.fresh) < INSISTING:
        return False
    return _tokens(window, tokens, _size(window.fresh)) >= WORTH_ASKING * marks.room


def sweeping(window: Window, tokens: int) -> Way:
    """Return what sweeping takes and brings. The last turn is new, so to compute it costs nothing more."""
    due = [turn for turn in window.turns if window.is_due(turn)]
    first = window.turns.index(due[0]) if due else len(window.turns)
    again = [turn for turn in window.turns[first:-1] if not window.is_due(turn)]
    return Way(_tokens(window, tokens, _size(again)), _tokens(window, tokens, _size(due)))


def condensing(window: Window, tokens: int) -> Way:
    """Return what condensing takes and brings."""
    summary = len(window.summary) + len(window.reminder) if window.condensations else SUMMARY
    left = sum(len(message.content) for message in window.opening) + summary
    computed = _tokens(window, tokens, len(ASKING) + 2 * summary)
    return Way(computed, tokens - _tokens(window, tokens, left))


def _size(turns: Sequence[Turn]) -> int:
    return sum(turn.size for turn in turns)


def _tokens(window: Window, tokens: int, size: int) -> float:
    return tokens * size / window.size
