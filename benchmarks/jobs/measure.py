"""Run jobs in pairs, keep their answers, judge these by the jobs' checks, and count.

The log has answers and what they cost, and no verdicts, so that changed checks judge old answers again.
"""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from statistics import fmean, median
from threading import Lock
from typing import Any, Final, Literal, Self

from benchmarks.jobs import (
    code,
    later_code,
    later_one_call,
    later_parts,
    one_call,
    parts,
    simple_code,
    simple_one_call,
    simple_parts,
    unseen_code,
    unseen_one_call,
    unseen_parts,
)
from benchmarks.jobs.arms import MODES, Arm, ArmMissing, JobDaemon, ModelSetup, Row, job_daemon
from benchmarks.jobs.chat_files import files_in
from benchmarks.jobs.job import BenchJob, Group, JobAnswer
from benchmarks.routing.rows import RowLog, goal_with_interval
from orchestrator.bench.goals import Goal, at_least, at_most
from orchestrator.engine.processor import cpu_model

Half = Literal["tuning", "held-out", "all"]
JOBS: Final[tuple[BenchJob, ...]] = (
    *one_call.JOBS,
    *parts.JOBS,
    *code.JOBS,
    *unseen_one_call.JOBS,
    *unseen_parts.JOBS,
    *unseen_code.JOBS,
    *simple_one_call.JOBS,
    *simple_parts.JOBS,
    *simple_code.JOBS,
    *later_one_call.JOBS,
    *later_parts.JOBS,
    *later_code.JOBS,
)
HALVES: Final[tuple[Half, ...]] = ("tuning", "held-out")
GROUPS: Final[tuple[Group, ...]] = ("one-call", "parts", "code")
ARMS: Final[tuple[Arm, ...]] = ("chat", *MODES)
DEFAULT_ARMS: Final[tuple[Arm, ...]] = ("chat", "direct", "orchestrator")  # a plan is made where it is asked for
MAIN, LADDER = "1.5b", "ladder"
POINTS, CODE_POINTS = 10.0, 15.0  # by how many points a group is to beat one chat
CODE_TIME, PARTS_TIME, ONE_CALL_TIME = 1.0, 0.8, 1.1  # the median time as a multiple of one chat's
BOOTSTRAP: Final = 1000  # how many times the jobs are drawn again for an interval
REFUSED = 3  # the exit code of a run that was stopped before its first step, as something is missing
FALSE_DONE = 0.5  # the share of wrong answers that look right, as a multiple of an earlier version's


class _NotMeasured(Exception):
    pass


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """How a job was done, and what is wrong with its answer."""

    model: str
    arm: Arm
    job: str
    group: Group
    held_out: bool
    round: int
    faults: tuple[str, ...]
    processor: str
    seconds: float | None  # none if other jobs ran at the same time
    input_tokens: int
    output_tokens: int
    status: str
    exit_code: int
    doubt: str
    error: str
    plan: Row

    @property
    def right(self) -> bool:
        """Whether the check accepts the answer."""
        return not self.faults

    @property
    def false_done(self) -> bool:
        """Whether a wrong answer looks like a right one: done and without a doubt."""
        return bool(self.faults) and self.status == "done" and not self.doubt

    def to_json(self) -> Row:
        """Return the row of the results, in which a plan has its number of steps instead of the steps."""
        form = self.plan
        if isinstance(steps := form.get("steps"), list):
            form = {"origin": form["origin"], "steps": len(steps), "width": form["width"]}
        return asdict(self) | {"right": self.right, "plan": form or None}

    @classmethod
    def from_json(cls, row: Row) -> Self:
        """Return the run of a published row."""
        rest = {key: value for key, value in row.items() if key not in ("right", "faults", "plan")}
        return cls(**rest, faults=tuple(row["faults"]), plan=row["plan"] or {})


