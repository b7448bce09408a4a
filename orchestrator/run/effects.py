"""Carry out the commands of a run's scheduler: attempts, lists, the plan and its rest."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from orchestrator.errors import InputError, RequestIncomplete
from orchestrator.run.attempt_context import AttemptContext, job_slack
from orchestrator.run.attempt_stream import AttemptStream
from orchestrator.run.fences import is_unnamed
from orchestrator.run.frontdoor.answer_files import files_in_answer
from orchestrator.run.frontdoor.direct import direct_answer
from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.doubts import corrected
from orchestrator.run.gates.contract import GateSkipped, RunJob
from orchestrator.run.gates.planned import JUDGE, requested_gates, scope_of, unseen_tests
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import prompt_digests
from orchestrator.run.journal.objects import publish
from orchestrator.run.journal.writer import retry_when_disk_full
from orchestrator.run.planning import PlanContext, PlanError, PlannedPart
from orchestrator.run.record.report import answer_outputs
from orchestrator.run.record.view import RunView
from orchestrator.run.routing import Decision, DecisionContext
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.run.scheduler.commands import (
    AnswerDirectly,
    CheckOutputs,
    ExpandStep,
    ExtendPlan,
    GatherStep,
    StartAttempt,
)
from orchestrator.run.scheduler.run import RunState
from orchestrator.run.services import Services
from orchestrator.run.steps.attempt import Attempt, AttemptError, Models
from orchestrator.run.steps.files import NO_FILE, SeenFiles
from orchestrator.run.steps.foreach import LIST_OF_TEXTS, gather, items_of, writes_text
from orchestrator.run.steps.gating import Checks, pass_gates
from orchestrator.run.steps.generate import GenerateRunner
from orchestrator.run.steps.inputs import RunInputs
from orchestrator.run.steps.role import ResolvedRole, StepInput, resolve_role, with_options
from orchestrator.run.steps.tools.notes import RunNotes
from orchestrator.run.updates import Broadcast
from orchestrator.task.analysis import Source, analyze
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptFailed,
    AttemptSucceeded,
    EscalationTarget,
    Event,
    Failure,
    FailureKind,
    GateResult,
    InputSize,
    NoteChanged,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    PromptDigests,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    StepExpanded,
    StepGathered,
    StepReused,
    StepsPlanned,
    Usage,
)
from orchestrator.task.failures import failures_shown_to, previous_answer
from orchestrator.task.prediction import PredictedPath, predict_path, predict_run
from orchestrator.task.stages import waiting_for_models
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import KINDS, Step, TaskInput

NO_ORIGINALS: Final[Mapping[str, str]] = MappingProxyType({})


class RunEffects:
    """Carries out the commands of one run. It reads `state`, and never changes it."""

    def __init__(self, accepted: RunAccepted, state: RunState, services: Services, broadcast: Broadcast) -> None:
        self._accepted = accepted
        self._state = state
        self._services = services
        self._broadcast = broadcast
        self._task = accepted.task
        self._outputs: dict[str, Mapping[str, str]] = {}
        self._planning = False
        self._planned: list[PlannedPart] = []
        self._seconds: dict[str, float] = {}  # predicted of each planned step
        self._replans_left = accepted.max_replans
        self._directory = None if accepted.directory is None else Path(accepted.directory)
        self._notes = RunNotes()  # folded from the events
        journal = services.journal
        self._inputs = RunInputs(
            inputs_of(accepted), self._directory, journal.get, accepted.prior, journal.recent, journal.objects.size
        )

    def note(self, event: Event) -> None:
        """Apply an event. Nothing that follows from it starts before the event is in the journal."""
        match event:
            case PlanningStarted():
                self._planning = True
            case StepsPlanned(steps=steps):
                self._inputs.planned(steps)
                self._planned.append(PlannedPart(steps, event.written, event.personas))
                self._note_predictions(event)
                if event.personas:
                    self._services.define_personas(self._accepted.run, event.personas)
            case PlanReplaced(answer=step):
                self._inputs.planned((step,))
            case ReplanFinished():
                self._replans_left -= 1
            case NoteChanged():
                self._notes.apply(event)
            case _:
                self._note_texts(event)

    def _note_texts(self, event: Event) -> None:
        match event:
            case AttemptSucceeded() | StepGathered() | StepReused():
                self._produced(event.step, event.outputs)
            case AnswerChecked(restored=restored, corrected=corrected_outputs):
                for step, outputs in {**restored, **corrected_outputs}.items():
                    self._produced(step, outputs)
            case StepExpanded(step=step, items=items) if items:
                self._inputs.listed(self._state.graph.steps[step], self._sources(step), items)

    def _produced(self, step: str, outputs: Mapping[str, str]) -> None:
        self._outputs[step] = outputs
        self._inputs.produced(step, outputs)

    async def context(self, command: StartAttempt) -> DecisionContext:
        """Return what the router's choice for an attempt may depend on."""
        services, task, step = self._services, self._task, command.step
        return DecisionContext(
            registry=services.registry,
            role=command.role,
            roles=services.registry.step_roles,
            objective=task.objective if task is not None else self._accepted.request or "",
            task=task,
            step=step,
            persona=step.persona,
            inputs=await self._sizes(command),
            failures=command.failures,
            slack=command.slack,
            resident=services.resident(),
            agents=task.agents if task is not None else (),
            priority=self._accepted.priority,
            model=self._accepted.model,
        )

    def prompts(self, role: str, persona: str | None, model: str) -> PromptDigests:
        """Return the digests of the prompts of an attempt."""
        return prompt_digests(self._services.registry, role, persona, model)

    async def choose(self, context: DecisionContext) -> Decision:
        """Let the router choose role, persona and model. The run's options may override how much the model thinks."""
        decision, thinking = await self._services.router.choose(context), self._accepted.options.thinking
        if thinking in ("", decision.thinking):
            return decision
        why, advice = f"thinking is {thinking}, as the request says", decision.advice
        if advice is not None:
            advice = replace(advice, followed=False, why=why)
        reason = f"{decision.reason}; {why}"
        return replace(decision, thinking=thinking, reason=reason, advice=advice, unforced=0.0)

    async def _sizes(self, command: StartAttempt) -> tuple[InputSize, ...]:
        # In a thread only if the disk may block.
        step, sources = command.step, self._sources(command.step.id)
        if self._inputs.may_block(step, sources):
            return await asyncio.to_thread(self._inputs.sizes, step, sources, command.item)
        return self._inputs.sizes(step, sources, command.item)

    async def attempt(self, command: StartAttempt, decision: Decision, emit: Callable[[Event], None]) -> Event:
        """Carry out one attempt: read its inputs, generate, check, store."""
        step, number = command.step.id, command.number
        gates = self._gates(command.step)
        stream = self._stream(emit, step, number)
        try:
            with stream.followed():
                work, checks = await self._prepared(command, decision, gates)
                context = AttemptContext(work, number, decision.role, self._accepted, self._notes, self._services, emit)
                produced = await stream.carried_out(context.runner(), work)
                written = {**produced.outputs, **await self._files_in(work, produced.answer)}
                if not KINDS[work.step.kind].acts:
                    written = work.seen.with_line_ends(written)
                if gates:
                    stream.report_usage(await self._store(written))
                outputs, originals, results = await self._checked(checks, written, stream, work.seen)
        except AttemptError as error:
            return await self._failed(step, number, error, stream)
        return await self._succeeded(step, number, outputs, results, stream, work.seen, originals)

    async def _files_in(self, work: Attempt, answer: str) -> dict[str, bytes]:
        # The files in the text of a direct answer for which no outputs were declared.
        step, request = work.step, self._accepted.request
        if not answer or step.action != request or len(step.outputs) != 1 or not is_unnamed(step.outputs[0]):
            return {}
        inputs = {item.name: item.text for item in work.inputs}
        files = await asyncio.to_thread(files_in_answer, answer, request, inputs, self._accepted.files)
        if files:
            await asyncio.to_thread(self._keep_originals, work.seen, files)
        return {name: text.encode(errors="replace") for name, text in files.items()}

    async def check(self, command: CheckOutputs, emit: Callable[[Event], None]) -> Event:
        """Let the gates check what an attempt made before a restart. The model is not asked again."""
        step, number, get = command.step, command.number, self._services.journal.get
        stream = self._stream(emit, step.id, number)
        try:
            with waiting_for_models(stream.wait):
                _, checks = await self._read_inputs(command, self._gates(step), SeenFiles())
                stored = {name: await asyncio.to_thread(get, digest) for name, digest in command.outputs.items()}
                outputs, _, results = await self._checked(checks, stored, stream, SeenFiles())
        except AttemptError as error:
            return await self._failed(step.id, number, error, stream)
        # Without SeenFiles: the versions of the user's files it was made from are no longer known.
        return await self._succeeded(step.id, number, outputs, results, stream)

    def _gates(self, step: Step) -> tuple[str, ...]:
        return requested_gates(step, self._task.gates if self._task else ())

    async def _checked(
        self, checks: Checks, written: Mapping[str, bytes], models: Models, files: SeenFiles
    ) -> tuple[Mapping[str, str], Mapping[str, str], tuple[GateResult, ...]]:
        # Returns the digests of the outputs and of the originals, and the gates' results.
        outputs, results = await pass_gates(checks, written, models) if checks.gates else (written, ())
        originals = await self._store_originals(files)
        return await self._store(outputs, originals, publishes=True), originals, results

    async def _succeeded(
        self,
        step: str,
        number: int,
        outputs: Mapping[str, str],
        gates: tuple[GateResult, ...],
        stream: AttemptStream,
        files: SeenFiles | None = None,
        originals: Mapping[str, str] = NO_ORIGINALS,
    ) -> AttemptSucceeded:
        thoughts = await self._store_text(stream.thoughts)
        at = self._services.clock.now()
        return AttemptSucceeded(
            at=at,
            step=step,
            number=number,
            outputs=outputs,
            gates=gates,
            reasoning=thoughts,
            reads=dict(files.digests) if files is not None else {},
            originals=dict(originals),
        )

    async def _failed(self, step: str, number: int, error: AttemptError, stream: AttemptStream) -> AttemptFailed:
        thoughts, answer = await self._store_text(stream.thoughts), await self._store_text(error.answer)
        return AttemptFailed(
            at=self._services.clock.now(),
            step=step,
            number=number,
            failure=error.failure,
            gates=error.gates,
            reasoning=thoughts,
            answer=answer,
            nodes=stream.nodes,
        )

    def _where_possible(self, run: RunJob) -> RunJob:
        # The gates of a planned request are skipped without a sandbox.
        async def run_where_possible(job: SandboxJob) -> JobOutcome:
            if reason := await self._services.why_no_sandbox():
                raise GateSkipped(reason)
            return await run(job)

        return run_where_possible

    async def expand(self, command: ExpandStep) -> Event:
        """Read the list of a `foreach` step. A text that is no list is requested again as one."""
        step, now = command.step, self._services.clock.now
        try:
            items = await asyncio.to_thread(self._inputs.items, step, self._sources(step.id))
        except AttemptError as error:
            return AttemptFailed(at=now(), step=step.id, number=0, failure=error.failure)
        again = await self._listed_again(step) if items.read_as == "whole" else None
        if again is not None:
            texts, usage = again
            return StepExpanded(at=now(), step=step.id, count=len(texts), read_as="asked", items=texts, usage=usage)
        return StepExpanded(at=now(), step=step.id, count=len(items.texts), read_as=items.read_as)

    async def _listed_again(self, step: Step) -> tuple[tuple[str, ...], Usage] | None:
        # Has the step that wrote the text write it again as a JSON list, under a grammar.
        # Returns None if no model wrote the text, or if it makes no list this time.
        assert step.foreach is not None, f"{step.id} has no foreach"
        source = self._sources(step.id)[step.foreach]
        writer = self._state.graph.steps[source.step] if source.step is not None else None
        registry = self._services.registry
        if writer is None or not writes_text(writer) or writer.actor not in registry.usable_roles:
            return None
        listing = writer.model_copy(update={"outputs": (step.foreach,), "output_schema": LIST_OF_TEXTS, "gates": ()})
        model = self._accepted.model or registry.roles[writer.actor].model
        why = f"{step.foreach} is no list, and {step.id} runs over it"
        decision = Decision(role=writer.actor, persona=writer.persona, model=model, reason=why)
        try:
            attempt, _ = await self._prepared(StartAttempt(listing, 0, writer.actor), decision, ())
            produced = await GenerateRunner().run(attempt, self._services.models)
            items = items_of(step.foreach, produced.outputs[step.foreach].decode())
        except AttemptError:
            return None
        return items.texts, produced.usage

    async def gather(self, command: GatherStep) -> Event:
        joined = await asyncio.to_thread(self._gathered, command)
        files = SeenFiles()
        await asyncio.to_thread(self._keep_originals, files, command.step.outputs)
        originals = await self._store_originals(files)
        outputs = await self._store(joined, originals, publishes=True)
        return StepGathered(at=self._services.clock.now(), step=command.step.id, outputs=outputs, originals=originals)

    def planning(self) -> PlanningStarted | None:
        """Return the event that the plan starts with; None if planning started before a restart."""
        if self._planning:
            return None
        planner, direct = self._services.planner.planned_by(self._services.registry), self._accepted.mode == "direct"
        return PlanningStarted(at=self._services.clock.now(), role=planner.role, model=planner.model, direct=direct)

    async def plan(self, emit: Callable[[Event], None]) -> Event:
        """Plan the request, and emit the steps of each part as soon as it is complete."""
        now, stream = self._services.clock.now, self._stream(emit)
        context = self._plan_context(self._replans_left, stream)
        try:
            with stream.followed():
                planned = await self._services.planner.plan(context, self._accept(emit), stream.text)
        except RequestIncomplete as error:
            return PlanFailed(at=now(), failure=_final("; ".join(error.missing)), missing=error.missing)
        except InputError as error:
            return PlanFailed(at=now(), failure=_final(str(error)))
        except PlanError as error:
            return PlanFailed(at=now(), failure=error.failure)
        return PlanFinished(
            at=now(),
            origin=planned.origin,
            reason=planned.reason,
            forecast=planned.forecast,
            usage=planned.usage,
            goes_on_after=planned.goes_on_after,
            wanted=planned.wanted,
            reasoning=await self._store_text(stream.thoughts),
        )

    def replace(self, command: AnswerDirectly) -> PlanReplaced:
        """Return the step that replaces a failed plan, by a stronger role if models failed at the plan."""
        accepted = self._accepted
        answer = direct_answer(accepted.request or "", accepted.files, accepted.sizes, self._services.registry)
        role = strongest(answer.role, accepted.rungs) if command.stronger else answer.role
        step = answer.step(len(self._state.graph.steps) + 1, role=role)
        predicted = predict_run(analyze((step,), labels=(REQUEST_LABEL,), files=accepted.files), accepted)
        now = self._services.clock.now()
        return PlanReplaced(at=now, answer=step, reason=command.reason, predicted=predicted)

    def replanning(self, command: ExtendPlan) -> ReplanStarted:
        now, planner = self._services.clock.now(), self._services.planner.planned_by(self._services.registry)
        return ReplanStarted(at=now, after=command.after, role=planner.role, model=planner.model)

    async def extend(self, command: ExtendPlan, emit: Callable[[Event], None]) -> Event:
        """Plan the rest, and emit the steps of each part as soon as it is complete."""
        now, after, stream = self._services.clock.now, command.after, self._stream(emit)
        context = self._plan_context(self._replans_left - 1, stream)
        try:
            output = await asyncio.to_thread(self._text_of, after)
            with stream.followed():
                extension = await self._services.planner.extend(context, after, output, self._accept(emit), stream.text)
        except (InputError, JournalError) as error:
            return ReplanFinished(at=now(), after=after, outcome="stopped", reason=str(error), asked=0)
        return ReplanFinished(
            at=now(),
            after=after,
            outcome=extension.outcome,
            reason=extension.reason,
            usage=extension.usage,
            asked=extension.asked,
            goes_on_after=extension.goes_on_after,
            wanted=extension.wanted,
            reasoning=await self._store_text(stream.thoughts),
        )

    async def check_answer(self) -> AnswerChecked:
        """Compare the answer with the request. Outputs that replace a repair are published again."""
        checked = await retry_when_disk_full(self._checked_answer)
        return replace(checked, at=self._services.clock.now())  # later than events that came meanwhile

    def _checked_answer(self) -> AnswerChecked:
        journal, run = self._services.journal, self._accepted.run
        view = RunView.of(event for _, event in journal.events(run))
        checked = check_answer(view, journal.get, journal.put, self._texts_read())
        for outputs in {**checked.restored, **checked.corrected}.values():
            publish(journal.home, journal.objects, run, outputs)
        return checked

    def _texts_read(self) -> dict[str, str]:
        # Inputs that can no longer be read are left out.
        texts: dict[str, str] = {}
        for sources in self._state.graph.sources.values():
            for name, source in sources.items():
                if source.step is None and name != REQUEST_LABEL and name not in texts:
                    with suppress(AttemptError):
                        texts[name] = self._inputs.text(name, source)
        return texts

    def _stream(self, emit: Callable[[Event], None], step: str = "", number: int = 0) -> AttemptStream:
        return AttemptStream(
            self._services.models, self._broadcast, self._services.clock.now, emit, step=step, number=number
        )

    def _plan_context(self, replans: int, models: Models) -> PlanContext:
        return PlanContext(
            request=self._accepted.request or (self._task.objective if self._task is not None else ""),
            task=self._task,
            files=self._accepted.files,
            registry=self._services.registry,
            models=models,
            replans=replans,
            priority=self._accepted.priority,
            cores=self._services.cores,
            known=tuple(self._planned),
            has_tools=self._services.servers.configured,
            check=self._state.check,
            mode=self._accepted.mode,
            sizes=self._accepted.sizes,
            predict=self._predicted_path if is_compared(self._accepted) else None,
        )

    def _predicted_path(self, steps: Sequence[Step]) -> PredictedPath:
        accepted = self._accepted
        graph = analyze(steps, labels=(REQUEST_LABEL,), files=accepted.files)
        return predict_path(graph, accepted.rates, accepted.sizes, accepted.mode, accepted.pace)

    def _accept(self, emit: Callable[[Event], None]) -> Callable[[PlannedPart], None]:
        return lambda part: emit(self._steps_planned(part))

    def _steps_planned(self, part: PlannedPart) -> StepsPlanned:
        predicted = predict_run(self._state.graph_with(part.steps), self._accepted)
        slowed = {
            step: predicted[step].seconds
            for step, seconds in self._seconds.items()
            if step in predicted and predicted[step].seconds != seconds
        }
        event = StepsPlanned(
            at=self._services.clock.now(),
            steps=part.steps,
            written=part.written,
            personas=part.personas,
            predicted={step.id: predicted[step.id] for step in part.steps},
            slowed=slowed,
        )
        self._note_predictions(event)
        return event

    def _note_predictions(self, event: StepsPlanned) -> None:
        self._seconds |= {step: prediction.seconds for step, prediction in event.predicted.items()}
        self._seconds |= event.slowed

    def _text_of(self, step: str) -> str:
        """Blocks on the disk. Raises JournalError."""
        (name,) = self._state.graph.steps[step].outputs
        return self._services.journal.get(self._outputs[step][name]).decode(errors="replace")

    async def _prepared(
        self, command: StartAttempt, decision: Decision, gates: tuple[str, ...]
    ) -> tuple[Attempt, Checks]:
        if decision.problem is not None:
            raise AttemptError(_final(str(decision.problem)))
        step, registry, options = command.step, self._services.registry, self._accepted.options
        files = SeenFiles()
        inputs, checks = await self._read_inputs(command, gates, files)
        thinking = options.thinking or decision.thinking
        role = resolve_role(
            registry, decision.role, decision.persona, decision.model, self._accepted.priority, thinking
        )
        previous = previous_answer(decision.role, command.failures)
        attempt = Attempt(
            step=step,
            role=with_options(role, options),
            seed=options.seed,
            inputs=inputs,
            failures=failures_shown_to(decision.role, command.failures),
            previous=(await asyncio.to_thread(self._services.journal.get, previous)).decode() if previous else "",
            slack=command.slack,
            seen=files,
        )
        return attempt, checks

    async def _read_inputs(
        self, command: StartAttempt | CheckOutputs, gates: tuple[str, ...], files: SeenFiles
    ) -> tuple[tuple[StepInput, ...], Checks]:
        # In a thread only if it may block, since a thread takes time to start.
        in_folder = self._directory is not None and command.item is None
        if gates or in_folder or self._inputs.may_block(command.step, self._sources(command.step.id)):
            return await asyncio.to_thread(self._read, command, gates, files)
        return self._read(command, gates, files)

    def _read(
        self, command: StartAttempt | CheckOutputs, gates: tuple[str, ...], files: SeenFiles
    ) -> tuple[tuple[StepInput, ...], Checks]:
        """Blocks on the disk. Raises `AttemptError`."""
        inputs = self._inputs.read(command.step, self._sources(command.step.id), command.item, files)
        if command.item is None:  # what the children of a `foreach` step write is joined into the files of their parent
            self._keep_originals(files, command.step.outputs)
        checks = Checks(step=command.step, gates=gates, inputs=inputs, slack=command.slack)
        return inputs, self._with_means(checks) if gates else checks

    def _keep_originals(self, files: SeenFiles, names: Iterable[str]) -> None:
        """Blocks on the disk."""
        if self._directory is not None:
            files.keep_originals(self._directory, names)

    def _with_means(self, checks: Checks) -> Checks:
        """Return the checks with what their gates may use. Blocks on the disk. Raises `AttemptError`."""
        step, task = checks.step, self._task
        run = self._services.gate_jobs(job_slack(checks.slack, self._accepted.priority))
        users = frozenset(name for name, source in self._sources(step.id).items() if source.kind != "artifact")
        if task is None:
            return replace(checks, users=users, run=self._where_possible(run))
        tests = self._inputs.given(unseen_tests(scope_of(step, task))) if "unit" in checks.gates else ()
        return replace(checks, tests=tests, users=users, commands=task.commands, judge=self._judge(), run=run)

    def _judge(self) -> ResolvedRole | None:
        registry, priority = self._services.registry, self._accepted.priority
        return resolve_role(registry, JUDGE, priority=priority) if JUDGE in registry.usable_roles else None

    def _sources(self, step: str) -> Mapping[str, Source]:
        return self._state.graph.sources[self._state.steps.parent_of(step) or step]

    def _gathered(self, command: GatherStep) -> Mapping[str, bytes]:
        get = self._services.journal.get
        outputs = [{name: get(digest) for name, digest in self._outputs[child].items()} for child in command.children]
        return gather(command.step, outputs)

    async def _store_originals(self, files: SeenFiles) -> dict[str, str]:
        journal = self._services.journal
        digests = dict.fromkeys(files.originals, NO_FILE)
        originals = {name: data for name, data in files.originals.items() if data is not None}

        # Held and released like outputs.
        def stored() -> dict[str, str]:
            for name, data in originals.items():
                if digests[name] == NO_FILE:
                    digests[name] = journal.put(data)
            return digests

        try:
            return await retry_when_disk_full(stored) if originals else digests
        except BaseException:
            journal.objects.release(filter(None, digests.values()))
            raise

    async def _store_text(self, text: str) -> str:
        # No object for an empty text.
        store = self._services.journal.put
        return await retry_when_disk_full(lambda: store(text.encode(errors="replace"))) if text else ""

    async def _store(
        self, outputs: Mapping[str, bytes], originals: Mapping[str, str] = NO_ORIGINALS, *, publishes: bool = False
    ) -> dict[str, str]:
        journal, run = self._services.journal, self._accepted.run
        digests: dict[str, str] = {}

        def stored() -> dict[str, str]:
            for name, data in outputs.items():
                if name not in digests:  # the others were stored before the disk was full
                    digests[name] = journal.put(data)
            if publishes:
                publish(journal.home, journal.objects, run, digests)
            return digests

        try:
            return await retry_when_disk_full(stored)
        except BaseException:
            # Otherwise they are held until an event that names them is committed.
            journal.objects.release([*digests.values(), *filter(None, originals.values())])
            raise


