"""Services that have a state folder to themselves, as a command without a daemon has."""

from pathlib import Path

from orchestrator.app import attached
from orchestrator.registry.load import empty_registry
from orchestrator.service.configuration import Configuration
from orchestrator.service.extent import Extent
from orchestrator.service.retention import Retention, VacuumResult
from orchestrator.service.service import Service


def service_alone(home: Path) -> Service:
    """Return a service to enter, which has only the journal open."""
    return attached().service(home, empty_registry(home / "registry.yaml"), Configuration(), Extent.JOURNAL)


async def vacuum_alone(home: Path, retention: Retention, *, purge_outcomes: bool = False) -> VacuumResult:
    async with service_alone(home) as service:
        return await service.vacuum(retention, purge_outcomes=purge_outcomes)