@dataclass(slots=True)
class JobBench:
    """Runs jobs and keeps their rows in a folder."""

    folder: Path
    jobs: Sequence[BenchJob]
    arms: Sequence[Arm]
    say: Callable[[str], None] = print
    # Runs that are not done again, since their rows are published. They stay as they were judged.
    published: Sequence[JudgedRun] = ()
    at_once: int = 1  # how many jobs are done at the same time. With more than one, no row has seconds.
    _log: RowLog = field(init=False)
    _judged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _missing: set[Arm] = field(default_factory=set)
    _published: dict[tuple[str, Arm, str, int], JudgedRun] = field(init=False)

    def __post_init__(self) -> None:
        self._log = RowLog(self.folder / "rows.jsonl", say=lambda text: None)
        self._published = {(run.model, run.arm, run.job, run.round): run for run in self.published}

    def run(self, setup: ModelSetup, rounds: int) -> None:
        """Do the jobs that are not in the log yet, with all arms of a job one after the other. Raises BenchmarkFailed.

        Each round has a daemon with a state folder of its own, so that no round learns from another one.
        """
        for number in range(rounds):
            with ExitStack() as stack, ThreadPoolExecutor(self.at_once) as threads:
                daemon = _DaemonOnDemand(setup, self.folder / setup.name / f"round-{number}", stack)
                submitted = [
                    threads.submit(
                        self._do, setup.name, number, job, self.arms[:: -1 if (number + index) % 2 else 1], daemon
                    )
                    for index, job in enumerate(self.jobs)
                ]
                try:
                    for future in submitted:
                        future.result()
                except BaseException:
                    threads.shutdown(wait=False, cancel_futures=True)
                    raise

    def judged(self, models: Sequence[str], rounds: int) -> Iterator[JudgedRun]:
        """Yield the published runs and the judged rows of the log, of all arms."""
        for model in models:
            for number in range(rounds):
                for job in self.jobs:
                    for arm in ARMS:
                        if published := self._published.get((model, arm, job.name, number)):
                            yield replace(published, held_out=job.held_out)
                            continue
                        try:
                            row = self.row(model, arm, job, number, _not_measured)
                        except _NotMeasured:
                            continue
                        yield self._judge(model, arm, job, number, row)

    def row(self, model: str, arm: Arm, job: BenchJob, number: int, make: Callable[[], Row]) -> Row:
        """Return the row of the log, made now unless it is there."""
        return self._log.get(_key(model, arm, job, number), make)

    def _do(self, model: str, number: int, job: BenchJob, arms: Sequence[Arm], daemon: "_DaemonOnDemand") -> None:
        for arm in arms:
            if arm in self._missing or (model, arm, job.name, number) in self._published:
                continue

            def make(arm: Arm = arm) -> Row:
                row = daemon.get().run(arm, job) | {"processor": cpu_model()}
                if self.at_once > 1:
                    row["seconds"] = None
                verdict = _verdict(self._judge(model, arm, job, number, row))
                self.say(f"{model} round {number} {job.name} {arm}: {verdict}")
                return row

            try:
                self.row(model, arm, job, number, make)
            except ArmMissing as missing:
                self._missing.add(arm)
                self.say(f"the arm {arm} is left out: {missing}")

    def _judge(self, model: str, arm: Arm, job: BenchJob, number: int, row: Row) -> JudgedRun:
        files = files_in(row["text"], job.outputs) if arm == "chat" else row["files"]
        faults = self._faults(job, JobAnswer(row["text"], files))
        if row["status"] != "done":
            faults = (f"it {row['status']}: {row['error'][:200]}", *faults)
        costs = {key: value for key, value in row.items() if key not in ("text", "files")}
        return JudgedRun(model, arm, job.name, job.group, job.held_out, number, faults, **costs)

    def _faults(self, job: BenchJob, answer: JobAnswer) -> tuple[str, ...]:
        key = json.dumps([job.name, answer.text, dict(answer.files)])
        if key not in self._judged:
            self._judged[key] = tuple(job.check(answer))
        return self._judged[key]


class _DaemonOnDemand:
    """The daemon of a round, which starts when the first job of the round is done."""

    def __init__(self, setup: ModelSetup, home: Path, stack: ExitStack) -> None:
        self._setup = setup
        self._home = home
        self._stack = stack
        self._lock = Lock()
        self._daemon: JobDaemon | None = None

    def get(self) -> JobDaemon:
        """Return the daemon, started now unless it runs. Raises BenchmarkFailed."""
        with self._lock:
            if self._daemon is None:
                self._daemon = self._stack.enter_context(job_daemon(self._setup, self._home))
            return self._daemon


