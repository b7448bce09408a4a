"""Measure this machine for the simulator: what steps of models cost here, and what the orchestrator takes itself.

The costs of steps come from the engine's own calibration. Steps under load take longer than in a calibration, those for
prompts less, and tokens are as long as a model makes them, so all of that is fitted to a few short tasks that are
really run: a chain, a fan-out, some readers of one document, and some calls of a tool. No task of the benchmark's suite
is among them.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Final, NamedTuple

import msgspec
import psutil

from orchestrator.bench import environment
from orchestrator.bench.critical_path.workloads import deep, shared, task_of, tokens_per_word, tools, wide
from orchestrator.bench.real.measure import registry_for
from orchestrator.bench.simulate.machine import Drafts, Machine, MachineModel, Overheads
from orchestrator.bench.simulate.run import answer_lengths, instance_of, simulate_rounds
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, ModelInfo
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.errors import InputError, Problem
from orchestrator.pool.machine import read_topology
from orchestrator.registry.models import Registry
from orchestrator.registry.options import DRAFTING
from orchestrator.run.job import Job
from orchestrator.run.journal.journal import Journal
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import Report, load_report
from orchestrator.run.steps.answer import AnswerShape
from orchestrator.task.events import RunAccepted, Usage
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import TaskIR

# How long to wait at most until an engine has measured its steps; on a busy machine it may never come to it.
CALIBRATION_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.1
LEAST: Final = 1e-6  # figures below this, in seconds or tokens, are not compared
MESSAGES: Final = 2  # the messages of a prompt: one of the system and one of the user
ROUNDS: Final = 3  # how often each of the tasks is run; the first time no prompt is in the caches
COMMITS: Final = 40
CHAIN: Final = task_of(deep(6, 70))
FAN: Final = task_of(wide(10, 50))
CALLS: Final = task_of(tools(1, 30))
READERS: Final = 8
READ_TOKENS: Final = 900  # how long the document is that they read, at most half of the model's context

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Costs:
    """What steps of a model cost here."""

    model: StepCostModel
    split: bool  # whether sequences have streams of KV cells of their own
    draft_seconds: float  # a token of the head or the draft model; 0 without one


@dataclass(frozen=True, slots=True)
class Ran:
    """Rounds of a task on real engines."""

    reports: tuple[Report, ...]
    spec: EngineSpec  # how the pool has started the engine that was asked
    info: ModelInfo
    stats: EngineStats  # the engine's counters at the end
    # The processor time of this process, without engines, for each step of the rounds after the first.
    busy_seconds: float

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


@dataclass(frozen=True, slots=True)
class Probe:
    """The short tasks as they went at one time: what a machine is fitted to."""

    chained: Ran
    fanned: Ran
    read: Ran
    reading: TaskIR  # the task of the readers, whose document is as long as the model can read


def probe(registry: Registry, home: Path) -> Probe:
    """Run the short tasks on this machine's engines. Raises what `run_here` does."""
    chained, fanned = (run_here(task, registry, home, ROUNDS) for task in (CHAIN, FAN))
    reading = read_task(_word_tokens(registry), chained.info.context)
    return Probe(chained, fanned, run_here(reading, registry, home, ROUNDS), reading)


def _word_tokens(registry: Registry) -> float:
    file = registry.models[registry.roles["worker"].model].file
    assert file is not None, "it was run here"
    return tokens_per_word(file)


