"""Run a task on a simulated machine, and return its report. What it answers has the form that was asked for."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from benchmarks.simulate.engines import Answer, SimulatedMachine, StepLoad, StepSeconds
from benchmarks.simulate.machine import Machine
from orchestrator.engine.contract import Generation
from orchestrator.history import Report, load_report
from orchestrator.runs import Job, Orchestrator, Ports
from orchestrator.taskir import TaskIR
from orchestrator.taskir.json_text import compact_json
from registry.models import Registry

CHARACTERS_PER_TOKEN: Final = 4.0
SPREAD: Final = 0.5
"""The standard deviation of the logarithm of the length of answers whose length nothing prescribes."""
TYPICAL_TOKENS: Final = 100
"""Their median, in tokens."""
MOST_ITEMS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Simulated:
    """How a task went on a simulated machine."""

    report: Report
    seconds: float
    """The virtual time from the acceptance of the task to its end."""
    engines: int
    """How many engines were started."""


def simulate(task: TaskIR, machine: Machine, base: Registry, home: Path, seed: int = 0) -> Simulated:
    """Run a task on a machine, in a new state folder `home`. The same arguments give the same report, but for its id.

    Models are loaded before the task is accepted, as far as the memory goes. `base` gives the defaults of the registry.
    Gates and tools really run, and take no virtual time. Raises InputError for a task that cannot be run there, and
    JournalError.
    """
    registry = machine.registry(base)
    simulated = SimulatedMachine(
        step_seconds=lambda file: _step_seconds(machine, file),
        write=_Writer(seed).write,
        load_seconds=lambda file: machine.models[file].load_seconds,
    )

    async def main() -> tuple[Report, float]:
        loop = virtual_loop()
        ports = Ports(
            start_engine=simulated.start,
            clock=lambda last: VirtualClock(loop),
            journal=StillJournal.open,
            follows_registry=False,
            topology=machine.topology,
        )
        async with Orchestrator.open(home, registry, ports) as orchestrator:
            for model in dict.fromkeys(registry.roles[step.actor].model for step in task.plan.steps):
                await orchestrator.pool.load(model)
            begun = loop.time()
            run = await orchestrator.submit(Job(None, task, None, "as-planned"))
            async for _ in orchestrator.watch(run):
                pass
            seconds = loop.time() - begun
            return load_report(orchestrator.journal, run), seconds

    report, seconds = run_virtually(main)
    return Simulated(report, seconds, len(simulated.engines))


def _step_seconds(machine: Machine, file: str) -> StepSeconds:
    costs = machine.models[file].costs

    def seconds(load: StepLoad) -> float:
        return costs.seconds(load.sequences, load.sequences, load.cells) + load.prompt_tokens * costs.prefill

    return seconds


class _Writer:
    """Writes answers of the form that was asked for: JSON for a schema, else a text of a length drawn at random."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def write(self, request: Generation) -> Answer:
        """Return the answer to a request. Its length depends on the request and the seed alone."""
        if isinstance(request.schema, dict):
            text = compact_json(instance_of(request.schema))
            return Answer(text, max(1, round(len(text) / CHARACTERS_PER_TOKEN)))
        draw = random.Random(f"{self._seed} {request.messages[-1].content}")  # noqa: S311 - no secret
        tokens = max(1, round(TYPICAL_TOKENS * draw.lognormvariate(0.0, SPREAD)))
        tokens = tokens if request.max_tokens is None else min(tokens, request.max_tokens)
        return Answer(" ".join(["word"] * max(1, tokens - 1)), tokens)


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
            return "x" * schema.get("minLength", 1)
