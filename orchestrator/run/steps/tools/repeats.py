"""Notice calls that a model repeats with the same result, as a model in a loop does."""

from collections import Counter
from typing import Final

from orchestrator.run.steps.tools.files import GREP, LIST_FILES, READ_FILE, SEARCH

# The attempt ends with the call of this number that has the same arguments and the same result.
MAX_SAME: Final = 3
# Calls of these change nothing.
_READING: Final = frozenset(tool.name for tool in (READ_FILE, LIST_FILES, SEARCH, GREP))


class Repeats:
    """Counts the calls of one attempt by arguments and result; a new call that may change something resets it."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._made: set[tuple[str, str, str]] = set()

    def count(self, tool: str, arguments: str, result: str) -> int:
        """Count a call, and return how often it has had this result."""
        call = (tool, arguments, result)
        if tool not in _READING and call not in self._made:
            # Tests may be run again after a change.
            self._calls.clear()
        self._made.add(call)
        self._calls[call] += 1
        return self._calls[call]
