"""Ask a model for a plan: handed on while it is written, repaired once, and replaced by a single step at the worst."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.events import Failure, PlanOrigin, Usage
from orchestrator.frontdoor.builder import PlanBuilder
from orchestrator.frontdoor.compact import CompactStep, CompactStream, compact_schema
from orchestrator.frontdoor.errors import PlanError, PlanFlaw
from orchestrator.pool.errors import PoolError
from orchestrator.steps.blame import failure_from
from orchestrator.steps.fan import compact_json
from orchestrator.steps.prompt import plan_messages
from orchestrator.taskir import Step

OnText = Callable[[str], None]
Generate = Callable[[str, Generation, OnText | None], Awaitable[Completion]]
"""The pool's `generate`. What `on_text` raises ends the generation and is raised by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan, and by whom.

    `files` are the names that the request may refer to, `roles` those that steps may have; `fallback_role` does the
    whole request if no plan can be had. `model` is the frontdoor's, `system` its prompt; `max_tokens` None lets the
    plan take what is left of the context.
    """

    text: str
    files: tuple[str, ...] = ()
    roles: tuple[str, ...]
    fallback_role: str
    model: str
    system: str
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """How the plan came about, why it is not the first one that the model wrote, and what it took."""

    origin: PlanOrigin
    reason: str
    usage: Usage


async def make_plan(
    request: PlanRequest, generate: Generate, accept: Callable[[Step], None], on_text: OnText | None = None
) -> Planned:
    """Plan the request, and hand each step to `accept` the moment it is complete and checked.

    What is handed on is frozen. A flawed plan is stopped at its first flaw; one repair, which is told the flaw, has to
    begin with the accepted steps and replaces only the rest. If that is flawed too, one more step does the whole
    request by itself, beside those that were accepted. Raises `PlanError` when the model cannot be asked at all.
    """
    planning = _Planning(request, generate, accept, on_text)
    try:
        first = await planning.ask()
    except PromptTooLong as error:
        return planning.fall_back(str(error))
    except (EngineError, PoolError) as error:
        failure = failure_from(error)
        if failure.final:
            raise PlanError(failure) from error
        return await _ask_again(planning, failure)
    if first is None:
        return Planned("planned", "", planning.usage)
    return await _repair(planning, first)


async def _ask_again(planning: "_Planning", failure: Failure) -> Planned:
    """The engine is to blame: ask for the same, or for what is still missing."""
    try:
        flaw = await planning.ask()
    except (EngineError, PoolError) as error:
        if not planning.builder.steps:
            raise PlanError(failure_from(error)) from error
        flaw = failure_from(error).message
    if flaw is None:
        return Planned("planned", failure.message, planning.usage)
    return planning.fall_back(f"{failure.message}; after that: {flaw}")


async def _repair(planning: "_Planning", flaw: str) -> Planned:
    """The model is to blame: tell it."""
    try:
        second = await planning.ask(flaw)
    except (EngineError, PoolError) as error:
        second = failure_from(error).message
    if second is None:
        return Planned("repaired", flaw, planning.usage)
    return planning.fall_back(f"{flaw}; the repair failed too: {second}")


class _Planning:
    """One request on its way to a plan."""

    def __init__(
        self, request: PlanRequest, generate: Generate, accept: Callable[[Step], None], on_text: OnText | None
    ) -> None:
        self.usage = Usage()
        self.builder = PlanBuilder(request.files, request.roles)
        self._request = request
        self._generate = generate
        self._accept = accept
        self._on_text = on_text

    async def ask(self, flaw: str = "") -> str | None:
        """Ask for a plan, or for a better one. Return what is wrong with it, or None. Raises what engines raise."""
        reader = _Reader(self.builder, self._accept)

        def take(piece: str) -> None:
            if self._on_text is not None:
                self._on_text(piece)
            reader.feed(piece)

        try:
            completion = await self._generate(self._request.model, self._generation(flaw), take)
            self.usage = _sum(self.usage, completion.usage)
            reader.feed(completion.text[reader.length :])
            if completion.finish != "stop" and not reader.closed:
                return f"the plan was cut off ({completion.finish}) in step {len(self.builder.steps) + 1}"
            reader.finish()
        except PlanFlaw as error:
            return str(error)
        return None

    def fall_back(self, reason: str) -> Planned:
        """End the plan with one step that does the whole request."""
        self._accept(self.builder.fall_back(self._request.fallback_role, self._request.text))
        return Planned("fallback", reason, self.usage)

    def _generation(self, flaw: str) -> Generation:
        asked = self._request
        text = f"{asked.text}{self._complaint(flaw)}" if flaw else asked.text
        prompt = plan_messages(asked.system, asked.files, text)
        return Generation(
            messages=tuple((message.role, message.content) for message in prompt),
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            schema=compact_schema(asked.roles, self.builder.accepted),
        )

    def _complaint(self, flaw: str) -> str:
        kept = compact_json({"steps": [step.as_json() for step in self.builder.accepted]})
        stand = f"\nThese steps stand: {kept}\nWrite the plan again, with them first." if self.builder.accepted else ""
        return f"\nThe previous plan failed: {flaw}{stand}"


class _Reader:
    """Reads one answer: skips the steps that were accepted before, and has the others accepted."""

    def __init__(self, builder: PlanBuilder, accept: Callable[[Step], None]) -> None:
        self._stream = CompactStream()
        self._builder = builder
        self._accept = accept
        self._repeated = list(builder.accepted)

    @property
    def length(self) -> int:
        return self._stream.length

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def feed(self, piece: str) -> None:
        """Take in a piece of the answer. Raises `PlanFlaw`."""
        for step in self._stream.feed(piece):
            if self._repeated:
                self._skip(step)
            else:
                self._accept(self._builder.add(step))

    def finish(self) -> None:
        """Raises `PlanFlaw` for an answer that is no whole plan."""
        self._stream.finish()

    def _skip(self, step: CompactStep) -> None:
        if step != self._repeated.pop(0):
            raise PlanFlaw("the plan does not begin with the steps that were accepted")


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(**{field.name: getattr(one, field.name) + getattr(other, field.name) for field in fields(Usage)})