def choose(half: Half, names: Sequence[str] = ()) -> list[BenchJob]:
    """Return the jobs of a half, or those of these names or groups in it. Raises KeyError for an unknown name."""
    valid_names = {job.name for job in JOBS} | {*GROUPS}
    if unknown := [name for name in names if name not in valid_names]:
        raise KeyError(unknown[0])
    jobs = [job for job in JOBS if _is_in(half, job.held_out)]
    return [job for job in jobs if not names or job.name in names or job.group in names]


def table(runs: Sequence[JudgedRun]) -> list[Row]:
    """Return the counts by model, half, group and arm, and those over all groups."""
    rows = []
    for model, half in product(dict.fromkeys(run.model for run in runs), HALVES):
        of_half = [run for run in runs if _is_in(half, run.held_out)]
        for group, arm in product((*GROUPS, "all"), ARMS):
            if matching := _some(of_half, model, arm, group):
                rows.append({"model": model, "half": half, "group": group, "arm": arm} | _counts(matching))
    return rows


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """What was measured with the version to compare with."""

    half: Half
    table: Sequence[Row]

    def to_json(self) -> Row:
        """Return the form in which it is published."""
        return {"half": self.half, "table": [*self.table]}

    def false_done(self, model: str, arm: Arm) -> float:
        """Return the share of the jobs that looked right and were not. Raises KeyError if they were not measured."""
        rows = {(row["model"], row["arm"], row["group"]): row for row in self.table}
        row = rows[model, arm, "all"]
        return float(row["false_done"] / row["of"])


def goals_of(runs: Sequence[JudgedRun], before: EarlierVersion | None = None) -> list[Goal]:
    """Return the goals as far as their arms were measured. Raises KeyError for an earlier version without them."""
    false_done = () if before is None else _false_done(runs, before)
    return [*_more_right(runs), *_code_by_ladder(runs), *_times(runs), *false_done]


def goals_with_intervals(runs: Sequence[JudgedRun], before: EarlierVersion | None = None) -> list[Row]:
    """Return the goals as they are written, with the 95 % intervals that other jobs of these kinds would fall into.

    It is a bootstrap over the jobs. Rounds of a job count as one: at temperature 0 they have the same answers.
    """
    names = list(dict.fromkeys(run.job for run in runs))
    draw, drawn = random.Random(0), defaultdict[str, list[float]](list)  # noqa: S311 (no secrets)

    @cache
    def copy(job: str, number: int) -> list[JudgedRun]:
        # a job that is drawn again is another job
        return [replace(run, job=f"{job} {number}") for run in runs if run.job == job]

    for _ in range(BOOTSTRAP):
        counts = Counter(draw.choices(names, k=len(names)))
        copies = (copy(job, number) for job, count in counts.items() for number in range(count))
        for goal in goals_of([*chain.from_iterable(copies)], before):
            drawn[goal.name].append(float(goal.value))
    rows = []
    for goal in goals_of(runs, before):
        values = sorted(drawn[goal.name])
        at = len(values) // 40
        rows.append(goal_with_interval(goal, *((values[at], values[-1 - at]) if values else (goal.value, goal.value))))
    return rows


def _more_right(runs: Sequence[JudgedRun]) -> Iterator[Goal]:
    for half, group in product(HALVES, ("all", *GROUPS)):
        of_half = [run for run in runs if _is_in(half, run.held_out)]
        chat, ours = (_some(of_half, MAIN, arm, group) for arm in ("chat", "orchestrator"))
        if chat and ours:
            jobs = f"{'all jobs' if group == 'all' else group}{', held out' if half == 'held-out' else ''}"
            name = f"points more right than one chat, {MAIN}, {jobs}"
            yield at_least(name, _points(ours) - _points(chat), POINTS if group == "all" else 0)


def _code_by_ladder(runs: Sequence[JudgedRun]) -> Iterator[Goal]:
    # One call is made by the large model in both setups; that of the ladder alternated with the ladder.
    chat, ladder = (_some(runs, LADDER, arm, "code") for arm in ("chat", "orchestrator"))
    if chat and ladder:
        against = f"code, {LADDER} against one chat"
        yield at_least(f"points more right, {against}", _points(ladder) - _points(chat), CODE_POINTS)
        if _pairs(ladder, chat):
            yield at_most(f"times as long, {against}", _ratio(ladder, chat), CODE_TIME)


