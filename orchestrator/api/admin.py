"""Endpoints for operators: health, the checks of the installation, the log, backups, vacuum."""

import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from orchestrator.api.auth import token_path
from orchestrator.api.dependencies import ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.logs import LEVELS, MAX_LINES, LogLine, latest_lines
from orchestrator.service.backup import Backup, backups
from orchestrator.service.doctor import examine, examine_daemon
from orchestrator.service.redaction import redacted, secrets_of
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult
from orchestrator.service.service import Service

router = APIRouter(tags=["upkeep"], responses=dict(DOCUMENTED))


class HealthBody(BaseModel):
    """`ok`, or the reason why the daemon accepts no runs."""

    status: str


class CheckBody(BaseModel):
    """A check of the installation."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str
    mend: str = Field(description="what to do if it is not ok")


class DoctorBody(BaseModel):
    """What a run needs here, what is optional, and what is good to know. Secrets are left out."""

    healthy: bool = Field(description="nothing is broken")
    checks: list[CheckBody]


class LogLineBody(BaseModel):
    """A line of the log. Secrets are left out."""

    number: int = Field(description="from 1 since the daemon started")
    at: str = Field(description="ISO 8601, in UTC")
    level: str
    event: str
    facts: dict[str, Any]


class LogBody(BaseModel):
    """Lines of the log, the oldest first."""

    lines: list[LogLineBody]


class BackupList(BaseModel):
    """All backups, oldest first."""

    backups: list[Backup]


class VacuumBody(StrictBody):
    """Which runs that have ended are kept, and which chats. Limits that are left out are those of the configuration."""

    days: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        description="days that a run is kept after its end, and a chat after its start; 0: no limit",
    )
    runs: int | None = Field(
        default=None, ge=0, le=1 << 53, description="how many runs are kept, the newest; 0: no limit"
    )
    bytes: int | None = Field(
        default=None, ge=0, le=1 << 53, description="bytes of artifacts that are kept at most; 0: no limit"
    )
    chats: int | None = Field(
        default=None,
        ge=0,
        le=1 << 53,
        description="how many chats are kept, the newest; 0: as many as the journal keeps",
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


@router.get("/v1/doctor")
async def doctor(service: ServiceDep) -> DoctorBody:
    """Check the installation, which may take seconds."""
    checks = await asyncio.to_thread(examine, service.registry_file, service.home)
    has_ray = bool(service.configuration.cluster.ray)
    exposed = {node.name: node.exposed for node in service.cluster.nodes()} if has_ray else None
    checks += examine_daemon(service.why_not_ready, service.cluster.standby, exposed)
    hidden = await asyncio.to_thread(_secrets, service)
    bodies = [CheckBody(**redacted(asdict(check), hidden)) for check in checks]
    return DoctorBody(healthy=all(check.state != "broken" for check in checks), checks=bodies)


@router.get("/v1/log")
async def log_lines(
    service: ServiceDep,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Only lines after the one with this number.")] = 0,
    level: Annotated[Literal["debug", "info", "warning", "error"], Query(description="The lowest level.")] = "info",
    limit: Annotated[int, Query(ge=1, le=MAX_LINES, description="How many of the latest lines.")] = 200,
) -> LogBody:
    """Return the latest lines of the daemon's log, of which it keeps 1,000 in memory."""
    hidden = await asyncio.to_thread(_secrets, service)
    lines = latest_lines().after(after, LEVELS[level], limit)
    return LogBody(lines=[_log_line(line, hidden) for line in lines])


@router.get("/v1/backups")
async def listed(service: ServiceDep) -> BackupList:
    """List the backups."""
    return BackupList(backups=await asyncio.to_thread(backups, service.home))


@router.post("/v1/backups", status_code=201)
async def make(service: ServiceDep) -> Backup:
    """Make a backup. Runs continue meanwhile."""
    return await service.backup()


@router.post("/v1/backups/{name}/restore")
async def restore(name: str, service: ServiceDep) -> HealthBody:
    """Replace all runs by those of a backup. The present state is kept next to the backups."""
    await service.restore(name)
    return HealthBody(status="ok")


@router.post("/v1/vacuum")
async def vacuum(body: VacuumBody, service: ServiceDep) -> VacuumResult:
    """Remove expired runs and chats, and objects that no run names. Other runs continue meanwhile."""
    retention = Retention.of(service.configuration.retention, VacuumRequest(**body.model_dump()))
    return await service.vacuum(retention, dry_run=body.dry_run, purge_outcomes=body.outcomes)


def _log_line(line: LogLine, hidden: Iterable[str]) -> LogLineBody:
    record: dict[str, Any] = redacted(json.loads(line.text), hidden)
    at, level, event = (str(record.pop(name, "")) for name in ("timestamp", "level", "event"))
    return LogLineBody(number=line.number, at=at, level=level, event=event, facts=record)


def _secrets(service: Service) -> tuple[str, ...]:
    files = (token_path(service.home), *map(Path, service.configuration.server.tokens.values()))
    tokens = [file.read_text(errors="replace").strip() for file in files if os.access(file, os.R_OK)]
    return secrets_of(os.environ, tokens)
