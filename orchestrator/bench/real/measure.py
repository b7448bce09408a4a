"""Ask a model for plans and for answers, through the real frontdoor, engine and gates, and count what is right."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from orchestrator.bench.goals import Goal, at_least, at_most, state, wilson
from orchestrator.bench.real.contexts import KINDS, ContextTask, best_context, context_tasks
from orchestrator.bench.real.requests import RealRequest, real_requests
from orchestrator.bench.real.structure import CODER, width
from orchestrator.bench.real.tasks import RealTask, real_tasks
from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.engine.errors import EngineError
from orchestrator.errors import RequestIncomplete
from orchestrator.pool.pool import Pool
from orchestrator.registry.forms import Level, Tier
from orchestrator.registry.measured import MeasuredShares
from orchestrator.registry.models import Registry, RoleEntry
from orchestrator.registry.options import StepContext
from orchestrator.run.frontdoor.planner import FRONTDOOR, FrontdoorPlanner
from orchestrator.run.gates.shares import JobRunner, JobShares
from orchestrator.run.planning import PlanContext, PlanError, PlannedPart
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.attempt import Attempt, AttemptError, Models, added
from orchestrator.run.steps.gating import Checks, pass_gates
from orchestrator.run.steps.generate import GenerateRunner
from orchestrator.run.steps.role import resolve_role, step_messages
from orchestrator.task.events import Usage

T = TypeVar("T")
PLANS_GOAL: Final = 0.7  # the share of unseen requests whose plans a frontdoor should get right
# Of the requests that measure width: the least share of right plans, the largest of collapsed and of too wide ones.
WIDE_GOALS: Final = (0.8, 0.1, 0.05)
COLLAPSED: Final = 0.5  # a plan has collapsed if its width is less than this share of the best
ANSWERS: Final = ("extract", "count", "classify")  # the kinds of the small tasks in words
AT_ONCE: Final = 4  # the most requests that are asked at the same time

# Name, tier, level and description of the roles that the model plays.
ROLES: Final[tuple[tuple[str, Tier, Level | None, str], ...]] = (
    (FRONTDOOR, "A", None, "turns a request into steps"),
    ("worker", "C", None, "extracts, summarizes, compares and answers"),
    (CODER, "B", "B1", "writes code"),
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """How a request or a task ended."""

    name: str  # the text of the request, or the name of the task
    kind: str  # `plan`, or the kind of the task
    right: bool
    answer: str  # the plan as JSON, or the answer; empty where there is none
    problem: str = ""  # why the model was asked again, or why there is no answer; empty if all went well
    usage: Usage = field(default_factory=Usage)
    width: int = 0  # how many steps of a plan may run at once


@dataclass(frozen=True, slots=True)
class ModelResults:
    """The results of one model."""

    model: str
    prompts: str  # the prompts that the model got: name, version and digest of the set
    results: tuple[Result, ...]
    skipped: str  # why no code was asked for; empty if it was
    seconds: float

    def count(self, *kinds: str) -> tuple[int, int]:
        """Return how many results of these kinds are right, and how many there are."""
        verdicts = [result.right for result in self.results if result.kind in kinds]
        return sum(verdicts), len(verdicts)

    @property
    def usage(self) -> Usage:
        """What all results together took."""
        return added(*(result.usage for result in self.results))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of results there are, in their order."""
        return tuple(dict.fromkeys(result.kind for result in self.results))

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON."""
        usage = self.usage
        return {
            "model": self.model,
            "prompts": self.prompts,
            "right": {kind: dict(zip(("right", "of"), self.count(kind), strict=True)) for kind in self.kinds},
            "skipped": self.skipped,
            "tokens": {
                "prompt": usage.prompt_tokens,
                "cached": usage.cached_tokens,
                "output": usage.output_tokens,
                "per_second": round(usage.output_tokens / self.seconds, 1) if self.seconds else None,
            },
            "seconds": round(self.seconds, 1),
            "results": [_result_json(result) for result in self.results],
        }


def as_measured(results: ModelResults) -> MeasuredShares | None:
    """Return what counts for the model's roles; None unless all requests and tasks were asked, but for code."""
    kinds = [kind for kind in ANSWERS if kind in results.kinds]
    plans, answers, code = results.count("plan"), results.count(*kinds), results.count("code")
    expected = Counter("code" if task.kind == "code" else "answer" for task in real_tasks())
    if plans[1] < len(real_requests("all")) or answers[1] < expected["answer"] or 0 < code[1] < expected["code"]:
        return None
    return MeasuredShares(
        plans=plans[0] / plans[1],
        answers=answers[0] / answers[1],
        code=code[0] / code[1] if code[1] else None,
        step_context=context_of(results),
    )


