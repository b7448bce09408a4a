"""Endpoints for runs: submit, list, show, steer, rate, delete, artifacts, export, and plans that do not run."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import IO, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field

from orchestrator.api.access import owner_of_run
from orchestrator.api.dependencies import (
    AccessDep,
    Entries,
    ForcedModel,
    LimiterDep,
    ServiceDep,
    StrictBody,
    TraceparentDep,
)
from orchestrator.api.errors import DOCUMENTED, NotFound
from orchestrator.api.openai.given_files import GivenFile, read_files
from orchestrator.errors import InputError, Problem
from orchestrator.run.job import Job
from orchestrator.run.journal.store import RunRow
from orchestrator.run.planning import PlannedTask
from orchestrator.run.record.attempt_prompts import SharedPrompts
from orchestrator.run.record.chrome_trace import chrome_trace
from orchestrator.run.record.comparison import Comparison, compare
from orchestrator.run.record.diffs import result_diff
from orchestrator.run.record.documents import attempt_document, forecast_document, picture_document
from orchestrator.run.record.picture import Window
from orchestrator.run.record.repeated import Repeat
from orchestrator.run.record.report import Report, StepRow, build_report, explanation_json
from orchestrator.run.record.spans import run_spans
from orchestrator.service.archive import write_archive
from orchestrator.service.callers import Access
from orchestrator.service.given_texts import stored_texts
from orchestrator.service.permissions import Permission
from orchestrator.service.queue import Submitted
from orchestrator.service.ratings import MAX_NOTE_LENGTH
from orchestrator.service.service import Service
from orchestrator.task.events import RunLimits
from orchestrator.task.modes import Mode, Priority, RunStatus
from orchestrator.task.taskir.parse import dump_task, task_from

ARCHIVE_MEMORY_BYTES: Final = 1 << 20  # larger archives go to a temporary file
CHUNK_BYTES: Final = 1 << 16
MAX_SEARCH: Final = 200  # characters
RUN_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
JSON_OBJECT: Final = {"application/json": {"schema": {"type": "object"}}}
BINARY: Final = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter(prefix="/v1", tags=["runs"], responses=dict(DOCUMENTED))


class LimitsBody(StrictBody):
    """How much a run may use before it is cancelled. The limits of the daemon's configuration hold as well."""

    tokens: int | None = Field(default=None, ge=1, le=1 << 53, description="tokens of prompts and answers together")
    seconds: float | None = Field(default=None, gt=0, le=1e9, description="seconds since the run began")
    bytes: int | None = Field(default=None, ge=1, le=1 << 53, description="bytes of all artifacts")


class PlanBody(StrictBody):
    """A request in plain language, and the folder that its steps may read."""

    request: str = Field(min_length=1, description="what to do, in plain language")
    directory: str | None = Field(default=None, description="an absolute path on the daemon's machine")
    mode: Mode | None = Field(default=None, description="if left out, as a run of the request would be carried out")


class JobBody(StrictBody):
    """A job: either a `request` or a `task`."""

    request: str | None = Field(default=None, description="what to do, in plain language")
    task: dict[str, Any] | None = Field(default=None, description="a TaskIR document")
    directory: str | None = Field(
        default=None, description="an absolute path on the daemon's machine, which steps may read"
    )
    files: Entries[str] = Field(
        default_factory=list, description="ids of files of `/v1/files`, whose texts steps may read by their names"
    )
    mode: Mode | None = Field(default=None, description="if left out, directly, as planned, or as learned")


class RunBody(JobBody):
    """A job to run."""

    priority: Priority | None = Field(default=None, description="if left out, the task's own priority, or interactive")
    limits: LimitsBody = Field(default_factory=LimitsBody)
    prior_task_ids: list[str] = Field(
        default_factory=list, max_length=100, description="runs whose artifacts this one may read"
    )


class CancelBody(StrictBody):
    """Which step to cancel, together with all that depends on it. Without one, the whole run is cancelled."""

    step: str | None = None


class RetryBody(StrictBody):
    """Which step to try again. Without one, the whole job is submitted again."""

    step: str | None = None


class PrioritiseBody(StrictBody):
    """Which step to do before the others of the run."""

    step: str


class RatingBody(StrictBody):
    """A rating of a run that has ended, or of one of its steps. Who rates is the caller; a field `by` is refused."""

    score: float = Field(ge=0, le=1, allow_inf_nan=False, description="from 0 (bad) to 1 (good)")
    step: str | None = Field(default=None, description="the step that is rated; the whole run if none is given")
    note: str = Field(default="", max_length=MAX_NOTE_LENGTH, description="the reason")


