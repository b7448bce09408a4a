"""Bound what the code of one attempt may use."""

from dataclasses import dataclass

from orchestrator.events import Usage


class BudgetSpent(Exception):
    """There is none left; the message says of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one attempt at a REPL step may use.

    `turns` are answers of its model, `calls` are tool calls and model calls of its code (each of a batch counts),
    `tokens` those of the model calls (prompts and answers), `seconds` all that it takes. One turn may compute for
    `turn_seconds` and print `turn_output` characters; the time of calls does not count as the turn's.
    """

    turns: int = 20
    calls: int = 500
    tokens: int = 200_000
    seconds: float = 900.0
    turn_seconds: float = 30.0
    turn_output: int = 1_000_000


class Spending:
    """What is left of a budget's calls and tokens."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.calls = 0
        self.usage = Usage()

    @property
    def tokens_left(self) -> int:
        """Return how many tokens model calls may still take."""
        return self._budget.tokens - self.usage.prompt_tokens - self.usage.output_tokens

    def take(self, calls: int, prompt_tokens: int = 0) -> None:
        """Take some calls, with prompts of about so many tokens in all.

        Raises `BudgetSpent`, and takes none, when that would be too many.
        """
        left = self._budget.calls - self.calls
        if calls > left:
            raise BudgetSpent(f"{calls} calls are too many: {left} of {self._budget.calls} are left")
        if self.tokens_left <= 0:
            raise BudgetSpent(f"all {self._budget.tokens} tokens of model calls are used")
        if prompt_tokens > self.tokens_left:
            left, all_of_them = self.tokens_left, self._budget.tokens
            raise BudgetSpent(f"prompts of {prompt_tokens} tokens are too many: {left} of {all_of_them} are left")
        self.calls += calls
