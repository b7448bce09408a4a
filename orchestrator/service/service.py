"""Own one state folder, for months or for one command: queue runs, execute them within their quotas, look after it.

The heart is `_hold`: it keeps the folder open, and closes it only to restore a backup, or for good.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_args

import structlog

from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import CheckedJob, Job, check_job, job_of
from orchestrator.run.job_forecast import forecast_unopened
from orchestrator.run.journal.chats import ChatRated
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import RunRow
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.cache import KeptFigures
from orchestrator.run.record.forecast import JobForecast
from orchestrator.run.record.view import RunView, accepted_in
from orchestrator.run.sandbox.sandbox import SandboxOnDemand
from orchestrator.run.state_folder import StateFolder
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.run.updates import Update
from orchestrator.service.attachments import Cluster, Learner, Procedures
from orchestrator.service.awaited_runs import AwaitedRuns
from orchestrator.service.backup import Backup, find_backup, make_backup, restore_backup
from orchestrator.service.cancelling import Cancellation, cancellation
from orchestrator.service.configuration import Configuration, tool_servers
from orchestrator.service.errors import Busy, Conflict, FolderFull, NotReady
from orchestrator.service.extent import Extent
from orchestrator.service.queue import QueueLength, RunQueue, Submitted
from orchestrator.service.quota import Totals, effective_limits, enforce_quota, why_full
from orchestrator.service.ratings import rate, rate_chat
from orchestrator.service.retention import Retention, VacuumResult, vacuum
from orchestrator.service.steering import check_restart, steps_put_first
from orchestrator.service.telemetry import RunExporter, check_packages
from orchestrator.service.uploaded_files import UploadedFiles
from orchestrator.task.events import RatingGiven, RunAccepted
from orchestrator.task.modes import Priority
from orchestrator.task.personas import in_use

T = TypeVar("T")
Folder = TypeVar("Folder", bound=StateFolder)

LONGEST_RETRY: Final = 60  # seconds until a client is asked to try again, at most

log = structlog.get_logger(__name__)


class Service:
    """Runs many jobs on one state folder. An async context manager. Its exit interrupts runs, to be resumed.

    `learner`, `procedures` and `cluster` make what is attached to it.
    """

    def __init__(
        self,
        home: Path,
        registry: Registry,
        configuration: Configuration,
        learner: "Callable[[Service], Learner]",
        procedures: "Callable[[Service], Procedures]",
        cluster: "Callable[[Service], Cluster]",
        extent: Extent = Extent.DAEMON,
    ) -> None:
        self.home = home
        self.extent = extent
        self.totals = Totals()
        self._registry = registry
        self.configuration = configuration
        settings = configuration.runs
        self._queue = RunQueue(settings.max_running, settings.reserved)
        self._accepting: Counter[Priority] = Counter()
        self._draining = False
        self._closing = False
        self._taking = False
        self._folder: StateFolder | None = None  # the orchestrator, if runs are possible
        self._orchestrator: Orchestrator | None = None
        self._ready: asyncio.Event | None = None  # None: nobody has opened the folder yet
        self._turn = asyncio.Event()
        self._idle = asyncio.Event()
        self._stack = AsyncExitStack()
        self._upkeep = asyncio.Lock()
        self._closure: _Closure | None = None
        self.loop: asyncio.AbstractEventLoop  # that the service runs in
        self._broken: JournalError | None = None
        self._exporter: RunExporter | None = None  # None if nothing is exported
        self.awaited_runs = AwaitedRuns(
            self.cancel, lambda work: self._tasks.create_task(work), lambda: self.configuration.server.rejoin_seconds
        )
        self.figures = KeptFigures()
        # Has the listener on TCP, if there is one, read the tokens again. Blocks on the disk. Raises JournalError.
        self.read_tokens: Callable[[], None] = lambda: None
        self._make_attached = learner, procedures, cluster
        self.learning = learner(self)
        self.procedures = procedures(self)
        self.cluster = cluster(self)

    async def __aenter__(self) -> Self:
        """Open the state folder, unless it is opened later, and as a daemon resume the runs that have not ended.

        Raises JournalError, and InputError if runs are to be exported and the extra for that is not installed.
        """
        if self.extent in (Extent.RUNS, Extent.DAEMON) and self.configuration.telemetry.endpoint:
            check_packages()
        async with AsyncExitStack() as stack:
            self.loop = asyncio.get_running_loop()
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(self._end)
            if self.extent is not Extent.RUNS:
                await self.open()
            await stack.enter_async_context(self.procedures)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def open(self) -> None:
        """Open the state folder as far as this service needs it, if it is not open yet.

        If that is not possible, this waits, and the exit of the service raises the JournalError.
        """
        if self.extent is Extent.NOTHING:
            return
        if self._ready is None:
            self._ready = asyncio.Event()
            self._tasks.create_task(self._hold(self._ready))
        await self._ready.wait()

    @property
    def registry_file(self) -> Path:
        return self._registry.path

    @cached_property
    def uploaded_files(self) -> UploadedFiles:
        return UploadedFiles(self.home, lambda: self.configuration.folder, lambda: self.folder.clock.now())

    @property
    def sandbox(self) -> SandboxOnDemand:
        """The sandbox of this machine, which is probed when it is first needed."""
        return SandboxOnDemand() if self._orchestrator is None else self._orchestrator.sandbox

    @property
    def folder(self) -> StateFolder:
        """Raises NotReady while the journal is being replaced."""
        return self._opened(self._folder)

    @property
    def orchestrator(self) -> Orchestrator:
        """Raises NotReady while the journal is being replaced."""
        return self._opened(self._orchestrator)

    @property
    def ending(self) -> bool:
        """Whether the state folder, once closed, is not opened again."""
        return self._closing

    def _opened(self, opened: Folder | None) -> Folder:
        if (reason := self.cluster.why_not_acting) is not None:
            raise NotReady(reason)
        if opened is None:
            raise NotReady("the daemon is about to stop" if self._closure is None else self._closure.why)
        return opened

    @property
    def why_not_ready(self) -> str | None:
        """Why no run is accepted now, or None."""
        if self._broken is not None:
            return str(self._broken)
        if self._draining:
            return "the daemon is about to stop"
        if self._closure is not None:
            return self._closure.why
        if self._orchestrator is None:
            return "the daemon is about to stop"
        if (reason := self.cluster.why_not_acting) is not None:
            return reason
        journal = self._orchestrator.journal
        full = journal.full
        return str(full) if full is not None else journal.misplaced or self.learning.misplaced

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    @property
    def queue_lengths(self) -> Mapping[Priority, QueueLength]:
        """How many runs of each class wait and run."""
        queue, names = self._queue, get_args(Priority)
        return {name: QueueLength(queue.waiting_as(name), queue.running_as(name)) for name in names}

    @property
    def waiting_exports(self) -> int:
        """How many runs that have ended are still to be exported."""
        return 0 if self._exporter is None else self._exporter.waiting

    @property
    def running(self) -> frozenset[str]:
        return self._queue.running

    def position(self, run: str) -> int | None:
        """Return how many runs are ahead of a run in the queue, at most; None if it does not wait."""
        return self._queue.position(run)

    async def submit(self, job: Job) -> Submitted:
        """Accept a job, and queue its run. For a job with the key of an earlier run, return that run.

        A task to maintain this installation may become one step that proposes a procedure. Raises InputError, NotReady,
        Busy, FolderFull, and Conflict for the key of another job.
        """
        checked = None
        if self._ready is None:
            job, checked = await self._check_unopened(job)
            await self.open()
        elif job.task is not None:
            job = await self._managed(job, self.orchestrator.registry)
        if job.key is not None and (earlier := await self._run_with_key(job, job.key)) is not None:
            return earlier
        self._check_queue_space(job.urgency)
        self._accepting[job.urgency] += 1
        try:
            if (reason := await asyncio.to_thread(why_full, self.home, self.configuration.folder)) is not None:
                raise FolderFull(reason)
            limited = job.limited(effective_limits(job.limits, self.configuration.runs))
            # A task of its own, which is completed even if the client leaves.
            run = await asyncio.shield(self._tasks.create_task(self._accept(limited, checked)))
            if isinstance(run, Exception):
                raise run
        except JournalError:
            # Another request with the same key may have come first.
            if job.key is not None and (earlier := await self._run_with_key(job, job.key)) is not None:
                return earlier
            raise
        finally:
            self._accepting[job.urgency] -= 1
        return Submitted(run, True)

    async def _check_unopened(self, job: Job) -> tuple[Job, CheckedJob]:
        # Before the folder is opened, so that a job that cannot run here loads no model and leaves nothing behind.
        with JournalReader.open_to_read(self.home) as journal:
            registry = self._registry_of(journal)
            job = await self._managed(job, registry)
            return job, await check_job(job, registry, journal, SandboxOnDemand(), servers=self._servers)

    def _registry_of(self, journal: JournalReader) -> Registry:
        return self._registry.with_personas(entry.persona for entry in in_use(journal.personas()).values())

    async def forecast(self, job: Job) -> JobForecast:
        """Return what can be predicted of a job without running it. A request is planned first, which needs a model.

        Raises InputError, NotReady, JournalError, and PlanError if the planner's model cannot be asked.
        """
        if self._ready is None and job.task is not None:  # the folder need not be opened
            with JournalReader.open_to_read(self.home) as journal:
                return await forecast_unopened(job, job.task, self._registry_of(journal), journal, self._servers)
        await self.open()
        return await self.orchestrator.forecast(job)

    async def _managed(self, job: Job, registry: Registry) -> Job:
        if job.task is None:
            return job
        task = await asyncio.to_thread(self.procedures.managed_task, job.task, registry)
        return replace(job, task=task)

    def _servers(self) -> Mapping[str, ToolServer]:
        return tool_servers(self.configuration.mcp)

    async def _accept(self, job: Job, checked: CheckedJob | None) -> str | Exception:
        try:
            run = await self.orchestrator.accept(job, checked)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return error
        self.totals.accepted += 1
        self._queue.push(run, job.urgency)
        self._pump()
        return run

    async def resume(self, run: str) -> None:
        """Queue a run that was interrupted; as a daemon, this service does so by itself. Raises UnknownRun, InputError.

        It has no effect on a run that waits or is being executed.
        """
        row = await self.row(run)
        if row.finished is not None:
            raise InputError(Problem(f"run {run}", f"has ended: {row.status}", "a run that was interrupted"))
        if run not in self._queue.running and self._queue.position(run) is None:
            self._queue.push(run, (await self._accepted(run)).priority)
            self._pump()

    async def ended_job(self, run: str) -> Job:
        """Return the job of a run that has ended, to be submitted again. Raises UnknownRun, Conflict."""
        row = await self.row(run)
        if row.finished is None:
            raise Conflict(f"run {run} has not ended: {row.status}; accepted: a run that has ended")
        return job_of(await self._accepted(run))

    async def cancel(self, run: str, step: str | None = None) -> Cancellation:
        """Cancel a run or a step of it, and return what that does. Raises UnknownRun, InputError."""
        await self.row(run)
        waited = step is None and self._queue.remove(run)
        outcome = await asyncio.to_thread(self._with_view, run, lambda view: cancellation(view, step))
        if outcome.ended is None:
            await self.orchestrator.cancel(run, step)
        self.totals.runs["cancelled"] += waited  # it was never executed, so `enforce_quota` does not count it
        if waited:
            self._export_when_ended(run)
        return outcome

    async def retry(self, run: str, step: str, key: str | None = None) -> bool:
        """Have the running attempt of a step stopped and made again; return False if the run has ended.

        Of all requests with the same `key`, the first one counts. Raises UnknownRun, InputError for an unknown step,
        and Conflict for one of which no attempt runs.
        """
        ended = (await self.row(run)).finished is not None
        if key is not None and await asyncio.to_thread(self._with_view, run, lambda view: key in view.retry_keys):
            return True
        if ended:
            return False
        await asyncio.to_thread(self._with_view, run, lambda view: check_restart(view, step))
        await self.orchestrator.retry(run, step, key)
        return True

    async def prioritise(self, run: str, step: str) -> list[str]:
        """Let a step of a run go first, and return the steps that do so with it, itself included.

        Raises UnknownRun, InputError for an unknown step, and Conflict for one that has ended.
        """
        await self.row(run)
        first = await asyncio.to_thread(self._with_view, run, lambda view: steps_put_first(view, step))
        await self.orchestrator.prioritise(run, step)
        return first

    def _with_view(self, run: str, work: Callable[[RunView], T]) -> T:
        with self.orchestrator.views.view(run) as view:
            return work(view)

    def _export_when_ended(self, run: str) -> None:
        async def exported() -> None:
            async for _ in self.orchestrator.watch(run):
                pass
            self._export(run)

        if self._exporter is not None:
            task = self._carrying.create_task(exported())
            self._carried.add(task)
            task.add_done_callback(self._carried.discard)

    async def delete(self, run: str) -> None:
        """Delete a run and all that is kept of it. Raises UnknownRun, and Conflict for a run that has not ended."""
        row = await self.row(run)
        if row.finished is None:
            raise Conflict(f"run {run} has not ended: {row.status}; accepted: a run that has ended, so cancel it first")
        await self.folder.delete(run)

    async def rate(self, run: str, score: float, by: str, step: str | None = None, note: str = "") -> RatingGiven:
        """Journal a rating of a run that has ended, or of a step of it. It is durable when this returns.

        `score` is from 0 (bad) to 1 (good). Raises UnknownRun, InputError, Conflict, JournalError.
        """
        folder = self.folder
        rating = RatingGiven(at=folder.clock.now(), score=score, by=by, step=step, note=note)
        await rate(folder.journal, folder.views, run, rating)
        self.learning.notice()
        return rating

    async def rate_chat(self, chat: str, score: float, by: str, note: str = "") -> ChatRated:
        """Journal a rating of a chat whose model the router chose. It is durable when this returns.

        `chat` is the id of the response, and `score` is from 0 (bad) to 1 (good). Raises UnknownChat, InputError,
        JournalError.
        """
        folder = self.folder
        rating = ChatRated(at=folder.clock.now(), chat=chat, score=score, by=by, note=note)
        await rate_chat(folder.journal, rating)
        self.learning.notice()
        return rating

    async def row(self, run: str) -> RunRow:
        """Return the journal's row of a run. Raises UnknownRun."""
        return await asyncio.to_thread(self.folder.journal.run, run)

    def watch(self, run: str, after: int = 0) -> AsyncGenerator[Update, None]:
        """Return the updates of a run after event number `after` until it has ended. Raises NotReady, UnknownRun."""
        return self.orchestrator.watch(run, after)

    async def backup(self) -> Backup:
        """Copy the state folder into a backup. Raises NotReady, JournalError."""
        return await self._run_maintenance(make_backup)

    async def vacuum(
        self, retention: Retention, *, dry_run: bool = False, purge_outcomes: bool = False
    ) -> VacuumResult:
        """Remove the runs that `retention` does not keep, and data that no run uses: see `retention.vacuum`.

        When no runs are possible meanwhile, the database is rewritten too. Raises NotReady, JournalError.
        """

        def vacuumed(journal: Journal) -> VacuumResult:
            now = self.folder.clock.now()
            return vacuum(
                journal,
                retention,
                now,
                dry_run=dry_run,
                exclusive=self.extent is Extent.JOURNAL,
                purge_outcomes=purge_outcomes,
                keep_going=lambda: not self._turn.is_set(),
            )

        return await self._run_maintenance(vacuumed)

    async def restore(self, name: str) -> None:
        """Replace all runs by those of a backup, and resume them. Runs that are being executed are interrupted.

        Raises InputError, JournalError, and Conflict while the journal is closed for something else.
        """
        await asyncio.to_thread(find_backup, self.home, name)

        async def restored() -> OrchestratorError | None:
            try:
                async with self.closed("a backup is being restored"):
                    await asyncio.to_thread(restore_backup, self.home, name)
            except OrchestratorError as error:
                return error
            return None

        failure = await asyncio.shield(self._tasks.create_task(restored()))  # also if the client goes away meanwhile
        if failure is not None:
            raise failure
        log.info("a backup was restored", backup=name)

    @asynccontextmanager
    async def closed(self, why: str) -> AsyncGenerator[None, None]:
        """Return a context manager in which this service has the journal closed, so that it can be replaced.

        Runs that are being executed are interrupted; the runs of the journal that is there afterwards continue. `why`
        is the message for requests meanwhile. Raises Conflict if it is closed already, and NotReady.
        """
        if self.extent is Extent.NOTHING:
            yield
            return
        if self._closing:
            raise NotReady("the daemon is about to stop")
        if self._closure is not None:
            raise Conflict(f"{self._closure.why}; accepted: another try after that")
        closure = self._closure = _Closure(why)
        self._turn.set()
        try:
            await closure.closed.wait()
            yield
        finally:
            closure.released.set()
            await closure.reopened.wait()

    @asynccontextmanager
    async def opened(self, extent: Extent, *, with_registry: bool) -> "AsyncGenerator[Service, None]":
        """Return a service that has the folder open: this one, or one that closes it at the end of the context.

        Procedures without a daemon get the second, because some of them replace files of the folder. Raises
        JournalError, RegistryError.
        """
        if self.extent is not Extent.NOTHING:
            yield self
            return
        registry = await asyncio.to_thread(load_registry, self.registry_file) if with_registry else self._registry
        opened = Service(self.home, registry, self.configuration, *self._make_attached, extent)
        async with ended_in_order(opened) as service:
            yield service

    async def reload_personas(self) -> None:
        """Reload the personas after a procedure has put them back to what they were."""
        if self._folder is not None:
            await self._folder.personas.reload()

    def now(self) -> float:
        """Return seconds since the epoch, by the clock of events if the folder is open."""
        return time.time() if self._folder is None else self._folder.clock.now()

    def adopt(self, configuration: Configuration) -> None:
        """Use another configuration from now on. Accepted runs keep their limits."""
        before, self.configuration = self.configuration, configuration
        if configuration.telemetry != before.telemetry and self._orchestrator is not None:
            earlier, self._exporter = self._exporter, self._new_exporter(self._orchestrator)
            if earlier is not None:
                self._tasks.create_task(asyncio.to_thread(earlier.close))
        self.procedures.reconfigured()
        self._queue.max_running, self._queue.reserved = configuration.runs.max_running, configuration.runs.reserved
        self._pump()

    async def drain(self) -> None:
        """Accept and start no more runs, and wait until those in progress have ended. Queued runs stay queued."""
        self._draining = True
        self._update_idle()
        await self._idle.wait()

    async def _hold(self, ready: asyncio.Event) -> None:
        try:
            await self._keep_open(ready)
        finally:
            self._end_closure()

    async def _keep_open(self, ready: asyncio.Event) -> None:
        while not self._closing:
            async with AsyncExitStack() as closed:
                async with AsyncExitStack() as stack:
                    await self._open(stack)
                    stack.callback(self._close)
                    self._carrying = await stack.enter_async_context(asyncio.TaskGroup())
                    self._carried: set[asyncio.Task[None]] = {self._carrying.create_task(self._end_when_broken())}
                    stack.callback(self._stop)
                    if self.extent is Extent.DAEMON:
                        await self._requeue()
                    self._taking = True
                    self._pump()
                    self._end_closure()
                    ready.set()  # runs can be accepted
                    await self._turn.wait()
                    await closed.enter_async_context(self._upkeep)
                if self._closure is not None:
                    if not self._closing:
                        self._turn.clear()
                    self._closure.closed.set()
                    await self._closure.released.wait()

    async def _open(self, stack: AsyncExitStack) -> None:
        if self.extent is Extent.JOURNAL:
            self._folder = await stack.enter_async_context(
                StateFolder(self.home, self._registry, open_journal=self.cluster.open_journal)
            )
            return
        ports = Ports(
            router=self.learning.router,
            planner=self.procedures.planner,
            plans_task=self.procedures.plans_task,
            propose=self.procedures.propose,
            servers=self._servers,
            start_engine=self.cluster.start_engine,
            journal=self.cluster.open_journal,
        )
        await stack.enter_async_context(self.cluster)  # its engines are stopped by the orchestrator, which ends before
        opened = await stack.enter_async_context(Orchestrator.open(self.home, self._registry, ports))
        self._folder = self._orchestrator = opened
        self.cluster.serve(opened.pool)
        await stack.enter_async_context(self.learning.running(opened))
        self._exporter = self._new_exporter(opened)
        stack.push_async_callback(self._end_exports)

    def _new_exporter(self, orchestrator: Orchestrator) -> RunExporter | None:
        settings = self.configuration.telemetry
        if not settings.endpoint:
            return None
        return RunExporter(settings, orchestrator.journal, lambda: _remote_models(orchestrator.registry), self.totals)

    async def _end_exports(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            await asyncio.to_thread(exporter.close)

    def _export(self, run: str) -> None:
        if self._exporter is not None:
            self._exporter.put(run)

    def _end_closure(self) -> None:
        closure, self._closure = self._closure, None
        if closure is not None:
            closure.reopened.set()  # the journal is open again, or the service has ended

    async def _end_when_broken(self) -> None:
        self._broken = await self.folder.journal.breakdown()
        log.error("the journal cannot be written any more: the daemon ends", error=str(self._broken))
        raise self._broken  # which ends the service

    async def _run_maintenance(self, work: Callable[[Journal], T]) -> T:
        async def outcome() -> T | Exception:
            async with self._upkeep:  # after any maintenance that is under way
                try:
                    return await asyncio.to_thread(work, self.folder.journal)
                except Exception as error:  # noqa: BLE001 - the caller raises it
                    return error

        result = await asyncio.shield(self._tasks.create_task(outcome()))  # completed even if the client leaves
        if isinstance(result, Exception):
            raise result
        return result

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this service's event loop, from another thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _end(self) -> None:
        self._closing = True
        self.awaited_runs.close()
        self._turn.set()

    async def _requeue(self) -> None:
        settings = self.configuration.runs
        self._queue = RunQueue(settings.max_running, settings.reserved)
        for accepted in await asyncio.to_thread(_unfinished, self.orchestrator.journal):
            self._queue.push(accepted.run, accepted.priority)
            if accepted.digest:
                self.awaited_runs.resume(accepted.run, accepted.digest)

    def _close(self) -> None:
        folder, self._folder, self._orchestrator = self._folder, None, None
        assert folder is not None, "it was open"
        self._registry = folder.registry

    def _stop(self) -> None:
        self._taking = False
        for task in self._carried:
            task.cancel()

    def _check_queue_space(self, priority: Priority) -> None:
        if (reason := self.why_not_ready) is not None:
            raise NotReady(reason)
        most = self.configuration.runs.max_queued
        # Each priority has its own limit, so that many batch runs do not keep out interactive ones.
        waiting = self._queue.waiting_as(priority)
        if waiting + self._accepting[priority] >= most:
            self.totals.refused += 1
            raise Busy(f"{waiting} {priority} runs wait already, {most} may", self.retry_seconds)

    @property
    def retry_seconds(self) -> int:
        """Seconds until another run can probably start, by the mean duration of executions."""
        return min(LONGEST_RETRY, max(1, math.ceil(self.totals.typical_seconds / self._queue.max_running)))

    def _pump(self) -> None:
        while self._taking and not self._draining and (run := self._queue.pop()) is not None:
            task = self._carrying.create_task(self._carry(run))
            self._carried.add(task)
            task.add_done_callback(self._carried.discard)
        self._update_idle()

    def _update_idle(self) -> None:
        if self._queue.running:
            self._idle.clear()
        else:
            self._idle.set()

    async def _carry(self, run: str) -> None:
        structlog.contextvars.bind_contextvars(run=run)
        begun = self.loop.time()
        try:
            log.info("a run begins")
            past = [event for _, event in await asyncio.to_thread(self.orchestrator.journal.events, run)]
            await self.orchestrator.resume(run)
            await enforce_quota(self.orchestrator, run, past, self.totals)
            log.info("a run has ended")
            self._export(run)
        except OrchestratorError as error:
            log.error("a run cannot go on", error=str(error))
        except Exception:
            log.exception("a run cannot go on; others do")
        finally:
            self.totals.count_execution(self.loop.time() - begun)
            self.learning.notice()
            self._queue.end(run)
            self.awaited_runs.ended(run)
            self._pump()

    async def _accepted(self, run: str) -> RunAccepted:
        return accepted_in([await asyncio.to_thread(self.orchestrator.journal.first_event, run)])

    async def _run_with_key(self, job: Job, key: str) -> Submitted | None:
        run = await asyncio.to_thread(self.orchestrator.journal.run_with_key, key, job.owner)
        if run is None:
            return None
        earlier = job_of(await self._accepted(run))
        if not earlier.asks_the_same(job):
            raise Conflict(f"the key was given to run {run}, which has another job; accepted: a new key")
        return Submitted(run, False)


class _Closure:
    def __init__(self, why: str) -> None:
        self.why = why
        self.closed = asyncio.Event()
        self.released = asyncio.Event()  # the journal may be opened again
        self.reopened = asyncio.Event()


@asynccontextmanager
async def ended_in_order(service: Service) -> AsyncGenerator[Service, None]:
    """Enter a service for a command. If the command is interrupted, maintenance still ends early and in order.

    Raises the JournalError that ends the service, and not a group of errors.
    """
    try:
        await service.__aenter__()
        try:
            yield service
        finally:
            await service.__aexit__(None, None, None)
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]  # which ended the others
        raise first from None


def _remote_models(registry: Registry) -> frozenset[str]:
    return frozenset(model.id for model in registry.models.values() if model.is_remote)


def _unfinished(journal: JournalReader) -> list[RunAccepted]:
    return [accepted_in([journal.first_event(row.run)]) for row in journal.unfinished()]
