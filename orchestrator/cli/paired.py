"""Compare a run with the same run done serially: the speedup, told only from a pair that did the same work."""

from dataclasses import dataclass
from typing import Any

from orchestrator.cli.terminal import seconds
from orchestrator.history.report import Report


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster a run was than its serial twin; where they cannot be compared `why` says why not."""

    value: float | None
    seconds: float
    serial_seconds: float
    serial_run: str
    why: str = ""

    @property
    def told(self) -> str:
        """Return it in a sentence."""
        pair = f"{seconds(self.seconds)} against {seconds(self.serial_seconds)} serially (run {self.serial_run})"
        return f"{self.value:.2f} = {pair}" if self.value is not None else f"none: {self.why}; {pair}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--compare-serial` adds to the JSON object of a run."""
        pair = {"seconds": self.seconds, "serial_seconds": self.serial_seconds, "serial_run_id": self.serial_run}
        return {"speedup": self.value, "paired": {**pair, "why_not": self.why or None}}


def compare(report: Report, serial: Report) -> Speedup:
    """Return the speedup in wall time of `report` over `serial`, planning included in both."""
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
