"""Run the tasks in one world, and tell what became of each."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.gates.tasks import BenchTask
from benchmarks.gates.world import World
from orchestrator.daemon import Job, Orchestrator, Report, load_report
from orchestrator.daemon.story import AttemptRow
from orchestrator.journal import JournalReader

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task: right, wrong (it was delivered), or refused (its step has failed)."""

    task: BenchTask
    run: str
    outcome: str
    attempts: tuple[AttemptRow, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The tasks of one family (or all) in one world. Seconds are sums over attempts, `wall_seconds` the world's."""

    world: str
    family: str
    tasks: int
    right: int
    wrong: int
    refused: int
    attempts: int
    prompt_tokens: int
    output_tokens: int
    engine_seconds: float
    gate_seconds: float
    wall_seconds: float


async def run_world(
    world: World, tasks: Sequence[BenchTask], folder: Path, timeout_seconds: float, say: Callable[[str], None]
) -> tuple[list[Result], float]:
    """Return what became of the tasks, and how many seconds it took."""
    home, turns = folder / world.name.replace(" ", "-"), asyncio.Semaphore(AT_ONCE)
    started = perf_counter()

    async def carry_out(task: BenchTask) -> str:
        async with turns:
            document = task.task(gates=world.gates, timeout_seconds=timeout_seconds)
            run = await orchestrator.submit(Job(None, document, None, "as-planned"))
            async for _ in orchestrator.watch(run):
                pass
            say(f"{world.name}: {task.name} ended as {run}")
            return run

    async with Orchestrator.open(home, world.registry(folder)) as orchestrator:
        runs = await asyncio.gather(*map(carry_out, tasks))
    seconds = perf_counter() - started
    with JournalReader.open_to_read(home) as journal:
        reports = [load_report(journal, run) for run in runs]
        results = [_result(task, report, journal) for task, report in zip(tasks, reports, strict=True)]
    return results, seconds


def rows_of(world: World, results: Sequence[Result], seconds: float) -> list[Row]:
    """Return a row for each family and one for all."""
    families = dict.fromkeys(result.task.family for result in results)
    chosen = {family: [result for result in results if result.task.family == family] for family in families}
    return [_row(world, family, some, seconds) for family, some in {**chosen, "all": [*results]}.items()]


def _row(world: World, family: str, results: Sequence[Result], seconds: float) -> Row:
    attempts = [attempt for result in results for attempt in result.attempts]
    outcomes = [result.outcome for result in results]
    return Row(
        world=world.name,
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
        wall_seconds=seconds,
    )


def _result(task: BenchTask, report: Report, journal: JournalReader) -> Result:
    digest = report.artifacts.get(task.output)
    if report.status != "done" or digest is None:
        outcome = "refused"
    else:
        outcome = "right" if task.right(journal.get(digest).decode("utf-8", "replace")) else "wrong"
    return Result(task, report.run_id, outcome, report.steps[0].attempts)
