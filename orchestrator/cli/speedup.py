"""Compare a run with the same task run serially. There is a speedup only if both runs did the same work."""

from dataclasses import dataclass
from typing import Any

from orchestrator.cli.terminal import seconds
from orchestrator.run.record.report import Report


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster a run was than the same task run serially. Times are in seconds and include planning."""

    value: float | None  # wall time of the serial run / that of the other; None if they cannot be compared
    seconds: float
    serial_seconds: float
    serial_run: str  # its id
    why_none: str = ""  # why the runs cannot be compared

    def to_json(self) -> dict[str, Any]:
        """Return what `--compare-serial` adds to the JSON object of a run."""
        pair = {"seconds": self.seconds, "serial_seconds": self.serial_seconds, "serial_run_id": self.serial_run}
        return {"speedup": self.value, "paired": {**pair, "why_not": self.why_none or None}}


def format_speedup(speedup: Speedup) -> str:
    serially = f"{seconds(speedup.serial_seconds)} serially (run {speedup.serial_run})"
    pair = f"{seconds(speedup.seconds)} against {serially}"
    return f"none: {speedup.why_none}; {pair}" if speedup.value is None else f"{speedup.value:.2f} = {pair}"


def compare_with_serial(report: Report, serial: Report) -> Speedup:
    """Return the speedup in wall time of `report` over `serial`, the same task run serially."""
    why = ""
    if "done" != report.status or "done" != serial.status:
        why = f"the runs ended as {report.status} and {serial.status}"
    elif _work(report) != _work(serial):
        why = "the two plans differ"
    elif serial.wall_seconds <= 0 or report.wall_seconds <= 0:
        why = "a run took no time"
    value = None if why else serial.wall_seconds / report.wall_seconds
    return Speedup(value, report.wall_seconds, serial.wall_seconds, serial.run_id, why)


def _work(report: Report) -> list[tuple[str, str, str]]:
    return [(step.id, step.role, step.action) for step in report.steps]
