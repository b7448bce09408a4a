"""`Backend`: what commands need done, by the daemon of the state folder, or without one by this process."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from orchestrator.cli.client import DaemonBackend
from orchestrator.cli.daemon import answers
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of, registry_path
from orchestrator.cli.settings import Settings
from orchestrator.procedures.errors import StepFailed
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.procedures import ProcedurePlanner, asks_for_procedure, managed_task
from orchestrator.run.job import FRONTDOOR_PLANNER, CheckedJob, Job, check_job
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import PlannedTask
from orchestrator.run.sandboxes import SandboxOnDemand
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.run.updates import Update
from orchestrator.service.backup import Backup, make_backup
from orchestrator.service.callers import user_key
from orchestrator.service.configuration import Configuration, load_configuration, tool_servers
from orchestrator.service.learning import Learning
from orchestrator.service.operations import Installation, Upkeep
from orchestrator.service.procedures import procedure_library, procedures_engine, propose
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult, vacuum

T = TypeVar("T")


class Backend(Protocol):
    """Does the work of commands. An async context manager.

    Every call raises the errors of the work itself, and NoDaemon, DaemonGone and DaemonRefused if a daemon does it.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def prepare(self, job: Job | None = None) -> None:
        """Load models, which may take minutes. Needed before all calls about jobs.

        A `job` that cannot run may be refused here, before models are loaded.
        """

    async def submit(self, job: Job) -> str:
        """Accept a job, start it and return the id of its run."""

    async def resume(self, run: str) -> str:
        """Resume a run that was interrupted, and return its id."""

    def watch(self, run: str) -> AsyncGenerator[Update, None]:
        """Yield the updates of a run, from its first event until it has ended."""

    async def cancel(self, run: str) -> None:
        """Request that a run is cancelled."""

    async def plan(self, job: Job) -> PlannedTask:
        """Return the plan of a request; nothing runs."""


class EmbeddedBackend:
    """Does the work in this process, which owns the state folder while a call needs it."""

    def __init__(self, options: Settings) -> None:
        self._options = options
        self._stack = AsyncExitStack()
        self._orchestrator: Orchestrator | None = None
        self._checked: tuple[Job, CheckedJob] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orchestrator = None
        await self._stack.__aexit__(kind, error, trace)

    async def prepare(self, job: Job | None = None) -> None:
        """Check the job, and open an orchestrator. Raises RegistryError, JournalError, InputError."""
        log_to(Home(self._options.home).logs / "orchestrator.log")
        registry = registry_of(self._options)
        if job is not None:
            job = self._managed(job, registry)
            with JournalReader.open_to_read(self._options.home) as journal:
                checked = await check_job(job, registry, journal, SandboxOnDemand(), servers=_servers)
                self._checked = job, checked
        memory = load_configuration().memory
        learning = Learning(self._options.home, lambda: memory)
        library = procedure_library(load_configuration())
        planner = ProcedurePlanner(FRONTDOOR_PLANNER, lambda: library)
        ports = Ports(
            router=learning.router,
            planner=planner,
            plans_task=asks_for_procedure,
            propose=self._propose,
            servers=_servers,
        )
        opened = Orchestrator.open(self._options.home, registry, ports)
        self._orchestrator = await self._stack.enter_async_context(opened)
        await self._stack.enter_async_context(learning.running(self._orchestrator))

    async def submit(self, job: Job) -> str:
        # The orchestrator checks the job unless `prepare` was given the same one.
        job = self._managed(job, self._prepared.registry)
        checked = self._checked[1] if self._checked is not None and self._checked[0] == job else None
        return await self._prepared.submit(replace(job, owner=job.owner or user_key()), checked)

    async def resume(self, run: str) -> str:
        return await self._prepared.resume(run)

    async def watch(self, run: str) -> AsyncGenerator[Update, None]:
        async with aclosing(self._prepared.watch(run)) as updates:
            async for update in updates:
                yield update

    async def cancel(self, run: str) -> None:
        await self._prepared.cancel(run)

    async def plan(self, job: Job) -> PlannedTask:
        return await self._prepared.plan(job)

    @staticmethod
    def _managed(job: Job, registry: Registry) -> Job:
        # A task of type "manage" may become one step that proposes a procedure.
        if job.task is None or job.task.task_type != "manage":
            return job
        return replace(job, task=managed_task(job.task, procedure_library(load_configuration()), registry))

    async def _propose(self, run: str, name: str, inputs: Mapping[str, Any]) -> str:
        # A person approves the plan later; the run only keeps it.
        configuration = load_configuration()
        upkeep = _RunUpkeep(self._prepared, configuration)
        installation = Installation.of(self._options.home, registry_path(self._options), configuration, upkeep)

        def proposed() -> str:
            with closing(procedures_engine(installation, configuration)) as engine:
                return propose(engine, name, inputs, run, user_key())

        try:
            return await asyncio.to_thread(proposed)
        except StepFailed as error:
            raise ToolError(str(error)) from error

    @property
    def _prepared(self) -> Orchestrator:
        assert self._orchestrator is not None, "`prepare` comes before jobs"
        return self._orchestrator


class _RunUpkeep(Upkeep):
    """For procedures that a run of this process proposes: its orchestrator has the journal open already."""

    def __init__(self, orchestrator: Orchestrator, configuration: Configuration) -> None:
        self._orchestrator = orchestrator
        self._retention = configuration.retention

    def backup(self) -> Backup:
        return make_backup(self._orchestrator.journal)

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        retention, now = Retention.of(self._retention, request), self._orchestrator.clock.now()
        return vacuum(self._orchestrator.journal, retention, now, dry_run=request.dry_run)


def _servers() -> Mapping[str, ToolServer]:
    return tool_servers(load_configuration().mcp)


def backend(options: Settings) -> Backend:
    """Return the daemon of the state folder if one answers, else this process, as a backend to be entered."""
    if answers(options.home):
        return DaemonBackend(options.home, options.registry_flag)
    return EmbeddedBackend(options)
