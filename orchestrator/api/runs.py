"""Submit runs, look at them, and have them cancelled, repeated, exported and forgotten."""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import IO, Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import IsLocal, LimiterDep, RequestBody, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED, NotFound
from orchestrator.errors import InputError, Problem
from orchestrator.events import Mode, Priority, RunLimits, RunStatus
from orchestrator.history.report import Report
from orchestrator.journal import RunRow
from orchestrator.runs import Job, PlannedTask
from orchestrator.service.archive import write_archive
from orchestrator.service.ratings import MAX_AUTHOR_LENGTH, MAX_NOTE_LENGTH
from orchestrator.service.service import Service
from orchestrator.taskir import dump_task, task_from

MEMORY_BYTES: Final = 1 << 20
CHUNK: Final = 1 << 16
RUN_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
BINARY: Final = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter(prefix="/v1", tags=["runs"], responses=dict(DOCUMENTED))


class LimitsBody(StrictBody):
    """What a run may take before it is cancelled. The daemon's own limits hold too."""

    tokens: int | None = Field(default=None, ge=1, le=1 << 53, description="of prompts and answers together")
    seconds: float | None = Field(default=None, gt=0, le=1e9, description="from when it begins")
    bytes: int | None = Field(default=None, ge=1, le=1 << 53, description="of its artifacts")


class PlanBody(RequestBody, StrictBody):
    """A request in words, and the folder that its steps may read."""

    request: str = Field(min_length=1, description="what to do, in words")
    directory: str | None = Field(default=None, description="an absolute path on the daemon's machine")


class RunBody(RequestBody, StrictBody):
    """A job: `request` or `task`, exactly one of them."""

    request: str | None = Field(default=None, description="what to do, in words")
    task: dict[str, Any] | None = Field(default=None, description="a TaskIR document")
    directory: str | None = Field(default=None, description="an absolute path on the daemon's machine, to read from")
    mode: Mode = "as-planned"
    priority: Priority | None = Field(default=None, description="the document's, or interactive, if left out")
    limits: LimitsBody = Field(default_factory=LimitsBody)
    prior_task_ids: list[str] = Field(default_factory=list, max_length=100, description="runs to build on")


class CancelBody(RequestBody, StrictBody):
    """Which step to cancel, with all that depends on it; the whole run if none is named."""

    step: str | None = None


class RatingBody(RequestBody, StrictBody):
    """How good a run was that has ended, or a step of it."""

    score: float = Field(ge=0, le=1, allow_inf_nan=False, description="from 0 (bad) to 1 (good)")
    step: str | None = Field(default=None, description="the step; the whole run if none is named")
    by: str = Field(default="api", min_length=1, max_length=MAX_AUTHOR_LENGTH, description="who says it")
    note: str = Field(default="", max_length=MAX_NOTE_LENGTH, description="why")


class RatingLine(BaseModel):
    """A rating as it was journaled, `at` in seconds since the epoch."""

    run_id: str
    step: str | None
    score: float
    by: str
    note: str
    at: float


class RunLine(BaseModel):
    """A run in a list. `position`, while it waits: how many are before it, at most."""

    run_id: str
    status: RunStatus
    mode: Mode
    request: str
    accepted_at: float
    finished_at: float | None
    error: str | None
    position: int | None = None


class RunList(BaseModel):
    """Runs, newest first. `before` asks for those that come after these, if there may be any."""

    runs: list[RunLine]
    before: str | None


class ArtifactLine(BaseModel):
    """An artifact and what it holds: its SHA-256, and bytes."""

    name: str
    sha256: str
    bytes: int


class ArtifactList(BaseModel):
    """The artifacts of a run."""

    artifacts: list[ArtifactLine]


class ResultBody(BaseModel):
    """What came of a run, in short."""

    run_id: str
    status: RunStatus
    answer: str | None
    error: str | None
    artifacts: dict[str, str]


class PlannedBody(BaseModel):
    """A plan as a task. It may only be the first part, and go on after a step."""

    task: dict[str, Any]
    goes_on_after: str | None


Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="One run for all requests with one key."),
]


@router.post("/runs", status_code=201, responses={200: {"model": RunLine, "description": "The run with this key."}})
async def submit(body: RunBody, response: Response, service: ServiceDep, local: IsLocal, key: Key = None) -> RunLine:
    """Submit a job. It is durable when this answers."""
    submitted = await service.submit(job_from(body, service, local, key))
    response.status_code = HTTPStatus.CREATED if submitted.new else HTTPStatus.OK
    return await _line(service, submitted.run)


@router.get("/runs")
async def runs(
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    status: Annotated[RunStatus | None, Query(description="Only those of this status.")] = None,
    before: Annotated[
        str | None, Query(pattern=RUN_PATTERN, description="Only those accepted before this run.")
    ] = None,
) -> RunList:
    """List runs, newest first."""
    if before is not None:
        await service.row(before)
    rows = await asyncio.to_thread(service.orchestrator.journal.runs, limit, status, before)
    last = rows[-1].run if len(rows) == limit else None
    return RunList(runs=[run_line(row, service.position(row.run)) for row in rows], before=last)


@router.get("/runs/{run}")
async def show(run: str, service: ServiceDep) -> dict[str, Any]:
    """Tell all of a run: steps, attempts, figures, artifacts."""
    report = await _report(service, run)
    return await asyncio.to_thread(report.to_json) | {"position": service.position(run)}


@router.get("/runs/{run}/result")
async def result(run: str, service: ServiceDep) -> ResultBody:
    """Tell what came of a run: its answer and its artifacts by name and digest."""
    report = await _report(service, run)
    return ResultBody(
        run_id=report.run_id,
        status=report.status,
        answer=report.answer,
        error=report.error,
        artifacts=dict(report.artifacts),
    )


