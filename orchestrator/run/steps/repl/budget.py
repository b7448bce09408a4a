"""Bound what the code of one attempt may use."""

from dataclasses import dataclass

from orchestrator.task.events import Usage


class BudgetSpent(Exception):
    """A budget is used up. The message says which one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplBudget:
    """What one attempt at a step of kind `repl` may use."""

    turns: int = 20
    """How many answers the step's model may give."""
    calls: int = 500
    """How many calls of tools and models its code may make; every call of a batch counts."""
    tokens: int = 200_000
    """How many tokens these calls of models may take, prompts and answers together."""
    seconds: float = 900.0
    """How many seconds the whole attempt may take, without its gates."""
    turn_seconds: float = 30.0
    """How many seconds the code of one turn may compute; waiting for calls does not count."""
    turn_output: int = 1_000_000
    """How many characters the code of one turn may print."""


class Spending:
    """Keeps account of the calls and tokens that an attempt has used of its budget."""

    def __init__(self, budget: ReplBudget) -> None:
        self._budget = budget
        self.calls = 0
        self.usage = Usage()

    @property
    def tokens_left(self) -> int:
        """How many tokens model calls may still take."""
        return self._budget.tokens - self.usage.prompt_tokens - self.usage.output_tokens

    def take(self, calls: int, prompt_tokens: int = 0) -> None:
        """Count calls whose prompts have about so many tokens in all.

        Raises `BudgetSpent`, and counts none of them, where the budget does not allow that.
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
