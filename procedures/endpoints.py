"""Endpoints for procedures: list, show, plan, start, approve, follow, undo, and their audit log.

`service.callers` says which roles a caller has, and each procedure which roles may run it.

The events of an execution are its entries in the audit log, with the name `entry` and the number in the log as the id,
and `progress` events without an id. `Last-Event-ID` (or `after`) asks for the entries after that one.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from orchestrator.api.app import Endpoints
from orchestrator.api.dependencies import AccessDep, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED, answer_error
from orchestrator.api.events import event_number
from orchestrator.api.runs import permitted_path
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, EventStream, format_event
from orchestrator.errors import InputError, Problem
from orchestrator.procedures.attachment import ServiceProcedures
from orchestrator.procedures.audit import AuditHead, Entry, head_from
from orchestrator.procedures.errors import (
    ChangedMeanwhile,
    PlanUnusable,
    ProcedureBusy,
    ProcedureError,
    ProcedureForbidden,
    ProcedureInvalid,
    ProcedureRefused,
    UnknownExecution,
    UnknownProcedure,
)
from orchestrator.procedures.forms import InputForm
from orchestrator.procedures.installation import (
    entry_body,
    execution_body,
    listing,
    plan_body,
    procedure_body,
    verified_body,
)
from orchestrator.procedures.queue import ProcedureQueue, StepProgress
from orchestrator.service.callers import Access, Caller
from orchestrator.service.extent import Extent
from orchestrator.service.permissions import Permission
from orchestrator.service.schedules import schedules_from
from orchestrator.service.service import Service

router = APIRouter(prefix="/v1/procedures", tags=["procedures"], responses=dict(DOCUMENTED))


class InputsBody(StrictBody):
    """The inputs of a procedure."""

    inputs: dict[str, Any] = Field(default_factory=dict, max_length=100, description="by name; text is converted")


class BeginBody(InputsBody):
    """The inputs of a procedure, and an approval of its plan."""

    digest: str | None = Field(
        default=None, description="the whole digest of the plan that was shown, to approve that one at once"
    )


class ApprovalBody(StrictBody):
    """An approval of a plan."""

    digest: str = Field(min_length=8, max_length=64, description="of the plan, or the beginning of it, from 8 digits")


class RollbackBody(StrictBody):
    """How an execution is undone."""

    force: bool = Field(default=False, description="put back what others have changed since, too; a copy is kept")


async def _queue(service: ServiceDep) -> ProcedureQueue:
    assert isinstance(service.procedures, ServiceProcedures), "the composition root attaches it"
    return await service.procedures.queue()


async def _caller(access: AccessDep) -> Caller:
    return access.caller


QueueDep = Annotated[ProcedureQueue, Depends(_queue)]
CallerDep = Annotated[Caller, Depends(_caller)]
Limit = Annotated[int, Query(ge=1, le=1000, description="So many, the last.")]


@router.get("")
async def listed(service: ServiceDep, queue: QueueDep) -> dict[str, Any]:
    """List the procedures, the files that cannot be used, and the schedules with what is next and was missed."""
    schedules, by_daemon = schedules_from(service.configuration.procedures.schedules), service.extent is Extent.DAEMON
    return await asyncio.to_thread(listing, queue.engine, schedules, service.now(), by_daemon=by_daemon)


@router.get("/executions")
async def history(queue: QueueDep, limit: Limit = 50) -> dict[str, Any]:
    """List executions, newest first."""
    executions = await asyncio.to_thread(queue.engine.executions, limit)
    return {"executions": [execution.to_json() for execution in executions]}


@router.get("/executions/{execution}")
async def show_execution(execution: str, queue: QueueDep) -> dict[str, Any]:
    """Return an execution with its plan: how far it is, what is changed, what was undone, what to look at."""
    return await asyncio.to_thread(execution_body, queue.engine, execution)


@router.get(
    "/executions/{execution}/events",
    response_class=StreamingResponse,
    responses={200: {**DOCUMENTED_STREAM, "description": "Server-sent events."}},
)
async def events(
    execution: str,
    queue: QueueDep,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Begin after the entry with this number.")] = 0,
    last_event_id: Annotated[str | None, Header(description="As `after`, which it overrides.")] = None,
    follow: Annotated[bool, Query(description="false: end after what has happened so far.")] = True,
) -> EventStream:
    """Stream what has happened in an execution, and then what happens until it is over."""
    await queue.execution(execution)  # raises before the answer starts
    number = event_number(last_event_id, after)
    if not follow:
        entries = await asyncio.to_thread(queue.engine.audit.entries, execution, number)
        return EventStream(_past(entries))
    return EventStream(_formatted(queue.watch(execution, number)))


@router.post("/executions/{execution}/approve", status_code=202)
async def approve(execution: str, body: ApprovalBody, queue: QueueDep, caller: CallerDep) -> dict[str, Any]:
    """Approve the plan of an execution, and queue the execution."""
    return (await queue.approve(execution, body.digest, caller)).to_json()


@router.post("/executions/{execution}/withdraw")
async def withdraw(execution: str, queue: QueueDep, caller: CallerDep) -> dict[str, Any]:
    """Give up an execution that has not begun."""
    return (await queue.withdraw(execution, caller)).to_json()


@router.post("/executions/{execution}/cancel", status_code=202)
async def cancel(execution: str, queue: QueueDep, caller: CallerDep) -> dict[str, Any]:
    """Have an execution stop before its next action, and undo what it has done."""
    return (await queue.cancel(execution, caller)).to_json()


@router.post("/executions/{execution}/rollback")
async def rollback(
    execution: str, queue: QueueDep, caller: CallerDep, body: RollbackBody | None = None
) -> dict[str, Any]:
    """Undo what an execution has changed, byte for byte. The answer comes when that is done."""
    force = body is not None and body.force
    return (await queue.rollback(execution, caller, force=force)).to_json()


@router.post("/recover")
async def recover(queue: QueueDep, caller: CallerDep) -> dict[str, Any]:
    """Bring executions to their end whose process was killed. The daemon does so when it starts, too.

    Only owners and operators may.
    """
    return {"recovered": [execution.to_json() for execution in await queue.recover(caller)]}


@router.get("/audit")
async def audit(queue: QueueDep, limit: Limit = 20) -> dict[str, Any]:
    """Return the last entries of the audit log, and its head: the number and the hash of the last one."""
    log = queue.engine.audit
    head, entries = await asyncio.to_thread(lambda: (log.head(), log.last(limit)))
    return {"head": str(head), "entries": [entry_body(entry) for entry in entries]}


@router.get("/audit/verify")
async def verify(
    queue: QueueDep,
    head: Annotated[str | None, Query(description="NUMBER:HASH of an entry that was noted elsewhere.")] = None,
) -> dict[str, Any]:
    """Check the whole audit log for edits, cuts and moves. `after` is the last entry of the parts that were removed."""
    noted, log = _head(head), queue.engine.audit
    return await asyncio.to_thread(verified_body, log, noted)


@router.post("/audit/new", status_code=201)
async def new_log(queue: QueueDep, caller: CallerDep) -> dict[str, Any]:
    """Start a new audit log after the old one was damaged. The old one is kept, and the new one records the break."""
    return entry_body(await asyncio.to_thread(queue.engine.begin_new_log, caller))


@router.get("/{name}")
async def show(name: str, queue: QueueDep) -> dict[str, Any]:
    """Return a procedure: what it does, its inputs, and its file."""
    return procedure_body(await asyncio.to_thread(queue.engine.library.procedure, name))


@router.post("/{name}/plan")
async def plan(name: str, body: InputsBody, service: ServiceDep, queue: QueueDep, access: AccessDep) -> dict[str, Any]:
    """Return what a procedure would do: its steps with the exact changes as diffs. Nothing is changed or kept."""
    engine, inputs = queue.engine, await asyncio.to_thread(_inputs, name, body, service, queue, access)
    return plan_body(await queue.planning(lambda: engine.plan(name, inputs, access.caller)))


@router.post("/{name}/executions", status_code=201)
async def begin(name: str, body: BeginBody, service: ServiceDep, queue: QueueDep, access: AccessDep) -> dict[str, Any]:
    """Plan a procedure, and begin with it if it needs no approval, or has it; else the plan waits for one."""
    inputs = await asyncio.to_thread(_inputs, name, body, service, queue, access)
    return (await queue.submit(name, inputs, access.caller, body.digest)).to_json()


def _inputs(name: str, body: InputsBody, service: Service, queue: ProcedureQueue, access: Access) -> dict[str, Any]:
    # The daemon's user may read more than other callers may, so only owners name any path.
    if access.may(Permission.OWN):
        return body.inputs
    forms = queue.engine.library.procedure(name).form.inputs
    paths = {key: str(text) for key, text in body.inputs.items() if text is not None and _is_path(forms.get(key))}
    return body.inputs | {key: str(permitted_path(f"inputs/{key}", text, service)) for key, text in paths.items()}


def _is_path(form: InputForm | None) -> bool:
    return form is not None and form.type == "path"


async def _past(entries: list[Entry]) -> Events:
    for entry in entries:
        yield _event(entry)


async def _formatted(updates: AsyncGenerator[Entry | StepProgress, None]) -> Events:
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, Entry):
                yield _event(update)
            else:
                yield format_event(asdict(update), "progress")


def _event(entry: Entry) -> bytes:
    return format_event(entry_body(entry), "entry", entry.number)


def _head(text: str | None) -> AuditHead | None:
    try:
        return None if text is None else head_from(text)
    except ValueError as error:
        raise InputError(Problem("head", str(error))) from error


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProcedureError)
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return answer_error(request, error, status, error.input_problems)


# The first match counts, so subclasses come before their bases.
_STATUS: Final[tuple[tuple[type[ProcedureError], HTTPStatus], ...]] = (
    (UnknownProcedure, HTTPStatus.NOT_FOUND),
    (UnknownExecution, HTTPStatus.NOT_FOUND),
    (ProcedureInvalid, HTTPStatus.BAD_REQUEST),
    (ProcedureForbidden, HTTPStatus.FORBIDDEN),
    (ProcedureRefused, HTTPStatus.CONFLICT),
    (ChangedMeanwhile, HTTPStatus.CONFLICT),
    (PlanUnusable, HTTPStatus.GONE),
    (ProcedureBusy, HTTPStatus.CONFLICT),
    (ProcedureError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
ENDPOINTS: Final = Endpoints(router, {ProcedureError: _answer_error})
