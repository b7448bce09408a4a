"""Find who is to answer a request, and make the work of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from orchestrator.api.openai.generating import Work, Workplace
from orchestrator.api.openai.names import ORCHESTRATE, find_target
from orchestrator.api.openai.sampling import generation
from orchestrator.api.openai.tools import Toolbox
from orchestrator.api.openai.whole_run import request_of, run_work
from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.errors import InputError, Problem
from orchestrator.service.service import Service

NO_TOOLS = Toolbox()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What both APIs come down to: `count` answers to the same messages."""

    name: str
    pairs: Sequence[Message]
    toolbox: Toolbox = NO_TOOLS
    schema: dict[str, Any] | bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    count: int = 1


def workplace(request: Request) -> Workplace:
    """Return where generations go on."""
    found = request.app.state.workplace
    assert isinstance(found, Workplace)
    return found


async def works_for(question: Question, service: Service) -> tuple[list[Work], str]:
    """Return the work that each answer is, and the model that does it. Raises InputError, UnknownName."""
    if question.name == ORCHESTRATE:
        _refuse_with_run(question)
        return [run_work(service, request_of(question.pairs))] * question.count, ORCHESTRATE
    target = await find_target(question.name, _said(question.pairs), service.orchestrator)
    asked = generation(
        list(question.pairs),
        target,
        question.toolbox,
        question.schema,
        max_tokens=question.max_tokens,
        temperature=question.temperature,
        top_p=question.top_p,
        seed=question.seed,
        stop=question.stop,
    )
    seeds = [asked.seed if asked.seed is None else asked.seed + number for number in range(question.count)]
    return [_pool_work(service, target.model, _seeded(asked, seed)) for seed in seeds], target.model


def _said(pairs: Sequence[Message]) -> str:
    """Return what the user said last."""
    return next((text for role, text in reversed(pairs) if role == "user"), "")


def _pool_work(service: Service, model: str, asked: Generation) -> Work:
    async def work(on_text: Callable[[str], None]) -> Completion:
        return await service.orchestrator.pool.generate(model, asked, on_text)

    return work


def _seeded(asked: Generation, seed: int | None) -> Generation:
    return replace(asked, seed=seed)


def _refuse_with_run(question: Question) -> None:
    """Raise InputError for what a whole run cannot be asked."""
    if question.toolbox.tools:
        raise InputError(Problem("tools", f"cannot be had with {ORCHESTRATE}", "a role, a persona or a model"))
    if question.schema is not None:
        raise InputError(
            Problem("response_format", f"cannot be had with {ORCHESTRATE}", "a role, a persona or a model")
        )
    if question.count > 1:
        raise InputError(Problem("n", f"{question.count} runs for one answer", "1"))