class RatingLine(BaseModel):
    """A rating as it was journaled."""

    run_id: str
    step: str | None
    score: float
    by: str  # the key of the caller, as `token:ann`
    note: str
    at: float  # seconds since the epoch


class FiguresLine(BaseModel):
    """What a run was expected to take, and took so far. Failed attempts count, too."""

    predicted_seconds: float  # critical path, as of the run's steps
    path_seconds: float  # critical path
    steps: int
    attempts: int
    prompt_tokens: int
    output_tokens: int


class RunLine(BaseModel):
    """A run in a list. Times are in seconds since the epoch."""

    run_id: str
    status: RunStatus
    mode: Mode
    request: str
    accepted_at: float
    finished_at: float | None
    error: str | None
    doubt: str  # why the answer is doubtful; empty if nothing is known against it
    owner: str  # who submitted it, as `token:ann`; empty for runs of early versions
    position: int | None = None  # of a queued run: at most this number of runs is ahead of it
    figures: FiguresLine | None = None  # if the request has `figures`; None for a run without steps


class CancelLine(RunLine):
    """A run, and what a request to cancel it or a step of it has done."""

    cancelled: list[str]  # the step of the request, then the steps that depend on it; or all that had not ended
    had_ended: str | None  # status of the run, or state of the step, if it had ended before
    done: str  # the same in a sentence


class FirstLine(BaseModel):
    """The steps of a run that now go before the others: the one of the request, then those that it waits for."""

    run_id: str
    first: list[str]


class RunList(BaseModel):
    """Runs, newest first."""

    runs: list[RunLine]
    before: str | None  # the `before` of the request for the next runs; None if there are no more


class ArtifactLine(BaseModel):
    """An artifact of a run, with the SHA-256 digest and the size of its content."""

    name: str
    sha256: str
    bytes: int


class ArtifactList(BaseModel):
    """All artifacts of a run."""

    artifacts: list[ArtifactLine]


class PromptPartBody(BaseModel):
    """A part of the prompt of an attempt."""

    kind: str = Field(description="system, persona, input, item, task or evidence (why earlier attempts failed)")
    name: str = Field(description="of an input; empty for other parts")
    text: str
    why_not: str = Field(description="why the text is not known; empty if it is")
    shared_with: str = Field(description="a step whose prompt starts with the same parts, up to this; empty for none")


class AttemptBody(BaseModel):
    """An attempt at a step: its prompt, its answer, and how it ended."""

    step: str
    number: int
    role: str
    model: str
    outcome: str = Field(description="done, cancelled, interrupted, running, checking or the kind of failure")
    message: str = Field(description="why it failed; empty if it did not")
    evidence: str = Field(description="what a gate found; empty if none failed")
    answer: str = Field(description="the text; empty if there is none")
    outputs: dict[str, str] = Field(description="the same text by the name of each output, if it was read as outputs")
    reasoning: str = Field(description="what the models thought before they answered; empty if nothing")
    prompt: list[PromptPartBody] = Field(description="what the prompt was made of, in its order")
    nodes: Annotated[
        tuple[str, ...],
        Field(
            exclude_if=lambda nodes: not nodes,
            description="nodes of a cluster and servers that computed it, if any did",
        ),
    ] = ()


class ResultBody(BaseModel):
    """The result of a run, without its steps."""

    run_id: str
    status: RunStatus
    answer: str | None
    error: str | None
    doubt: str  # why the answer is doubtful; empty if nothing is known against it
    corrections: list[str]  # what was wrong with the models' answer, and was corrected by code
    missing: list[str]  # what the request needs and is not here, a sentence for each
    artifacts: dict[str, str]  # SHA-256 digests by name
    results: list[str]  # names of the artifacts that the request asked for, and of new versions of files


class PlannedBody(BaseModel):
    """A plan that can be submitted as a task."""

    task: dict[str, Any]  # a TaskIR document
    goes_on_after: str | None  # the step on whose output the rest of the plan would depend; None: it is complete
    mode: Mode  # of a run of the request
    reason: str  # why the request is answered directly, if nobody has forced that; or what was wrong with the plan


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="All requests with the same key get the same run, and the first one counts.",
    ),
]


