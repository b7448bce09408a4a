"""Compare two sessions, task by task. Pure."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from orchestrator.bench.critical_path.measure import WorkloadSummary, summaries
from orchestrator.bench.critical_path.sessions import MeasuringSession
from orchestrator.bench.paired import ratio

Verdict = Literal["faster", "slower", "no change that is certain", "one round is too few", "not comparable"]


@dataclass(frozen=True, slots=True)
class Change:
    """How the wall time of a task changed. Times are medians in seconds."""

    task: str
    before: float
    after: float
    # The wall time before over that after: above 1 it became faster. None where the two did not do the same.
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return asdict(self)


def changes(before: MeasuringSession, after: MeasuringSession) -> list[Change]:
    """Return the changes of the tasks that both sessions have.

    The ratio has a 95 % interval, from the warm rounds in their order. The sessions were not measured in turn, so the
    difference includes any change of the machine's load.
    """
    earlier = {(one.workload, one.task): one for one in summaries(before.rows)}
    same = {name for name, digest in _digests(before).items() if _digests(after).get(name) == digest}
    return [
        _change(earlier[one.workload, one.task], one, comparable=one.workload in same)
        for one in summaries(after.rows)
        if (one.workload, one.task) in earlier
    ]


def _digests(session: MeasuringSession) -> dict[str, str]:
    digests: dict[str, str] = dict(session.stamp.get("workloads", {}))
    return digests


def _change(before: WorkloadSummary, after: WorkloadSummary, *, comparable: bool) -> Change:
    rounds = min(len(before.walls), len(after.walls))
    timed = all(wall > 0 for wall in (*before.walls, *after.walls))
    if not comparable or not rounds or not timed:
        return Change(after.task, before.wall, after.wall, None, None, None, "not comparable")
    interval = ratio(before.walls[:rounds], after.walls[:rounds])
    if rounds == 1:
        return Change(after.task, before.wall, after.wall, interval.median, None, None, "one round is too few")
    verdict: Verdict = "faster" if interval.low > 1 else "slower" if interval.high < 1 else "no change that is certain"
    return Change(after.task, before.wall, after.wall, interval.median, interval.low, interval.high, verdict)
