"""Endpoints for operators: health, backups, vacuum."""

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.service.backup import Backup, backups
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult

router = APIRouter(tags=["upkeep"], responses=dict(DOCUMENTED))


class HealthBody(BaseModel):
    """`ok`, or the reason why the daemon accepts no runs."""

    status: str


class BackupList(BaseModel):
    """All backups, oldest first."""

    backups: list[Backup]


class VacuumBody(StrictBody):
    """Which runs that have ended are kept, and which chats. Limits that are left out are those of the configuration."""

    days: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        description="keep a run for so many days after its end, a chat after its start; 0: no limit",
    )
    runs: int | None = Field(default=None, ge=0, le=1 << 53, description="keep the newest so many; 0: no limit")
    bytes: int | None = Field(
        default=None, ge=0, le=1 << 53, description="keep at most so many bytes of artifacts; 0: no limit"
    )
    chats: int | None = Field(
        default=None, ge=0, le=1 << 53, description="keep the newest so many chats; 0: as many as the journal keeps"
    )
    outcomes: bool = Field(
        default=False, description="purge what is kept for learning too: outcomes of removed runs, and all chats"
    )
    dry_run: bool = Field(default=False, description="remove nothing, and only list what would be removed")


@router.get("/health/live")
async def live() -> HealthBody:
    """Return `ok`, which shows that the daemon answers."""
    return HealthBody(status="ok")


@router.get("/health", responses={503: {"model": HealthBody}}, include_in_schema=False)
@router.get("/v1/health", responses={503: {"model": HealthBody}}, include_in_schema=False)
@router.get(
    "/health/ready", responses={503: {"model": HealthBody, "description": "The daemon accepts no runs at the moment."}}
)
async def ready(service: ServiceDep, response: Response) -> HealthBody:
    """Return whether the daemon accepts runs."""
    if (reason := service.why_not_ready) is None:
        return HealthBody(status="ok")
    response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return HealthBody(status=reason)


@router.get("/v1/backups")
async def listed(service: ServiceDep) -> BackupList:
    """List the backups."""
    return BackupList(backups=await asyncio.to_thread(backups, service.home))


@router.post("/v1/backups", status_code=201)
async def make(service: ServiceDep) -> Backup:
    """Make a backup. Runs go on meanwhile."""
    return await service.backup()


@router.post("/v1/backups/{name}/restore")
async def restore(name: str, service: ServiceDep) -> HealthBody:
    """Replace all runs by those of a backup. The present state is kept beside the backups."""
    await service.restore(name)
    return HealthBody(status="ok")


@router.post("/v1/vacuum")
async def vacuum(body: VacuumBody, service: ServiceDep) -> VacuumResult:
    """Remove runs and chats that are kept no longer, and objects that no run names. Other runs go on meanwhile."""
    retention = Retention.of(service.configuration.retention, VacuumRequest(**body.model_dump()))
    return await service.vacuum(retention, dry_run=body.dry_run, purge_outcomes=body.outcomes)
