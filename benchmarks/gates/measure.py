"""Run the tasks in one setup, log the result of each as soon as it ends, and sum them up."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gates.rows import ResultLog, TaskResult, digest
from benchmarks.gates.setups import MODELS, GateSetup
from benchmarks.gates.tasks import PATIENCE, BenchTask
from orchestrator.engine.contract import Message
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import Report, load_report
from orchestrator.task.taskir.models import TaskIR

AT_ONCE = 4

# The multiple of a typical attempt. Stronger models need up to 3, and share the cores; an endless answer needs 17.
DEADLINE_FACTOR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to run, and where the results go."""

    tasks: Sequence[BenchTask]
    rows: ResultLog
    folder: Path  # the folder of registries and state folders
    until: float  # when the last task may begin, on the clock `time.monotonic`
    say: Callable[[str], None]  # Prints a line of progress
    deadline: float = PATIENCE  # the timeout of an attempt at code, in seconds


@dataclass(frozen=True, slots=True)
class SetupRow:
    """The results of the tasks of one family, or of all families, in one setup."""

    setup: str
    family: str
    tasks: int
    right: int
    wrong: int
    refused: int
    attempts: int
    prompt_tokens: int
    output_tokens: int
    engine_seconds: float  # Sum over attempts
    gate_seconds: float  # Sum over attempts, with the time in which gates waited to run
    task_seconds: float  # Average time from the acceptance of a task to its end


async def run_setup(setup: GateSetup, plan: BenchPlan) -> list[TaskResult]:
    """Return the results of the tasks, in their order. Those that are in the log are not run again.

    No task begins after `plan.until`, so results may be missing. A task that has begun is finished.
    """
    documents = [task.task(gates=setup.gates, deadline=plan.deadline) for task in plan.tasks]
    names = [digest(document.model_dump_json().encode()) for document in documents]
    logged = plan.rows.read(setup.name, names)
    left = [
        (task, document, name)
        for task, document, name in zip(plan.tasks, documents, names, strict=True)
        if name not in logged
    ]
    plan.say(f"{setup.name}: {len(logged)} of {len(names)} tasks are finished already")
    turns = asyncio.Semaphore(AT_ONCE)

    async def run_task(task: BenchTask, document: TaskIR, name: str) -> None:
        async with turns:
            if time.monotonic() >= plan.until:
                return
            run = await orchestrator.submit(Job(None, document, None, "as-planned"))
            async for _ in orchestrator.watch(run):
                pass
            result = await asyncio.to_thread(_result, task, name, run, orchestrator.journal)
            logged[name] = result
            plan.rows.append(setup.name, result)
            plan.say(f"{setup.name}: {len(logged)} of {len(names)}: {task.name} {result.outcome}")

    if left and time.monotonic() < plan.until:
        async with Orchestrator.open(plan.folder / setup.folder, setup.registry(plan.folder)) as orchestrator:
            await asyncio.gather(*(orchestrator.pool.count(model, (Message("user", "?"),)) for model in MODELS))
            await asyncio.gather(*(run_task(*task) for task in left))
    return [logged[name] for name in names if name in logged]


def rows_of(setup: GateSetup, results: Sequence[TaskResult]) -> list[SetupRow]:
    """Return a row for each family, and one for all."""
    families = dict.fromkeys(result.family for result in results)
    by_family = {family: [result for result in results if result.family == family] for family in families}
    return [_row(setup, family, family_results) for family, family_results in {**by_family, "all": [*results]}.items()]


def _row(setup: GateSetup, family: str, results: Sequence[TaskResult]) -> SetupRow:
    attempts = [attempt for result in results for attempt in result.attempts]
    outcomes = [result.outcome for result in results]
    return SetupRow(
        setup=setup.name,
        family=family,
        tasks=len(results),
        right=outcomes.count("right"),
        wrong=outcomes.count("wrong"),
        refused=outcomes.count("refused"),
        attempts=len(attempts),
        prompt_tokens=sum(attempt.usage.prompt_tokens for attempt in attempts),
        output_tokens=sum(attempt.usage.output_tokens for attempt in attempts),
        engine_seconds=sum(attempt.usage.prefill_seconds + attempt.usage.decode_seconds for attempt in attempts),
        gate_seconds=sum(gate.seconds for attempt in attempts for gate in attempt.gates),
        task_seconds=sum(result.seconds for result in results) / max(1, len(results)),
    )


def _result(task: BenchTask, document: str, run: str, journal: JournalReader) -> TaskResult:
    report = load_report(journal, run)
    outcome = _outcome(task, report, journal)
    return TaskResult(task.name, task.family, document, run, outcome, report.wall_seconds, report.steps[0].attempts)


def _outcome(task: BenchTask, report: Report, journal: JournalReader) -> str:
    made = report.artifacts.get(task.output)
    if report.status != "done" or made is None:
        return "refused"
    return "right" if task.right(journal.get(made).decode("utf-8", "replace")) else "wrong"


def deadline_of(results: Sequence[TaskResult]) -> float:
    """Return the deadline in seconds: DEADLINE_FACTOR times what 95 % of successful attempts at code took at most.

    Raises ValueError if there is no successful attempt at code.
    """
    seconds = sorted(
        attempt.finished - attempt.started
        for result in results
        if result.family == "code"
        for attempt in result.attempts
        if attempt.finished is not None and attempt.outcome == "done"
    )
    if not seconds:
        raise ValueError("no attempt at code has come to its end; accepted: at least one")
    typical = seconds[math.ceil(0.95 * len(seconds)) - 1]
    return math.ceil(10 * DEADLINE_FACTOR * typical) / 10
