"""The messages of `what_if`, which predicts a run on other machines, and their data from a run's report.

The daemon imports this alone of the simulator, which runs in a process of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.engine.contract import StepTimes
from orchestrator.run.record.report import Report, StepRow


@dataclass(frozen=True, slots=True)
class ReplayedAttempt:
    """An attempt: what it computes, and the places of the attempts that it waits for."""

    step: str
    model: str
    prompt_tokens: int  # without those from the cache
    output_tokens: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model as it runs here."""

    times: StepTimes
    threads: int  # that the times are for
    slots: int
    token_seconds: float  # of the engine itself for each token
    bytes: int


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """A machine to replay a run on. Each model has the same number of replicas."""

    cores: int
    replicas: int
    bandwidth: float  # of memory, as a multiple of this machine's


@dataclass(frozen=True, slots=True)
class Question:
    """A run to replay, and the machines to replay it on."""

    registry: str  # its file
    cores: int  # of this machine
    models: dict[str, MeasuredModel]
    attempts: tuple[ReplayedAttempt, ...]
    path_seconds: float  # that the critical path generated, with waits for slots, as measured; 0 if unknown
    machines: tuple[OtherMachine, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """How a run would go. Times are in seconds."""

    seconds: float
    path_seconds: float
    path: tuple[str, ...]  # steps of the run
    width: int  # the most attempts at once


@dataclass(frozen=True, slots=True)
class Answer:
    """The replays on the machines of a question. All times are longer by `factor` than the models say.

    With it, the critical path takes as long on this machine as it did.
    """

    factor: float
    replays: tuple[Replay, ...]


def attempts_of(report: Report) -> tuple[ReplayedAttempt, ...]:
    """Return the attempts of a run that models answered, each after those that it waited for."""
    rows = {row.id: row for row in report.steps}
    ends: dict[str, tuple[int, ...]] = {}  # by step, the attempts that its dependants wait for
    attempts: list[ReplayedAttempt] = []
    for row in _in_order(rows):
        after = tuple(dict.fromkeys(place for step in row.depends_on for place in ends.get(step, ())))
        for attempt in row.attempts:
            usage = attempt.usage
            if usage.output_tokens:
                computed = max(1, usage.prompt_tokens - usage.cached_tokens)
                attempts.append(ReplayedAttempt(row.id, attempt.model, computed, usage.output_tokens, after))
                after = (len(attempts) - 1,)
        ends[row.id] = after
    return tuple(attempts)


def other_seconds(report: Report) -> tuple[float, float]:
    """Return the seconds of a run that no replay has: before its first step, and on its path without generating."""
    before = min((row.started for row in report.steps if row.started is not None), default=0.0)
    on_path = frozenset(report.critical_path.steps)
    attempts = [attempt for row in report.steps if row.id in on_path for attempt in row.attempts]
    on_path_seconds = 0.0
    for attempt in attempts:
        if attempt.finished is not None:
            usage = attempt.usage
            generating = usage.queued_seconds + usage.prefill_seconds + usage.decode_seconds
            on_path_seconds += max(0.0, attempt.finished - attempt.started - generating)
    return before, on_path_seconds


def width_of(report: Report) -> int:
    """Return how many attempts there were at once at most, without those that waited for a slot."""
    attempts = [attempt for row in report.steps for attempt in row.attempts if attempt.finished is not None]
    starts = [(attempt.started + attempt.usage.queued_seconds, 1) for attempt in attempts]
    changes = sorted([*starts, *((attempt.finished or 0.0, -1) for attempt in attempts)])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def _in_order(rows: Mapping[str, StepRow]) -> Iterator[StepRow]:
    # Each step after those that it depends on.
    placed = set[str]()
    for name in rows:
        pending = [name]
        while pending:
            missing = [step for step in rows[pending[-1]].depends_on if step in rows and step not in placed]
            if missing and pending[-1] not in placed:
                pending += missing
                continue
            step = pending.pop()
            if step not in placed:
                placed.add(step)
                yield rows[step]
