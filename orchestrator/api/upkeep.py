"""Say whether the daemon is well, count for Prometheus, and keep backups."""

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.access import TheService
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.metrics import exposition
from orchestrator.service.backup import Backup, backups
from orchestrator.service.retention import Retention, Vacuumed

router = APIRouter(tags=["upkeep"], responses=dict(DOCUMENTED))


class HealthBody(BaseModel):
    """`ok`, or why not."""

    status: str


class BackupList(BaseModel):
    """All copies, oldest first."""

    backups: list[Backup]


class VacuumBody(BaseModel):
    """What to leave of runs that have ended. What is left out is as [retention] of the configuration says."""

    model_config = ConfigDict(extra="forbid")

    days: float | None = Field(default=None, ge=0, le=1e6, description="since a run has ended; 0: no limit")
    runs: int | None = Field(default=None, ge=0, le=1 << 53, description="the newest so many; 0: no limit")
    bytes: int | None = Field(default=None, ge=0, le=1 << 53, description="of artifacts; 0: no limit")
    dry_run: bool = Field(default=False, description="only tell what would be removed")


@router.get("/health/live")
async def live() -> HealthBody:
    """Say that the daemon answers."""
    return HealthBody(status="ok")


@router.get("/health/ready", responses={503: {"model": HealthBody, "description": "It takes no runs at the moment."}})
async def ready(service: TheService, response: Response) -> HealthBody:
    """Say whether the daemon takes runs."""
    if (reason := service.why_not_ready) is None:
        return HealthBody(status="ok")
    response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return HealthBody(status=reason)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "All metrics."}},
)
async def metrics(service: TheService) -> Response:
    """Return counters and gauges in Prometheus' text format."""
    return Response(await exposition(service), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


@router.get("/v1/backups")
async def listed(service: TheService) -> BackupList:
    """List the backups."""
    return BackupList(backups=await asyncio.to_thread(backups, service.home))


@router.post("/v1/backups", status_code=201)
async def make(service: TheService) -> Backup:
    """Make a backup, while everything goes on."""
    return await service.backup()


@router.post("/v1/backups/{name}/restore")
async def restore(name: str, service: TheService) -> HealthBody:
    """Put a backup in the place of all runs. What there is now is kept beside the backups."""
    await service.restore(name)
    return HealthBody(status="ok")


@router.post("/v1/vacuum")
async def vacuum(body: VacuumBody, service: TheService) -> Vacuumed:
    """Remove runs that are kept no longer, and objects that no run names, while everything goes on."""
    retention = Retention.of(service.configuration.retention, body.days, body.runs, body.bytes)
    return await service.vacuum(retention, dry_run=body.dry_run)
