"""Say how full a step's context is, and what that allows. Pure."""

from dataclasses import dataclass
from typing import Literal

SOFT = 0.6
HARD = 0.85
"""Shares of the room for a prompt at which pruning is asked for, and at which nothing else is allowed."""

Pressure = Literal["free", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Marks:
    """Tokens of a prompt: `soft` and `hard` are the marks, `room` is all that an `answer` leaves of the context."""

    soft: int
    hard: int
    room: int
    answer: int

    @classmethod
    def of(cls, context: int, limit: int | None) -> "Marks":
        """Return the marks of a model whose sequences have `context` tokens.

        An answer gets at most half of them, and no more than its `limit` where it has one.
        """
        answer = context // 2 if limit is None else min(limit, context // 2)
        room = context - answer
        return cls(int(room * SOFT), int(room * HARD), room, answer)

    @property
    def context(self) -> int:
        """Return the tokens of a whole sequence."""
        return self.room + self.answer

    def pressure(self, tokens: int) -> Pressure:
        """Return which mark a prompt of so many tokens is past."""
        if tokens >= self.hard:
            return "hard"
        return "soft" if tokens >= self.soft else "free"
