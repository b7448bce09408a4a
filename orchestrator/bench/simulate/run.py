"""Run a task on a simulated machine, and return its report. What it answers has the form that was asked for."""

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

from orchestrator.bench.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from orchestrator.bench.simulate.engines import (
    OwnTime,
    SimulatedAnswer,
    SimulatedMachine,
    StepLoad,
    StepSeconds,
    Write,
)
from orchestrator.bench.simulate.machine import (
    CONTINUED,
    FILLER,
    RESOURCES,
    Machine,
    MachineModel,
    Resource,
    Vocabulary,
)
from orchestrator.bench.simulate.vocabularies import vocabularies_of
from orchestrator.engine.contract import Generation
from orchestrator.pool.machines import Machine as Node
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import Report, load_report
from orchestrator.run.steps.answer import AnswerShape
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import TaskIR

SPREAD: Final = 0.5  # the standard deviation of the logarithm of the length of answers whose length nothing prescribes
TYPICAL_TOKENS: Final = 100  # their median, in tokens
# The tokens of answers in the order in which they are asked for, by their JSON Schema as text; "" for free text.
AnswerLengths = Mapping[str, Sequence[int]]
UNKNOWN: Final[AnswerLengths] = MappingProxyType({})
MOST_ITEMS: Final = 100_000
# A resource that gains less than this factor when doubled is not worth its price.
GAIN: Final = 1.05


@dataclass(frozen=True, slots=True)
class Simulated:
    """How a task went on a simulated machine."""

    report: Report
    seconds: float  # the virtual time from the acceptance of the task to its end
    engines: int  # how many engines were started
    steps: int  # how many calls of llama_decode all engines have made, since they were started
    answer: tuple[str, ...] = ()  # the texts that the user gets, in the order of the report\'s results


def simulate(
    task: TaskIR,
    machine: Machine,
    base: Registry,
    home: Path,
    seed: int = 0,
    lengths: AnswerLengths = UNKNOWN,
    *,
    folder: Path | None = None,
) -> Simulated:
    """Run a task on a machine, in a new state folder `home`. The same arguments give the same report, but for its id.

    Models are loaded before the task is accepted, as far as the memory goes. `base` gives the defaults of the registry.
    Answers are as long as `lengths` say, in each round again, see `answer_lengths`. `folder` has the files that steps
    read.
    Gates and tools really run, and take no virtual time but what `Overheads` say. Raises InputError for a task that
    cannot be run there, and JournalError.
    """
    return simulate_rounds(task, machine, base, home, 1, seed, lengths, folder=folder)[0]


def simulate_rounds(
    task: TaskIR,
    machine: Machine,
    base: Registry,
    home: Path,
    rounds: int,
    seed: int = 0,
    lengths: AnswerLengths = UNKNOWN,
    *,
    folder: Path | None = None,
) -> list[Simulated]:
    """Run a task several times, one after the other, on the same engines: later rounds find prefixes in their caches.

    Otherwise as `simulate`.
    """
    registry = machine.registry(base)
    models = dict.fromkeys(registry.roles[step.actor].model for step in task.plan.steps)
    job, write = Job(None, task, folder, "as-planned"), Writer(machine, seed, lengths).write
    vocabularies = vocabularies_of(base, machine.models)
    return simulate_job(
        job, machine, registry, home, write, models, rounds=rounds, seed=seed, vocabularies=vocabularies
    )


def simulate_job(
    job: Job,
    machine: Machine,
    registry: Registry,
    home: Path,
    write: Write,
    models: Iterable[str],
    *,
    rounds: int = 1,
    seed: int = 0,
    vocabularies: Mapping[str, Vocabulary] = MappingProxyType({}),
) -> list[Simulated]:
    """Run a job several times on a machine with a registry of its models; `write` has their answers.

    These `models` are loaded first. `vocabularies`, by model, count the tokens of texts, and `word_tokens` where there
    is none. Otherwise as `simulate_rounds`.
    """

    async def main() -> list[Simulated]:
        simulations = []
        async with simulated_orchestrator(machine, registry, home, write, seed, vocabularies) as (
            orchestrator,
            simulated,
        ):
            for model in models:
                await orchestrator.pool.load(model)
            for _ in range(rounds):
                started = asyncio.get_running_loop().time()
                report, answer = await carry_out(orchestrator, job)
                seconds = asyncio.get_running_loop().time() - started
                steps = sum(engine.steps for engine in simulated.engines)
                simulations.append(Simulated(report, seconds, len(simulated.engines), steps, answer))
        return simulations

    simulations: list[Simulated] = run_virtually(main)
    return simulations