def _final(message: str) -> Failure:
    # A retry would not help: this installation cannot do it.
    return Failure(FailureKind.INFRASTRUCTURE, message, final=True)


def strongest(role: str, rungs: Mapping[str, EscalationTarget]) -> str:
    """Return the role at the end of the escalation that starts with `role`."""
    passed = {role}
    while (target := rungs.get(role)) is not None and target.role not in passed:
        role = target.role
        passed.add(role)
    return role


def is_compared(accepted: RunAccepted) -> bool:
    """Return whether the plan of a run is compared with a direct answer: nobody has forced its mode."""
    return accepted.mode_choice is not None and accepted.mode != "direct"


def inputs_of(accepted: RunAccepted) -> dict[str, TaskInput]:
    """Return the inputs of a run's task by label and by path; for a request, the request itself."""
    if (task := accepted.task) is not None:
        return task.paths | dict(zip(task.labels, task.inputs, strict=True))
    return {REQUEST_LABEL: TaskInput(type="text", value=accepted.request or "")}


def check_answer(
    view: RunView, read: Callable[[str], bytes], write: Callable[[bytes], str], inputs: Mapping[str, str]
) -> AnswerChecked:
    """Compare the answer of a run whose steps are all done with its request, and correct what code can.

    `inputs` are the texts that the steps read; `read` and `write` are of the store of objects.
    """
    answer = _corrected(view, view.outputs, read, inputs)
    # A repaired output stands only if there is less to doubt about it than before.
    restored: dict[str, Mapping[str, str]] = {}
    if view.checked is not None:
        restored = {
            step: before
            for step, before in view.before_repair.items()
            if before != view.outputs[step] and _weight(answer.doubts, step) >= _weight(view.checked.doubts, step)
        }
    if restored:
        answer = _corrected(view, {**view.outputs, **restored}, read, inputs)
    # The time of the run's latest event, so that the same events always give the same result.
    at = view.accepted.at + view.wall_seconds
    outputs = {**view.outputs, **restored}
    written = {
        step: {**outputs[step], **{name: write(text.encode()) for name, text in texts.items()}}
        for step, texts in answer.texts.items()
    }
    # Those of outputs that no repair has replaced still hold.
    earlier = view.checked.corrections if view.checked is not None else ()
    still = tuple(solved for solved in earlier if view.before_repair.get(solved.step) == outputs.get(solved.step))
    corrections = (*still, *answer.corrections)
    return AnswerChecked(at=at, doubts=answer.doubts, restored=restored, corrected=written, corrections=corrections)


