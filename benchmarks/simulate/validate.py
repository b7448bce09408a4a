"""Compare simulations of this machine with it: the same workloads, really run and simulated.

The machine is described by `measure`, which runs none of these workloads. Each is run in several rounds on engines of
its own: the first one is cold, as no prompt of it is in their caches, and the others are warm. As the speed of a shared
machine changes from minute to minute, the short tasks of `measure` are run before and after each workload, and it is
simulated on the machine as they found it.

No machine file can say how many tokens a model makes of the characters that a schema prescribes. So the simulated
answers have as many tokens as those of the first round; the error of a simulation that does not know them is
reported next to it.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, median_low
from typing import Any, Final

import msgspec

from benchmarks import results
from benchmarks.engine.goals import LEAST_ROUNDS
from benchmarks.peers.growth import chains
from benchmarks.peers.suite import ROLE
from benchmarks.routing.rows import Row
from orchestrator.bench import environment
from orchestrator.bench.critical_path.workloads import Document, Roles, Workload, sample_text, task_of, workloads
from orchestrator.bench.paired import ratio
from orchestrator.bench.simulate.machine import Machine, read_machine
from orchestrator.bench.simulate.measure import Probe, fit, probe, run_here
from orchestrator.bench.simulate.run import (
    UNKNOWN,
    Simulated,
    advise,
    answer_lengths,
    interval_of,
    simulate,
    simulate_rounds,
)
from orchestrator.registry.models import Registry
from orchestrator.run.record.report import Report
from orchestrator.task.taskir.models import TaskIR

WORKLOAD_ERROR: Final = 0.15
"""The simulated time of each workload has to be this close to the measured one, as a part of it, ..."""
MEDIAN_ERROR: Final = 0.10
"""... and the median over all workloads so close."""
MANY_STEPS: Final = 1000
MANY_SECONDS: Final = 10.0
"""How long `MANY_STEPS` steps may take to be simulated."""
FREE: Final = frozenset({"code"})
"""Workloads whose answers are as long as a model likes, and which gates really run on: no simulation can know that."""
LONG: Final = ("wide-64", "wide-100")
"""Workloads that take minutes, which wide-4 and wide-16 tell most of already."""
SEEDS: Final = 100
"""How many runs an interval is from where the lengths of answers are drawn at random, ..."""
FIXED_SEEDS: Final = 3
"""... and where they are prescribed, so that only draft tokens are."""
AGENTS: Final = 100
DOCUMENT_WORDS: Final = 700
"""How long the documents are that simulated agents read: about 1,000 tokens."""
WORKER: Final = "35b-a3b"
"""The model that does the steps on the machines of the examples: all of them have it, with 1, 4 and 48 replicas."""
SIMULATED_ROUNDS: Final = 3
"""As many rounds of a workload are simulated at most: a cold one and two warm ones, for further ones are alike."""
SERVERS: Final = results.FOLDER.parents[1] / "examples" / "machines"

Say = Callable[[str], None]
Keep = Callable[[str, Callable[[], Row]], Row]
"""Returns the row with a name that was kept when it was measured before, and otherwise makes and keeps it."""


class NoTimeLeft(Exception):
    """A row is not kept, and it is too late to begin with it."""


@dataclass(frozen=True, slots=True)
class ValidationRow:
    """A workload, measured and simulated. Times are in seconds, from the acceptance to the end."""

    workload: str
    state: str
    """Whether prompts were in the caches: cold or warm."""
    status: str
    steps: int
    measured: float
    """The median of the rounds."""
    rounds: tuple[float, ...]
    simulated: float
    """With answers that have as many tokens as the real ones."""
    unknowing: float
    """Simulated with answers that have as many characters for each token as those of the short tasks."""
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """What was measured and simulated of each part of the time (seconds, summed over the steps) and of the tokens."""
    load: float = 0.0
    """How many processes were computing or waiting for a core when the rounds began: the load average of a minute.
    What others compute makes the measured time longer, and no simulation knows of it."""

    @property
    def error(self) -> float:
        """How far the simulated time is off the measured one, as a part of it."""
        return abs(self.simulated / self.measured - 1) if self.measured > 0 else 1.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the error, from the rounds; None where there is only one.

        It is that of the ratio of simulated to measured times (`procedures.paired.ratio`).
        """
        if len(self.rounds) < 2 or min(self.rounds) <= 0:
            return None
        quotient = ratio([self.simulated] * len(self.rounds), self.rounds)
        ends = abs(quotient.low - 1), abs(quotient.high - 1)
        return 0.0 if quotient.low <= 1 <= quotient.high else min(ends), max(ends)

    @property
    def why(self) -> str:
        """Which part of the time differs most, in words."""
        seconds = {name: pair for name, pair in self.parts.items() if name not in TOKENS}
        if not seconds:
            return ""
        worst = max(seconds, key=lambda name: abs(seconds[name][1] - seconds[name][0]))
        measured, simulated = seconds[worst]
        sentence = (
            f"{worst} differs most: {measured:.2f} s measured, {simulated:.2f} s simulated, summed over the steps"
        )
        counts = (
            f"{name} {self.parts[name][0]:.0f} and {self.parts[name][1]:.0f}" for name in TOKENS if name in self.parts
        )
        return "; ".join([sentence, ", ".join(counts), f"load {self.load:.1f}"])