@router.post(
    "/runs",
    status_code=201,
    responses={200: {"model": RunLine, "description": "The run that was submitted with this key before."}},
)
async def submit(
    body: RunBody,
    response: Response,
    service: ServiceDep,
    access: AccessDep,
    traceparent: TraceparentDep,
    key: IdempotencyKey = None,
    model: ForcedModel = None,
) -> RunLine:
    """Submit a job. Once this has answered, a crash of the daemon does not lose it."""
    job = replace(job_from(body, service, access, key), model=model, traceparent=traceparent)
    submitted = await submit_with_files(job, body, service, access)
    response.status_code = HTTPStatus.CREATED if submitted.new else HTTPStatus.OK
    return await _line(service, submitted.run)


@router.get("/runs")
async def runs(
    service: ServiceDep,
    access: AccessDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    status: Annotated[RunStatus | None, Query(description="Only those of this status.")] = None,
    search: Annotated[
        str | None, Query(max_length=MAX_SEARCH, description="Only those with this text in request, objective or id.")
    ] = None,
    before: Annotated[
        str | None, Query(pattern=RUN_PATTERN, description="Only those accepted before this run.")
    ] = None,
    figures: Annotated[
        bool, Query(description="With critical paths, tokens and attempts; reads the events of runs not listed before.")
    ] = False,
) -> RunList:
    """List the runs that the caller may see, newest first."""
    if before is not None:
        await owner_of_run(service, access, before)
    # One more than are listed tells whether there are older ones.
    newest = await asyncio.to_thread(service.orchestrator.journal.runs, limit + 1, status, before, access.only, search)
    rows = newest[:limit]
    last = rows[-1].run if len(newest) > limit else None
    lines = [run_line(row, service.position(row.run)) for row in rows]
    if figures:
        lines = await asyncio.to_thread(_with_figures, service, rows, lines)
    return RunList(runs=lines, before=last)


@router.get("/runs/{run}")
async def show(run: str, service: ServiceDep) -> dict[str, Any]:
    """Return the report of a run: steps, attempts, figures, artifacts."""
    report = await _report(service, run)
    return await asyncio.to_thread(report.to_json) | {"position": service.position(run)}


@router.get("/runs/{run}/picture", response_class=Response, responses={200: {"content": JSON_OBJECT}})
async def show_picture(
    run: str,
    service: ServiceDep,
    access: AccessDep,
    first: Annotated[int, Query(ge=0, description="Number of the first row, from 0.")] = 0,
    count: Annotated[int | None, Query(ge=0, description="The most rows to return; without it, all.")] = None,
    step: Annotated[
        str | None, Query(description="Also the row of this step, in `step`, if not all are returned.")
    ] = None,
) -> Response:
    """Return a run as rows to draw: its DAG, when each step ran or will run, slack and critical path.

    `events` is how many events of the run it shows, so that a stream of events continues after that number.
    """
    may_change = access.changes((await service.row(run)).owner)
    window = Window(first, sys.maxsize if count is None else count, step)
    return await asyncio.to_thread(_picture, service, run, window, may_change=may_change)


@router.get("/runs/{run}/comparison/{other}", response_class=Response, responses={200: {"content": JSON_OBJECT}})
async def show_comparison(run: str, other: str, service: ServiceDep, access: AccessDep) -> Response:
    """Compare two runs: figures, steps by their ids, and the answers, as a unified diff.

    `sides` of a step are those of the first and the second run; null in a run that does not have it.
    """
    await owner_of_run(service, access, other)
    comparison = await asyncio.to_thread(_comparison, service, run, other)
    return Response(msgspec.json.encode(comparison), media_type="application/json")


@router.get("/runs/{run}/result")
async def result(run: str, service: ServiceDep) -> ResultBody:
    """Return the result of a run: its status, its answer, and its artifacts by name."""
    return ResultBody(**(await _report(service, run)).result_json())


@router.post("/runs/{run}/cancel", status_code=202)
async def cancel(run: str, service: ServiceDep, body: CancelBody | None = None) -> CancelLine:
    """Cancel a run, or a step of it, and say what that has done. This has no effect on what has ended."""
    return await cancel_line(service, run, body.step if body is not None else None)


@router.post("/runs/{run}/resume", status_code=202)
async def resume(run: str, service: ServiceDep) -> RunLine:
    """Continue a run that was interrupted. A daemon does so by itself when it starts, so this has no effect then."""
    await service.resume(run)
    return await _line(service, run)


