"""The daemon's tools for MCP clients. They do what endpoints of `/v1` do, with the same rights."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, Field, ValidationError

from orchestrator.api import models, runs
from orchestrator.api.access import owner_of_run
from orchestrator.api.dependencies import StrictBody
from orchestrator.api.errors import plain_problems
from orchestrator.api.runs import RUN_PATTERN, RunBody
from orchestrator.errors import InputError, Problem
from orchestrator.run.updates import EventUpdate
from orchestrator.service.callers import Access
from orchestrator.service.permissions import TEACHING_ARGUMENTS, Permission, by_name
from orchestrator.service.permissions import TOOLS as PERMISSIONS
from orchestrator.service.service import Service
from orchestrator.task.events import Event

MAX_ARTIFACT: Final = 1 << 20  # bytes; larger artifacts are fetched over HTTP

RUN_ID: Final = "the id of the run, as `submit` returned it"


@dataclass(frozen=True, slots=True)
class CallContext:
    service: Service
    access: Access  # of the caller
    progress: Callable[[float, str], Awaitable[None]]  # reports a number that grows, and a line of text


class SubmitForm(RunBody):
    """A job: either a `request` in plain language, or a `task`."""

    key: str | None = Field(
        default=None, min_length=1, max_length=200, description="an idempotency key: all calls with it get the same run"
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="the model that all steps have to use; it needs the permission teach",
    )


class RunForm(StrictBody):
    """A run."""

    run_id: str = Field(pattern=RUN_PATTERN, description=RUN_ID)


class WatchForm(RunForm):
    """A run to wait for."""

    seconds: float | None = Field(
        default=None, gt=0, le=86400, description="how long to wait at most; if left out, until the run has ended"
    )
    after: int = Field(default=0, ge=0, le=1 << 53, description="the number of the last event that was seen already")


class ResultForm(RunForm):
    """A run whose result, or one of whose artifacts, is wanted."""

    artifact: str | None = Field(default=None, description="the name of an artifact whose text is wanted")


class StepOfRunForm(RunForm):
    """A run, or one of its steps."""

    step: str | None = Field(default=None, description="a step such as S2; the whole run if none is given")


class NothingForm(StrictBody):
    """No arguments."""


@dataclass(frozen=True, slots=True)
class DaemonTool:
    name: str
    description: str
    form: type[BaseModel]  # of its arguments
    carry_out: Callable[[Any, CallContext], Awaitable[dict[str, Any]]]  # returns the result; raises OrchestratorError
    reads_only: bool = True

    @property
    def schema(self) -> dict[str, Any]:
        return self.form.model_json_schema()


async def _submit(form: SubmitForm, context: CallContext) -> dict[str, Any]:
    service = context.service
    job = replace(runs.job_from(form, service, context.access, form.key), model=form.model)
    submitted = await runs.submit_with_files(job, form, service, context.access)
    line = runs.run_line(await service.row(submitted.run), service.position(submitted.run))
    return line.model_dump(mode="json") | {"new": submitted.new}


async def _watch(form: WatchForm, context: CallContext) -> dict[str, Any]:
    last_event = form.after
    try:
        async with asyncio.timeout(form.seconds) as scope:
            async with aclosing(context.service.watch(form.run_id, form.after)) as updates:
                async for update in updates:
                    if isinstance(update, EventUpdate):
                        last_event = update.number
                        await context.progress(last_event, format_event(update.event))
    except TimeoutError:
        if not scope.expired():
            raise
    # A later call continues with this `after`.
    return await _result(ResultForm(run_id=form.run_id), context) | {"after": last_event}


async def _result(form: ResultForm, context: CallContext) -> dict[str, Any]:
    if form.artifact is None:
        return (await runs.result(form.run_id, context.service)).model_dump(mode="json")
    data = bytes((await runs.artifact(form.run_id, form.artifact, context.service)).body)
    address = f"GET /v1/runs/{form.run_id}/artifacts/{form.artifact}"
    if len(data) > MAX_ARTIFACT:
        raise InputError(Problem("artifact", f"{form.artifact} has {len(data)} bytes", address))
    try:
        return {"run_id": form.run_id, "artifact": form.artifact, "text": data.decode()}
    except UnicodeDecodeError as error:
        raise InputError(Problem("artifact", f"{form.artifact} is no text", address)) from error


async def _explain(form: StepOfRunForm, context: CallContext) -> dict[str, Any]:
    report = await asyncio.to_thread(context.service.orchestrator.views.report, form.run_id)
    if form.step is None:
        return await asyncio.to_thread(report.to_json)
    row = next((step for step in report.steps if step.id == form.step), None)
    if row is None:
        names = [step.id for step in report.steps[:20]]
        raise InputError(Problem("step", f"{report.run_id} has no step {form.step!r}", ", ".join(names) or "none yet"))
    return await runs.explanation(context.service, report, row)


async def _models(_form: NothingForm, context: CallContext) -> dict[str, Any]:
    service = context.service
    listing = {"registry": await models.registry(service, context.access), "pool": await models.pool(service)}
    encoded: dict[str, Any] = jsonable_encoder(listing)
    return encoded


async def _cancel(form: StepOfRunForm, context: CallContext) -> dict[str, Any]:
    line = await runs.cancel_line(context.service, form.run_id, form.step)
    effect = line.model_dump(mode="json", include={"cancelled", "had_ended", "done"})
    return await _result(ResultForm(run_id=form.run_id), context) | effect


OFFERED: Final[Mapping[str, DaemonTool]] = {
    tool.name: tool
    for tool in (
        DaemonTool(
            "submit",
            "Submit a job for local language models: a request in plain language, or a TaskIR document. It returns at"
            " once with the id of its run, which a crash of the daemon does not lose.",
            SubmitForm,
            _submit,
            reads_only=False,
        ),
        DaemonTool(
            "watch",
            "Wait until a run has ended, and return its result. Its events are told as progress meanwhile.",
            WatchForm,
            _watch,
        ),
        DaemonTool(
            "result",
            "Return the status of a run, its answer, and the digests of its artifacts by name; or the text of one.",
            ResultForm,
            _result,
        ),
        DaemonTool(
            "explain",
            "Explain a run with all of its steps, or one step: what it waited for, which role and model did it and why,"
            " and how each attempt ended. Of one step, `progress` says what its running attempt waits for or has"
            " written so far.",
            StepOfRunForm,
            _explain,
        ),
        DaemonTool(
            "models",
            "List the models, roles and personas that can be used, and which models are loaded.",
            NothingForm,
            _models,
        ),
        DaemonTool(
            "cancel",
            "Cancel a run, or one step of it with all that depends on it, and say what that has done. Nothing happens"
            " if it has ended.",
            StepOfRunForm,
            _cancel,
            reads_only=False,
        ),
    )
}


NEEDS: Final = by_name(PERMISSIONS)
CALLABLE: Final = (
    *OFFERED,
    "tasks/get",
    "tasks/cancel",
    "tasks/update",
)  # the requests about tasks are answered in `tasks`


async def authorise_call(name: str, service: Service, access: Access, run: str | None) -> None:
    """Raise Forbidden if the caller may not make a call for this run, and UnknownRun if it may not see the run."""
    access.require(NEEDS[name])
    if run is not None:
        owner = await owner_of_run(service, access, run)
        if name not in PERMISSIONS[Permission.READ_OWN]:
            access.require_change(owner)


async def read_call(name: str, arguments: Mapping[str, Any], service: Service, access: Access) -> BaseModel:
    """Return the arguments of a tool call. Raises InputError for wrong ones, and as `authorise_call` does."""
    access.require(NEEDS[name])
    try:
        form = OFFERED[name].form.model_validate(arguments)
    except ValidationError as error:
        errors = [{**detail, "loc": ("body", *detail["loc"])} for detail in error.errors()]
        problems = plain_problems(errors, arguments)
        raise InputError(*(Problem(problem.where, problem.what, problem.accepted) for problem in problems)) from error
    if getattr(form, TEACHING_ARGUMENTS.get(name, ""), None) is not None:
        access.require(Permission.TEACH, f"what {TEACHING_ARGUMENTS[name]} asks for")
    await authorise_call(name, service, access, form.run_id if isinstance(form, RunForm) else None)
    return form


def format_event(event: Event) -> str:
    """Return an event in a few words, such as `S1: attempt started`."""
    words = " ".join(re.findall("[A-Z][a-z]*", type(event).__name__)).lower()
    step = getattr(event, "step", None)
    return f"{step}: {words}" if isinstance(step, str) else words
