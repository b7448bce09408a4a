"""Measure this machine for the simulator: what steps of models cost here, and what the orchestrator takes itself.

The costs of steps come from the engine's own calibration. Steps under load take longer than in a calibration, and
tokens are as long as a model makes them, so both are fitted to a few short tasks that are really run: a chain, a
fan-out and some calls of a tool. No task of the benchmark's suite is among them.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import psutil

from benchmarks import results
from benchmarks.critical_path.workloads import deep, task_of, tools, wide
from benchmarks.real.measure import registry_for
from benchmarks.simulate.machine import Drafts, Machine, MachineModel, Overheads
from benchmarks.simulate.run import simulate_rounds
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, ModelInfo
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.errors import InputError, Problem
from orchestrator.events import RunAccepted
from orchestrator.history import Report, load_report
from orchestrator.journal import Journal
from orchestrator.pool.machine import read_topology
from orchestrator.runs import Job, Orchestrator, Ports
from orchestrator.taskir import TaskIR
from registry.models import Registry

CALIBRATION_SECONDS: Final = 60.0
"""How long to wait at most until an engine has measured its steps; on a busy machine it may never come to it."""
LOOK_SECONDS: Final = 0.1
ROUNDS: Final = 3
"""How often each of the tasks is run; the first time no prompt is in the caches."""
COMMITS: Final = 40
CHAIN: Final = task_of(deep(6, 70))
FAN: Final = task_of(wide(10, 50))
CALLS: Final = task_of(tools(1, 30))

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Costs:
    """What steps of a model cost here."""

    model: StepCostModel
    split: bool
    """Whether sequences have streams of KV cells of their own."""
    draft_seconds: float
    """A token of the draft model; 0 without one."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Rounds of a task on real engines."""

    reports: tuple[Report, ...]
    spec: EngineSpec
    """How the pool has started the engine that was asked."""
    info: ModelInfo
    stats: EngineStats
    """The engine's counters at the end."""
    busy_seconds: float
    """The processor time of this process, without engines, for each step of the rounds after the first."""

    @property
    def walls(self) -> list[float]:
        """The time of each round, from the acceptance to the end, in seconds."""
        return [report.wall_seconds for report in self.reports]

    @property
    def warm(self) -> float:
        """The median of the rounds after the first."""
        return median(self.walls[1:] or self.walls)


@dataclass
class _Engines:
    """Starts real engines, and remembers them."""

    started: list[tuple[EngineSpec, Engine]] = field(default_factory=list)

    async def start(self, spec: EngineSpec) -> Engine:
        engine = await Engine.start(spec)
        self.started.append((spec, engine))
        return engine


def run_here(task: TaskIR, registry: Registry, home: Path, rounds: int) -> Ran:
    """Run a task on this machine's engines, several times one after the other. A state folder keeps what is known.

    Raises JournalError, PoolError, EngineError, and InputError for a task that cannot be run here.
    """
    engines = _Engines()

    async def main() -> Ran:
        reports = []
        busy = 0.0
        async with Orchestrator.open(home, registry, Ports(start_engine=engines.start, follows_registry=False)) as here:
            for model in dict.fromkeys(registry.roles[step.actor].model for step in task.plan.steps):
                await here.pool.load(model)
            for _, engine in engines.started:
                await _calibrated(engine)
            for number in range(rounds):
                before = time.process_time()
                run = await here.submit(Job(None, task, None, "as-planned"))
                async for _ in here.watch(run):
                    pass
                busy += time.process_time() - before if number else 0.0
                reports.append(await asyncio.to_thread(load_report, here.journal, run))
            spec, engine = engines.started[0]
            steps = len(reports[0].steps) * max(1, rounds - 1)
            return Ran(tuple(reports), spec, engine.info, await engine.stats(), busy / steps)

    return asyncio.run(main())


