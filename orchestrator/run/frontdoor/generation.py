"""Have a model write a plan, or the rest of one. Parts are accepted while it is written, and it is repaired once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.pool.errors import PoolError
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw, PlanStream, plan_schema, plan_text
from orchestrator.run.frontdoor.direct import DirectAnswer
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.run.frontdoor.personas import asks_for_manner
from orchestrator.run.frontdoor.review import PlanReview
from orchestrator.run.frontdoor.trial import PlanTrial
from orchestrator.run.planning import Accept, CheckSteps, Predict
from orchestrator.run.steps.attempt import Models, added
from orchestrator.run.steps.errors import map_error
from orchestrator.run.steps.prompt import after_flaw, plan_messages
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.events import Failure, Usage
from registry.models import Persona
from registry.options import StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan, and which role plans it."""

    text: str
    """The request of the user."""
    files: tuple[str, ...] = ()
    """The names that the request may refer to."""
    roles: tuple[str, ...]
    """The roles that steps may have."""
    direct: DirectAnswer
    """The step that does the whole request if no plan can be made, or none that is better."""
    predict: Predict | None = None
    """As in `PlanContext`: the plan is compared with the direct answer; None for a plan that is wanted in any case."""
    early: bool = True
    """Whether steps may start before the plan is complete."""
    role: ResolvedRole
    """The role that writes the plan. Without a `max_tokens` the plan may take what its prompt leaves of the context."""
    fit: int | None = None
    """How many tokens of the context the prompt has to leave for the plan, as in `Generation`."""
    replans: int = 0
    """How often the plan may still go on after what is asked for now."""
    check: CheckSteps | None = None
    """As in `PlanContext`."""
    personas: Mapping[str, Persona] = field(default_factory=dict)
    """The personas that steps may have, by name."""

    step_context: Mapping[str, StepContext] = field(default_factory=dict)
    """What the steps of each role read, by the model that has the role; "own" for a role that is not in it."""

    @property
    def reviewed(self) -> bool:
        """Whether the plan is repaired and checked against the request.

        The embedded models are trained on plans as they write them, and to do steps that read what these say.
        """
        return self.role.prompts.listed_names

    @property
    def offers_personas(self) -> bool:
        """Whether the model is told that a part may have a persona. The embedded models have not been trained on it."""
        return self.role.prompts.listed_names and asks_for_manner(self.text)


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """How the steps of a plan came about."""

    origin: Literal["planned", "repaired"] | None
    """Whether the first answer or the repaired one is the plan; None where only the parts that were accepted can be
    kept."""
    reason: str
    """What was wrong with the answers; empty where nothing was."""
    failure: Failure | None = None
    """Why the model could not be asked at all, if it could not."""


