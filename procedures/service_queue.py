"""Execute procedures on the installation of a service: the queue, and what its operations act on."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, TypeVar

from orchestrator.memrl.learning import Learning, memory_closed, memory_of
from orchestrator.procedures.errors import ProcedureError
from orchestrator.procedures.installation import procedure_ports, procedures_engine, propose
from orchestrator.procedures.library import library_of
from orchestrator.procedures.queue import ProcedureQueue
from orchestrator.procedures.upkeep import Installation, Upkeep, run_or_fail
from orchestrator.run.personas import PersonaProposal
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.service.backup import Backup
from orchestrator.service.callers import Callers
from orchestrator.service.extent import Extent
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult
from orchestrator.service.schedules import schedules_from
from orchestrator.service.service import Service
from orchestrator.task.personas import Placed

T = TypeVar("T")


class ServiceQueue(ProcedureQueue):
    """Executes procedures on the installation of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        super().__init__(
            procedures_engine(self._installation()),
            lambda: schedules_from(service.configuration.procedures.schedules),
            owner=Callers(service.home, {}).folder_owner(),
            acts_by_itself=service.extent is Extent.DAEMON,
        )

    async def propose(self, run: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See `service.attachments.Procedures`."""
        owner = (await self._service.row(run)).owner
        try:
            return await self.planning(lambda: propose(self.engine, name, inputs, run, owner))
        except ProcedureError as error:
            raise ToolError(str(error)) from error

    def reconfigured(self) -> None:
        settings = self._service.configuration.procedures
        self.engine.ports = procedure_ports(self._installation())
        self.engine.library = library_of(settings)
        self.engine.part_bytes = settings.audit_bytes
        super().reconfigured()

    def _installation(self) -> Installation:
        service = self._service
        return Installation.of(service.home, service.registry_file, service.configuration, ServiceUpkeep(service))


# For threads: enters a context manager of a service's event loop, and only once if it is nested.
class _Held:
    def __init__(self, service: Service, enter: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._service = service
        self._enter = enter
        self._depth = 0
        self._stack = AsyncExitStack()

    def __enter__(self) -> None:
        if not self._depth:
            run_or_fail(lambda: self._service.wait_for(self._stack.enter_async_context(self._enter())))
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            run_or_fail(lambda: self._service.wait_for(self._stack.aclose()))


class ServiceUpkeep(Upkeep):
    """The `Upkeep` of procedures that a service executes, in other threads than that of its event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._journal_closed = _Held(service, lambda: service.closed("a procedure replaces the journal"))

    def backup(self) -> Backup:
        return self._wait_for(Extent.JOURNAL, lambda service: service.backup())

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        retention = Retention.of(self._service.configuration.retention, request)
        return self._wait_for(
            Extent.JOURNAL,
            lambda service: service.vacuum(retention, dry_run=request.dry_run, purge_outcomes=request.outcomes),
        )

    def with_runs(self, work: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        return self._wait_for(Extent.RUNS, work, with_registry=True)

    def add_persona(self, proposal: PersonaProposal) -> Placed:
        return self._wait_for(Extent.JOURNAL, lambda service: service.folder.add_persona(proposal), with_registry=True)

    def retire_persona(self, name: str) -> None:
        self._wait_for(Extent.JOURNAL, lambda service: service.folder.retire_persona(name), with_registry=True)

    def token_changed(self) -> None:
        self._service.read_tokens()

    def personas_put_back(self) -> None:
        self._service.wait_for(self._service.reload_personas())

    def memory(self) -> AbstractContextManager[Learning]:
        return memory_of(self._service)

    def memory_closed(self) -> AbstractContextManager[None]:
        return _Held(self._service, lambda: memory_closed(self._service))

    def journal_closed(self) -> AbstractContextManager[None]:
        return self._journal_closed

    def _wait_for(
        self, extent: Extent, work: Callable[[Service], Coroutine[Any, Any, T]], *, with_registry: bool = False
    ) -> T:
        async def done() -> T:
            async with self._service.opened(extent, with_registry=with_registry) as service:
                return await work(service)

        return self._service.wait_for(done())
