"""Compare simulations of this machine with it: the same workloads, really run and simulated.

The machine is described by `measure`, which runs none of these workloads. Each is run in several rounds on engines of
its own: the first one is cold, as no prompt of it is in their caches, and the others are warm.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import results
from benchmarks.critical_path.workloads import Roles, Workload, task_of, workloads
from benchmarks.peers.growth import chains
from benchmarks.simulate.machine import Machine, read_machine
from benchmarks.simulate.measure import run_here
from benchmarks.simulate.run import Simulated, advise, interval_of, simulate, simulate_rounds
from orchestrator.taskir import TaskIR
from registry.models import Registry

WORKLOAD_ERROR: Final = 0.15
"""The simulated time of each workload has to be this close to the measured one, as a part of it, ..."""
MEDIAN_ERROR: Final = 0.10
"""... and the median over all workloads so close."""
MANY_STEPS: Final = 1000
MANY_SECONDS: Final = 10.0
"""How long `MANY_STEPS` steps may take to be simulated."""
FREE: Final = frozenset({"code"})
"""Workloads whose answers are as long as a model likes, and which gates really run on: no simulation can know that."""
SEEDS: Final = 100
"""How many runs an interval of this machine is from."""
SERVER_SEEDS: Final = 10
"""The same for the machines of the examples."""
SIMULATED_ROUNDS: Final = 3
"""As many rounds of a workload are simulated at most: a cold one and two warm ones, for further ones are alike."""
SERVERS: Final = results.FOLDER.parents[1] / "examples" / "machines"

Say = Callable[[str], None]


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

    @property
    def error(self) -> float:
        """How far the simulated time is off the measured one, as a part of it."""
        return abs(self.simulated / self.measured - 1) if self.measured > 0 else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """The error against the round that it is closest to and furthest from."""
        errors = [abs(self.simulated / one - 1) for one in self.rounds if one > 0]
        return min(errors, default=1.0), max(errors, default=1.0)


def validate(
    machine: Machine, registry: Registry, suite: Sequence[Workload], rounds: int, seconds: float, say: Say
) -> tuple[list[ValidationRow], list[str]]:
    """Return a cold and a warm row for each workload of one task, and the names of those that no time was left for.

    `rounds` are the warm rounds. No workload begins after so many `seconds`. Raises JournalError, PoolError,
    EngineError, and InputError for a task that cannot be run here.
    """
    rows: list[ValidationRow] = []
    left: list[str] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
        for workload in suite:
            if time.monotonic() - begun > seconds:
                left.append(workload.name)
                continue
            (task,) = workload.tasks.values()
            ran = run_here(task, registry, Path(folder) / "state", rounds + 1)
            simulated = min(rounds + 1, SIMULATED_ROUNDS)
            found = simulate_rounds(task, machine, registry, Path(folder) / workload.name, simulated)
            rows += _rows(workload.name, ran.reports[-1].status, len(ran.reports[-1].steps), ran.walls, found)
            say("; ".join(_told(row) for row in rows[-2:]))
    return rows, left


def _rows(
    name: str, status: str, steps: int, walls: Sequence[float], found: Sequence[Simulated]
) -> list[ValidationRow]:
    cold, *warm = [one.report.wall_seconds for one in found]
    rest = tuple(walls[1:])
    return [
        ValidationRow(name, "cold", status, steps, walls[0], (walls[0],), cold),
        ValidationRow(name, "warm", status, steps, median(rest), rest, median(warm)),
    ]


def _told(row: ValidationRow) -> str:
    times = f"measured {row.measured:.2f} s, simulated {row.simulated:.2f} s"
    return f"{row.workload} {row.state} {row.status}: {times} ({100 * (row.simulated / row.measured - 1):+.0f} %)"


def fixed_length(roles: Roles) -> list[Workload]:
    """Return the workloads of one task whose answers are as long as their schemas say."""
    return [one for one in workloads(roles).values() if one.paired and one.name not in FREE]


def time_many_steps(machine: Machine, registry: Registry) -> float:
    """Return how many real seconds a simulation of `MANY_STEPS` steps takes: 100 chains of steps that write freely."""
    task = task_of(chains(MANY_STEPS))
    with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
        begun = time.perf_counter()
        simulate(task, machine, registry, Path(folder) / "home")
        return time.perf_counter() - begun


def advised() -> dict[str, TaskIR]:
    """Return the tasks for which machines are judged: 100 notes of one length, and 100 agents that write freely."""
    return {"wide-100": workloads()["wide-100"].tasks["wide-100"], "100 agents": task_of(chains(100))}


def advice_for(machine: Machine, registry: Registry, tasks: Mapping[str, TaskIR], seeds: int) -> list[dict[str, Any]]:
    """Return for each task how long it takes on a machine, how uncertain that is, and what to buy for it.

    The interval holds the times of 95 % of so many runs with other lengths of answers.
    """
    told = []
    for name, task in tasks.items():
        with tempfile.TemporaryDirectory(prefix="bench-simulate-") as folder:
            home = Path(folder)
            found = [simulate(task, machine, registry, home / f"run-{seed}", seed) for seed in range(seeds)]
            advice = advise(task, machine, registry, home, found[0])
        middle, low, high = interval_of([one.seconds for one in found])
        told.append(
            {
                "machine": machine.name,
                "workload": name,
                "seconds": round(middle, 3),
                "interval": [round(low, 3), round(high, 3)],
                "seeds": seeds,
                "times_one_agent": round(found[0].report.critical_path.serial_seconds / found[0].seconds, 2),
                "twice": {resource: round(ratio, 3) for resource, ratio in advice.ratios.items()},
                "bound_by": advice.bound_by,
                "waiting_share": round(advice.waiting_share, 3),
            }
        )
    return told


def servers() -> list[Machine]:
    """Return the machines of the examples."""
    return [read_machine(file) for file in sorted(SERVERS.glob("*.json"))]


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
        "machine": results.machine(),
        "versions": results.versions("llama-cpp-python", "numpy"),
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
    found = [
        _goal(f"{row.workload}, {row.state}: simulated off measured, share", row.error, row.interval, WORKLOAD_ERROR)
        for row in done
    ]
    for state in ("cold", "warm"):
        if errors := [row.error for row in done if row.state == state]:
            reach = min(errors), max(errors)
            found.append(_goal(f"median over the workloads, {state}", median(errors), reach, MEDIAN_ERROR))
    found.append(_goal(f"seconds to simulate {MANY_STEPS} steps", many_seconds, None, MANY_SECONDS))
    return found


def _goal(name: str, value: float, interval: tuple[float, float] | None, most: float) -> dict[str, Any]:
    reach = None if interval is None else [round(end, 4) for end in interval]
    return {"name": name, "value": round(value, 4), "interval": reach, "goal": f"<= {most:g}", "met": value <= most}


def _row_json(row: ValidationRow) -> dict[str, Any]:
    return asdict(row) | {"error": round(row.simulated / row.measured - 1, 4) if row.measured > 0 else None}
