"""Answer with a whole run, which is what the model `orchestrate` stands for.

The request is planned, and the steps of the plan run. What happens meanwhile is told as the thoughts before the answer,
and as events of their own where the client asks for them. The answer is what the last steps of the plan have written.
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
from orchestrator.run.journal import Journal
from orchestrator.run.record.progress_lines import ProgressLines
from orchestrator.run.record.report import Report
from orchestrator.run.updates import EventUpdate
from orchestrator.service.awaited_runs import Resending
from orchestrator.service.service import Service
from orchestrator.task.events import RunOptions, Usage


@dataclass(slots=True)
class AnsweringRun:
    """Which run answers a request."""

    id: str | None = None
    """The id of the run; None before it is accepted, and where no run answers."""
    doubt: str | None = None
    """Why its answer is doubtful; None as long as nothing is known against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """What a run is asked."""

    request: str
    """What to do, in words."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The texts that its steps may read, by name."""
    options: RunOptions = field(default_factory=RunOptions)
    model: str | None = None
    """The model that all steps have to use; None for those that the registry and the router choose."""
    owner: str = ""
    """The key of the caller who asks, and so owns the run."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts that it holds."""
    max_tokens: int | None = None
    """The most tokens of the answer. The steps of the run may write more."""
    shows_progress: bool = True
    """Whether what happens is told as thoughts."""
    with_events: bool = False
    """Whether the run's events are pieces of the answer, too."""
    resending: Resending = field(default_factory=Resending)
    """How the request is recognised when it is sent again."""
    told: AnsweringRun = field(default_factory=AnsweringRun)
    """Where the id of the run is put."""


RunId = Annotated[str | None, Field(exclude_if=lambda run: run is None, description="the run that has answered")]
"""The field of an answer that names its run; it is left out where no run has answered."""
RunDoubt = Annotated[
    str | None, Field(exclude_if=lambda doubt: doubt is None, description="why the answer is doubtful")
]
"""The field of an answer that says why it is doubtful; it is left out where nothing is known against the answer."""


def name_run(response: Response, run: AnsweringRun) -> None:
    """Name the run that answers in a header of the response, where one does. Another one says that it is doubtful."""
    if run.id is not None:
        response.headers[RUN_HEADER] = run.id
    if run.doubt is not None:
        response.headers[DOUBT_HEADER] = run.doubt.encode("ascii", "backslashreplace").decode()


def run_event(event: RunEvent) -> dict[str, Any]:
    """Return an event of a run as streams have it, with the run's id and the number of the event in the run."""
    return {"run_id": event.run, "number": event.number, "event": json.loads(event.body)}


def run_request(messages: Sequence[Message]) -> str:
    """Return the request of a run that answers a chat. Raises InputError where no message is of a user.

    It is the only message where there is one, and else all of them, each with the role that wrote it.
    """
    written = [message for message in messages if message.content.strip()]
    if not any(message.role == "user" for message in written):
        raise InputError(Problem("messages", "none is of a user", "one message of the role user at least"))
    if len(written) == 1:
        return written[0].content
    return "\n".join(f"{message.role}: {message.content}" for message in written)


def answer_by_run(service: Service, question: RunQuestion) -> Generate:
    """Return what answers with a run.

    When it is cancelled, because the client has gone, the run goes on for a while, so that the client can come back.
    Raises RunFailed for a run that ends without an answer, and what `Service.submit` raises.
    """

    async def generate(on_text: Callable[[Piece], None], on_thought: Callable[[str], None]) -> Completion:
        lines, told = ProgressLines(), list[str]()
        async with service.awaited_runs.waiting(question.resending, lambda: _submit(service, question)) as run:
            question.told.id = run
            on_text("")  # so that a stream begins when the run is accepted, and not when it has ended
            async with aclosing(service.watch(run)) as updates:
                async for update in updates:
                    if not isinstance(update, EventUpdate):
                        continue
                    if question.with_events:
                        on_text(RunEvent(run, update.number, update.body))
                    for line in lines.lines(update.event) if question.shows_progress else ():
                        told.append(f"{line}\n")
                        on_thought(told[-1])
            report = await asyncio.to_thread(service.orchestrator.views.report, run)
        answer = _answer(report)
        question.told.doubt = report.doubt or None
        completion = await _limited(service, report, answer, question)
        on_text(completion.text)
        return replace(completion, reasoning="".join(told))

    return generate


def _answer(report: Report) -> str:
    """Return the answer of a run, or what its request lacks. Raises RunFailed for a run that has neither."""
    if report.answer is not None:
        return report.answer
    if report.missing:
        return "This cannot be done yet:\n" + "\n".join(f"- {sentence}" for sentence in report.missing)
    message = f"run {report.run_id} ended {report.status}: {report.error or 'without an answer'}"
    raise RunFailed(message, report.run_id)


async def _submit(service: Service, question: RunQuestion) -> str:
    """Submit the run and return its id. Its texts become objects, which the run's first event then names."""
    journal, files = service.orchestrator.journal, question.files
    digests = await asyncio.to_thread(_stored, journal, files) if files else {}
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
        key=question.resending.key,
        digest="" if question.resending.key is not None else question.resending.digest,
    )
    try:
        return (await service.submit(job)).run
    finally:
        journal.objects.release(digests.values())


def _stored(journal: Journal, files: Mapping[str, bytes]) -> dict[str, str]:
    """Store texts as objects, which are held, and return their digests. Blocks on the disk. Raises JournalError."""
    digests: dict[str, str] = {}
    try:
        for name, data in files.items():
            digests[name] = journal.put(data)
    except BaseException:
        journal.objects.release(digests.values())
        raise
    return digests


async def _limited(service: Service, report: Report, text: str, question: RunQuestion) -> Completion:
    """Return the answer up to the first stop string, and of no more tokens than the client wants."""
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
    """Return the text before the stop string that comes first, and that string; the whole text and "" for none."""
    found = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not found:
        return text, ""
    at, stop = min(found)
    return text[:at], stop


async def _first_tokens(service: Service, report: Report, text: str, most: int) -> str:
    """Return as much of an answer as has `most` tokens of the vocabulary of the model that wrote it.

    Where that model cannot be asked, as one of another server, it is so much as its own figures let expect.
    """
    written = [one for step in reversed(report.steps) for one in reversed(step.attempts) if one.usage.output_tokens]
    model = written[0].model if written else role_named(None, service).model
    try:
        tokenized = await service.orchestrator.pool.tokenize(model, text, special=False)
    except OrchestratorError:
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
        prompt_tokens=sum(step.prompt_tokens for step in report.steps) + sum(one.prompt_tokens for one in planned),
        output_tokens=sum(step.output_tokens for step in report.steps) + sum(one.output_tokens for one in planned),
        reasoning_tokens=sum(step.reasoning_tokens for step in report.steps)
        + sum(one.reasoning_tokens for one in planned),
    )
