"""What can be wrong with a registry.

Exception
├── RegistryError    the YAML cannot be used; `problems` says why, at least once
└── GgufError        a model file cannot be used; carries its path and the reason
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RegistryProblem:
    """One thing wrong: in which file and line (None if unknown), at which key, what, and what is accepted.

    `place` is the key in parts, since names may hold dots.
    """

    file: Path
    line: int | None
    key: str
    what: str
    accepted: str = ""
    place: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        where = f"{place}: {self.key}" if self.key else place
        tail = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{where}: {self.what}{tail}"


class RegistryError(Exception):
    """The registry cannot be used as it is written."""

    def __init__(self, *problems: RegistryProblem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class GgufError(Exception):
    """`path` is missing, is not a GGUF file, or is a broken one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
