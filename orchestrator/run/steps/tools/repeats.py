"""Notice calls that a model makes again with the same result, as a model that is caught in a loop does."""

from collections import Counter
from typing import Final

from orchestrator.run.steps.tools.files import GREP, LIST_FILES, READ_FILE, SEARCH

MAX_SAME: Final = 3
"""The call of this number with the same arguments and the same result ends the attempt."""
_READING: Final = frozenset(tool.name for tool in (READ_FILE, LIST_FILES, SEARCH, GREP))
"""Tools whose calls change nothing."""


class Repeats:
    """Counts the calls of one attempt, by their arguments and results.

    It counts from the beginning again when the model makes a call that may change something and that it has not made
    before: tests may be run again after a change.
    """

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._made: set[tuple[str, str, str]] = set()

    def count(self, tool: str, arguments: str, result: str) -> int:
        """Count a call, and return how often it has had this result."""
        call = (tool, arguments, result)
        if tool not in _READING and call not in self._made:
            self._calls.clear()
        self._made.add(call)
        self._calls[call] += 1
        return self._calls[call]