TOKENS: Final = ("prompt tokens", "answer tokens")


def parts_of(measured: Report, simulated: Report) -> dict[str, tuple[float, float]]:
    """Return what was measured and simulated of each part of the time, in seconds summed over the steps, and of the
    tokens. `ours` is what is left of the time of the steps: reading, checking and storing.
    """

    def parts_in(report: Report) -> dict[str, float]:
        usages = [attempt.usage for step in report.steps for attempt in step.attempts]
        took = sum(
            step.finished - step.started
            for step in report.steps
            if step.started is not None and step.finished is not None and not step.children
        )
        parts = {
            "waiting for a slot": sum(usage.queued_seconds for usage in usages),
            "prefill": sum(usage.prefill_seconds for usage in usages),
            "decode": sum(usage.decode_seconds for usage in usages),
        }
        parts["ours"] = max(0.0, took - sum(parts.values()))
        return parts | {
            TOKENS[0]: float(sum(usage.prompt_tokens for usage in usages)),
            TOKENS[1]: float(sum(usage.output_tokens for usage in usages)),
        }

    there, here = parts_in(measured), parts_in(simulated)
    return {name: (round(there[name], 4), round(here[name], 4)) for name in there}


def validate(
    machine: Machine,
    registry: Registry,
    suite: Sequence[Workload],
    rounds: int,
    seconds: float,
    say: Say,
    state: Path,
    keep: Keep = lambda name, make: make(),
) -> tuple[list[ValidationRow], list[str]]:
    """Return a cold and a warm row for each workload of one task, and the names of those that no time was left for.

    `rounds` are the warm rounds. No workload starts after `seconds`; one that was measured before takes no time.
    `state` is the folder that keeps the settings of the engines of `describe`. Raises JournalError, PoolError,
    EngineError, OSError, and InputError for a task that cannot be run here.
    """
    rows: list[ValidationRow] = []
    left: list[str] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
        home = Path(folder)
        probes: list[Probe] = []

        def compared(workload: Workload) -> Row:
            if time.monotonic() - begun > seconds:
                raise NoTimeLeft
            (task,) = workload.tasks.values()
            before = probes.pop() if probes else probe(registry, state)
            load = os.getloadavg()[0]
            ran = run_here(task, registry, state, rounds + 1)
            probes.append(probe(registry, state))
            here = fit(machine, registry, home / f"{workload.name}-fit", [before, *probes])
            most = min(rounds + 1, SIMULATED_ROUNDS)
            knowing, unknowing = (
                simulate_rounds(task, here, registry, home / f"{workload.name}-{at}", most, lengths=lengths)
                for at, lengths in enumerate((answer_lengths(task, ran.reports[0]), UNKNOWN))
            )
            made = _rows(workload.name, ran.reports, ran.walls, knowing, unknowing, load)
            return {"rows": [asdict(row) for row in made]}

        for workload in suite:
            try:
                stored = keep(f"workload {workload.name}", partial(compared, workload))
            except NoTimeLeft:
                left.append(workload.name)
                continue
            made = msgspec.convert(stored["rows"], list[ValidationRow])
            rows += made
            for row in made:
                say(_told(row))
    return rows, left


