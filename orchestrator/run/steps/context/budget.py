"""How full the context of a long step is, and what each way to make room in it costs. Pure.

After a change in a conversation, all KV cells behind it are computed again. So each way has a price: the tokens
computed only because of it, for each token that it frees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from orchestrator.run.steps.context.window import Turn, Window

# Shares of the longest prompt. From SOFT on, the model is asked to prune; from HARD on, it may do nothing else.
SOFT = 0.6
HARD = 0.85

Pressure = Literal["free", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """How the context of a model is shared between prompt and answer, in tokens."""

    soft_limit: int  # of the prompt, from which the pressure is soft
    hard_limit: int  # of the prompt, from which the pressure is hard
    max_prompt: int  # leaves room for an answer
    max_answer: int

    @classmethod
    def of(cls, context: int, limit: int | None) -> "ContextBudget":
        """Give an answer half of `context` (tokens), or its `limit` if that is less."""
        answer = context // 2 if limit is None else min(limit, context // 2)
        prompt = context - answer
        return cls(int(prompt * SOFT), int(prompt * HARD), prompt, answer)

    @property
    def context(self) -> int:
        return self.max_prompt + self.max_answer

    def pressure(self, tokens: int) -> Pressure:
        if tokens >= self.hard_limit:
            return "hard"
        return "soft" if tokens >= self.soft_limit else "free"


# The share of the longest prompt that unjudged documents must take before pruning is asked for.
WORTH_ASKING = 0.25

# The fewest unjudged documents for which pruning is asked for under hard pressure. The model may then do nothing else,
# so one that needs its only document could just finish.
INSISTING = 2

# The price up to which room is made before it is needed: no more tokens computed again than freed.
FAIR = 1.0

# Characters assumed of a first summary and its reminder; later ones are assumed to be like the last.
SUMMARY = 800


@dataclass(frozen=True, slots=True)
class ReclaimCost:
    computed: float  # tokens computed only because of it
    freed: float  # tokens

    @property
    def price(self) -> float:
        """Tokens computed for each token freed; infinite if none is freed."""
        return self.computed / self.freed if self.freed > 0 else inf


def asking_pays(window: Window, tokens: int, budget: ContextBudget) -> bool:
    """Whether enough was gathered since the last pruning to ask for another one, in a window of `tokens`."""
    if tokens >= budget.hard_limit and len(window.fresh) < INSISTING:
        return False
    # Asking costs the model's turn and the later sweep. How much it frees is unknown, so it pays by the share of the
    # prompt that was gathered since the last time.
    return _tokens(window, tokens, _size(window.fresh)) >= WORTH_ASKING * budget.max_prompt


def sweeping(window: Window, tokens: int) -> ReclaimCost:
    due = [turn for turn in window.turns if window.is_due(turn)]
    first = window.turns.index(due[0]) if due else len(window.turns)
    # What stays behind the first pruned document. The last turn is new, so it is computed in any case.
    again = [turn for turn in window.turns[first:-1] if not window.is_due(turn)]
    return ReclaimCost(_tokens(window, tokens, _size(again)), _tokens(window, tokens, _size(due)))


def condensing(window: Window, tokens: int, question: str) -> ReclaimCost:
    """Return the cost of condensing; `question` is the text that asks for the summary."""
    summary = len(window.summary) + len(window.reminder) if window.condensations else SUMMARY
    remaining = sum(len(message.content) for message in window.opening) + summary
    # The summary is computed twice, as it is written and as it is read.
    computed = _tokens(window, tokens, len(question) + 2 * summary)
    return ReclaimCost(computed, tokens - _tokens(window, tokens, remaining))


def _size(turns: Sequence[Turn]) -> int:
    return sum(turn.size for turn in turns)


def _tokens(window: Window, tokens: int, size: int) -> float:
    # Estimated from characters, by the ratio of the whole conversation.
    return tokens * size / window.size
