"""Define a job: a request in words, the files that come with it, and a check of the answer by code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Group = Literal["one-call", "parts", "code"]  # One call is enough; independent parts; code with tests


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """What somebody who asked has in their hands at the end."""

    text: str  # the text that the user is shown, all of it
    # The files that the answer has, by name. A chat has those whose text it shows under their name.
    files: Mapping[str, str] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """Return the file with this name; empty if the answer has none."""
        return self.files.get(name, "")


# Return what is wrong with an answer, one sentence each; nothing for a right answer.
Check = Callable[[JobAnswer], list[str]]


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A request with a known right answer."""

    name: str
    group: Group
    request: str
    check: Check
    files: Mapping[str, str] = field(default_factory=dict)  # the files in the user's folder, by name
    outputs: tuple[str, ...] = ()  # the files that the request asks for by name
    held_out: bool = False  # whether nobody may look at its results while prompts, plans or routing are tuned