def _rows(
    name: str,
    reports: Sequence[Report],
    walls: Sequence[float],
    knowing: Sequence[Simulated],
    unknowing: Sequence[Simulated],
    load: float,
) -> list[ValidationRow]:
    (cold, *warm), (first, *others) = (
        [simulation.report.wall_seconds for simulation in simulations] for simulations in (knowing, unknowing)
    )
    status, steps, rest = reports[-1].status, len(reports[-1].steps), tuple(walls[1:])
    middle = median_low(rest)
    parts = parts_of(reports[0], knowing[0].report), parts_of(reports[1 + rest.index(middle)], knowing[-1].report)
    return [
        ValidationRow(name, "cold", status, steps, walls[0], (walls[0],), cold, first, parts[0], load),
        ValidationRow(name, "warm", status, steps, median(rest), rest, median(warm), median(others), parts[1], load),
    ]


def _told(row: ValidationRow) -> str:
    times = f"measured {row.measured:.2f} s, simulated {row.simulated:.2f} s"
    errors = (
        100 * (predicted / row.measured - 1) if row.measured > 0 else 0.0
        for predicted in (row.simulated, row.unknowing)
    )
    error, unknowing = (f"{percent:+.0f} %" for percent in errors)
    return f"{row.workload} {row.state} {row.status}: {times} ({error}; lengths unknown {unknowing}); {row.why}"


def fixed_length(roles: Roles) -> list[Workload]:
    """Return the workloads of one task whose answers are as long as their schemas say, those that take long last."""
    some = [workload for workload in workloads(roles).values() if workload.paired and workload.name not in FREE]
    return sorted(some, key=lambda workload: workload.name in LONG)


def time_many_steps(machine: Machine, registry: Registry) -> float:
    """Return how many real seconds a simulation of `MANY_STEPS` steps takes: 100 chains of steps that write freely."""
    task = task_of(chains(MANY_STEPS))
    with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
        begun = time.perf_counter()
        simulate(task, machine, registry, Path(folder) / "home")
        return time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class AdvisedTask:
    """A task for which machines are judged."""

    name: str
    task: TaskIR
    seeds: int
    """How many runs its interval is from."""


def advised(seeds: int = SEEDS) -> list[AdvisedTask]:
    """Return the tasks for which machines are judged: notes of one length, agents that write freely after reading a
    document that all share or one of their own, and agents that call tools.

    `seeds`: how many runs the intervals of freely writing agents are from.
    """
    suite = workloads()
    return [
        AdvisedTask("wide-100", suite["wide-100"].tasks["wide-100"], min(seeds, FIXED_SEEDS)),
        AdvisedTask("100 agents, shared prefix", task_of(agents(AGENTS, shared=True)), seeds),
        AdvisedTask("100 agents, no shared prefix", task_of(agents(AGENTS, shared=False)), seeds),
        AdvisedTask("1,500 tool calls", suite["tools"].tasks["tools"], 1),
    ]


def agents(count: int, *, shared: bool) -> Document:
    """Return a document of agents that write freely about the same document, or about as long a one of their own."""
    own = [f"document{at}" for at in range(1, count + 1)]
    texts = (
        {"document": sample_text(DOCUMENT_WORDS)}
        if shared
        else {name: sample_text(DOCUMENT_WORDS + at) for at, name in enumerate(own, start=1)}
    )
    steps = [
        {
            "id": f"S{at}",
            "actor": ROLE,
            "action": f"Write about point {at} of the document.",
            "inputs": ["document" if shared else name],
            "outputs": [f"text{at}.txt"],
            "run_gates": False,
        }
        for at, name in enumerate(own, start=1)
    ]
    inputs = [{"type": "text", "label": name, "value": text} for name, text in texts.items()]
    return {"objective": "Read and write", "inputs": inputs, "plan": {"steps": steps}}


