"""Say how full the context of a long step is, and weigh the ways to make room in it by what they cost. Pure.

Whatever changes in a conversation, all behind it loses its KV cells and is computed again. So each way has a price:
tokens computed only because of it, for each token that it frees.

- *Sweeping* the turns of pruned documents out computes what stays behind the first of them.
- *Condensing* computes the question and the summary twice, as it is written and as it is read; it frees the most.
- *Asking* for pruning computes the turn in which the model names documents, and what sweeping them will. How many it
  will name is not known, so asking pays by the share of the prompt that was gathered since it was asked last.

Tokens are estimated from characters, by the ratio that the whole conversation has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from orchestrator.run.steps.context.window import Turn, Window

SOFT = 0.6
HARD = 0.85
"""Shares of the longest prompt. From the first on, the model is asked to prune; from the second on, it may do nothing
else."""

Pressure = Literal["free", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """How the context of a model is shared out between prompt and answer, in tokens."""

    soft_limit: int
    """A prompt of so many tokens puts the conversation under soft pressure."""
    hard_limit: int
    """A prompt of so many tokens puts the conversation under hard pressure."""
    max_prompt: int
    """The longest prompt that leaves room for an answer."""
    max_answer: int
    """The longest answer."""

    @classmethod
    def of(cls, context: int, limit: int | None) -> "ContextBudget":
        """Return the budget of a model whose sequences have `context` tokens.

        An answer gets at most half of them, and no more than its `limit` where it has one.
        """
        answer = context // 2 if limit is None else min(limit, context // 2)
        prompt = context - answer
        return cls(int(prompt * SOFT), int(prompt * HARD), prompt, answer)

    @property
    def context(self) -> int:
        """The tokens of a whole sequence."""
        return self.max_prompt + self.max_answer

    def pressure(self, tokens: int) -> Pressure:
        """Return under which pressure a prompt of so many tokens puts the conversation."""
        if tokens >= self.hard_limit:
            return "hard"
        return "soft" if tokens >= self.soft_limit else "free"


WORTH_ASKING = 0.25
"""The share of the longest prompt that documents which were not judged yet have to take before pruning is asked for."""

INSISTING = 2
"""How many documents that were not judged yet there have to be for pruning to be asked for under hard pressure. A model
may then do nothing else, so one that needs the only document could just finish."""

FAIR = 1.0
"""The price up to which room is made before it is needed: no more tokens are computed again than are freed."""

SUMMARY = 800
"""Characters that a first summary and its reminder are assumed to have; later ones are assumed to be like the last."""


@dataclass(frozen=True, slots=True)
class ReclaimCost:
    """What a way to make room costs and brings."""

    computed: float
    """Tokens that are computed only because of it."""
    freed: float
    """Tokens that it frees."""

    @property
    def price(self) -> float:
        """Tokens that are computed for each token that is freed; infinite where none is."""
        return self.computed / self.freed if self.freed > 0 else inf


def asking_pays(window: Window, tokens: int, budget: ContextBudget) -> bool:
    """Return whether enough was gathered since the last pruning to ask for another one. The window has `tokens`."""
    if tokens >= budget.hard_limit and len(window.fresh) < INSISTING:
        return False
    return _tokens(window, tokens, _size(window.fresh)) >= WORTH_ASKING * budget.max_prompt


def sweeping(window: Window, tokens: int) -> ReclaimCost:
    """Return what sweeping costs and frees. The last turn is new, so it has to be computed in any case."""
    due = [turn for turn in window.turns if window.is_due(turn)]
    first = window.turns.index(due[0]) if due else len(window.turns)
    again = [turn for turn in window.turns[first:-1] if not window.is_due(turn)]
    return ReclaimCost(_tokens(window, tokens, _size(again)), _tokens(window, tokens, _size(due)))


def condensing(window: Window, tokens: int, question: str) -> ReclaimCost:
    """Return what condensing costs and frees. `question` is the text that asks for the summary."""
    summary = len(window.summary) + len(window.reminder) if window.condensations else SUMMARY
    left = sum(len(message.content) for message in window.opening) + summary
    computed = _tokens(window, tokens, len(question) + 2 * summary)
    return ReclaimCost(computed, tokens - _tokens(window, tokens, left))


def _size(turns: Sequence[Turn]) -> int:
    return sum(turn.size for turn in turns)


def _tokens(window: Window, tokens: int, size: int) -> float:
    return tokens * size / window.size
