"""Have a request planned and carried out in the production harness, on a simulated machine.

Planner, grammar, scheduler, pool, gates and report are those of the product. The frontdoor's plans come from the
policy, the other roles' answers from frozen workers, and the seconds from the machine.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from orchestrator.bench.simulate.engines import SimulatedAnswer, Write
from orchestrator.bench.simulate.machine import Machine
from orchestrator.bench.simulate.run import simulate_job
from orchestrator.engine.contract import Generation, Message
from orchestrator.memrl.parl.engines import Answer, RealEngines
from orchestrator.memrl.parl.machines import registry_on
from orchestrator.memrl.parl.removal import without_a_step
from orchestrator.memrl.parl.requests import WORKER, PlannedRequest
from orchestrator.memrl.parl.reward import MeasuredPlan, result_of
from orchestrator.registry.models import Registry
from orchestrator.registry.options import Adapters
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.run.job import Job
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.json_text import compact_json

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the names of folders in it follow from that of the training
"""A file system in memory, where it exists: a run writes many small files, and is thrown away."""
LEAST_ROOM: Final = 256 << 20  # bytes
PLAN_TOKENS: Final = 512
"""The most tokens of a sampled plan. A plan that does not end by then is cut off, which is a flaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan:
    """What the policy wrote when it was asked for a plan."""

    messages: tuple[Message, ...]
    schema: str  # as JSON
    tokens: tuple[int, ...]
    text: str