def _weight(answer_doubts: Sequence[AnswerDoubt], step: str) -> tuple[int, int]:
    # An output with a hundred faults is better than one that is no answer.
    own = [doubt for doubt in answer_doubts if doubt.step == step]
    return sum(doubt.void for doubt in own), len(own)


class _Corrected(NamedTuple):
    doubts: tuple[AnswerDoubt, ...]
    corrections: tuple[AnswerDoubt, ...]  # the doubts that they have solved
    texts: Mapping[str, Mapping[str, str]]  # that replace outputs: by step and name


def _corrected(
    view: RunView, outputs: Mapping[str, Mapping[str, str]], read: Callable[[str], bytes], inputs: Mapping[str, str]
) -> _Corrected:
    writers = {name: step for step in view.graph.steps for name in outputs.get(step, {})}
    texts = {name: read(outputs[step][name]).decode(errors="replace") for name, step in writers.items()}
    shown = {name: texts[name] for name in answer_outputs(view)}
    # What another step has read stays as it was.
    changeable = [name for name, step in writers.items() if not view.graph.after[step]]
    answer = corrected(view.title, view.accepted.files, WrittenAnswer(shown, texts, inputs), changeable)
    changed: dict[str, dict[str, str]] = {}
    for name, text in answer.answer.written.items():
        if text != texts[name]:
            changed.setdefault(writers[name], {})[name] = text
    return _Corrected(_by_step(answer.doubts, writers), _by_step(answer.solved, writers), changed)


def _by_step(doubts: Sequence[Doubt], writers: Mapping[str, str]) -> tuple[AnswerDoubt, ...]:
    return tuple(
        AnswerDoubt(doubt.text, writers.get(doubt.output or "", ""), doubt.demand, doubt.void) for doubt in doubts
    )