def read_task(word_tokens: float, context: int) -> TaskIR:
    """Return a task whose steps read one document that fits `context`, in tokens. `word_tokens`: tokens per word."""
    return task_of(shared(READERS, word_tokens, min(READ_TOKENS, context // 2)))


def run_here(task: TaskIR, registry: Registry, home: Path, rounds: int) -> Ran:
    """Run a task on this machine's engines, several times one after the other. A state folder keeps what is known.

    Raises JournalError, PoolError, EngineError, and InputError for a task that cannot be run here.
    """
    engines = _Engines()

    async def main() -> Ran:
        reports = []
        busy = 0.0
        async with Orchestrator.open(
            home, registry, Ports(start_engine=engines.start, follows_registry=False)
        ) as orchestrator:
            for model in dict.fromkeys(registry.roles[step.actor].model for step in task.plan.steps):
                await orchestrator.pool.load(model)
            for _, engine in engines.started:
                await until_calibrated(engine)
            for number in range(rounds):
                before = time.process_time()
                run = await orchestrator.submit(Job(None, task, None, "as-planned"))
                async for _ in orchestrator.watch(run):
                    pass
                busy += time.process_time() - before if number else 0.0
                reports.append(await asyncio.to_thread(load_report, orchestrator.journal, run))
            spec, engine = engines.started[0]
            steps = len(reports[0].steps) * max(1, rounds - 1)
            return Ran(tuple(reports), spec, engine.info, await engine.stats(), busy / steps)

    return asyncio.run(main())


async def until_calibrated(engine: Engine) -> None:
    """Wait until an engine has measured what its steps cost, or CALIBRATION_SECONDS have passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALIBRATION_SECONDS):
            while not (await engine.stats()).calibrated:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(LOOK_SECONDS)


def describe(
    registry: Registry, models: Sequence[str], say: Say = lambda line: None, home: Path | None = None
) -> Machine:
    """Return this machine, with these models of the registry. It takes about a minute a model, if it is idle.

    The state folder `home` keeps the settings with which engines computed fastest; without it, they try again. Raises
    JournalError, PoolError, EngineError, and InputError for a model whose steps cannot be measured.
    """
    topology = read_topology()
    fitted_models: dict[str, MachineModel] = {}
    overheads = Overheads()
    with tempfile.TemporaryDirectory(prefix="bench-machine-") as folder:
        commit = asyncio.run(_commit_seconds(Path(folder) / "commits"))
        for at, name in enumerate(models):
            say(f"{name}: tasks")
            alone, place = registry_for(registry, name), home or Path(folder) / f"model-{at}"
            probed = probe(alone, place)
            called = run_here(CALLS, alone, place, 2) if at == 0 else None
            say(f"{name}: steps")
            spec = probed.chained.spec
            machine = Machine(
                name="this machine",
                sources=("measured",),
                cores=topology.cores,
                memory_bytes=psutil.virtual_memory().total,
                models={name: _model(probed.fanned, step_costs(spec), _word_tokens(alone))},
                overheads=Overheads(commit_seconds=commit, generation_seconds=probed.chained.busy_seconds),
            )
            fitted = fit(machine, alone, Path(folder) / f"simulated-{at}", [probed], called)
            fitted_models |= fitted.models
            overheads = fitted.overheads if at == 0 else overheads
    roles = {role: entry.model for role, entry in registry.roles.items() if entry.model in fitted_models}
    return Machine(
        name=f"{environment.machine()['processor']}, {topology.cores} cores",
        sources=("measured by orchestrator bench machine",),
        cores=topology.cores,
        memory_bytes=psutil.virtual_memory().total,
        models=fitted_models,
        overheads=overheads,
        roles=roles,
    )


def step_costs(spec: EngineSpec) -> Costs:
    """Return what the steps of an engine cost, as `step_costs` measures them. Raises InputError where it cannot."""
    command = [sys.executable, "-m", "orchestrator.bench.simulate.step_costs"]
    ended = subprocess.run(command, input=msgspec.json.encode(spec), capture_output=True, check=False)  # noqa: S603 - our own
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InputError(
            Problem(spec.shown_name, f"its steps cannot be measured: {last}", "a model that can be loaded")
        )
    return msgspec.json.decode(ended.stdout, type=Costs)


def _model(ran: Ran, costs: Costs, word_tokens: float) -> MachineModel:
    """Return a model of the machine, with what its tasks say of draft tokens and of the engine's own time."""
    spec, stats, measured = ran.spec, ran.stats, costs.model
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
        drafts=drafts_of(spec, stats, costs),
        word_tokens=word_tokens,
    )


def drafts_of(spec: EngineSpec, stats: EngineStats, costs: Costs) -> Drafts | None:
    """Return the drafts of an engine by its counters, or None if it drafted nothing.

    The counters are those of all methods together. The first one that is set counts as their source, as it is asked
    first.
    """
    if not spec.drafting or not stats.drafted:
        return None
    source, options = next(iter(spec.drafting.items()))
    computes = not DRAFTING[source].copies
    return Drafts(
        source=source,
        k=options.k,
        acceptance=stats.accepted / max(1, stats.accepted + stats.refused_drafts),
        # What computes its tokens always has one to propose, so it is up to the controller how many it drafts.
        offered=1.0 if computes else min(1.0, stats.drafted / max(1, stats.output_tokens)),
        token_seconds=costs.draft_seconds if computes else 0.0,
    )


FITS: Final = 4  # how often the simulation is compared with what was measured, and corrected by the difference


def fit(
    machine: Machine, registry: Registry, home: Path, probes: Sequence[Probe], called: Ran | None = None
) -> Machine:
    """Return the machine with one model so that simulations of the short tasks take as long as in the probes.

    Fitted are the tokens of messages and answers, a factor for all steps and another one for those that read
    prompts, what the tokens cost that a sequence attends to, and what the orchestrator waits for each generation and
    takes for each call of a tool. The simulated answers have as many tokens as the real ones.
    """
    ran = [(CHAIN, probe.chained) for probe in probes], [(FAN, probe.fanned) for probe in probes]
    reads = [(probe.reading, probe.read) for probe in probes]
    machine = _with_model(machine, answer_characters=_answer_characters([*ran[0], *ran[1], *reads]))
    for number in range(FITS):
        chains, fans, readers = (
            _compared(probe_runs, machine, registry, home / f"{number}-{at}")
            for at, probe_runs in enumerate((*ran, reads))
        )
        (model,) = machine.models.values()
        messages = MESSAGES * ROUNDS * (len(CHAIN.plan.steps) + len(FAN.plan.steps))
        missing = _missing(_prompt_tokens, chains) + _missing(_prompt_tokens, fans)
        changes: dict[str, object] = {"message_tokens": max(0, model.message_tokens + round(missing / messages))}
        if number:  # the first time messages were not as long as they are
            changes |= _scaled(model, _factor(_decode_seconds, [*chains, *fans]))
            changes["prompt_ratio"] = model.prompt_ratio * _factor(_cold_seconds, [*chains, *fans, *readers])
            late = _missing(_decode_seconds, readers) / _attended(readers[0].measured)
            changes["cell_seconds"] = max(0.0, model.cell_seconds + late)
        machine = _with_model(machine, **changes)
        if number > 1:
            late = _missing(_own_seconds, chains) / len(CHAIN.plan.steps)
            machine = _with_overheads(machine, waiting_seconds=max(0.0, machine.overheads.waiting_seconds + late))
    if called is not None:
        simulated = simulate_rounds(CALLS, machine, registry, home / "calls", 2)[-1].report.wall_seconds
        each = max(0.0, (called.warm - simulated) / (len(CALLS.plan.steps) - 1))
        machine = _with_overheads(machine, call_seconds=each)
    return machine


def _with_model(machine: Machine, **changes: object) -> Machine:
    ((name, model),) = machine.models.items()
    return machine.model_copy(update={"models": {name: model.model_copy(update=changes)}})


def _with_overheads(machine: Machine, **changes: float) -> Machine:
    return machine.model_copy(update={"overheads": machine.overheads.model_copy(update=changes)})


def _scaled(model: MachineModel, factor: float) -> dict[str, object]:
    return {
        "step_seconds": {size: factor * seconds for size, seconds in model.step_seconds.items()},
        "verify_seconds": {size: factor * seconds for size, seconds in (model.verify_seconds or {}).items()} or None,
        "prompt_token_seconds": factor * model.prompt_token_seconds,
    }


Reports = Sequence[Report]


class _Compared(NamedTuple):
    """The reports of a task, measured and simulated, one for each round; the first round began without a cache."""

    measured: Reports
    simulated: Reports


def _compared(ran: Sequence[tuple[TaskIR, Ran]], machine: Machine, registry: Registry, home: Path) -> list[_Compared]:
    """Return the rounds of a task at several times, each with those of one simulation."""
    task, first = ran[0]
    lengths = answer_lengths(task, first.reports[0])
    simulations = simulate_rounds(task, machine, registry, home, len(first.reports), lengths=lengths)
    return [_Compared(measured.reports, [simulated.report for simulated in simulations]) for _, measured in ran]


def _missing(figure: Callable[[Reports], float], compared: Sequence[_Compared]) -> float:
    """Return by how much a figure of the simulation is smaller than the measured one, in the mean."""
    return mean(figure(pair.measured) - figure(pair.simulated) for pair in compared)


def _factor(figure: Callable[[Reports], float], compared: Sequence[_Compared]) -> float:
    """Return the geometric mean of what was measured over what was simulated, so that no task counts more."""
    return geometric_mean(max(LEAST, figure(pair.measured)) / max(LEAST, figure(pair.simulated)) for pair in compared)


def _usages(reports: Reports) -> Iterator[Usage]:
    return (attempt.usage for report in reports for step in report.steps for attempt in step.attempts)


def _prompt_tokens(reports: Reports) -> int:
    return sum(usage.prompt_tokens for usage in _usages(reports))


def _decode_seconds(reports: Reports) -> float:
    """Return how long the warm rounds decoded, summed over the steps."""
    return sum(usage.decode_seconds for usage in _usages(reports[1:]))


def _warm_seconds(reports: Reports) -> float:
    return median(report.wall_seconds for report in reports[1:])


def _own_seconds(reports: Reports) -> float:
    """Return the median time of the warm rounds of a chain, without its engine."""
    return median(report.wall_seconds - _engine_seconds(report) for report in reports[1:])


def _engine_seconds(report: Report) -> float:
    return sum(usage.queued_seconds + usage.prefill_seconds + usage.decode_seconds for usage in _usages([report]))


def _cold_seconds(reports: Reports) -> float:
    """Return how much longer the first round was than the others, which found its prompts in the cache."""
    return reports[0].wall_seconds - _warm_seconds(reports)


def _attended(reports: Reports) -> int:
    """Return what a second for each attended token would add to the decode seconds of readers that run together."""
    return READERS * sum((usage.output_tokens - 1) * usage.prompt_tokens for usage in _usages(reports[1:]))


def _answer_characters(tasks: Iterable[tuple[TaskIR, Ran]]) -> float:
    """Return how many characters a token of an answer has, where schemas say how many the answers have."""
    characters = tokens = 0
    for task, ran in tasks:
        tokens += sum(usage.output_tokens for usage in _usages(ran.reports))
        schemas = (AnswerShape(step).schema for step in task.plan.steps)
        each = sum(len(compact_json(instance_of(schema))) for schema in schemas if schema is not None)
        characters += each * len(ran.reports)
    return characters / max(1, tokens)


async def _commit_seconds(home: Path) -> float:
    """Return the seconds until an event is durable on the disk of temporary files: a median. Raises JournalError."""
    times = []
    with Journal.open(home) as journal:
        for number in range(COMMITS):
            event = RunAccepted(at=float(number), run=f"R{number}", mode="serial", request="a measurement")
            started = time.perf_counter()
            await journal.append(event.run, [event])
            times.append(time.perf_counter() - started)
    return median(times)
