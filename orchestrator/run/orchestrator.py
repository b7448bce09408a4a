"""The composition root: one state folder, one pool of models, and the runs in progress."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, get_args

import structlog

from orchestrator.engine.client.engine import Engine
from orchestrator.errors import InputError, Problem
from orchestrator.pool.handle import StartEngine
from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import PoolSnapshot
from orchestrator.registry.models import Registry
from orchestrator.registry.watch import Reload, Reloader, follow
from orchestrator.run.effects import RunEffects
from orchestrator.run.frontdoor.direct import direct_answer, fits, why_direct
from orchestrator.run.gates.shares import JobRunner, JobShares
from orchestrator.run.job import (
    FRONTDOOR_PLANNER,
    CheckedJob,
    Job,
    KnownRates,
    check_job,
    check_job_given,
    escalation_targets,
)
from orchestrator.run.job_forecast import forecast_job
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal, keep_prompts
from orchestrator.run.journal.objects import publish
from orchestrator.run.loop import RunLoop
from orchestrator.run.planning import PlanContext, PlannedPart, PlannedTask, Planner, planned_task
from orchestrator.run.record.forecast import JobForecast
from orchestrator.run.record.repeated import Repeat, repeated_events
from orchestrator.run.record.view import accepted_in
from orchestrator.run.routing import RULES, CheckedRouter, Decision, DecisionContext, Router, RuleRouter
from orchestrator.run.sandbox.sandbox import Interpreters, SandboxOnDemand, why_no_sandbox
from orchestrator.run.scheduler.commands import Command
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.run.services import RunProposes, Services, no_procedures_of_runs
from orchestrator.run.state_folder import Clock, StateFolder, SystemClock
from orchestrator.run.steps.files import version_of
from orchestrator.run.steps.role import system_messages
from orchestrator.run.steps.tools.servers import Configured, ToolServers, no_servers
from orchestrator.run.updates import Broadcast, EventUpdate, Progress, Update
from orchestrator.task.analysis import analyze
from orchestrator.task.events import (
    CancelRequested,
    Event,
    ModeChoice,
    ModeForecast,
    PlanFailed,
    PlanFinished,
    PlanKey,
    PlanPersona,
    RetryRequested,
    RoleRates,
    RunAccepted,
    RunBegun,
    StepPrioritised,
    StepReused,
    StepsPlanned,
)
from orchestrator.task.modes import Mode
from orchestrator.task.prediction import PredictedPath, pace_of, plan_key, predict_path, predict_run
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step, TaskIR

log = structlog.get_logger(__name__)


def _repeated(journal: Journal, repeat: Repeat, accepted: RunAccepted) -> list[Event]:
    """Return what follows RunAccepted in a run that repeats another one. Blocks on the disk.

    Raises UnknownRun, and InputError for a step that cannot be made again, and for a plan that no longer fits.
    """

    def version(name: str) -> str:
        return "" if accepted.directory is None else version_of(Path(accepted.directory), name)

    earlier = [event for _, event in journal.events(repeat.run)]
    events = repeated_events(earlier, repeat.step, accepted, version)
    fresh_state(accepted).handle(accepted, *events)
    return events


def _objects(event: StepReused) -> Iterator[str]:
    yield from event.outputs.values()
    yield from filter(None, event.originals.values())


def _mode_reason(why_usual: str, decision: Decision) -> str:
    if not why_usual:
        return decision.reason
    # The memory's reason counts only if its advice was followed.
    followed = decision.advice is not None and decision.advice.followed
    return f"{why_usual}; {decision.reason}" if followed else why_usual


def plans_no_task(_task: TaskIR, _registry: Registry) -> bool:
    """Default for `plans_task`: the steps of every task are its plan."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What an orchestrator is built on. Each part can be replaced, for example by one in virtual time."""

    router: Router = field(default_factory=RuleRouter)
    planner: Planner = FRONTDOOR_PLANNER
    # Whether the planner may replace the steps of a task.
    plans_task: Callable[[TaskIR, Registry], bool] = plans_no_task
    propose: RunProposes = no_procedures_of_runs  # keeps proposed procedures for approval
    servers: Configured = no_servers  # the MCP servers whose tools steps may name
    start_engine: StartEngine = Engine.start  # loads a model in its own process
    clock: Callable[[float], Clock] = SystemClock  # gets the time of the journal's last event, to start after it
    journal: Callable[[Path], Journal] = Journal.open  # raises JournalError
    follows_registry: bool = True  # must be false if a program makes the registry
    topology: Topology | None = None  # cores and memory by NUMA node; None: this machine's


