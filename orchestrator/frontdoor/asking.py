"""Ask a model for the steps of a plan: handed on while they are written, and repaired once."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.events import Failure, Usage
from orchestrator.frontdoor.builder import PlanBuilder
from orchestrator.frontdoor.compact import Part, PlanStream, plan_schema
from orchestrator.frontdoor.errors import PlanFlaw
from orchestrator.planning import Accept
from orchestrator.pool.errors import PoolError
from orchestrator.steps.attempt import Models, added
from orchestrator.steps.errors import failure_from
from orchestrator.steps.foreach import compact_json
from orchestrator.steps.prompt import plan_messages
from orchestrator.steps.role import ResolvedRole


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan, and which role plans it."""

    text: str
    """The request of the user."""
    files: tuple[str, ...] = ()
    """The names that the request may refer to."""
    roles: tuple[str, ...]
    """The roles that steps may have."""
    fallback_role: str
    """The role that does the whole request where no plan can be had."""
    role: ResolvedRole
    """The role that writes the plan. Without a `max_tokens` the plan may take what its prompt leaves of the context."""
    fit: int | None = None
    """How many tokens of the context the prompt has to leave for the plan, as in `Generation`."""
    replans: int = 0
    """How often the plan may still go on after what is asked for now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the steps came about, and why they are not the first that the model wrote.

    It has no `origin` where there is no plan to keep, but for the steps that were accepted; and a `failure` where the
    model could not even be asked.
    """

    origin: Literal["planned", "repaired"] | None
    reason: str
    failure: Failure | None = None


class Asking:
    """One plan, or the rest of one, on its way. `text` is what the model is asked, and `asked` how often it was."""

    def __init__(
        self, request: PlanRequest, text: str, builder: PlanBuilder, models: Models, accept: Accept, on_text: OnText
    ) -> None:
        self.usage = Usage()
        self.asked = 0
        self.builder = builder
        self._request = request
        self._text = text
        self._models = models
        self._accept = accept
        self._on_text = on_text

    async def settle(self) -> Answer:
        """Ask, and once more if need be: with the flaw where the model is to blame, for the same where the engine is.

        The second answer has to begin with the accepted parts, and replaces only the rest.
        """
        if self.builder.goes_on_after:
            return Answer("planned", "")
        try:
            flaw = await self._ask()
        except PromptTooLong as error:
            return Answer(None, str(error))
        except (EngineError, PoolError) as error:
            failure = failure_from(error)
            if failure.final and not self.builder.goes_on_after:
                return Answer(None, failure.message, failure)
            return await self._ask_again(failure)
        if flaw is None or self.builder.goes_on_after:
            return Answer("planned", flaw or "")
        return await self._repair(flaw)

    async def _ask_again(self, failure: Failure) -> Answer:
        if self.builder.goes_on_after:
            return Answer("planned", failure.message)
        unable = None
        try:
            flaw = await self._ask()
        except (EngineError, PoolError) as error:
            second = failure_from(error)
            flaw, unable = second.message, None if self.builder.fresh else second
        if flaw is None or self.builder.goes_on_after:
            return Answer("planned", f"{failure.message}; after that: {flaw}" if flaw else failure.message)
        return Answer(None, f"{failure.message}; after that: {flaw}", unable)

    async def _repair(self, flaw: str) -> Answer:
        try:
            second = await self._ask(flaw)
        except (EngineError, PoolError) as error:
            second = failure_from(error).message
        if second is None or self.builder.goes_on_after:
            return Answer("repaired", f"{flaw}; after that: {second}" if second else flaw)
        return Answer(None, f"{flaw}; the repair failed too: {second}")

    async def _ask(self, complaint: str = "") -> str | None:
        """Ask for a plan, or for a better one. Return what is wrong with it, or None. Raises what engines raise."""
        reader = _Reader(self.builder, self._accept)

        def take(piece: str) -> None:
            self._on_text(piece)
            if reader.feed(piece):
                raise StopGenerating

        self.asked += 1
        completion = await self._models.generate(self._request.role.model, self._generation(complaint), take)
        self.usage = added(self.usage, completion.usage)
        return reader.finish(completion)

    def _generation(self, complaint: str) -> Generation:
        asked, fresh = self._request, self.builder.fresh
        text = f"{self._text}{self._complaint(complaint)}" if complaint else self._text
        return asked.role.request(
            plan_messages(asked.role.system, asked.files, text),
            fit=asked.fit,
            schema=plan_schema(asked.roles, fresh, least=self._least(bool(complaint)), replan=asked.replans > 0),
        )

    def _least(self, flawed: bool) -> int:
        """Return how many parts the answer must have. A flawed plan lacks one at least; of a rest, none may be left."""
        accepted = len(self.builder.fresh)
        if self.builder.done:
            return accepted
        return accepted + 1 if flawed else max(1, accepted)

    def _complaint(self, flaw: str) -> str:
        fresh = self.builder.fresh
        kept = f"\nThese parts stand: {plan_text(fresh)}\nWrite the plan again, with them first." if fresh else ""
        return f"\nThe previous plan failed: {flaw}{kept}"


def plan_text(parts: list[Part]) -> str:
    """Return a plan of these parts as a model writes it."""
    return compact_json({"plan": [part.as_json() for part in parts]})


class _Reader:
    """Reads one answer: skips the parts that were accepted before, and has the others accepted."""

    def __init__(self, builder: PlanBuilder, accept: Accept) -> None:
        self._stream = PlanStream(builder.done)
        self._builder = builder
        self._accept = accept
        self._repeated = list(builder.fresh)
        self._flaw: str | None = None

    def feed(self, piece: str) -> str | None:
        """Take in a piece of the answer. Return what is wrong with it, if anything is."""
        try:
            for part in self._stream.feed(piece):
                self._take(part)
        except PlanFlaw as error:
            self._flaw = str(error)
        return self._flaw

    def finish(self, completion: Completion) -> str | None:
        """Take in what of the answer did not come in pieces. Return what is wrong with the whole, if anything is."""
        if self._flaw or self.feed(completion.text[self._stream.length :]):
            return self._flaw
        if completion.finish != "stop" and not self._stream.closed:
            return f"the plan was cut off ({completion.finish}) in P{len(self._builder.parts) + 1}"
        try:
            self._stream.finish()
        except PlanFlaw as error:
            return str(error)
        return None

    def _take(self, part: Part) -> None:
        if not self._repeated:
            self._accept(self._builder.add(part))
        elif part != self._repeated.pop(0):
            raise PlanFlaw("the plan does not begin with the parts that were accepted")
