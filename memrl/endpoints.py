"""Endpoints for what was learned: the memory, questions to its graph, past choices, routers, personas, trainings.

A program in the sandbox answers questions to the graph.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from orchestrator.api.app import Endpoints
from orchestrator.api.dependencies import ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.errors import InputError, Problem
from orchestrator.memrl.choices import (
    CalibrationBin,
    ChoiceSpan,
    JudgedChoice,
    PersonaEvidence,
    calibration,
    journaled_choices,
    judged_choice,
    persona_evidence,
    spans,
)
from orchestrator.memrl.episodes import Value
from orchestrator.memrl.errors import CypherFailed, CypherRefused, CypherTimeout, GraphError
from orchestrator.memrl.graph import GraphAnswer, ProcessEnd, ReaderJob
from orchestrator.memrl.learning import Learning, evaluate_router, explained_choices, memory_of, plain
from orchestrator.memrl.memory import Memory
from orchestrator.memrl.parl.trainings import TrainingRecord, trainings
from orchestrator.run.sandbox.contract import MIB, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.errors import SandboxError
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.service.service import Service

ProbeSandbox = Callable[[], Awaitable[Sandbox]]  # raises SandboxUnavailable

_PROGRAM = "graph_reader.py"
_PROCESSES = 2  # the program, and the thread of the graph's library that evaluates


async def ask_memory(learning: Learning, sandbox: ProbeSandbox, cypher: str, seconds: float) -> GraphAnswer:
    """Return the graph's answer to a Cypher question. Raises InputError, MemoryUnavailable, MemrlError."""
    try:
        return await ask_graph(learning.memory, sandbox, cypher, seconds)
    except (CypherRefused, CypherFailed, CypherTimeout) as error:
        raise InputError(Problem("CYPHER", str(error), "a question that only reads the graph")) from error


async def ask_graph(
    memory: Memory, sandbox: ProbeSandbox, cypher: str, seconds: float = 10.0, rows: int = 1000
) -> GraphAnswer:
    """Return at most `rows` rows of the graph's answer. Raises MemrlError, as `Memory.ask` does."""
    loop = asyncio.get_running_loop()

    def confined(job: ReaderJob) -> ProcessEnd:
        return asyncio.run_coroutine_threadsafe(_run_in_sandbox(sandbox, job), loop).result()

    return await asyncio.to_thread(memory.ask, cypher, confined, seconds, rows)


async def _run_in_sandbox(sandbox: ProbeSandbox, job: ReaderJob) -> ProcessEnd:
    limits = SandboxLimits(
        wall=job.seconds,
        cpu=ceil(job.seconds),
        memory=job.memory,
        processes=_PROCESSES,
        disk=MIB,
        output=job.output,
    )
    try:
        shown = (await sandbox()).showing([str(job.graph)])
        outcome = await shown.run(
            SandboxJob(
                argv=("python", "-I", _PROGRAM, *job.arguments),
                files={_PROGRAM: job.source},
                stdin=job.question,
                limits=limits,
            )
        )
    except SandboxError as error:
        raise GraphError(f"questions to the graph are only answered in the sandbox: {error}") from error
    return ProcessEnd(
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        limit=outcome.limit,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
    )


router = APIRouter(prefix="/v1/memory", tags=["memory"], responses=dict(DOCUMENTED))
ENDPOINTS: Final = Endpoints(router)


class CypherBody(StrictBody):
    """A question to the graph. Only questions that read are answered."""

    cypher: str = Field(min_length=1, max_length=10_000, description="a question in Cypher")
    seconds: float = Field(default=10.0, gt=0, le=300, description="how long it may take")