PORTS: Final = Ports()


class Orchestrator(StateFolder):
    """Runs jobs. An async context manager: inside it, this process owns the state folder and engines run.

    Runs that have not ended when it closes are interrupted, and `resume` continues them. Valid changes of the
    registry's files take effect while it is open.
    """

    def __init__(self, home: Path, registry: Registry, ports: Ports) -> None:
        super().__init__(home, registry, ports.clock, ports.journal)
        self._ports = ports
        self._router = CheckedRouter(ports.router)
        self._reloader = Reloader(self._files_registry)
        # Which parts of the registry's files are not in force, and why.
        self.registry_status = self._reloader.status
        self._loops: dict[str, RunLoop] = {}
        self._broadcasts: dict[str, Broadcast] = {}
        self._waiting: dict[str, asyncio.Lock] = {}  # held while a waiting run is started or cancelled
        self._rates_lock = asyncio.Lock()

    @classmethod
    def open(cls, home: Path, registry: Registry, ports: Ports = PORTS) -> Self:
        """Return an orchestrator to enter. Entering raises JournalError, for example for a locked folder."""
        return cls(home, registry, ports)

    async def _enter(self, stack: AsyncExitStack) -> None:
        await super()._enter(stack)
        journal, home = self.journal, self.journal.home
        await keep_prompts(journal, self.registry)
        self._rates = KnownRates(journal)
        await self._role_rates()  # so that the first job need not wait for the whole history
        self._waiting.update((row.run, asyncio.Lock()) for row in journal.unfinished())
        self.pool = pool = await stack.enter_async_context(
            Pool(
                self.registry,
                home.logs,
                footprints=home.footprints,
                step_costs=home.step_costs,
                prefixes=home.prefixes,
                system_prompts=lambda model: system_messages(self.registry, model),
                start_engine=self._ports.start_engine,
                topology=self._ports.topology,
            )
        )
        self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
        self._driving: set[asyncio.Task[None]] = set()
        stack.callback(self._interrupt)
        self.sandbox = SandboxOnDemand()  # probed when it is first needed
        cores, shares = pool.decoding.cores, JobShares(pool.decoding)
        gates, tools = (JobRunner(self.sandbox, cores, shares) for _ in range(2))
        self._services = Services(
            self.registry.with_personas(self.personas.kept),
            pool,
            journal,
            self.clock,
            batch=pool.generate_batch,
            sessions=Interpreters(self.sandbox).open,
            servers=ToolServers(self._ports.servers, self.sandbox),
            router=self._router,
            planner=self._ports.planner,
            cores=pool.cores,
            resident=lambda: pool.resident,
            define_personas=self._define_personas,
            gate_jobs=gates.with_slack,
            tool_jobs=tools.with_slack,
            why_no_sandbox=partial(why_no_sandbox, self.sandbox),
            propose=self._ports.propose,
        )
        if self._ports.follows_registry:
            self._drive_on(follow(self._reloader, self._take_up))

    def _define_personas(self, run: str, personas: Sequence[PlanPersona]) -> None:
        if changed := self.personas.define(run, personas):
            self._drive_on(self.personas.keep(changed))

    def _adopt_personas(self) -> None:
        self._adopt(self._files_registry, ())

    async def choose(self, role: str, objective: str, persona: str | None = None, model: str | None = None) -> Decision:
        """Choose role, persona and model outside of a run, for example for a chat. `model` is forced, if given."""
        context = DecisionContext(
            registry=self.registry,
            role=role,
            roles=self.registry.step_roles,
            objective=objective,
            persona=persona,
            resident=self.pool.resident,
            model=model,
        )
        return await self._router.choose(context)

    async def survey(self) -> PoolSnapshot:
        """Return the state of the models, with the counters of their engines."""
        return await self.pool.survey()

    async def submit(self, job: Job, checked: CheckedJob | None = None) -> str:
        """Accept a job, start it and return the id of its run, once it is durable.

        Raises InputError for a job that cannot be run here, unless it was `checked` before.
        """
        events = await self._accept(job, checked)
        self._begin(events)
        return accepted_in(events).run

    async def accept(self, job: Job, checked: CheckedJob | None = None) -> str:
        """Accept a job without starting it, and return the id of its run once it is durable.

        Raises InputError unless it was `checked` before, and JournalError, for example for a key that another run has.
        """
        accepted = accepted_in(await self._accept(job, checked))
        self._waiting[accepted.run] = asyncio.Lock()
        return accepted.run

    async def _role_rates(self) -> Mapping[str, RoleRates]:
        async with self._rates_lock:  # one reader at a time
            return await asyncio.to_thread(self._rates.read, self.registry)

    async def _accept(self, job: Job, checked: CheckedJob | None = None) -> list[Event]:
        registry, journal = self.registry, self.journal
        if checked is None:
            ports = self._ports
            checked = await check_job(job, registry, journal, self.sandbox, ports.planner, ports.servers)
        rates = await self._role_rates()
        sizes = {**checked.sizes, **await asyncio.to_thread(journal.sizes, checked.prior)}
        mode, mode_choice = await self._choose_mode(job, checked.files, sizes, rates)
        as_given = job.task is not None and job.repeats is None and not self._ports.plans_task(job.task, registry)
        compared: PlanKey | None = None
        if job.task is not None and as_given and checked.graph is not None:
            compared = plan_key(checked.graph, job.task, rates, checked.sizes, mode)
        earlier = await asyncio.to_thread(journal.earlier_runs, compared.shape) if compared is not None else []
        now = self.clock.now()
        accepted = RunAccepted(
            at=now,
            run=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + secrets.token_hex(4),
            mode=mode,
            request=job.request,
            task=job.task,
            directory=None if job.directory is None else str(job.directory.absolute()),
            files=checked.files,
            rungs=escalation_targets(registry),
            rates=rates,
            plan_key=compared,
            pace=pace_of(compared, earlier),
            sizes=sizes,
            max_replans=registry.defaults.max_replans if job.task is None else 0,
            prior=checked.prior,
            warnings=checked.warnings,
            follows=job.follows,
            priority=job.urgency,
            limits=job.limits,
            model=job.model,
            mode_choice=mode_choice,
            options=job.options,
            key=job.key,
            digest=job.digest,
            owner=job.owner,
            traceparent=job.traceparent,
        )
        events: list[Event] = [accepted]
        if job.repeats is not None:
            events += await asyncio.to_thread(_repeated, journal, job.repeats, accepted)
        elif job.task is not None and as_given:
            assert checked.graph is not None, "a task has a graph"
            steps, predicted = tuple(checked.graph.steps.values()), predict_run(checked.graph, accepted)
            events += [
                StepsPlanned(at=accepted.at, steps=steps, predicted=predicted),
                PlanFinished(at=accepted.at, origin="taskir", wanted=job.task.plan.wanted),
            ]
        reused = [event for event in events if isinstance(event, StepReused)]
        digests = [*checked.prior.values(), *(digest for event in reused for digest in _objects(event))]
        with journal.objects.holding(digests):  # the runs that made them may be deleted meanwhile
            await journal.append(accepted.run, events)
        outputs = {name: digest for event in reused for name, digest in event.outputs.items()}
        if outputs:
            await asyncio.to_thread(publish, journal.home, journal.objects, accepted.run, outputs)
        return events

    async def _choose_mode(
        self, job: Job, files: Sequence[str], sizes: Mapping[str, int], rates: Mapping[str, RoleRates]
    ) -> tuple[Mode, ModeChoice | None]:
        """Return how a job is run, and how that was chosen; None if the job says it."""
        registry = self.registry
        planner, problem = self._ports.planner.planned_by(registry), self._ports.planner.why_not(registry)
        if job.request is None or not job.any_mode or (problem is None and planner.role not in registry.roles):
            return job.mode, None
        answer = await asyncio.to_thread(direct_answer, job.request, files, sizes, registry)  # of maybe many files
        direct = answer.predict(rates, sizes)
        forecast = ModeForecast(direct_seconds=direct.seconds, direct_assumed=not direct.generations)
        if problem is not None:
            reason = f"no plan can be made: {problem.what}"
            return "direct", ModeChoice(reason=reason, propensity=1.0, router=RULES, forecast=forecast)
        why = why_direct(answer, registry.roles[planner.role].plan_quality) if fits(answer, sizes, registry) else ""
        planned: Mode = "as-planned" if job.mode == "direct" else job.mode  # an earlier run of it may have been direct
        # The rules: directly if no plan can be expected to be better.
        usual: Mode = "direct" if why else planned
        decision = await self._router.choose(
            DecisionContext(
                registry=registry,
                role=planner.role,
                roles=(planner.role,),
                objective=job.request,
                resident=self.pool.resident,
                priority=job.urgency,
                modes=(usual, *(mode for mode in get_args(Mode) if mode != usual)),
            )
        )
        mode = decision.mode or usual
        choice = ModeChoice(
            reason=_mode_reason(why if mode == usual else "", decision),
            propensity=decision.propensity,
            router=decision.router,
            advice=decision.advice,
            forecast=forecast,
        )
        return mode, choice

    async def resume(self, run: str) -> str:
        """Start a waiting run or continue an interrupted one, and return its id.

        Raises UnknownRun, and InputError for a run that has ended.
        """
        turn = self._waiting.get(run)
        if turn is None:
            row = await asyncio.to_thread(self.journal.run, run)
            if row.finished is not None:
                raise InputError(Problem(f"run {run}", f"has ended: {row.status}", "a run that was interrupted"))
            return run
        async with turn:
            if run in self._waiting:  # it may have been started or cancelled meanwhile
                self._begin(await self._events(run))
        return run

    async def watch(self, run: str, after: int = 0) -> AsyncGenerator[Update, None]:
        """Yield the updates of a run after its event number `after`, until it has ended. Raises UnknownRun."""
        async with aclosing((await self._broadcast(run)).watch(after)) as updates:
            async for update in updates:
                yield update

    def progress(self, run: str, step: str) -> Progress | None:
        """Return how far the running attempt at a step has come; None if none runs, or has published anything yet."""
        broadcast = self._broadcasts.get(run)
        return None if broadcast is None else broadcast.progress(step)

    async def cancel(self, run: str, step: str | None = None, reason: str = "cancelled by the user") -> None:
        """Cancel a run, or one step and all that depends on it. No effect on a run that has ended."""
        request = CancelRequested(at=self.clock.now(), step=step, reason=reason)
        if (turn := self._waiting.get(run)) is not None:
            async with turn:
                if run in self._waiting:
                    await self._cancel_waiting(run, request)
                    return
        if run in self._loops:
            self._loops[run].emit(request)

    async def retry(self, run: str, step: str, key: str | None = None) -> None:
        """Stop the running attempt of a step, and make another one. No effect if there is none."""
        if run in self._loops:
            self._loops[run].emit(RetryRequested(at=self.clock.now(), step=step, key=key))

    async def prioritise(self, run: str, step: str) -> None:
        """Let a step and what it waits for go before the others of its run. No effect on a run that has ended."""
        request = StepPrioritised(at=self.clock.now(), step=step)
        if (turn := self._waiting.get(run)) is not None:
            async with turn:
                if run in self._waiting:
                    await self.journal.append(run, [request])
                    return
        if run in self._loops:
            self._loops[run].emit(request)

    async def _cancel_waiting(self, run: str, request: CancelRequested) -> None:
        if request.step is None:
            # The run ends without starting any step.
            self._begin(await self._events(run), request)
            return
        await self.journal.append(run, [request])  # takes effect, and watchers are told, when it starts

    async def _events(self, run: str) -> list[Event]:
        return [event for _, event in await asyncio.to_thread(self.journal.events, run)]

    async def _broadcast(self, run: str) -> Broadcast:
        """Raises UnknownRun."""
        while run not in self._broadcasts:
            past = await self._events(run)
            if run in self._waiting:
                self._broadcasts.setdefault(run, Broadcast(past))
            elif run not in self._loops:  # it has ended, or failed by a defect and continues after the next start
                broadcast = Broadcast(past)
                broadcast.close()
                return broadcast
        return self._broadcasts[run]

    async def plan(self, job: Job) -> PlannedTask:
        """Return the plan of a request as a task that can be submitted. Nothing is journaled, nothing runs.

        A plan that depends on the output of one of its steps is returned up to that step. Raises InputError, and
        PlanError when the planner's model cannot be asked.
        """
        registry, request, parts = self.registry, job.request or "", list[PlannedPart]()
        prior = job.found or {}
        checked = await asyncio.to_thread(check_job_given, job, registry, prior, planner=self._ports.planner)
        sizes = {**checked.sizes, **await asyncio.to_thread(self.journal.sizes, prior)}
        files, rates = checked.files, await self._role_rates()
        mode, choice = await self._choose_mode(job, files, sizes, rates)
        replans = registry.defaults.max_replans

        def predict(steps: Sequence[Step]) -> PredictedPath:
            return predict_path(analyze(steps, labels=(REQUEST_LABEL,), files=files), rates, sizes, mode)

        context = PlanContext(
            request=request,
            files=files,
            registry=registry,
            models=self._services.models,
            replans=replans,
            priority=job.urgency,
            cores=self._services.cores,
            has_tools=self._services.servers.configured,
            mode=mode,
            sizes=sizes,
            predict=None if choice is None else predict,
        )
        planned = await self._ports.planner.plan(context, parts.append, lambda piece: None)
        self._define_personas("", [persona for part in parts for persona in part.personas])  # its task may be submitted
        goes_on_after = planned.goes_on_after if replans else None
        how, reason = mode, planned.reason
        if planned.origin == "direct":
            how, reason = "direct", planned.reason or (choice.reason if choice is not None else "")
        elif mode == "direct":  # a procedure does it
            how = "as-planned"
        steps = [step for part in parts for step in part.steps]
        return planned_task(request, steps, goes_on_after, planned.wanted, how, reason)

    async def forecast(self, job: Job) -> JobForecast:
        """Return what can be predicted of a job. A request is planned first, but nothing is journaled, nothing runs.

        Raises InputError, and what `plan` raises.
        """
        return await forecast_job(
            job,
            PlannedTask(job.task, mode=job.mode) if job.task is not None else await self.plan(job),
            registry=self.registry,
            journal=self.journal,
            rates=await self._role_rates(),
            pool=self.pool,
            sandbox=self.sandbox,
            servers=self._ports.servers,
        )

    def _begin(self, events: list[Event], cancel: CancelRequested | None = None) -> None:
        # From where the journaled events end; with `cancel`, only to cancel the run.
        accepted = accepted_in(events)
        self._waiting.pop(accepted.run, None)
        state, broadcast = fresh_state(accepted), self._broadcasts.get(accepted.run) or Broadcast()
        effects = RunEffects(accepted, state, self._services, broadcast)
        state.handle(*events)
        for event in events:
            effects.note(event)
        for event in events[broadcast.events :]:
            broadcast.publish(EventUpdate(event))
        unplanned = not any(isinstance(event, PlanFinished | PlanFailed) for event in events)
        loop = RunLoop(accepted.run, state, effects, self.journal, self.clock, broadcast)
        self._loops[accepted.run], self._broadcasts[accepted.run] = loop, broadcast
        first: RunBegun | CancelRequested = cancel or RunBegun(at=self.clock.now())
        state.handle(first)
        self._drive_on(self._drive(loop, state.resume(), first, plan=unplanned and cancel is None))

    def _drive_on(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def _take_up(self, reload: Reload) -> None:
        if reload.difference:
            await keep_prompts(self.journal, reload.registry)  # first, since attempts will name them
            self._adopt(reload.registry, reload.rewritten)
        self.registry_status = self._reloader.status

    def _adopt(self, registry: Registry, rewritten: Collection[Path]) -> None:
        self._files_registry = registry
        self.registry = registry.with_personas(self.personas.in_use)
        # Runs in progress may name what is no longer in it.
        self._services.registry = registry.with_personas(self.personas.kept).with_entries_of(self._services.registry)
        self.pool.adopt(self.registry, rewritten)

    async def _drive(
        self, loop: RunLoop, outstanding: Sequence[Command], first: RunBegun | CancelRequested, *, plan: bool
    ) -> None:
        structlog.contextvars.bind_contextvars(run=loop.run)
        try:
            await loop.drive(outstanding, first=first, plan=plan)
        except* JournalError:
            raise
        except* Exception:
            log.exception("a run broke down; others go on")
            self._waiting[loop.run] = asyncio.Lock()  # so it can be cancelled, or continues after the next start
        finally:
            del self._loops[loop.run]
            self._broadcasts.pop(loop.run).close()

    def _interrupt(self) -> None:
        for task in self._driving:
            task.cancel()
        for broadcast in self._broadcasts.values():
            broadcast.close()