class PlanGeneration:
    """One plan, or the rest of one, while a model writes it."""

    def __init__(
        self,
        request: PlanRequest,
        text: str,
        new_builder: Callable[[], PlanBuilder],
        models: Models,
        accept: Accept,
        on_text: OnText,
        trial: PlanTrial | None = None,
    ) -> None:
        """`text` is the question to the model, a new builder holds the parts that were handed on before, `accept` gets
        each new part, and `on_text` what the model writes, piece by piece. A `trial` may hold the new parts back.
        """
        self.builder = new_builder()
        self.usage = Usage()
        """What all answers together took."""
        self.asked = 0
        """How often the model was asked."""
        self._request = request
        self._text = text
        self._models = models
        self._accept = accept
        self._on_text = on_text
        self._new_builder = new_builder
        self._trial = trial

    async def run(self) -> PlanOutcome:
        """Ask the model, and a second time if need be: for a repair where its answer is flawed, for the same where the
        engine or the pool failed.

        The second answer has to begin with the parts that were handed on, and replaces the rest.
        """
        if self.builder.goes_on_after:
            return PlanOutcome("planned", "")
        try:
            flaw = await self._ask()
        except PromptTooLong as error:
            return PlanOutcome(None, str(error))
        except (EngineError, PoolError) as error:
            failure = map_error(error)
            if failure.final and not self.builder.goes_on_after:
                return PlanOutcome(None, failure.message, failure)
            return await self._ask_again(failure)
        if flaw is None or self.builder.goes_on_after:
            return PlanOutcome("planned", flaw or "")
        return await self._repair(flaw)

    async def _ask_again(self, failure: Failure) -> PlanOutcome:
        if self.builder.goes_on_after:
            return PlanOutcome("planned", failure.message)
        unable = None
        try:
            flaw = await self._ask()
        except (EngineError, PoolError) as error:
            second = map_error(error)
            flaw, unable = second.message, None if self.builder.fresh else second
        if flaw is None or self.builder.goes_on_after:
            return PlanOutcome("planned", f"{failure.message}; after that: {flaw}" if flaw else failure.message)
        return PlanOutcome(None, f"{failure.message}; after that: {flaw}", unable)

    async def _repair(self, flaw: str) -> PlanOutcome:
        if self._trial is not None and self._trial.drop():
            self.builder = self._new_builder()
        try:
            second = await self._ask(flaw)
        except (EngineError, PoolError) as error:
            second = map_error(error).message
        if second is None or self.builder.goes_on_after:
            return PlanOutcome("repaired", f"{flaw}; after that: {second}" if second else flaw)
        return PlanOutcome(None, f"{flaw}; the repair failed too: {second}")

    async def _ask(self, flaw: str = "") -> str | None:
        """Have a plan written, or a better one than the one with a `flaw`. Return what is wrong with it, or None.

        Raises EngineError, PoolError.
        """
        reader = _PlanReader(self._request, self.builder, self._accept)

        def read(piece: str) -> None:
            self._on_text(piece)
            if reader.feed(piece) or reader.looped:
                raise StopGenerating

        self.asked += 1
        completion = await self._models.generate(self._request.role.model, self._generation(flaw), read)
        self.usage = added(self.usage, completion.usage)
        return reader.finish(completion)

    def _generation(self, flaw: str) -> Generation:
        request, fresh = self._request, self.builder.fresh
        text = after_flaw(self._text, flaw) + self._kept_parts() if flaw else self._text
        return request.role.request(
            plan_messages(request.role.system, request.files, text),
            fit=request.fit,
            schema=plan_schema(
                request.roles,
                fresh,
                least=self._least_parts(bool(flaw)),
                replan=request.replans > 0,
                listed=Listed.of(request.text, request.files) if request.role.prompts.listed_names else None,
                done=self.builder.done,
                personas=[*request.personas] if request.offers_personas else None,
            ),
        )

    def _least_parts(self, flawed: bool) -> int:
        """Return how many parts the answer must have: a flawed plan lacks one at least, a rest may have none."""
        accepted = len(self.builder.fresh)
        if self.builder.done:
            return accepted
        return accepted + 1 if flawed else max(1, accepted)

    def _kept_parts(self) -> str:
        fresh = self.builder.fresh
        return f"\nThese parts stand: {plan_text(fresh)}\nWrite the plan again, with them first." if fresh else ""


class _PlanReader:
    """Reads one answer: passes over the parts that were accepted before, and has the others accepted."""

    def __init__(self, request: PlanRequest, builder: PlanBuilder, accept: Accept) -> None:
        self._stream = PlanStream(builder.done)
        self._builder = builder
        self._accept = accept
        self._repeated = list(builder.fresh)
        self._review = (
            PlanReview(request.text, request.files, request.roles, builder, accept, request.step_context)
            if request.reviewed
            else None
        )
        self._flaw: str | None = None
        self.looped = False
        """Whether a part has repeated an earlier one. The plan ends before it."""

    def feed(self, piece: str) -> str | None:
        """Read a piece of the answer. Return what is wrong with the answer, or None as long as nothing is."""
        if self.looped:
            return None
        try:
            for part in self._stream.feed(piece):
                self._take(part)
                if self.looped:
                    return None
            if self._review is not None and self._stream.has_next:
                self._review.next_begins()
        except PlanFlaw as error:
            self._flaw = str(error)
        return self._flaw

    def finish(self, completion: Completion) -> str | None:
        """Read what of the answer did not come in pieces. Return what is wrong with the whole of it, or None."""
        if self._flaw or self.feed(completion.text[self._stream.length :]):
            return self._flaw
        if self.looped:
            return self._closed()
        if completion.finish != "stop" and not self._stream.closed:
            return f"the plan was cut off ({completion.finish}) in P{len(self._builder.parts) + 1}"
        try:
            self._stream.finish()
        except PlanFlaw as error:
            return str(error)
        return self._closed()

    def _closed(self) -> str | None:
        try:
            if self._review is not None:
                self._review.close()
        except PlanFlaw as error:
            return str(error)
        return None

    def _take(self, part: Part) -> None:
        if not self._repeated and self._review is not None:
            self._review.take(part)
            self.looped = self._review.looped
        elif not self._repeated:
            self._accept(self._builder.add(part))
        elif part != self._repeated.pop(0):
            raise PlanFlaw("the plan does not begin with the parts that were accepted")