class GraphAnswerBody(BaseModel):
    """What the graph answered."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool  # there are further rows
    behind: int  # outcomes since the graph was written


class ChoicesBody(BaseModel):
    """The latest choices of the router in runs, newest first, and what they say about it."""

    choices: list[JudgedChoice]
    spans: list[ChoiceSpan]  # of the same choices, oldest first
    calibration: list[CalibrationBin]  # without those that have no choices
    calibration_error: float | None  # mean distance between expected and earned reward; None without any


class ValuesBody(BaseModel):
    """The mean Q of each role and persona by type of task, best first."""

    values: list[Value]


class EvidenceBody(BaseModel):
    """How attempts with personas ended, and the Q with and without each."""

    personas: list[PersonaEvidence]


class TrainingsBody(BaseModel):
    """The trainings of the frontdoor in the state folder, the latest first."""

    trainings: list[TrainingRecord]


class DoneBody(BaseModel):
    """The answer to a request that has nothing else to return: what was asked for is done."""

    status: str = "ok"


@router.get("")
async def status(service: ServiceDep) -> dict[str, Any]:
    """Return what the memory holds, how it has learned, what its advice is used for, and what is wrong with it."""
    return await asyncio.to_thread(_status, service)


@router.post("/ask")
async def ask(body: CypherBody, service: ServiceDep) -> GraphAnswerBody:
    """Answer a query of the graph of causes."""
    with memory_of(service) as learning:
        answer = await ask_memory(learning, service.sandbox, body.cypher, body.seconds)
    return GraphAnswerBody(columns=list(answer.columns), rows=answer.rows, more=answer.more, behind=answer.behind)


@router.post("/rebuild")
async def rebuild(service: ServiceDep) -> DoneBody:
    """Rebuild the index and the graph from the memory's database."""
    await asyncio.to_thread(_rebuild, service)
    return DoneBody()


@router.get("/runs/{run}")
async def explain(run: str, service: ServiceDep) -> dict[str, Any]:
    """Return, for each choice of a run, what the memory advised, which episodes spoke, and what the rules choose."""
    return await asyncio.to_thread(explained_choices, service.orchestrator.journal, run)


@router.get("/choices")
async def choices(
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many of the latest choices.")] = 1000,
) -> ChoicesBody:
    """Return the latest choices in runs that are kept: what the memory expected of each, and how it turned out."""
    return await asyncio.to_thread(_choices, service, limit)


@router.get("/values")
async def values(service: ServiceDep) -> ValuesBody:
    """Return what roles and personas are worth by type of task; `null` is that of requests in words, and of chats."""
    return ValuesBody(values=await asyncio.to_thread(_values, service))


@router.get("/personas")
async def evidence(service: ServiceDep) -> EvidenceBody:
    """Return the evidence for personas that were used: attempts of kept runs, and Q next to the role's without it."""
    return await asyncio.to_thread(_evidence, service)


@router.get("/trainings")
async def listed_trainings(service: ServiceDep) -> TrainingsBody:
    """Return the figures of each update of the trainings of the frontdoor, and how the trained adapters compare."""
    return TrainingsBody(trainings=await asyncio.to_thread(trainings, service.home))


@router.get("/evaluate/{router_name}")
async def evaluate(router_name: str, service: ServiceDep) -> dict[str, Any]:
    """Return what a router would have earned on past choices: rules, memory, best or random."""
    return await asyncio.to_thread(evaluate_router, service.orchestrator.journal, router_name)


def _status(service: Service) -> dict[str, Any]:
    with memory_of(service) as learning:
        return plain(learning.status())


def _rebuild(service: Service) -> None:
    with memory_of(service) as learning:
        learning.memory.rebuild()


def _choices(service: Service, limit: int) -> ChoicesBody:
    events = journaled_choices(service.orchestrator.journal.newest_choices(limit))
    with memory_of(service) as learning:
        opened = learning.learned
        learned = {} if opened is None else opened.memory.learned_from(key for key, _ in events)
    judged = [judged_choice(key, event, learned.get(key)) for key, event in events]
    bins, error = calibration(judged)
    return ChoicesBody(choices=judged[::-1], spans=spans(judged), calibration=bins, calibration_error=error)


def _values(service: Service) -> list[Value]:
    with memory_of(service) as learning:
        learned = learning.learned
        return [] if learned is None else learned.memory.values()


def _evidence(service: Service) -> EvidenceBody:
    uses = service.orchestrator.journal.persona_uses()
    return EvidenceBody(personas=persona_evidence(uses, _values(service)))