async def carry_out(orchestrator: Orchestrator, job: Job) -> tuple[Report, tuple[str, ...]]:
    """Run a job to its end, and return its report and the texts that the user gets, in the order of its results."""
    run = await orchestrator.submit(job)
    async for _ in orchestrator.watch(run):
        pass
    report = load_report(orchestrator.journal, run)
    return report, tuple(orchestrator.journal.get(result.digest).decode(errors="replace") for result in report.results)


@asynccontextmanager
async def simulated_orchestrator(
    machine: Machine,
    registry: Registry,
    home: Path,
    write: Write,
    seed: int = 0,
    vocabularies: Mapping[str, Vocabulary] = MappingProxyType({}),
) -> AsyncIterator[tuple[Orchestrator, SimulatedMachine]]:
    """Enter an orchestrator on a machine, or on a cluster of such machines, in a loop of `run_virtually`.

    `registry` has the models of the machine, and `write` their answers. For `vocabularies` see `simulate_job`.
    """
    overheads = machine.overheads
    simulated = SimulatedMachine(
        step_seconds=lambda file: _step_seconds(machine.models[file]),
        write=write,
        load_seconds=lambda file: machine.models[file].load_seconds,
        behaviour=lambda file: machine.models[file].behaviour(seed, vocabularies.get(file)),
        own=OwnTime(overheads.generation_seconds, overheads.waiting_seconds),
    )

    def open_journal(place: Path) -> StillJournal:
        journal = StillJournal.open(place, durable=False)  # the folder is thrown away
        journal.commit_seconds, journal.call_seconds = overheads.commit_seconds, overheads.call_seconds
        return journal

    loop = virtual_loop()
    ports = Ports(
        start_engine=simulated.start,
        clock=lambda last: VirtualClock(loop),
        journal=open_journal,
        follows_registry=False,
        topology=machine.topology,
    )
    further = replace(simulated, away_seconds=overheads.away_seconds)
    async with Orchestrator.open(home, registry, ports) as orchestrator:
        for number in range(1, machine.machines):
            orchestrator.pool.join(
                Node(
                    name=f"node{number}",
                    topology=machine.topology,
                    bytes=machine.memory_bytes,
                    start_engine=further.start,
                    measure=lambda engine, estimate: None,
                )
            )
        yield orchestrator, simulated


@dataclass(frozen=True, slots=True)
class Advice:
    """What limits a task on a machine, judged by its speed-up with twice as much of each resource."""

    ratios: Mapping[Resource, float]  # the time of the task over its time with twice as much of the resource
    waiting_share: float  # which part of the critical path waited for slots

    @property
    def bound_by(self) -> Resource | None:
        """The resource that helps most if doubled; None if none gains `GAIN`."""
        best = max(self.ratios, key=self.ratios.__getitem__)
        return best if self.ratios[best] >= GAIN else None

    def in_words(self) -> str:
        """Return in a sentence what bounds the task and what to buy."""
        if self.bound_by is None:
            own = "the plan and the orchestrator's own time"
            return f"it is bound by {own}: twice of nothing makes it {GAIN} times as fast"
        ranked = sorted(self.ratios.items(), key=lambda one: -one[1])
        gains = ", ".join(f"twice the {name} makes it {ratio:.2f} times as fast" for name, ratio in ranked)
        return f"it is bound by {self.bound_by}: {gains}"


def advise(
    task: TaskIR,
    machine: Machine,
    base: Registry,
    home: Path,
    known: Simulated,
    seed: int = 0,
    lengths: AnswerLengths = UNKNOWN,
    *,
    folder: Path | None = None,
) -> Advice:
    """Return what bounds a task that is `known` to go like this on a machine, from simulations in folders below `home`.

    Raises what `simulate` does.
    """
    ratios: dict[Resource, float] = {}
    for resource in RESOURCES:
        place = home / resource.replace(" ", "-")
        better = simulate(task, machine.with_twice(resource), base, place, seed, lengths, folder=folder)
        ratios[resource] = known.seconds / better.seconds if better.seconds > 0 else 1.0
    path = known.report.critical_path
    return Advice(ratios, path.waiting_seconds / path.seconds if path.seconds > 0 else 0.0)


