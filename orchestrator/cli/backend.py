"""One interface to what commands need done: by the daemon of the state folder, or by this process if there is none."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import replace
from threading import Event
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from orchestrator.cli.client import DaemonBackend, answers
from orchestrator.cli.logs import log_to
from orchestrator.cli.settings import Settings
from orchestrator.errors import InputError, Problem
from orchestrator.pool import memory_budget
from orchestrator.run.frontdoor.procedures import ProcedurePlanner, asks_for_procedure, managed_task
from orchestrator.run.job import FRONTDOOR_PLANNER, CheckedJob, Job, check_job
from orchestrator.run.journal import ChatRated, Home, JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.personas import PersonaProposal, add_without_daemon, retire_without_daemon
from orchestrator.run.planning import PlannedTask
from orchestrator.run.sandboxes import SandboxOnDemand
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.run.updates import Update
from orchestrator.service.backup import Backup, make_backup, restore_backup
from orchestrator.service.callers import user_key
from orchestrator.service.configuration import Configuration, load_configuration, tool_servers
from orchestrator.service.learning import Learning
from orchestrator.service.operations import Installation, Upkeep
from orchestrator.service.procedures import procedure_library, procedures_engine, propose
from orchestrator.service.ratings import rate_chat_without_daemon, rate_without_daemon
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult, vacuum, vacuum_without_daemon
from orchestrator.task.events import RatingGiven
from orchestrator.task.personas import Placed
from procedures.errors import StepFailed
from registry.models import Registry

T = TypeVar("T")


class Backend(Protocol):
    """What commands need done. An async context manager.

    Every call raises the errors of the work itself, and NoDaemon, DaemonGone and DaemonRefused if a daemon does it.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def prepare(self, job: Job | None = None) -> None:
        """Make ready for jobs, which may take minutes: models are loaded. The calls about jobs need it.

        A `job` that is going to be submitted is given where it is known. One that cannot be run may be refused already
        here, before models are loaded.
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

    async def rate(self, run: str, rating: RatingGiven) -> RatingGiven:
        """Rate a run that has ended, and return the rating with its author, who is this user, and its time."""

    async def add_persona(self, proposal: PersonaProposal) -> Placed:
        """Add a persona, unless there is one that says nearly the same, and return which one to use."""

    async def retire_persona(self, name: str) -> None:
        """Retire a persona that was made at run time."""

    async def rate_chat(self, rating: ChatRated) -> ChatRated:
        """Rate a chat whose model the router has chosen, and return the rating with its author and its time."""

    async def vacuum(self, request: VacuumRequest) -> VacuumResult:
        """Remove the runs and chats that are kept no longer, and data that no run uses, and return what was removed."""

    async def restore(self, name: str) -> None:
        """Replace all runs by those of a backup."""

    async def memory(self) -> int:
        """Return how many bytes of memory models may take together if the registry does not limit them."""


class EmbeddedBackend:
    """Does in this process what a daemon would do. It owns the state folder for as long as a call needs it."""

    def __init__(self, chosen: Settings) -> None:
        self._chosen = chosen
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
        """Check the job, if one is given, and open an orchestrator, which loads models.

        Raises RegistryError, JournalError, and InputError for a job that cannot be run.
        """
        log_to(Home(self._chosen.home).logs / "orchestrator.log")
        registry = self._chosen.registry()
        if job is not None:
            job = self._managed(job, registry)
            with JournalReader.open_to_read(self._chosen.home) as journal:
                checked = await check_job(job, registry, journal, SandboxOnDemand(), servers=_servers)
                self._checked = job, checked
        memory = load_configuration().memory
        learning = Learning(self._chosen.home, lambda: memory)
        library = procedure_library(load_configuration())
        planner = ProcedurePlanner(FRONTDOOR_PLANNER, lambda: library)
        ports = Ports(
            router=learning.router,
            planner=planner,
            plans_task=asks_for_procedure,
            propose=self._propose,
            servers=_servers,
        )
        opened = Orchestrator.open(self._chosen.home, registry, ports)
        self._orchestrator = await self._stack.enter_async_context(opened)
        await self._stack.enter_async_context(learning.running(self._orchestrator))

    async def submit(self, job: Job) -> str:
        """Accept a job of this user, start it and return its run. It is checked unless `prepare` has done so."""
        job = self._managed(job, self._prepared.registry)
        checked = self._checked[1] if self._checked is not None and self._checked[0] == job else None
        return await self._prepared.submit(replace(job, owner=job.owner or user_key()), checked)

    async def resume(self, run: str) -> str:
        """Resume a run that was interrupted, and return its id."""
        return await self._prepared.resume(run)

    async def watch(self, run: str) -> AsyncGenerator[Update, None]:
        """Yield the updates of a run, from its first event until it has ended."""
        async with aclosing(self._prepared.watch(run)) as updates:
            async for update in updates:
                yield update

    async def cancel(self, run: str) -> None:
        """Request that a run is cancelled."""
        await self._prepared.cancel(run)

    async def plan(self, job: Job) -> PlannedTask:
        """Return the plan of a request; nothing runs."""
        return await self._prepared.plan(job)

    async def rate(self, run: str, rating: RatingGiven) -> RatingGiven:
        """Rate a run that has ended. Raises HomeLocked while another process owns the state folder."""
        return await rate_without_daemon(self._chosen.home, run, replace(rating, by=user_key()))

    async def add_persona(self, proposal: PersonaProposal) -> Placed:
        """Add a persona. Raises HomeLocked while another process owns the state folder, RegistryError, InputError."""
        made = replace(proposal, by=user_key())
        return add_without_daemon(self._chosen.home, made, self._chosen.registry(), time.time())

    async def retire_persona(self, name: str) -> None:
        """Retire a persona. Raises HomeLocked while another process owns the folder, RegistryError, InputError."""
        retire_without_daemon(self._chosen.home, name, self._chosen.registry(), time.time())

    async def rate_chat(self, rating: ChatRated) -> ChatRated:
        """Rate a chat. Raises HomeLocked while another process owns the state folder."""
        return await rate_chat_without_daemon(self._chosen.home, replace(rating, by=user_key()))

    async def vacuum(self, request: VacuumRequest) -> VacuumResult:
        """Remove the runs and chats that the limits do not keep, and rewrite the database.

        Raises HomeLocked, InputError. When this is cancelled, the work ends early, with everything in order.
        """
        home = self._chosen.home
        if not Home(home).database.exists():
            accepted = "the state folder of a daemon, or of earlier runs"
            raise InputError(Problem(f"--home {home}", "holds no runs", accepted))
        retention, stopped = Retention.of(load_configuration().retention, request), Event()
        try:
            return await asyncio.to_thread(
                vacuum_without_daemon,
                home,
                retention,
                dry_run=request.dry_run,
                purge_outcomes=request.outcomes,
                keep_going=lambda: not stopped.is_set(),
            )
        finally:
            stopped.set()

    async def restore(self, name: str) -> None:
        """Replace all runs by those of a backup. Raises HomeLocked while another process owns the state folder."""
        await asyncio.to_thread(restore_backup, self._chosen.home, name)

    async def memory(self) -> int:
        """Return how many bytes of memory are free for models now."""
        return memory_budget()

    @staticmethod
    def _managed(job: Job, registry: Registry) -> Job:
        """Return a job whose task may have become one step that proposes a procedure: see `managed_task`."""
        if job.task is None or job.task.task_type != "manage":
            return job
        return replace(job, task=managed_task(job.task, procedure_library(load_configuration()), registry))

    async def _propose(self, run: str, name: str, inputs: Mapping[str, Any]) -> str:
        """Keep the plan of a procedure that the plan of a run asks for. Raises ToolError."""
        configuration = load_configuration()
        upkeep = _RunUpkeep(self._prepared, configuration)
        installation = Installation.of(self._chosen.home, self._chosen.registry_path, configuration, upkeep)

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
    """What plans of procedures need done that a run of this process proposes. Its orchestrator has the journal open."""

    def __init__(self, orchestrator: Orchestrator, configuration: Configuration) -> None:
        self._orchestrator = orchestrator
        self._retention = configuration.retention

    def backup(self) -> Backup:
        return make_backup(self._orchestrator.journal)

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        kept, now = Retention.of(self._retention, request), self._orchestrator.clock.now()
        return vacuum(self._orchestrator.journal, kept, now, dry_run=request.dry_run)


def _servers() -> Mapping[str, ToolServer]:
    return tool_servers(load_configuration().mcp)


def backend(chosen: Settings) -> Backend:
    """Return the backend of the state folder, which has to be entered: its daemon if one answers, else this process."""
    if answers(chosen.home):
        return DaemonBackend(chosen.home, chosen.registry_flag)
    return EmbeddedBackend(chosen)


def ask_backend(chosen: Settings, ask: Callable[[Backend], Awaitable[T]]) -> T:
    """Enter the backend of the state folder, and return what `ask` returns, which makes one call to it."""

    async def asked() -> T:
        async with backend(chosen) as one:
            return await ask(one)

    return asyncio.run(asked())
