"""Ask models for a step's code: one call, or many at once."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.run.steps.attempt import added
from orchestrator.run.steps.context.editor import BYTES_A_TOKEN
from orchestrator.run.steps.repl.budget import Spending
from orchestrator.run.steps.repl.protocol import Answer, LlmCall
from orchestrator.run.steps.role import ResolvedRole, StepInput, step_messages


class NoSuchRole(Exception):
    """There is no such role or persona. The message says which there are."""


# Resolves the names of a role (None: the step's own) and of a persona. Raises `NoSuchRole`.
Resolve = Callable[[str | None, str | None], ResolvedRole]

# The pool's `generate_batch`: many requests to one model, with their outcomes in order.
GenerateBatch = Callable[[str, Sequence[Generation]], Awaitable[list[Completion | EngineError | PoolError]]]


@dataclass(frozen=True, slots=True)
class SubcallModels:
    resolve: Resolve
    batch: GenerateBatch


async def ask_all(calls: Sequence[LlmCall], subcalls: SubcallModels, spending: Spending, slack: float) -> list[Answer]:
    """Return the answers in order; a failed call has its error as its answer. Raises `BudgetSpent`."""
    expected = sum(map(_bytes_of, calls)) // BYTES_A_TOKEN
    spending.take(max(1, len(calls)), expected)
    most = max(1, (spending.tokens_left - expected) // len(calls)) if calls else 0
    answers: dict[int, Answer] = {}
    batches: defaultdict[str, list[tuple[int, Generation]]] = defaultdict(list)
    for index, call in enumerate(calls):
        try:
            called = subcalls.resolve(call.role, call.persona)
        except NoSuchRole as error:
            answers[index] = Answer(error=str(error))
            continue
        batches[called.model].append((index, _request(call, called, most, slack)))
    # One batch for each model; the batches run in parallel.
    async with asyncio.TaskGroup() as group:
        for model, batch in batches.items():
            group.create_task(_ask(model, batch, subcalls.batch, spending, answers))
    return [answers[index] for index in range(len(calls))]


async def _ask(
    model: str,
    indexed_requests: Sequence[tuple[int, Generation]],
    batch: GenerateBatch,
    spending: Spending,
    answers: dict[int, Answer],
) -> None:
    completions = await batch(model, [request for _, request in indexed_requests])
    for (index, _), completion in zip(indexed_requests, completions, strict=True):
        if isinstance(completion, Completion):
            spending.usage = added(spending.usage, completion.usage)
        answers[index] = _answer(completion)


def _bytes_of(call: LlmCall) -> int:
    return sum(len(text.encode(errors="replace")) for text in (call.prompt, *call.inputs.values()))


def _request(call: LlmCall, called: ResolvedRole, most: int, slack: float) -> Generation:
    inputs = [StepInput(name, text) for name, text in call.inputs.items()]
    prompt = step_messages(called.system, called.persona, inputs, call.prompt)
    own_limit = called.max_tokens if call.max_tokens is None else call.max_tokens
    limit = most if own_limit is None else min(own_limit, most)
    return called.request(prompt, max_tokens=limit, schema=call.schema, slack=slack)


def _answer(completion: Completion | EngineError | PoolError) -> Answer:
    if not isinstance(completion, Completion):
        return Answer(error=str(completion))
    if completion.finish != "stop":
        written = completion.usage.output_tokens
        return Answer(error=f"the answer did not come to its end ({completion.finish}, {written} tokens)")
    return Answer(completion.text.strip())