@router.post(
    "/runs/{run}/retry",
    status_code=201,
    responses={
        200: {"model": RunLine, "description": "The run that was submitted with this key before."},
        202: {"model": RunLine, "description": "The run, in which the step is tried again."},
    },
)
async def retry(
    run: str,
    response: Response,
    service: ServiceDep,
    access: AccessDep,
    traceparent: TraceparentDep,
    body: RetryBody | None = None,
    key: IdempotencyKey = None,
) -> RunLine:
    """Submit the job of a run that has ended again, as a new run of the caller.

    With a `step`, the new run takes over the plan and the outputs of finished steps, except for this step, those that
    wait for it, and those whose files have changed. While the run has not ended, the step's running attempt is
    stopped and made again, in the same run.
    """
    step = None if body is None else body.step
    if step is not None and await service.retry(run, step, key):
        response.status_code = HTTPStatus.ACCEPTED
        return await _line(service, run)
    job = replace(await service.ended_job(run), owner=access.key, traceparent=traceparent, key=key)
    if step is not None:
        job = replace(job, any_mode=False, repeats=Repeat(run, step))
    if job.model is not None:
        access.require(Permission.TEACH, "what forces a model")
    if job.directory is not None:  # whoever retries a run needs the right to read its folder
        job = replace(job, directory=_directory(str(job.directory), service, access))
    submitted = await service.submit(job)
    if not submitted.new:
        response.status_code = HTTPStatus.OK
    return await _line(service, submitted.run)


@router.post("/runs/{run}/prioritise", status_code=202)
async def prioritise(run: str, body: PrioritiseBody, service: ServiceDep) -> FirstLine:
    """Let a step and those that it waits for go before the other steps of the run, until it ends."""
    return FirstLine(run_id=run, first=await service.prioritise(run, body.step))


@router.post("/runs/{run}/ratings", status_code=201)
async def rate(run: str, body: RatingBody, service: ServiceDep, access: AccessDep) -> RatingLine:
    """Rate a run that has ended, or one of its steps. Both may be rated more than once."""
    rating = await service.rate(run, body.score, access.key, body.step, body.note)
    return RatingLine(run_id=run, step=rating.step, score=rating.score, by=rating.by, note=rating.note, at=rating.at)


@router.delete("/runs/{run}", status_code=204)
async def delete(run: str, service: ServiceDep) -> None:
    """Delete a run that has ended."""
    await service.delete(run)


@router.get("/runs/{run}/artifacts")
async def artifacts(run: str, service: ServiceDep) -> ArtifactList:
    """List the artifacts of a run."""
    report = await _report(service, run)
    lines = await asyncio.to_thread(_artifact_lines, service, report)
    return ArtifactList(artifacts=lines)


@router.get(
    "/runs/{run}/artifacts/{name:path}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": BINARY}, "description": "The artifact, byte for byte."}},
)
async def artifact(run: str, name: str, service: ServiceDep) -> Response:
    """Return the content of an artifact."""
    digest = (await _report(service, run)).artifacts.get(name)
    if digest is None:
        raise NotFound(f"run {run} has no artifact {name!r}")
    data = await asyncio.to_thread(service.orchestrator.journal.get, digest)
    headers = {"ETag": f'"{digest}"', "X-Content-Type-Options": "nosniff"}
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get(
    "/runs/{run}/diff",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The diff."}},
)
async def diff(run: str, service: ServiceDep) -> PlainTextResponse:
    """Return how the results of a run differ from the files that it read, as a unified diff."""
    report = await _report(service, run)
    return PlainTextResponse(await asyncio.to_thread(_diffs, service, report))


@router.get("/runs/{run}/steps/{step}")
async def explain(run: str, step: str, service: ServiceDep) -> dict[str, Any]:
    """Return what a step waited for, its role with the reason, the ends of its attempts, and what it does now."""
    report = await _report(service, run)
    return await explanation(service, report, _step(report, step))


@router.get("/runs/{run}/steps/{step}/attempts/{number}")
async def attempt(run: str, step: str, number: int, service: ServiceDep) -> AttemptBody:
    """Return the prompt and the answer of an attempt at a step, also of one that failed, and why it failed."""
    row = _step(await _report(service, run), step)
    if all(record.number != number for record in row.attempts):
        raise NotFound(f"{step} of run {run} has no attempt {number}")
    return await asyncio.to_thread(_attempt, service, run, row, number)


