"""The errors of the registry.

Exception
├── RegistryError      the registry's file cannot be used; `problems` has at least one reason
├── GgufError          a model's file cannot be used; it has the path and the reason
└── ChatTemplateError  a model's chat template is broken, or cannot be used for a conversation
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RegistryProblem:
    file: Path
    line: int | None  # from 1; None if unknown
    key: str  # such as `models.big.context`; empty for the whole file
    what: str
    accepted: str = ""

    @property
    def place(self) -> str:
        """The file with the line and the key, as far as they are known."""
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        return f"{place}: {self.key}" if self.key else place

    def __str__(self) -> str:
        tail = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{self.place}: {self.what}{tail}"


class RegistryError(Exception):
    """The registry's file cannot be used."""

    def __init__(self, *problems: RegistryProblem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def file_error(
    path: Path, what: str, accepted: str = "", place: Iterable[str | int] = (), line: int | None = None
) -> RegistryError:
    """Return the error for a file with one problem, at the keys `place` or with the file as a whole."""
    return RegistryError(RegistryProblem(path, line, ".".join(map(str, place)), what, accepted))


class GgufError(Exception):
    """The file `path` is missing, is no GGUF file, or is corrupt."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ChatTemplateError(Exception):
    """A chat template is broken, refuses a conversation, or would lose words of it."""


def nearest(name: str, accepted: Iterable[str]) -> str:
    """Format what is accepted instead of an unknown name: first the most similar name, then all."""
    names = sorted(accepted)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{close[0]}? (one of {listed})" if close else listed or "none are defined"