async def _calibrated(engine: Engine) -> None:
    """Wait until an engine knows what its steps cost, or it has taken too long to find out."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALIBRATION_SECONDS):
            while not (await engine.stats()).calibrated:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(LOOK_SECONDS)


def describe(registry: Registry, models: Sequence[str], say: Say = lambda line: None) -> Machine:
    """Return this machine, with these models of the registry. It takes about half a minute a model, if it is idle.

    Raises JournalError, PoolError, EngineError, and InputError for a model whose steps cannot be measured.
    """
    topology = read_topology()
    found: dict[str, MachineModel] = {}
    overheads = Overheads()
    with tempfile.TemporaryDirectory(prefix="bench-machine-") as folder:
        commit = asyncio.run(_commit_seconds(Path(folder) / "commits"))
        for at, name in enumerate(models):
            say(f"{name}: tasks")
            alone, home = registry_for(registry, name), Path(folder) / f"model-{at}"
            chained, fanned = (run_here(task, alone, home, ROUNDS) for task in (CHAIN, FAN))
            called = run_here(CALLS, alone, home, 2) if at == 0 else None
            say(f"{name}: steps")
            costs = step_costs(chained.spec)
            model = _model(chained, costs)
            machine = Machine(
                name="this machine",
                sources=("measured",),
                cores=topology.cores,
                memory_bytes=psutil.virtual_memory().total,
                models={name: model},
                overheads=Overheads(commit_seconds=commit, generation_seconds=chained.busy_seconds),
            )
            fitted = fit(machine, alone, home / "simulated", chained, fanned, called)
            found |= fitted.models
            overheads = fitted.overheads if at == 0 else overheads
    roles = {role: entry.model for role, entry in registry.roles.items() if entry.model in found}
    return Machine(
        name=f"{results.machine()['processor']}, {topology.cores} cores",
        sources=("measured by orchestrator bench machine",),
        cores=topology.cores,
        memory_bytes=psutil.virtual_memory().total,
        models=found,
        overheads=overheads,
        roles=roles,
    )


def step_costs(spec: EngineSpec) -> Costs:
    """Return what the steps of an engine cost, as `step_costs` measures them. Raises InputError where it cannot."""
    command = [sys.executable, "-m", "benchmarks.simulate.step_costs"]
    ended = subprocess.run(command, input=msgspec.json.encode(spec), capture_output=True, check=False)  # noqa: S603 - our own
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InputError(
            Problem(spec.shown_name, f"its steps cannot be measured: {last}", "a model that can be loaded")
        )
    return msgspec.json.decode(ended.stdout, type=Costs)


def _model(ran: Ran, costs: Costs) -> MachineModel:
    """Return a model of the machine, with what its tasks say of draft tokens and of the engine's own time."""
    spec, stats, measured = ran.spec, ran.stats, costs.model
    drafts = None
    if stats.drafted and (spec.prompt_lookup is not None or spec.speculation is not None):
        options = spec.prompt_lookup or spec.speculation
        assert options is not None, "one of them drafts"
        drafts = Drafts(
            source="lookup" if spec.prompt_lookup is not None else "draft",
            k=options.k,
            acceptance=stats.accepted / stats.drafted,
            offered=min(1.0, stats.drafted / max(1, stats.output_tokens)),
            token_seconds=0.0 if spec.prompt_lookup is not None else costs.draft_seconds,
        )
    return MachineModel(
        bytes=max(1, ran.info.bytes),
        context=ran.info.context,
        slots=ran.info.slots,
        load_seconds=max(1e-3, ran.info.load_seconds),
        step_seconds=dict(zip(measured.decode.sizes, measured.decode.seconds, strict=True)),
        verify_seconds=dict(zip(measured.verify.sizes, measured.verify.seconds, strict=True)),
        prompt_token_seconds=measured.prefill,
        cell_seconds=measured.per_cell,
        threads=ran.info.threads,
        token_seconds=stats.own_seconds / max(1, stats.output_tokens),
        batch_invariant=spec.batch_invariant,
        split=costs.split,
        pads=measured.pads,
        drafts=drafts,
    )


FITS: Final = 4
"""How often the simulation is compared with what was measured, and corrected by the difference."""


def fit(
    machine: Machine, registry: Registry, home: Path, chained: Ran, fanned: Ran, called: Ran | None = None
) -> Machine:
    """Return the machine with one model so that simulations of the tasks take as long as they did.

    Fitted are the characters of tokens, a factor for all steps, and what the orchestrator waits for each generation and
    takes for each call of a tool.
    """
    (name,) = machine.models
    for number in range(FITS):
        pairs = [
            (ran, simulate_rounds(task, machine, registry, home / f"{number}-{at}", ROUNDS))
            for at, (task, ran) in enumerate(((CHAIN, chained), (FAN, fanned)))
        ]
        model = machine.models[name]
        real = [report for ran, _ in pairs for report in ran.reports]
        ours = [one.report for _, some in pairs for one in some]
        factor = _engine_seconds(real) / max(1e-9, _engine_seconds(ours))
        changes: dict[str, object] = {
            "prompt_characters": model.prompt_characters * _prompt_tokens(ours) / max(1, _prompt_tokens(real)),
            "answer_characters": model.answer_characters * _answer_tokens(ours) / max(1, _answer_tokens(real)),
        }
        if number:  # the first time tokens were not as long as they are
            changes |= _scaled(model, factor)
        steps, (ran, some) = len(CHAIN.plan.steps), pairs[0]
        simulated = median(one.report.wall_seconds for one in some[1:])
        late = (ran.warm - simulated) / steps if number > 1 else 0.0
        waiting = max(0.0, machine.overheads.waiting_seconds + late)
        machine = machine.model_copy(
            update={
                "models": {name: model.model_copy(update=changes)},
                "overheads": machine.overheads.model_copy(update={"waiting_seconds": waiting}),
            }
        )
    if called is not None:
        simulated = simulate_rounds(CALLS, machine, registry, home / "calls", 2)[-1].report.wall_seconds
        each = max(0.0, (called.warm - simulated) / (len(CALLS.plan.steps) - 1))
        machine = machine.model_copy(update={"overheads": machine.overheads.model_copy(update={"call_seconds": each})})
    return machine


def _scaled(model: MachineModel, factor: float) -> dict[str, object]:
    return {
        "step_seconds": {size: factor * seconds for size, seconds in model.step_seconds.items()},
        "verify_seconds": {size: factor * seconds for size, seconds in (model.verify_seconds or {}).items()} or None,
        "prompt_token_seconds": factor * model.prompt_token_seconds,
        "cell_seconds": factor * model.cell_seconds,
    }


def _engine_seconds(reports: Sequence[Report]) -> float:
    usages = (attempt.usage for report in reports for step in report.steps for attempt in step.attempts)
    return sum(usage.prefill_seconds + usage.decode_seconds for usage in usages)


def _prompt_tokens(reports: Sequence[Report]) -> int:
    return sum(step.prompt_tokens for report in reports for step in report.steps)


def _answer_tokens(reports: Sequence[Report]) -> int:
    return sum(step.output_tokens for report in reports for step in report.steps)


async def _commit_seconds(home: Path) -> float:
    """Return the seconds until an event is durable on the disk of temporary files: a median. Raises JournalError."""
    times = []
    with Journal.open(home) as journal:
        for number in range(COMMITS):
            event = RunAccepted(at=float(number), run=f"R{number}", mode="serial", request="a measurement")
            begun = time.perf_counter()
            await journal.append(event.run, [event])
            times.append(time.perf_counter() - begun)
    return median(times)
