"""Keep each measurement as a line of a file as soon as it is there, so that an interrupted session continues."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from orchestrator.bench.critical_path.measure import PathTime, TaskMeasurement

CacheState = Literal["cold", "warm"]
Stamp = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFigures:
    """What our own report says of a run and is published with its row. The fields are those of `TaskMeasurement`."""

    predicted: float
    path: float
    best: float
    bound: float
    where: PathTime
    cached_tokens: int
    width: int

    @classmethod
    def of(cls, run: TaskMeasurement) -> Self:
        """Return these figures of a run."""
        return cls(
            predicted=run.predicted,
            path=run.path,
            best=run.best,
            bound=run.bound,
            where=run.where,
            cached_tokens=run.cached_tokens,
            width=run.width,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """How long a system took for the task of a round."""

    model: str = ""
    workload: str = ""
    number: int = 0  # the round
    product: str = ""  # the hash of our code
    machine: str = ""  # where it was measured, as `machine_of` says it. It is filled in when a row is read.
    system: str
    # Cold: no cache holds anything of the task but the system prompt; warm: the system did the same task just now.
    state: CacheState
    seconds: float
    tokens: int  # of all answers
    prompt_tokens: int  # of all prompts. One agent is asked again with all that is in its context.
    own: OwnFigures | None = None  # what our own report says of the run; None for the systems of others
    # All that our own report says, from which the picture is drawn. It is not published.
    run: TaskMeasurement | None = None


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """What our own part of a task costs: its steps, and the real seconds of a run whose engines take no time."""

    steps: int
    seconds: float
    product: str = ""  # the hash of our code
    machine: str = ""  # where it was measured. It is filled in when a row is read.

    @property
    def per_step(self) -> float:
        """Milliseconds for each step."""
        return 1000 * self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class _Line:
    stamp: dict[str, Any]
    row: PeerRow | None = None
    growth: GrowthRow | None = None


def machine_of(stamp: Stamp) -> str:
    """Return what a table says of the machine."""
    machine = stamp["machine"]
    return f"{machine['processor']} with {machine['cores']} cores"


def read(file: Path, stamp: Stamp) -> tuple[list[PeerRow], list[GrowthRow]]:
    """Return what was measured with the same stamp, the newest last. A line that a crash has torn is left out.

    Raises OSError.
    """
    lines = file.read_bytes().splitlines() if file.exists() else []
    plain = json.loads(json.dumps(stamp))
    entries: list[_Line] = []
    for line in lines:
        try:
            entries.append(msgspec.json.decode(line, type=_Line))
        except msgspec.DecodeError:
            continue
    same, machine = [entry for entry in entries if entry.stamp == plain], machine_of(stamp)
    rows = [replace(entry.row, machine=machine) for entry in same if entry.row]
    return rows, [replace(entry.growth, machine=machine) for entry in same if entry.growth]


def read_published(file: Path, stamp: Stamp) -> tuple[list[PeerRow], list[GrowthRow]]:
    """Return the measurements that a file of results holds, on whatever machine they were made.

    Returns none if they were made with other versions, threads or systems than the stamp says. Raises OSError, and
    ValueError for a file that `report` did not write.
    """
    if not file.exists():
        return [], []
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps({name: value for name, value in stamp.items() if name != "machine"}))
        if {name: document[name] for name in wanted} != wanted:
            return [], []
        rows = msgspec.convert(document["rows"], list[PeerRow])
        grown = msgspec.convert(document["growth"], list[GrowthRow])
        usual = machine_of(document)  # results of former versions name one machine for all rows
    except (ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
        raise ValueError(f"{file}: it is no result of this benchmark: {error!r}") from error
    return (
        [replace(row, machine=row.machine or usual) for row in rows],
        [replace(row, machine=row.machine or usual) for row in grown],
    )


def append(file: Path, stamp: Stamp, *rows: PeerRow | GrowthRow) -> None:
    """Add measurements. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        _Line(dict(stamp), growth=row) if isinstance(row, GrowthRow) else _Line(dict(stamp), row=row) for row in rows
    )
    with file.open("a", encoding="utf-8") as target:
        target.write("".join(f"{json.dumps(asdict(line))}\n" for line in lines))
