"""Execute procedures on the installation of a service: the queue, and what its operations act on."""

from collections.abc import Mapping
from typing import Any

from orchestrator.procedures.errors import ProcedureError
from orchestrator.procedures.installation import procedure_ports, procedures_engine, propose
from orchestrator.procedures.library import library_of
from orchestrator.procedures.queue import ProcedureQueue
from orchestrator.procedures.upkeep import Installation, Upkeep
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.service.callers import Callers
from orchestrator.service.extent import Extent
from orchestrator.service.schedules import schedules_from
from orchestrator.service.service import Service


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
        return Installation.of(service.home, service.registry_file, service.configuration, Upkeep(service))
