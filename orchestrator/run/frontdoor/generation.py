"""Have a model write a plan, or the rest of one, with one repair. Parts are accepted while it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError, PromptTooLong
from orchestrator.pool.errors import PoolError
from orchestrator.registry.options import StepContext
from orchestrator.registry.persona import Persona
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw, PlanStream, plan_schema, plan_text
from orchestrator.run.frontdoor.direct import DirectAnswer, PlanTrial
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.run.frontdoor.personas import asks_for_manner
from orchestrator.run.frontdoor.review import PlanReview
from orchestrator.run.planning import Accept, CheckSteps, Predict
from orchestrator.run.steps.attempt import Models, added, map_error
from orchestrator.run.steps.role import ResolvedRole, after_flaw, plan_messages
from orchestrator.task.events import Failure, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan, and which role plans it."""

    text: str
    files: tuple[str, ...] = ()  # names that the request may refer to
    roles: tuple[str, ...]  # the roles that steps may have
    direct: DirectAnswer  # does the whole request if no plan, or none that is better, can be made
    # As in `PlanContext`: the plan is compared with the direct answer. None: a plan is wanted in any case.
    predict: Predict | None = None
    early: bool = True  # whether steps may start before the plan is complete
    role: ResolvedRole  # the role that writes the plan. Without `max_tokens`, the plan may fill the context.
    fit: int | None = None  # tokens of the context that the prompt has to leave for the plan, as in `Generation`
    replans: int = 0  # how often the plan may still continue after this
    cores: int = 0  # of the machine, as the model is told; 0: it is not
    check: CheckSteps | None = None  # as in `PlanContext`
    personas: Mapping[str, Persona] = field(default_factory=dict)  # by name

    # what steps read, by role; "own" for a role that is not in it
    step_context: Mapping[str, StepContext] = field(default_factory=dict)

    @property
    def reviewed(self) -> bool:
        # embedded models are trained on their own plans as they are, and on steps that read what these say
        return self.role.prompts.listed_names

    @property
    def offers_personas(self) -> bool:
        # embedded models are not trained on personas
        return self.role.prompts.listed_names and asks_for_manner(self.text)


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """How the steps of a plan came about."""

    origin: Literal["planned", "repaired"] | None  # None if only the accepted parts can be kept
    reason: str  # what was wrong with the answers; empty for nothing
    failure: Failure | None = None  # why the model could not be asked at all


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
        """`new_builder` returns a builder with the parts that were handed on before. `text` is the question.

        `accept` gets each new part, `on_text` each piece that the model writes, and a `trial` may hold new parts back.
        """
        self.builder = new_builder()
        self.usage = Usage()  # of all answers together
        self.asked = 0  # how often the model was asked
        self._request = request
        self._text = text
        self._models = models
        self._accept = accept
        self._on_text = on_text
        self._new_builder = new_builder
        self._trial = trial

    async def run(self) -> PlanOutcome:
        """Ask the model, and once more if its answer is flawed (for a repair), or if the engine or the pool failed.

        The second answer has to start with the parts that were handed on, and replaces the rest.
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
        # what is wrong with the plan, or None; raises EngineError, PoolError
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
            plan_messages(request.role.system, request.files, text, request.cores),
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
        accepted = len(self.builder.fresh)
        # the rest of a plan may be empty
        if self.builder.done:
            return accepted
        # a flawed plan lacks at least one part
        return accepted + 1 if flawed else max(1, accepted)

    def _kept_parts(self) -> str:
        fresh = self.builder.fresh
        return f"\nThese parts stand: {plan_text(fresh)}\nWrite the plan again, with them first." if fresh else ""


class _PlanReader:
    """Reads one answer: skips the parts that were accepted before, and has the others accepted."""

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
        self.looped = False  # a part has repeated an earlier one, and the plan ends before it

    def feed(self, piece: str) -> str | None:
        """Read a piece. Return what is wrong with the answer so far, or None."""
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
        """Read what did not come in pieces. Return what is wrong with the whole answer, or None."""
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
