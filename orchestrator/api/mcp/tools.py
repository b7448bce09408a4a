"""The tools that the daemon offers to MCP clients. They do what endpoints of `/v1` do, with the same rights."""

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
from orchestrator.run.record.report import Report, explanation_json
from orchestrator.run.updates import EventUpdate
from orchestrator.service.callers import Access
from orchestrator.service.permissions import TEACHING_ARGUMENTS, Permission, by_name
from orchestrator.service.permissions import TOOLS as PERMISSIONS
from orchestrator.service.service import Service
from orchestrator.task.events import Event

MAX_ARTIFACT: Final = 1 << 20
"""Bytes of an artifact that `result` returns; larger ones are to be fetched over HTTP."""

RUN_ID: Final = "the id of the run, as `submit` returned it"


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call works on."""

    service: Service
    access: Access
    """Who calls."""
    progress: Callable[[float, str], Awaitable[None]]
    """Tells the client how far the call is: a number that grows, and a line of text."""


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
    """A tool that MCP clients may call."""

    name: str
    description: str
    form: type[BaseModel]
    """The form of its arguments."""
    carry_out: Callable[[Any, CallContext], Awaitable[dict[str, Any]]]
    """Returns the result of a call with such arguments. Raises OrchestratorError."""
    reads_only: bool = True

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return self.form.model_json_schema()


async def _submit(asked: SubmitForm, context: CallContext) -> dict[str, Any]:
    service = context.service
    job = replace(runs.job_from(asked, service, context.access, asked.key), model=asked.model)
    submitted = await service.submit(job)
    line = runs.run_line(await service.row(submitted.run), service.position(submitted.run))
    return line.model_dump(mode="json") | {"new": submitted.new}


async def _watch(asked: WatchForm, context: CallContext) -> dict[str, Any]:
    """Wait for a run, and tell each event as progress. `after` of the result goes on with a later call."""
    seen = asked.after
    try:
        async with asyncio.timeout(asked.seconds) as scope:
            async with aclosing(context.service.watch(asked.run_id, asked.after)) as updates:
                async for update in updates:
                    if isinstance(update, EventUpdate):
                        seen = update.number
                        await context.progress(seen, format_event(update.event))
    except TimeoutError:
        if not scope.expired():
            raise
    return await _result(ResultForm(run_id=asked.run_id), context) | {"after": seen}


async def _result(asked: ResultForm, context: CallContext) -> dict[str, Any]:
    if asked.artifact is None:
        return (await runs.result(asked.run_id, context.service)).model_dump(mode="json")
    data = bytes((await runs.artifact(asked.run_id, asked.artifact, context.service)).body)
    address = f"GET /v1/runs/{asked.run_id}/artifacts/{asked.artifact}"
    if len(data) > MAX_ARTIFACT:
        raise InputError(Problem("artifact", f"{asked.artifact} has {len(data)} bytes", address))
    try:
        return {"run_id": asked.run_id, "artifact": asked.artifact, "text": data.decode()}
    except UnicodeDecodeError as error:
        raise InputError(Problem("artifact", f"{asked.artifact} is no text", address)) from error


async def _explain(asked: StepOfRunForm, context: CallContext) -> dict[str, Any]:
    report = await asyncio.to_thread(context.service.orchestrator.views.report, asked.run_id)
    return await asyncio.to_thread(_explanation, report, asked.step)


def _explanation(report: Report, name: str | None) -> dict[str, Any]:
    if name is None:
        return report.to_json()
    row = next((step for step in report.steps if step.id == name), None)
    if row is None:
        names = [step.id for step in report.steps[:20]]
        raise InputError(Problem("step", f"{report.run_id} has no step {name!r}", ", ".join(names) or "none yet"))
    return explanation_json(report, row)


async def _models(_asked: NothingForm, context: CallContext) -> dict[str, Any]:
    service = context.service
    found = {"registry": await models.registry(service, context.access), "pool": await models.pool(service)}
    encoded: dict[str, Any] = jsonable_encoder(found)
    return encoded


async def _cancel(asked: StepOfRunForm, context: CallContext) -> dict[str, Any]:
    line = await runs.cancel_line(context.service, asked.run_id, asked.step)
    told = line.model_dump(mode="json", include={"cancelled", "had_ended", "done"})
    return await _result(ResultForm(run_id=asked.run_id), context) | told


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
            " and how each attempt ended.",
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
"""The tools by name."""


NEEDS: Final = by_name(PERMISSIONS)
CALLABLE: Final = (*OFFERED, "tasks/get", "tasks/cancel", "tasks/update")
"""The tools, and the requests about tasks, which `tasks` answers."""


async def authorise_call(name: str, service: Service, access: Access, run: str | None) -> None:
    """Raise Forbidden for a tool, or a request about a task, that a caller may not use, or not for this run.

    Raises UnknownRun for a run that the caller may not see.
    """
    access.require(NEEDS[name])
    if run is not None:
        owner = await owner_of_run(service, access, run)
        if name not in PERMISSIONS[Permission.READ_OWN]:
            access.require_change(owner)


async def read_call(name: str, arguments: Mapping[str, Any], service: Service, access: Access) -> BaseModel:
    """Return the arguments of a call of a tool of `OFFERED` that this caller may make.

    Raises InputError for wrong arguments, and as `authorise_call` does.
    """
    access.require(NEEDS[name])
    try:
        asked = OFFERED[name].form.model_validate(arguments)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        wrong = plain_problems(found, arguments)
        raise InputError(*(Problem(one.where, one.what, one.accepted) for one in wrong)) from error
    if getattr(asked, TEACHING_ARGUMENTS.get(name, ""), None) is not None:
        access.require(Permission.TEACH, f"what {TEACHING_ARGUMENTS[name]} asks for")
    await authorise_call(name, service, access, asked.run_id if isinstance(asked, RunForm) else None)
    return asked


def format_event(event: Event) -> str:
    """Return an event in a few words, such as `S1: attempt started`."""
    words = " ".join(re.findall("[A-Z][a-z]*", type(event).__name__)).lower()
    step = getattr(event, "step", None)
    return f"{step}: {words}" if isinstance(step, str) else words
