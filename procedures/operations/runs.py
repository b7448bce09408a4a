"""The operation of procedures that carries out a run and returns its outcome.

The run has the step's idempotency key. A step that is repeated because its process was killed finds its run, and starts
no second one. If a step is undone before its run has ended, the run is cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.forms import MAX_ATTEMPTS, TaskForm
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.upkeep import Installation, run_or_fail
from orchestrator.registry.load import load_registry
from orchestrator.run.job import Job, check_job
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import RunRow
from orchestrator.run.record.report import load_report
from orchestrator.run.sandbox.sandbox import SandboxOnDemand
from orchestrator.service.configuration import tool_servers
from orchestrator.service.service import Service
from orchestrator.task.taskir.parse import task_from
from orchestrator.task.taskir.problems import InvalidTask

T = TypeVar("T")

CANCEL_SECONDS: Final = 30.0  # for a cancelled run to end
MAX_TEXT: Final = 64 * 1024  # bytes of an artifact that is returned as a text; of others, only the digest
MAX_TEXTS: Final = 512 * 1024  # bytes of all artifacts that are returned as texts


class RunOperations:
    def __init__(self, installation: Installation) -> None:
        self._on = installation

    def by_name(self) -> dict[str, Operation[Any]]:
        operation = Operation(
            name="taskir",
            description="Carry out a run, and return its outcome. Fails if the run does.",
            form=TaskForm,
            outputs={
                "run": "the id of the run",
                "answer": "its answer, or null",
                "doubt": "why its answer is doubtful, or an empty text",
                "texts": "its artifacts by name, the short ones that are texts",
                "digests": "the SHA-256 of each artifact by name",
                "seconds": "how long it took",
            },
            run=self._run,
            preview=self._preview,
            undone=self._cancel,
        )
        return {operation.name: operation}

    def _preview(self, arguments: TaskForm) -> str:
        job = _job(arguments, None, "")

        async def checked() -> None:
            with JournalReader.open_to_read(self._on.home) as journal:
                servers = tool_servers(self._on.configuration.mcp)
                registry = load_registry(self._on.registry)
                await check_job(job, registry, journal, SandboxOnDemand(), servers=lambda: servers)

        run_or_fail(lambda: asyncio.run(checked()))
        if job.task is None:
            return f"have this request planned, and carry out the plan: {job.request}"
        steps = "\n".join(f"  {step.id} [{step.actor}] {step.action}" for step in job.task.plan.steps)
        return f"carry out a run: {job.task.objective}\n{steps}"

    def _run(self, arguments: TaskForm, work: Work) -> Mapping[str, Any]:
        key = _key(work)
        row = run_or_fail(lambda: self._row_with_key(key, work.owner))
        if row is None or row.finished is None:
            job, earlier_run = _job(arguments, key, work.owner), None if row is None else row.run
            run = self._with_runs(lambda service: _carried_out(service, job, earlier_run, work), work)
        else:
            run = row.run
        return run_or_fail(lambda: self._outcome(run))

    def _with_runs(self, use: Callable[[Service], Coroutine[Any, Any, T]], work: Work) -> T:
        async def limited(service: Service) -> T:
            async with asyncio.timeout(work.seconds_left):
                return await use(service)

        try:
            return run_or_fail(lambda: self._on.upkeep.with_runs(limited))
        except TimeoutError as error:
            raise StepFailed("its time is over") from error

    def _row_with_key(self, key: str, owner: str) -> RunRow | None:
        with JournalReader.open_to_read(self._on.home) as journal:
            run = journal.run_with_key(key, owner)
            return None if run is None else journal.run(run)

    def _outcome(self, run: str) -> Mapping[str, Any]:
        with JournalReader.open_to_read(self._on.home) as journal:
            report = load_report(journal, run)
            if report.status != "done":
                raise StepFailed(f"run {run} has ended: {report.status}: {report.error or 'nothing says why'}")
            texts: dict[str, str] = {}
            for name, digest in sorted(report.artifacts.items()):
                content = journal.get(digest)
                if len(content) <= MAX_TEXT and sum(map(len, texts.values())) + len(content) <= MAX_TEXTS:
                    try:
                        texts[name] = content.decode()
                    except UnicodeDecodeError:
                        continue
        return {
            "run": run,
            "answer": report.answer,
            "doubt": report.doubt,
            "texts": texts,
            "digests": dict(report.artifacts),
            "seconds": round(report.wall_seconds, 3),
        }

    def _cancel(self, _arguments: TaskForm, work: Work) -> None:
        unfinished = run_or_fail(lambda: self._unfinished(work))

        async def cancelled(service: Service) -> None:
            await service.open()
            for run in unfinished:
                await _cancelled(service, run)

        if unfinished:
            self._with_runs(cancelled, work)

    def _unfinished(self, work: Work) -> list[str]:
        if not Home(self._on.home).database.exists():
            return []
        with JournalReader.open_to_read(self._on.home) as journal:
            runs = (journal.run_with_key(_key(work, attempt), work.owner) for attempt in range(1, MAX_ATTEMPTS + 1))
            # Not every attempt may have got a run.
            return [run for run in runs if run is not None and journal.run(run).finished is None]


def _job(arguments: TaskForm, key: str | None, owner: str) -> Job:
    try:
        task = None if arguments.task is None else task_from(arguments.task)
    except InvalidTask as error:
        raise StepFailed(f"the task cannot be used: {error}") from error
    folder = None if arguments.folder is None else Path(arguments.folder)
    return Job(
        request=arguments.request,
        task=task,
        directory=folder,
        mode="as-planned",
        priority="batch",
        key=key,
        owner=owner,
    )


def _key(work: Work, attempt: int | None = None) -> str:
    number = work.attempt if attempt is None else attempt
    return f"procedure/{work.key}" if number == 1 else f"procedure/{work.key}/{number}"


async def _carried_out(service: Service, job: Job, earlier_run: str | None, work: Work) -> str:
    if earlier_run is None:
        run = (await service.submit(job)).run
    else:
        run = earlier_run
        await service.open()
        await service.resume(run)
    work.say(f"run {run}" if earlier_run is None else f"run {run}, which had begun before")
    try:
        async with aclosing(service.watch(run)) as updates:
            async for _ in updates:
                work.seconds_left  # noqa: B018 - raises if there are none
    except (StepFailed, asyncio.CancelledError):
        await _cancelled(service, run)
        raise
    return run


async def _cancelled(service: Service, run: str) -> None:
    await service.cancel(run)
    async with asyncio.timeout(CANCEL_SECONDS), aclosing(service.watch(run)) as updates:
        async for _ in updates:
            pass
