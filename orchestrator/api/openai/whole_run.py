"""Answer a chat with a whole run: the request is planned, its steps run, and the run's answer is the text."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from orchestrator.api.errors import RunFailed
from orchestrator.api.openai.generating import Work
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.events import Usage
from orchestrator.history.report import Report
from orchestrator.runs import Job
from orchestrator.service.service import Service


def request_of(pairs: Sequence[Message]) -> str:
    """Return the request in words: what a user said alone, or the whole talk with who said it. Raises InputError."""
    said = [(role, text) for role, text in pairs if text.strip()]
    if not any(role == "user" for role, _ in said):
        raise InputError(Problem("messages", "none is of a user", "one message of the role user at least"))
    if len(said) == 1:
        return said[0][1]
    return "\n".join(f"{role}: {text}" for role, text in said)


def run_work(service: Service, request: str) -> Work:
    """Return the work that submits a request, and cancels its run if it is stopped."""

    async def work(on_text: Callable[[str], None]) -> Completion:
        asked = asyncio.create_task(service.submit(Job(request, None, None, "as-planned")))
        try:
            run = (await asyncio.shield(asked)).run
            on_text("")  # whoever reads a stream learns now that it was accepted, and not when it is done
            async for _ in service.watch(run):
                pass
        except asyncio.CancelledError:
            with suppress(OrchestratorError):  # it may never have been accepted
                await service.cancel((await asked).run)
            raise
        report = await asyncio.to_thread(service.orchestrator.views.report, run)
        if report.answer is None:
            raise RunFailed(f"run {run} ended {report.status}: {report.error or 'without an answer'}")
        on_text(report.answer)
        return Completion(report.answer, "stop", _usage(report))

    return work


def _usage(report: Report) -> Usage:
    planned = [report.plan_usage, *(row.usage for row in report.replans)]
    return Usage(
        prompt_tokens=sum(step.prompt_tokens for step in report.steps) + sum(one.prompt_tokens for one in planned),
        output_tokens=sum(step.output_tokens for step in report.steps) + sum(one.output_tokens for one in planned),
    )