@contextmanager
def scratch_of(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for the state folders of runs, in memory if there is room.

    What a killed process has left in it is removed. One process at a time may have that of a `folder`.
    """
    digest = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST_ROOM
    place = MEMORY / f"orchestrator-{os.getuid()}-{digest[:16]}" if in_memory else folder / "runs"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700, parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def job_in(folder: Path, request: PlannedRequest, mode: Mode) -> Iterator[tuple[Job, Path]]:
    """Yield the job of a request with its files, and the path of its state folder. Both are removed at the end."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as place:
        files = Path(place) / "files"
        files.mkdir()
        for name, text in request.files.items():
            (files / name).write_text(text, encoding="utf-8")
        yield Job(request.text, None, files, mode), Path(place) / "home"


class Policy(Protocol):
    """Writes plans. The production planner asks it, and asks again after a flaw."""

    def write(self, request: Generation) -> SampledPlan:
        """Return the plan for the prompt of a request."""


class FixedPlan:
    """Writes a plan that is known."""

    def __init__(self, text: str) -> None:
        self._text = text

    def write(self, request: Generation) -> SampledPlan:
        """Return the fixed plan, for which no tokens are recorded."""
        schema = compact_json(request.schema)
        return SampledPlan(messages=request.messages, schema=schema, tokens=(), text=self._text)


@dataclass(slots=True)
class SampledPolicy:
    """Samples from the frontdoor's model with an adapter.

    All plans of a group have one prompt, so the first one that is asked for has all sampled together.
    """

    engines: RealEngines
    model: str
    lora: Adapters
    seeds: Sequence[int]  # of the group
    temperature: float = 1.0
    at: int = 0  # which plan of the group is asked for
    _drawn: list[SampledPlan] | None = None

    @property
    def text(self) -> str | None:
        """The text of the present plan; None before any was asked for."""
        return None if self._drawn is None else self._drawn[self.at].text

    def write(self, request: Generation) -> SampledPlan:
        """Return the plan of the present place in the group; one that repairs it is sampled by itself."""
        if self._drawn is None:
            self._drawn = self._sample(request, self.seeds)
        first = self._drawn[self.at]
        if first.messages == request.messages:
            return first
        (repaired,) = self._sample(request, [self.seeds[self.at]])
        return repaired

    def _sample(self, request: Generation, seeds: Sequence[int]) -> list[SampledPlan]:
        return sample_plans(self.engines, self.model, self.lora, request, self.temperature, seeds)


@dataclass(frozen=True, slots=True)
class GreedyPolicy:
    """Writes the most likely plan of the frontdoor's model with an adapter, as in production."""

    engines: RealEngines
    model: str
    lora: Adapters

    def write(self, request: Generation) -> SampledPlan:
        """Return the plan."""
        (plan,) = sample_plans(self.engines, self.model, self.lora, request, 0.0, [0])
        return plan


def sample_plans(
    engines: RealEngines, model: str, lora: Adapters, request: Generation, temperature: float, seeds: Sequence[int]
) -> list[SampledPlan]:
    """Return a plan for each seed. Raises EngineError."""
    plain = replace(
        request, temperature=temperature, logprobs=0, lora=lora, deadline_seconds=None, slack=0.0, fit=1,
        max_tokens=min(request.max_tokens or PLAN_TOKENS, PLAN_TOKENS),
    )  # fmt: skip
    completions = engines.complete(model, [replace(plain, seed=seed) for seed in seeds])
    schema = compact_json(request.schema)
    return [
        SampledPlan(
            messages=request.messages,
            schema=schema,
            tokens=tuple(token.id for token in completion.logprobs),
            text=completion.text,
        )
        for completion in completions
    ]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A run of a request with a plan of the policy."""

    result: MeasuredPlan
    plans: tuple[SampledPlan, ...]  # more than one if the first was flawed
    answer: tuple[str, ...] = ()  # the texts that the user gets


class Harness:
    """Carries requests out on simulated machines, with the roles of a registry."""

    def __init__(self, base: Registry, engines: RealEngines, folder: Path, worker: str | None = None) -> None:
        """`folder` holds state folders while they are needed. `worker` replaces the model of the role `worker`."""
        self._base = base
        self._engines = engines
        self._folder = folder
        self._worker = worker
        self._best: dict[tuple[str, str], MeasuredPlan] = {}
        self._removable: dict[tuple[str, str], float] = {}

    def run(
        self,
        request: PlannedRequest,
        machine: Machine,
        policy: Policy,
        *,
        by_cores: bool = True,
        mode: Mode = "as-planned",
        attempt: int = 0,
    ) -> Rollout:
        """Return how the request goes with a plan of the policy, which is told the cores or not.

        Workers answer at temperature 0; for a further `attempt` their answers are sampled.

        Raises EngineError, InputError and JournalError.
        """
        registry = registry_on(machine, self._base, self._worker, by_cores=by_cores)
        plans: list[SampledPlan] = []
        models = dict.fromkeys([registry.roles[FRONTDOOR].model, registry.roles[WORKER].model])
        with job_in(self._folder, request, mode) as (job, home):
            write = self._writer(registry, policy, plans.append, attempt)
            (simulated,) = simulate_job(job, machine, registry, home, write, models)
        result = result_of(simulated.report, request.check(simulated.answer))
        return Rollout(result, tuple(plans), simulated.answer)

    def serial_seconds(self, request: PlannedRequest, machine: Machine, plan: str) -> float:
        """Return what the steps of a plan take one after the other. Raises what `run` does.

        Each has the machine to itself: steps that run at the same time slow each other down, so the sum of their times
        is more than that.
        """
        return self.run(request, machine, FixedPlan(plan), mode="serial").result.serial_seconds

    def best(self, request: PlannedRequest, machine: Machine) -> MeasuredPlan:
        """Return how the request goes with the plan that is the best there. Raises what `run` does."""
        key = (request.name, machine.name)
        if key not in self._best:
            results = [self.run(request, machine, FixedPlan(plan)).result for plan in request.plans]
            self._best[key] = min(results, key=lambda result: (-result.score, result.seconds))
        return self._best[key]

    def removable_share(self, request: PlannedRequest, machine: Machine, plan: str) -> float:
        """Return the share of a plan's steps without which the plan runs, and its answer is as right as with them.

        A plan that is refused without a step needs that step, whatever the direct answer in its place would be. Answers
        do not depend on the machine, so it is tried on one. Raises what `run` does.
        """
        key = (request.name, plan)
        if key not in self._removable:
            whole = self.run(request, machine, FixedPlan(plan)).result.score
            shorter = [self.run(request, machine, FixedPlan(each)) for each in without_a_step(plan)]
            needless = sum(len(run.plans) == 1 and run.result.score >= whole for run in shorter)
            self._removable[key] = needless / len(shorter) if shorter else 0.0
        return self._removable[key]

    def _writer(self, registry: Registry, policy: Policy, note: Callable[[SampledPlan], None], attempt: int) -> Write:
        def write(request: Generation) -> SimulatedAnswer:
            if request.role == FRONTDOOR:
                plan = policy.write(request)
                note(plan)
                return SimulatedAnswer(plan.text, max(1, len(plan.tokens)))
            answer: Answer = self._engines.answer(registry.roles[request.role].model, request, attempt)
            return SimulatedAnswer(answer.text, max(1, answer.tokens))

        return write