def advice_for(machine: Machine, registry: Registry, advised_task: AdvisedTask) -> dict[str, Any]:
    """Return how long a task takes on a machine, how uncertain that is, and what to buy for it.

    The interval holds the times of 95 % of its runs, each with other lengths of answers.
    """
    task, seeds = advised_task.task, range(advised_task.seeds)
    with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
        home = Path(folder)
        simulations = [simulate(task, machine, registry, home / f"run-{seed}", seed) for seed in seeds]
        advice = advise(task, machine, registry, home, simulations[0])
    middle, low, high = interval_of([simulation.seconds for simulation in simulations])
    path = simulations[0].report.critical_path
    return {
        "machine": machine.name,
        "workload": advised_task.name,
        "seconds": round(middle, 3),
        "interval": [round(low, 3), round(high, 3)],
        "seeds": len(seeds),
        "replicas": machine.worker.instances,
        "times_one_agent": round(path.serial_seconds / simulations[0].seconds, 2),
        "twice": {resource: round(ratio, 3) for resource, ratio in advice.ratios.items()},
        "bound_by": advice.bound_by,
        "in_words": advice.in_words(),
        "waiting_share": round(advice.waiting_share, 3),
    }


def servers() -> list[Machine]:
    """Return the machines of the examples, on all of which the same model does the steps."""
    machines = (read_machine(file) for file in sorted(SERVERS.glob("*.json")))
    return [
        machine.model_copy(update={"roles": {**machine.roles, ROLE: WORKER}})
        for machine in machines
        if WORKER in machine.models
    ]


def document(
    machine: Machine,
    rows: Sequence[ValidationRow],
    left: Sequence[str],
    many_seconds: float,
    advice: Sequence[Mapping[str, Any]],
    command: str,
) -> dict[str, Any]:
    """Return the results as they are written."""
    return {
        "command": command,
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "numpy"),
        "goals": goals_of(rows, many_seconds),
        "rows": [_row_json(row) for row in rows],
        "left": [*left],
        "not_compared": dict.fromkeys(sorted(FREE), "its answers are as long as the model likes"),
        "advice": [*advice],
        "described": machine.model_dump(mode="json"),
    }


def goals_of(rows: Sequence[ValidationRow], many_seconds: float) -> list[dict[str, Any]]:
    """Return what was wanted and reached: the error of each workload that was done, their median, and how long a
    simulation takes.
    """
    done = [row for row in rows if row.status == "done"]
    reached = []
    for row in done:
        name = f"{row.workload}, {row.state}: simulated off measured, share"
        reached.append(_goal(name, row.error, row.interval, WORKLOAD_ERROR, len(row.rounds)))
    for state in ("cold", "warm"):
        some = [row for row in done if row.state == state]
        if not some:
            continue
        ends = [row.interval for row in some if row.interval is not None]
        # A median grows with each of its values, so it lies between the medians of their lower and upper ends.
        reach = (median(low for low, _ in ends), median(high for _, high in ends)) if len(ends) == len(some) else None
        error, rounds = median(row.error for row in some), min(len(row.rounds) for row in some)
        reached.append(_goal(f"median over the workloads, {state}", error, reach, MEDIAN_ERROR, rounds))
        unknowing = median(abs(row.unknowing / row.measured - 1) for row in some)
        reached.append(_goal(f"median, {state}, the tokens of answers not known", unknowing, None, MEDIAN_ERROR))
    reached.append(_goal(f"seconds to simulate {MANY_STEPS} steps", many_seconds, None, MANY_SECONDS))
    return reached


def _goal(
    name: str, value: float, interval: tuple[float, float] | None, most: float, rounds: int = 0
) -> dict[str, Any]:
    """Return a goal as it is written. It is met if the lower end of its interval is, as everywhere; of too few
    rounds, whose interval is wide, the value has to be.
    """
    reach = None if interval is None else [round(end, 4) for end in interval]
    judged = interval[0] if interval is not None and rounds >= LEAST_ROUNDS else value
    return {"name": name, "value": round(value, 4), "interval": reach, "goal": f"<= {most:g}", "met": judged <= most}


def _row_json(row: ValidationRow) -> dict[str, Any]:
    error = round(row.simulated / row.measured - 1, 4) if row.measured > 0 else None
    return asdict(row) | {"error": error, "why": row.why}