@router.get(
    "/runs/{run}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/gzip": BINARY}, "description": "A tar.gz of report, events, artifacts."}},
)
async def export(run: str, service: ServiceDep) -> StreamingResponse:
    """Return a run as a tar.gz archive."""
    file = await asyncio.to_thread(_archive, service, run)
    headers = {"Content-Disposition": f'attachment; filename="{run}.tar.gz"'}
    return StreamingResponse(_chunks(file), media_type="application/gzip", headers=headers)


@router.get(
    "/runs/{run}/trace",
    response_class=Response,
    responses={200: {"content": JSON_OBJECT, "description": "The trace."}},
)
async def trace(run: str, service: ServiceDep) -> Response:
    """Return what a run did when, in Chrome's Trace Event Format, for Perfetto. The run need not have ended."""
    text = await asyncio.to_thread(_trace, service, run)
    return Response(text, media_type="application/json")


@router.post("/forecasts", response_class=Response, responses={200: {"content": JSON_OBJECT}})
async def forecast(
    body: JobBody, request: Request, service: ServiceDep, access: AccessDep, limiter: LimiterDep
) -> Response:
    """Check a job, plan it if it is a request, and return its picture, report and price, without running it.

    An error lists the problems of a task. `prompt_tokens` leave out what the cache is expected to hold.
    """
    job = _described(body, service, access)
    async with AsyncExitStack() as stack:
        if body.files:
            await service.open()
            job = await stack.enter_async_context(_with_files(job, body, service, access))
        # Only a request needs a generation.
        expected = (
            await service.forecast(job)
            if job.request is None
            else await limiter.run_while_connected(request, lambda: service.forecast(job))
        )
    return Response(await asyncio.to_thread(forecast_document, expected), media_type="application/json")


@router.post("/plans")
async def plan(
    body: PlanBody, request: Request, service: ServiceDep, access: AccessDep, limiter: LimiterDep
) -> PlannedBody:
    """Return the plan for a request as a TaskIR document, without running it."""
    folder = _directory(body.directory, service, access)
    job = Job(body.request, None, folder, body.mode or "as-planned", any_mode=body.mode is None)
    planned: PlannedTask = await limiter.run_while_connected(request, lambda: service.orchestrator.plan(job))
    return PlannedBody(
        task=dump_task(planned.task), goes_on_after=planned.goes_on_after, mode=planned.mode, reason=planned.reason
    )


async def submit_with_files(job: Job, body: JobBody, service: Service, access: Access) -> Submitted:
    """Submit a job together with the uploaded files of its body. Raises InputError, and errors of `Service.submit`."""
    if not body.files:
        return await service.submit(job)
    async with _with_files(job, body, service, access) as complete_job:
        return await service.submit(complete_job)


def job_from(body: RunBody, service: Service, access: Access, key: str | None) -> Job:
    """Return the job that a body describes, without its uploaded files.

    Raises InputError if it is none, or the caller may not read its folder.
    """
    return replace(
        _described(body, service, access),
        priority=body.priority,
        limits=RunLimits(body.limits.tokens, body.limits.seconds, body.limits.bytes),
        follows=tuple(body.prior_task_ids),
        key=key,
    )


def _described(body: JobBody, service: Service, access: Access) -> Job:
    if (body.request is None) == (body.task is None):
        raise InputError(Problem("request", "neither request nor task is given, or both are", "exactly one of them"))
    return Job(
        request=body.request,
        task=None if body.task is None else task_from(body.task),
        directory=_directory(body.directory, service, access),
        mode=body.mode or "as-planned",
        any_mode=body.mode is None and body.request is not None,
        owner=access.key,
        sees_runs_of=access.only,
    )


@asynccontextmanager
async def _with_files(job: Job, body: JobBody, service: Service, access: Access) -> AsyncGenerator[Job, None]:
    if job.prior:
        problem = "uploaded files are given next to runs whose artifacts may be read"
        raise InputError(Problem("files", problem, "one of both"))
    named = [GivenFile(f"files/{place}", "", file, "") for place, file in enumerate(body.files)]
    texts = await asyncio.to_thread(read_files, named, service.uploaded_files, access)
    async with stored_texts(service.orchestrator.journal, texts) as digests:
        yield replace(job, found=digests)


def run_line(row: RunRow, position: int | None) -> RunLine:
    """Return the list entry of a run. With a `position` it is queued, whatever its status before a restart."""
    queued = {} if position is None else {"status": "queued", "position": position}
    return RunLine(**{**row.to_json(), **queued})