def interval_of(times: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of times, and between which times 95 % of them are."""
    ordered = sorted(times)
    cut = int(0.025 * len(ordered))
    return median(ordered), ordered[cut], ordered[len(ordered) - 1 - cut]


def _step_seconds(model: MachineModel) -> StepSeconds:
    costs = model.costs

    def seconds(load: StepLoad) -> float:
        slower = 1.0 if model.threads is None else max(1.0, model.threads / load.threads)
        seconds, attention = costs.seconds(load.tokens, load.sequences, load.cells), costs.per_cell * load.cells
        saved = (1 - model.prompt_ratio) * load.prompt_tokens / load.tokens * (seconds - attention)
        return slower * (seconds - saved)

    return seconds


def answer_lengths(task: TaskIR, report: Report) -> AnswerLengths:
    """Return how many tokens the answers of a run of a task had, those of all attempts, in the order of its steps."""
    plan = {step.id: step for step in task.plan.steps}
    lengths: dict[str, list[int]] = {}
    for row in report.steps:
        step = plan.get(row.parent or row.id)
        for attempt in row.attempts:
            if step is not None and attempt.usage.output_tokens:
                lengths.setdefault(_form(AnswerShape(step).schema), []).append(attempt.usage.output_tokens)
    return lengths


def _form(schema: object) -> str:
    return compact_json(schema) if isinstance(schema, dict) else ""


class Writer:
    """Writes answers of the form that was asked for: JSON for a schema, else a text.

    They are as long as `lengths` say, one after the other and again from the first. Where these say nothing, JSON has
    the model's characters for each token, and a text has a length drawn at random.
    """

    def __init__(self, machine: Machine, seed: int, lengths: AnswerLengths) -> None:
        self._machine = machine
        self._seed = seed
        self._lengths = {form: itertools.cycle(tokens) for form, tokens in lengths.items() if tokens}

    def write(self, request: Generation) -> SimulatedAnswer:
        """Return the answer to a request. Its length depends on the request, the seed, and what is known of lengths."""
        form_lengths = self._lengths.get(_form(request.schema))
        if isinstance(request.schema, dict):
            text = compact_json(instance_of(request.schema))
            model = self._machine.roles.get(request.role, next(iter(self._machine.models)))
            guessed = round(len(text) / self._machine.models[model].answer_characters)
            tokens = max(2, guessed if form_lengths is None else next(form_lengths))
            return SimulatedAnswer(_filled(text, tokens), tokens, forced=1)  # the quotation mark or bracket at its end
        draw = random.Random(f"{self._seed} {request.messages[-1].content}")  # noqa: S311 - no secret
        tokens = (
            round(TYPICAL_TOKENS * draw.lognormvariate(0.0, SPREAD)) if form_lengths is None else next(form_lengths)
        )
        tokens = max(1, tokens if request.max_tokens is None else min(tokens, request.max_tokens))
        bits = f"{crc32(request.messages[-1].content.encode()):032b}"  # so that prompts with it have no more in common
        first = FILLER + bits.translate(str.maketrans("01", CONTINUED))
        return SimulatedAnswer(first + (tokens - 1) * (FILLER + CONTINUED[0]), tokens)


def _filled(text: str, tokens: int) -> str:
    # The text with as many tokens of filler as make it `tokens` long, if each other character is one, too.
    fillers = text.count(FILLER)
    share = (tokens - len(text) + fillers) / max(1, fillers)

    def spread(run: re.Match[str]) -> str:
        size = len(run[0])
        count = min(size, max(1, round(share * size)))
        return "".join(FILLER if at * count % size < count else CONTINUED[0] for at in range(size))

    return re.sub(f"{FILLER}+", spread, text)


def instance_of(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema allows, the shortest where it says nothing of lengths.

    It knows types, enumerations, required properties, items, and least lengths; of alternatives it takes the first.
    """
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for alternatives in ("anyOf", "oneOf"):
        if schema.get(alternatives):
            return instance_of(schema[alternatives][0])
    kind = schema.get("type", "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: instance_of(properties.get(name, {})) for name in schema.get("required", ())}
        case "array":
            count = min(MOST_ITEMS, schema.get("minItems", 0))
            return [instance_of(schema.get("items", {})) for _ in range(count)]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return FILLER * schema.get("minLength", 1)