def _times(runs: Sequence[JudgedRun]) -> Iterator[Goal]:
    for group, most in (("parts", PARTS_TIME), ("one-call", ONE_CALL_TIME)):
        chat, ours = (_some(runs, MAIN, arm, group) for arm in ("chat", "orchestrator"))
        name = f"times as long as one chat, {MAIN}, {group}"
        # A chat that leaves parts out takes less time, so only those that produce the same are compared.
        both_right = [[run for run in some if run.right] for some in (ours, chat)]
        if group == "parts" and _pairs(*both_right):
            yield at_most(f"{name}, both right", _ratio(*both_right), most)
        elif _pairs(ours, chat):
            yield at_most(f"{name}, no job right by both" if group == "parts" else name, _ratio(ours, chat), most)


def _false_done(runs: Sequence[JudgedRun], before: EarlierVersion) -> Iterator[Goal]:
    then = before.false_done(MAIN, "orchestrator")
    for half in ("tuning", "held-out") if then else ():
        now = [run for run in _some(runs, MAIN, "orchestrator", "all") if _is_in(half, run.held_out)]
        if now:
            # The earlier version has done one half, so what it did there stands for the other half, too.
            against = "" if _is_in(before.half, half == "held-out") else f", before's of {before.half} jobs"
            share = _share_by_job(now, lambda run: run.false_done) / then
            name = f"share of false done as a multiple of before, {MAIN}, {half} jobs{against}"
            yield at_most(name, share, FALSE_DONE)


def _is_in(half: Half, held_out: bool) -> bool:
    return half == "all" or held_out == (half == "held-out")


def _some(runs: Iterable[JudgedRun], model: str, arm: Arm, group: str) -> list[JudgedRun]:
    return [run for run in runs if (run.model, run.arm) == (model, arm) and group in (run.group, "all")]


def _points(runs: Sequence[JudgedRun]) -> float:
    return 100 * _share_by_job(runs, lambda run: run.right)


def _share_by_job(runs: Iterable[JudgedRun], holds: Callable[[JudgedRun], bool]) -> float:
    """Return the mean over the jobs of the share of their rounds: each job counts once, however many rounds it has."""
    rounds = defaultdict[str, list[bool]](list)
    for run in runs:
        rounds[run.job].append(holds(run))
    return fmean(map(fmean, rounds.values()))


def _pairs(runs: Sequence[JudgedRun], others: Sequence[JudgedRun]) -> list[float]:
    """Return the ratios of the seconds of the same jobs in the same rounds on the same processor.

    A refused request took no time.
    """
    seconds = {_pair_key(run): run.seconds for run in others if run.exit_code != REFUSED}
    pairs = ((run.seconds, seconds.get(_pair_key(run))) for run in runs if run.exit_code != REFUSED)
    return [seconds / other_seconds for seconds, other_seconds in pairs if seconds is not None and other_seconds]


def _pair_key(run: JudgedRun) -> tuple[str, int, str]:
    return run.job, run.round, run.processor


def _ratio(runs: Sequence[JudgedRun], others: Sequence[JudgedRun]) -> float:
    return median(_pairs(runs, others) or [float("inf")])


def _counts(runs: Sequence[JudgedRun]) -> Row:
    seconds = [run.seconds for run in runs if run.seconds is not None]
    return {
        "right": sum(run.right for run in runs),
        "of": len(runs),
        "seconds": round(median(seconds), 2) if seconds else None,
        "input_tokens": median(run.input_tokens for run in runs),
        "output_tokens": median(run.output_tokens for run in runs),
        "doubted": sum(bool(run.doubt) for run in runs),
        "failed": sum(run.status != "done" for run in runs),
        "false_done": sum(run.false_done for run in runs),
    }


def _verdict(run: JudgedRun) -> str:
    seconds = "" if run.seconds is None else f" in {run.seconds:.1f} s"
    return f"{'right' if run.right else 'WRONG'}{seconds} {'; '.join(run.faults)[:300]}"


def _key(model: str, arm: Arm, job: BenchJob, number: int) -> tuple[str, ...]:
    """Return the key of a row. A job whose request or files have changed is another one."""
    asked: Any = [job.request, dict(job.files), job.outputs]
    return model, arm, job.name, str(number), hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _not_measured() -> Row:
    raise _NotMeasured
