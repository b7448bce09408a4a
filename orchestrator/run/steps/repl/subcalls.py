"""Ask models for a step's code: one call, or many at once, within the budget of an attempt."""

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
from orchestrator.run.steps.repl.protocol import Answer, LlmCall
from orchestrator.run.steps.role import ResolvedRole, StepInput, step_messages
from orchestrator.task.events import Usage


class BudgetSpent(Exception):
    """A budget is used up. The message says which one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplBudget:
    turns: int = 20  # answers of the step's model
    calls: int = 500  # of tools and models by the code; every call of a batch counts
    tokens: int = 200_000  # of these calls of models, prompts and answers together
    seconds: float = 900.0  # of the whole attempt, without its gates
    turn_seconds: float = 30.0  # of computing in one turn; waiting for calls does not count
    turn_output: int = 1_000_000  # characters printed in one turn


class Spending:
    def __init__(self, budget: ReplBudget) -> None:
        self._budget = budget
        self.calls = 0
        self.usage = Usage()

    @property
    def tokens_left(self) -> int:
        return self._budget.tokens - self.usage.prompt_tokens - self.usage.output_tokens

    def take(self, calls: int, prompt_tokens: int = 0) -> None:
        """Count calls with about this number of prompt tokens in all. Raises `BudgetSpent`, and then counts none."""
        remaining = self._budget.calls - self.calls
        if calls > remaining:
            raise BudgetSpent(f"{calls} calls are too many: {remaining} of {self._budget.calls} are left")
        if self.tokens_left <= 0:
            raise BudgetSpent(f"all {self._budget.tokens} tokens of model calls are used")
        if prompt_tokens > self.tokens_left:
            remaining, all_of_them = self.tokens_left, self._budget.tokens
            raise BudgetSpent(f"prompts of {prompt_tokens} tokens are too many: {remaining} of {all_of_them} are left")
        self.calls += calls


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