@router.post("/runs/{run}/cancel", status_code=202)
async def cancel(run: str, service: ServiceDep, body: CancelBody | None = None) -> RunLine:
    """Ask for a run, or a step of it, to be cancelled. Harmless when it has ended."""
    await service.cancel(run, body.step if body is not None else None)
    return await _line(service, run)


@router.post("/runs/{run}/retry", status_code=201)
async def retry(run: str, service: ServiceDep, local: IsLocal) -> RunLine:
    """Submit the job of a run that has ended once more, as a new run."""
    job = await service.ended_job(run)
    if job.directory is not None:  # whoever repeats a run asks for its folder
        job = replace(job, directory=_directory(str(job.directory), service, local))
    return await _line(service, (await service.submit(job)).run)


@router.post("/runs/{run}/ratings", status_code=201)
async def rate(run: str, body: RatingBody, service: ServiceDep) -> RatingLine:
    """Say how good a run was that has ended, or a step of it. It may be rated more than once."""
    made = await service.rate(run, body.score, body.by, body.step, body.note)
    return RatingLine(run_id=run, step=made.step, score=made.score, by=made.by, note=made.note, at=made.at)


@router.delete("/runs/{run}", status_code=204)
async def delete(run: str, service: ServiceDep) -> None:
    """Forget a run that has ended."""
    await service.delete(run)


@router.get("/runs/{run}/artifacts")
async def artifacts(run: str, service: ServiceDep) -> ArtifactList:
    """List the artifacts of a run."""
    report = await _report(service, run)
    found = await asyncio.to_thread(_artifact_lines, service, report)
    return ArtifactList(artifacts=found)


@router.get(
    "/runs/{run}/artifacts/{name:path}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": BINARY}, "description": "The artifact, byte for byte."}},
)
async def artifact(run: str, name: str, service: ServiceDep) -> Response:
    """Return one artifact."""
    digest = (await _report(service, run)).artifacts.get(name)
    if digest is None:
        raise NotFound(f"run {run} has no artifact {name!r}")
    data = await asyncio.to_thread(service.orchestrator.journal.get, digest)
    headers = {"ETag": f'"{digest}"', "X-Content-Type-Options": "nosniff"}
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get(
    "/runs/{run}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/gzip": BINARY}, "description": "A tar.gz of report, events, artifacts."}},
)
async def export(run: str, service: ServiceDep) -> StreamingResponse:
    """Return a run as one file."""
    file = await asyncio.to_thread(_archive, service, run)
    headers = {"Content-Disposition": f'attachment; filename="{run}.tar.gz"'}
    return StreamingResponse(_chunks(file), media_type="application/gzip", headers=headers)


@router.post("/plans")
async def plan(
    body: PlanBody, request: Request, service: ServiceDep, local: IsLocal, limiter: LimiterDep
) -> PlannedBody:
    """Return the plan of a request as a TaskIR document. Nothing runs."""
    job = Job(body.request, None, _directory(body.directory, service, local), "as-planned")
    planned: PlannedTask = await limiter.run_while_connected(request, lambda: service.orchestrator.plan(job))
    return PlannedBody(task=dump_task(planned.task), goes_on_after=planned.goes_on_after)


def job_from(body: RunBody, service: Service, local: bool, key: str | None) -> Job:
    """Return the job that a request describes. Raises InputError."""
    if (body.request is None) == (body.task is None):
        raise InputError(Problem("request", "neither it nor task is given, or both are", "exactly one of them"))
    return Job(
        request=body.request,
        task=None if body.task is None else task_from(body.task),
        directory=_directory(body.directory, service, local),
        mode=body.mode,
        priority=body.priority,
        limits=RunLimits(body.limits.tokens, body.limits.seconds, body.limits.bytes),
        follows=tuple(body.prior_task_ids),
        key=key,
    )


def run_line(row: RunRow, position: int | None) -> RunLine:
    """Return the line of a run. One that waits is queued, however far it was before a restart."""
    return RunLine(
        run_id=row.run,
        status=row.status if position is None else "queued",
        mode=row.mode,
        request=row.title,
        accepted_at=row.accepted,
        finished_at=row.finished,
        error=row.error,
        position=position,
    )


def _directory(text: str | None, service: Service, local: bool) -> FilePath | None:
    """Return the folder that a run may read. Over TCP only those of the configuration are for the asking.

    What is returned then is where its links led when that was checked.
    """
    if text is None:
        return None
    path = FilePath(text)
    if not path.is_absolute() or "\0" in text:
        raise InputError(Problem("directory", f"{text!r} is no absolute path", "an absolute path"))
    if local:
        return path
    found, allowed = path.resolve(), [FilePath(folder).resolve() for folder in service.configuration.runs.folders]
    if not any(found.is_relative_to(folder) for folder in allowed):
        accepted = ", ".join(map(str, allowed)) or "none: see folders of [runs]"
        raise InputError(Problem("directory", f"{text} may not be read over TCP", accepted))
    return found


async def _line(service: Service, run: str) -> RunLine:
    return run_line(await service.row(run), service.position(run))


async def _report(service: Service, run: str) -> Report:
    return await asyncio.to_thread(service.orchestrator.views.report, run)


def _artifact_lines(service: Service, report: Report) -> list[ArtifactLine]:
    size = service.orchestrator.journal.objects.size
    return [ArtifactLine(name=name, sha256=digest, bytes=size(digest)) for name, digest in report.artifacts.items()]


def _archive(service: Service, run: str) -> IO[bytes]:
    file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)
    write_archive(service.orchestrator.journal, run, file)
    file.seek(0)
    return file


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while data := file.read(CHUNK):
            yield data
