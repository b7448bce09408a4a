"""Keep each measurement as a line of a file as soon as it is there, so that an interrupted session goes on."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.critical_path.measure import TaskMeasurement

CacheState = Literal["cold", "warm"]
Stamp = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """How long a system took for the task of a round."""

    model: str = ""
    workload: str = ""
    number: int = 0
    """The round."""
    product: str = ""
    """The hash of our code."""
    system: str
    state: CacheState
    """Cold: no cache holds anything of the task but the system prompt; warm: the system did the same task just now."""
    seconds: float
    tokens: int
    """Of all answers."""
    prompt_tokens: int
    """Of all prompts. One agent is asked anew with all that is in its context."""
    own: TaskMeasurement | None = None
    """What our own report says of the run."""


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """What our own part of a task costs: its steps, and the real seconds of a run whose engines take no time."""

    steps: int
    seconds: float
    product: str = ""
    """The hash of our code."""

    @property
    def per_step(self) -> float:
        """Milliseconds for each step."""
        return 1000 * self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class _Line:
    stamp: dict[str, Any]
    row: PeerRow | None = None
    growth: GrowthRow | None = None


def read(file: Path, stamp: Stamp) -> tuple[list[PeerRow], list[GrowthRow]]:
    """Return what was measured with the same stamp, the newest last. A line that a crash has torn is left out.

    Raises OSError.
    """
    lines = file.read_bytes().splitlines() if file.exists() else []
    plain = json.loads(json.dumps(stamp))
    found: list[_Line] = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=_Line))
        except msgspec.DecodeError:
            continue
    same = [one for one in found if one.stamp == plain]
    return [one.row for one in same if one.row], [one.growth for one in same if one.growth]


def append(file: Path, stamp: Stamp, *rows: PeerRow | GrowthRow) -> None:
    """Add measurements. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        _Line(dict(stamp), growth=row) if isinstance(row, GrowthRow) else _Line(dict(stamp), row=row) for row in rows
    )
    with file.open("a", encoding="utf-8") as target:
        target.write("".join(f"{json.dumps(asdict(line))}\n" for line in lines))
