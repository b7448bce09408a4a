"""Bound what the code of one attempt may use."""

from dataclasses import dataclass

from orchestrator.task.events import Usage


class BudgetSpent(Exception):
    """A budget is used up. The message says which one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplBudget:
    turns: int = 20  # answers of the step's model
    calls: int = 500  # of tools and models by the code; every call of a batch counts
    tokens: int = 200_000  # of these calls of models, prompts and answers together
    seconds: float = 900.0  # of the whole attempt, without its gates
    turn_seconds: float = 30.0  # of computing in one turn; waiting for calls does not count
    turn_output: int = 1_000_000  # characters printed in one turn


class Spending:
    def __init__(self, budget: ReplBudget) -> None:
        self._budget = budget
        self.calls = 0
        self.usage = Usage()

    @property
    def tokens_left(self) -> int:
        return self._budget.tokens - self.usage.prompt_tokens - self.usage.output_tokens

    def take(self, calls: int, prompt_tokens: int = 0) -> None:
        """Count calls with about so many prompt tokens in all. Raises `BudgetSpent`, and then counts none."""
        remaining = self._budget.calls - self.calls
        if calls > remaining:
            raise BudgetSpent(f"{calls} calls are too many: {remaining} of {self._budget.calls} are left")
        if self.tokens_left <= 0:
            raise BudgetSpent(f"all {self._budget.tokens} tokens of model calls are used")
        if prompt_tokens > self.tokens_left:
            remaining, all_of_them = self.tokens_left, self._budget.tokens
            raise BudgetSpent(f"prompts of {prompt_tokens} tokens are too many: {remaining} of {all_of_them} are left")
        self.calls += calls
