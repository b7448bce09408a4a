"""Answer with a whole run: the model `orchestrate`.

The request is planned, and the steps of the plan run. Progress is sent as thoughts before the answer, and as events if
the client asks for them. The answer is what the last steps of the plan wrote.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from orchestrator.api.errors import DOUBT_HEADER, RUN_HEADER, RunFailed
from orchestrator.api.limiter import Generate, Piece, RunEvent
from orchestrator.api.openai.names import role_named
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.run.job import Job
from orchestrator.run.record.progress_lines import ProgressLines
from orchestrator.run.record.report import Report
from orchestrator.run.updates import EventUpdate
from orchestrator.service.awaited_runs import Resending
from orchestrator.service.given_texts import stored_texts
from orchestrator.service.service import Service
from orchestrator.task.events import RunOptions, Usage


@dataclass(slots=True)
class AnsweringRun:
    """The run that answers a request."""

    id: str | None = None  # None before it is accepted, or if no run answers
    doubt: str | None = None  # why its answer is doubtful; None if nothing is known against it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """What a run is asked."""

    request: str  # what to do, in words
    files: Mapping[str, bytes] = field(default_factory=dict)  # texts for the steps, by name
    options: RunOptions = field(default_factory=RunOptions)
    model: str | None = None  # for all steps; None: chosen by the registry and the router
    owner: str = ""  # key of the caller, who owns the run
    traceparent: str = ""  # the caller's span, see `RunAccepted`
    stop: tuple[str, ...] = ()  # stop strings of the answer
    max_tokens: int | None = None  # of the answer; the steps may write more
    shows_progress: bool = True  # as thoughts
    with_events: bool = False  # whether events are pieces of the answer
    resending: Resending = field(default_factory=Resending)  # recognizes a request that is sent again
    answering_run: AnsweringRun = field(default_factory=AnsweringRun)  # gets the id of the run


# Left out if no run answered.
RunId = Annotated[str | None, Field(exclude_if=lambda run: run is None, description="the run that has answered")]
# Left out if nothing is known against the answer.
RunDoubt = Annotated[
    str | None, Field(exclude_if=lambda doubt: doubt is None, description="why the answer is doubtful")
]


def name_run(response: Response, run: AnsweringRun) -> None:
    """Set the headers of a response with the run that answers and the doubt about its answer, if any."""
    if run.id is not None:
        response.headers[RUN_HEADER] = run.id
    if run.doubt is not None:
        response.headers[DOUBT_HEADER] = run.doubt.encode("ascii", "backslashreplace").decode()


def run_event(event: RunEvent) -> dict[str, Any]:
    return {"run_id": event.run, "number": event.number, "event": json.loads(event.body)}


def run_request(messages: Sequence[Message]) -> str:
    """Return the request of a run that answers a chat. Raises InputError if no message is from a user.

    A single message is the request; several are joined, each after the role that wrote it.
    """
    written = [message for message in messages if message.content.strip()]
    if not any(message.role == "user" for message in written):
        raise InputError(Problem("messages", 'no message with role "user"', "one at least"))
    if len(written) == 1:
        return written[0].content
    return "\n".join(f"{message.role}: {message.content}" for message in written)


def answer_by_run(service: Service, question: RunQuestion) -> Generate:
    """Return what answers with a run. Raises RunFailed if it ends without an answer, and what `Service.submit` raises.

    If it is cancelled because the client is gone, the run continues for a while, so that the client can come back.
    """

    async def generate(on_text: Callable[[Piece], None], on_thought: Callable[[str], None]) -> Completion:
        lines, thoughts = ProgressLines(), list[str]()
        async with service.awaited_runs.waiting(question.resending, lambda: _submit(service, question)) as run:
            question.answering_run.id = run
            on_text("")  # so that a stream begins when the run is accepted, and not when it has ended
            async with aclosing(service.watch(run)) as updates:
                async for update in updates:
                    if not isinstance(update, EventUpdate):
                        continue
                    if question.with_events:
                        on_text(RunEvent(run, update.number, update.body))
                    for line in lines.lines(update.event) if question.shows_progress else ():
                        thoughts.append(f"{line}\n")
                        on_thought(thoughts[-1])
            report = await asyncio.to_thread(service.orchestrator.views.report, run)
        answer = _answer(report)
        question.answering_run.doubt = report.doubt or None
        completion = await _limited(service, report, answer, question)
        on_text(completion.text)
        return replace(completion, reasoning="".join(thoughts))

    return generate


def _answer(report: Report) -> str:
    # A request that lacks something gets a list of that.
    if report.answer is not None:
        return report.answer
    if report.missing:
        return "This cannot be done yet:\n" + "\n".join(f"- {sentence}" for sentence in report.missing)
    message = f"run {report.run_id} ended {report.status}: {report.error or 'without an answer'}"
    raise RunFailed(message, report.run_id)


async def _submit(service: Service, question: RunQuestion) -> str:
    async with stored_texts(service.orchestrator.journal, question.files) as digests:
        job = Job(
            question.request,
            None,
            None,
            "as-planned",
            any_mode=True,
            model=question.model,
            found=digests,
            options=question.options,
            owner=question.owner,
            traceparent=question.traceparent,
            key=question.resending.key,
            digest="" if question.resending.key is not None else question.resending.digest,
        )
        return (await service.submit(job)).run


async def _limited(service: Service, report: Report, text: str, question: RunQuestion) -> Completion:
    usage = _usage(report)
    text, stop = _stopped(text, question.stop)
    most = question.max_tokens
    if most is None or len(text.encode()) <= most:  # each token has one byte at least
        return Completion(text, "stop", usage, stop_string=stop)
    cut = await _first_tokens(service, report, text, most)
    if len(cut) == len(text):
        return Completion(text, "stop", usage, stop_string=stop)
    return Completion(cut, "length", usage)


def _stopped(text: str, stops: Sequence[str]) -> tuple[str, str]:
    matches = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not matches:
        return text, ""
    at, stop = min(matches)
    return text[:at], stop


async def _first_tokens(service: Service, report: Report, text: str, most: int) -> str:
    written = [
        attempt for step in reversed(report.steps) for attempt in reversed(step.attempts) if attempt.usage.output_tokens
    ]
    model = written[0].model if written else role_named(None, service).model
    try:
        tokenized = await service.orchestrator.pool.tokenize(model, text, special=False)
    except OrchestratorError:
        # If the model cannot be asked, as one of another server, estimate by its token counts.
        usage = written[0].usage if written else Usage()
        tokens = max(1, usage.output_tokens - usage.reasoning_tokens)
        return text if tokens <= most else text[: len(text) * most // tokens]
    pieces = tokenized.pieces
    if len(pieces) <= most:
        return text
    cut = b"".join(pieces[:most]).decode(errors="ignore")
    return cut if text.startswith(cut) else cut.removeprefix(" ")  # which some vocabularies put before a text


def _usage(report: Report) -> Usage:
    planned = [report.plan_usage, *(row.usage for row in report.replans)]
    return Usage(
        prompt_tokens=sum(step.prompt_tokens for step in report.steps)
        + sum(planning.prompt_tokens for planning in planned),
        output_tokens=sum(step.output_tokens for step in report.steps)
        + sum(planning.output_tokens for planning in planned),
        reasoning_tokens=sum(step.reasoning_tokens for step in report.steps)
        + sum(planning.reasoning_tokens for planning in planned),
    )