async def cancel_line(service: Service, run: str, step: str | None) -> CancelLine:
    """Cancel a run or a step of it, and return the effect. Raises UnknownRun, InputError."""
    outcome = await service.cancel(run, step)
    line = await _line(service, run)
    return CancelLine(
        **line.model_dump(), cancelled=list(outcome.steps), had_ended=outcome.ended, done=outcome.describe(run, step)
    )


async def explanation(service: Service, report: Report, step: StepRow) -> dict[str, Any]:
    """Return the explanation of a step, with the progress of the attempt that runs."""
    latest = service.orchestrator.progress(report.run_id, step.id)
    progress = None if latest is None else latest.to_json(service.now())
    return await asyncio.to_thread(explanation_json, report, step, progress)


def _directory(text: str | None, service: Service, access: Access) -> FilePath | None:
    if text is None:
        return None
    # Only owners on the socket may name any folder. For others links are resolved, so that it stays the checked one.
    return _absolute("directory", text) if access.may_name_folders else permitted_path("directory", text, service)


def permitted_path(where: str, text: str, service: Service) -> FilePath:
    """Return a path below the configured folders, with its links resolved. Raises InputError for any other."""
    resolved = _absolute(where, text).resolve()
    allowed = [FilePath(folder).resolve() for folder in service.configuration.runs.folders]
    if not any(resolved.is_relative_to(folder) for folder in allowed):
        accepted = ", ".join(map(str, allowed)) or "none: see folders of [runs]"
        raise InputError(Problem(where, f"{text} may not be used by this caller", accepted))
    return resolved


def _absolute(where: str, text: str) -> FilePath:
    path = FilePath(text)
    if not path.is_absolute() or "\0" in text:
        raise InputError(Problem(where, f"{text!r} is no absolute path", "an absolute path"))
    return path


async def _line(service: Service, run: str) -> RunLine:
    return run_line(await service.row(run), service.position(run))


async def _report(service: Service, run: str) -> Report:
    return await asyncio.to_thread(service.orchestrator.views.report, run)


def _with_figures(service: Service, rows: Sequence[RunRow], lines: Sequence[RunLine]) -> list[RunLine]:
    views, updated = service.orchestrator.views, list[RunLine]()
    for row, line in zip(rows, lines, strict=True):
        figures = service.figures.of(views, row)
        updated.append(line.model_copy(update={"figures": figures and FiguresLine(**asdict(figures))}))
    return updated


def _comparison(service: Service, first: str, second: str) -> Comparison:
    views = service.orchestrator.views
    return compare(views.report(first), views.report(second))


def _picture(service: Service, run: str, window: Window, *, may_change: bool) -> Response:
    now = service.now()
    report, drawn = service.orchestrator.views.picture(run, now, window)
    since = now - report.accepted_at
    document = picture_document(report, drawn, since, service.position(run), may_change=may_change)
    return Response(document, media_type="application/json")


def _step(report: Report, step: str) -> StepRow:
    row = next((row for row in report.steps if row.id == step), None)
    if row is None:
        raise NotFound(f"run {report.run_id} has no step {step!r}")
    return row


def _attempt(service: Service, run: str, row: StepRow, number: int) -> AttemptBody:
    with service.orchestrator.views.view(run) as view:
        document = attempt_document(service.orchestrator.journal, view, row, number, SharedPrompts(view))
    return AttemptBody(**document)


def _artifact_lines(service: Service, report: Report) -> list[ArtifactLine]:
    size = service.orchestrator.journal.objects.size
    return [ArtifactLine(name=name, sha256=digest, bytes=size(digest)) for name, digest in report.artifacts.items()]


def _diffs(service: Service, report: Report) -> str:
    return "".join(result_diff(service.orchestrator.journal, result) for result in report.results)


def _archive(service: Service, run: str) -> IO[bytes]:
    file = tempfile.SpooledTemporaryFile(ARCHIVE_MEMORY_BYTES)
    write_archive(service.orchestrator.journal, run, file)
    file.seek(0)
    return file


def _trace(service: Service, run: str) -> str:
    orchestrator, now = service.orchestrator, service.now()
    with orchestrator.views.view(run) as view:
        spans = run_spans(view, build_report(view, orchestrator.journal.get), now - view.accepted.at)
    return chrome_trace(spans)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while data := file.read(CHUNK_BYTES):
            yield data
