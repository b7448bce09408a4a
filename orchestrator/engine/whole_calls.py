"""What the parsers of complete texts return: calls whose arguments are no JSON, and the text between them. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

_SPACE: Final = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class WholeText:
    """The text between two calls, or after the last one."""

    text: str


@dataclass(frozen=True, slots=True)
class WholeCall:
    """`arguments` are JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class WholeBroken:
    """A malformed call at offset `at`, in characters. Nothing after it is parsed."""

    at: int
    problem: str


WholePart: TypeAlias = WholeText | WholeCall | WholeBroken


class WholeForm(Protocol):
    """How a family of models writes calls that are parsed when the text is complete."""

    @property
    def opening(self) -> re.Pattern[str]:
        """The start of a call."""

    @property
    def unfinished(self) -> re.Pattern[str]:
        """A text that may become the start of a call."""

    def read(self, text: str, tools: Mapping[str, Mapping[str, Any]]) -> Sequence[WholePart]:
        """Return the calls in a text that starts with one. `tools` maps tool names to JSON Schemas of arguments."""


class Broken(Exception):
    """This is no call. The message says why."""


def unknown_tool(name: str, tools: Mapping[str, object]) -> str:
    """Return the problem of a call of a tool that is not offered."""
    return f"there is no tool {name[:80]!r}; accepted: {', '.join(tools) or 'none'}"


def start_of(text: str) -> str:
    """Return the regular expression of all prefixes of a text, including the empty one."""
    pattern = ""
    for sign in reversed(text):
        pattern = f"(?:{re.escape(sign)}{pattern})?"
    return pattern


def skip_space(text: str, at: int) -> int:
    """Return the offset of the end of the white space at a place."""
    space = _SPACE.match(text, at)
    assert space is not None, "the pattern matches nothing, too"
    return space.end()