def context_of(results: ModelResults) -> StepContext | None:
    """Return what the model's steps should read; None unless all parts and joins were done."""
    counts = {kind: results.count(kind) for kinds in KINDS.values() for kind in kinds}
    if sum(count for _, count in counts.values()) < len(context_tasks()):
        return None
    return best_context({kind: right for kind, (right, _) in counts.items()})


def goals(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the goals with their results and states, each with the 95 % interval of its share.

    They cover the held-out requests; there are none if these were not asked.
    """
    plans = {result.name: result for result in results if result.kind == "plan"}
    unseen = [plans[request.request].right for request in real_requests("unseen") if request.request in plans]
    wide = [
        (plans[request.request], request.best_width) for request in real_requests("wide") if request.request in plans
    ]
    least, collapsed, spurious = WIDE_GOALS
    shares = (
        (at_least, "unseen requests whose plan has a right structure", unseen, PLANS_GOAL),
        (
            at_least,
            "wide and narrow requests whose plan has a right structure",
            [plan.right for plan, _ in wide],
            least,
        ),
        (
            at_most,
            "wide requests whose plan is narrower than half",
            [plan.width < COLLAPSED * best for plan, best in wide if best > 1],
            collapsed,
        ),
        (
            at_most,
            "requests whose plan is wider than the right one",
            [plan.width > best for plan, best in wide],
            spurious,
        ),
    )
    return [_share_goal(make, name, counted, bound) for make, name, counted, bound in shares if counted]


def _share_goal(
    make: Callable[[str, float, float], Goal], name: str, counted: Sequence[bool], bound: float
) -> dict[str, Any]:
    goal = make(name, sum(counted) / len(counted), bound)
    low, high = wilson(sum(counted), len(counted))
    reaches = make(name, low, bound).met or make(name, high, bound).met
    document = {"name": name, "value": goal.value, "goal": goal.goal, "interval": [round(low, 3), round(high, 3)]}
    return document | {"state": state(goal.value, goal.goal, met=reaches)}


def _result_json(result: Result) -> dict[str, Any]:
    fields = asdict(result)
    del fields["usage"]
    return fields | {"output_tokens": result.usage.output_tokens}


def registry_for(registry: Registry, model: str) -> Registry:
    """Return a registry in which one model plays all roles that are measured.

    A role that is the model's in the registry stays as it is, with its own prompt and limits.
    """
    entry = registry.models[model]
    if entry.residency == "cold":
        entry = replace(entry, residency="warm")
    roles = {name: _role(registry, model, name, tier, level, about) for name, tier, level, about in ROLES}
    alone = replace(registry, models=MappingProxyType({model: entry}), roles=MappingProxyType(roles))
    return alone.with_shipped_prompts()


def _role(registry: Registry, model: str, name: str, tier: Tier, level: Level | None, about: str) -> RoleEntry:
    own = registry.roles.get(name)
    if own is not None and own.model == model:
        return replace(own, tier=tier, level=level, escalates_to=None)
    return RoleEntry.plain(name, model, tier, level, about, registry.defaults.max_tokens)


async def measure(
    registry: Registry,
    model: str,
    requests: Sequence[RealRequest],
    tasks: Sequence[RealTask | ContextTask],
    folder: Path,
    say: Say,
    *,
    at_once: int = AT_ONCE,
    once: int | None = None,
) -> ModelResults:
    """Measure a model of the registry. `folder` is for logs; `say` gets a line whenever a result is there.

    At most `at_once` requests are sent at the same time. With `once`, a plan has at most that many tokens, and is not
    asked for again if it has a flaw: for models that never stop. Raises PoolError and EngineError if the
    model cannot be loaded.
    """
    alone = registry_for(registry, model)
    skipped, sandbox = "", None
    if any(task.kind == "code" for task in tasks):
        try:
            sandbox = await Sandbox.probe()
        except SandboxUnavailable as error:
            skipped = str(error)
            tasks = [task for task in tasks if task.kind != "code"]
    async with Pool(alone, folder / "logs", step_costs=folder / "curves") as pool:
        asking = _Asking(alone, pool, sandbox, once)
        await asking.load(model)
        started = time.perf_counter()
        jobs = [*(asking.plan_job(request) for request in requests), *(asking.task_job(task) for task in tasks)]
        slots = min(at_once, alone.models[model].slots)
        results = await _all(jobs, slots, say)
        seconds = time.perf_counter() - started
    return ModelResults(model, alone.models[model].prompts.stamp, tuple(results), skipped, seconds)


class _Asking:
    """Asks one model."""

    def __init__(self, registry: Registry, pool: Pool, sandbox: Sandbox | None, once: int | None) -> None:
        self._registry = registry
        self._pool = pool
        self._once = once
        self._planner = FrontdoorPlanner()
        self._sandbox = sandbox
        self._jobs = JobRunner(self._get_sandbox, pool.decoding.cores, JobShares(pool.decoding))

    async def _get_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxUnavailable("it was not probed")
        return self._sandbox

    async def load(self, model: str) -> None:
        """Load the model, so that no time includes it. Raises PoolError, EngineError."""
        role = resolve_role(self._registry, "worker")
        await self._pool.generate(model, role.request(step_messages(role.system, "", (), "Say yes."), max_tokens=1))

    def plan_job(self, request: RealRequest) -> Callable[[], Awaitable[Result]]:
        """Return the call that has a request planned."""
        return lambda: self._plan(request)

    def task_job(self, task: RealTask | ContextTask) -> Callable[[], Awaitable[Result]]:
        """Return the call that has a task done."""
        return lambda: self._do(task)

    async def _plan(self, request: RealRequest) -> Result:
        parts: list[PlannedPart] = []
        context = PlanContext(
            request=request.request,
            files=request.files,
            registry=self._registry,
            models=self._pool if self._once is None else _AskedOnce(self._pool, self._once),
            replans=self._registry.defaults.max_replans,
        )
        try:
            planned = await self._planner.plan(context, parts.append, lambda piece: None)
        except (PlanError, RequestIncomplete) as error:
            return Result(request.request, "plan", False, "", str(error))
        steps = tuple(step for part in parts for step in part.steps)
        right = planned.origin != "fallback" and request.is_right(steps, planned.goes_on_after)
        written = [json.loads(part.written) for part in parts if part.written]
        answer = json.dumps({"plan": written}, ensure_ascii=False)
        return Result(request.request, "plan", right, answer, planned.reason, planned.usage, width(steps))

    async def _do(self, task: RealTask | ContextTask) -> Result:
        step = task.step
        attempt = Attempt(
            step=step,
            role=resolve_role(self._registry, step.actor),
            inputs=task.reads,
        )
        checks = Checks(step=step, gates=step.gates or (), inputs=task.reads, tests=task.hidden, run=self._jobs.run)
        used: list[Usage] = []
        try:
            produced = await GenerateRunner().run(attempt, self._pool, used.append)
            outputs, _ = await pass_gates(checks, produced.outputs, self._pool)
        except AttemptError as error:
            return Result(task.name, task.kind, False, "", error.failure.message, added(*used))
        answer = outputs[step.outputs[0]].decode(errors="replace")
        return Result(task.name, task.kind, task.is_right(answer), answer, usage=produced.usage)


class _AskedOnce:
    """Models that answer only one question, in at most `most` tokens."""

    def __init__(self, models: Models, most: int) -> None:
        self._models = models
        self._most = most
        self._asked = False

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return await self._models.count(model, messages, priority)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Answer the first question. Raises EngineError for a second one, and what the models raise."""
        if self._asked:
            raise EngineError("the model is asked once only")
        self._asked = True
        most = self._most if request.max_tokens is None else min(request.max_tokens, self._most)
        return await self._models.generate(model, replace(request, max_tokens=most), on_text)


async def _all(jobs: Sequence[Callable[[], Awaitable[Result]]], at_once: int, say: Say) -> list[Result]:
    """Return the results of all jobs, in their order."""
    turns, ended = asyncio.Semaphore(at_once), Counter[bool]()

    async def run(job: Callable[[], Awaitable[Result]]) -> Result:
        async with turns:
            result = await job()
        ended[result.right] += 1
        outcome = "right" if result.right else "wrong"
        say(f"{ended.total()} of {len(jobs)}, {ended[True]} right: {outcome}: {result.name}")
        return result

    return list(await asyncio.gather(*map(run, jobs)))


def summary(measured: ModelResults) -> Iterable[str]:
    """Return lines that say what was right, and how quick the model was."""
    yield f"{measured.model}, prompts {measured.prompts}"
    plans = measured.count("plan")
    if plans[1]:
        yield f"plan structure right  {plans[0]} of {plans[1]}"
    for goal in goals(measured.results):
        yield f"{goal['name']}: {goal['value']:.0%}, wanted {goal['goal']}"
    kinds = [kind for kind in measured.kinds if kind in (*ANSWERS, "code")]
    if kinds:
        right, count = measured.count(*kinds)
        each = ", ".join(f"{kind} {correct} of {of}" for kind in kinds for correct, of in [measured.count(kind)])
        yield f"answers right         {right} of {count} ({each})"
    if (context := context_of(measured)) is not None:
        counted = {name: measured.count(*kinds) for name, kinds in KINDS.items()}
        counts = ", ".join(f"{name} {correct} of {of}" for name, (correct, of) in counted.items())
        yield f"parts right by context {counts}: step_context {context}"
    if measured.skipped:
        yield f"no code was asked for: {measured.skipped}"
    if measured.seconds:
        rate = measured.usage.output_tokens / measured.seconds
        yield f"output                {rate:.0f} tokens/s with {AT_ONCE} requests at a time"
