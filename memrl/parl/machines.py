"""The machines that plans are timed on while the frontdoor learns.

Without machine files, three are assumed: a step for n sequences reads the weights once and computes n tokens (the
roofline model of Williams et al., 2009, with sums for maxima). The worker is taken for a dense model of 1.5 billion
parameters in 4 bits. What it answers comes from the real worker; only the seconds are those of the machine.

Its speeds with 2 cores are those that `make bench-simulate` has measured on two cores for SmolLM2 (5 ms for 97 MB,
6.6 ms for 0.27 billion operations), and with 96 cores those of a 27B in `examples/machines/epyc-9655.json` (0.129 s for
16 GB, 14 ms for 54 billion operations). Those with 16 cores are assumed between them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from orchestrator.bench.simulate.machine import Machine, MachineModel, Overheads, read_machine
from orchestrator.memrl.parl.requests import WORKER
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.planner import FRONTDOOR


class Speeds(NamedTuple):
    bandwidth: float  # bytes per second that are read
    core: float  # operations per second of a core


SPEEDS: Final = {2: Speeds(20e9, 20e9), 16: Speeds(80e9, 40e9), 96: Speeds(124e9, 40e9)}
"""Cores of an assumed machine → its speeds."""
WEIGHT_BYTES: Final = 1_000_000_000
TOKEN_OPERATIONS: Final = 3e9
SIZES: Final = (1, 2, 4, 8, 16, 32)
CONTEXT: Final = 2048
SLOTS: Final = 32
OVERHEADS: Final = Overheads(commit_seconds=0.002, generation_seconds=0.002)


def assumed_machine(cores: int, models: Iterable[str]) -> Machine:
    """Return the assumed machine with `cores` cores. On it, each of these models is the worker."""
    speeds = SPEEDS[cores]
    reading, computing = WEIGHT_BYTES / speeds.bandwidth, TOKEN_OPERATIONS / (cores * speeds.core)
    model = MachineModel(
        bytes=WEIGHT_BYTES,
        context=CONTEXT,
        slots=SLOTS,
        step_seconds={size: reading + size * computing for size in SIZES},
        prompt_token_seconds=computing,
        cell_seconds=computing * 1e-5,
    )
    return Machine(
        name=f"{cores} cores",
        sources=("assumed: see orchestrator/memrl/parl/machines.py",),
        cores=cores,
        memory_bytes=64_000_000_000,
        models=dict.fromkeys(models, model),
        overheads=OVERHEADS,
    )


def machines_for(registry: Registry, files: Sequence[Path] = ()) -> list[Machine]:
    """Return the machines of these files, or those that are assumed, for the models of a registry.

    Each of these models takes as long as the machine's worker. Raises InputError.
    """
    models = writers(registry)
    if not files:
        return [assumed_machine(cores, models) for cores in sorted(SPEEDS)]
    read = [read_machine(file) for file in files]
    return [machine.model_copy(update={"models": dict.fromkeys(models, machine.worker)}) for machine in read]


def writers(registry: Registry) -> list[str]:
    """Return the models that are loaded here and write texts."""
    return [name for name, model in registry.models.items() if model.file is not None and not model.embeds]


def other_worker(registry: Registry) -> str | None:
    """Return the most able model that could be the worker and is not, or None if there is none.

    It understands the same prompts. The one with the most weights counts as the most able.
    """
    used = registry.models[registry.roles[WORKER].model]
    drafts = {role.model for name, role in registry.roles.items() if name == "draft"}
    others = [
        (model.header.parameters, name)
        for name in writers(registry)
        if (model := registry.models[name]).header is not None
        and model.prompts == used.prompts
        and model.file != used.file
        and name not in drafts
    ]
    return max(others)[1] if others else None


def registry_on(machine: Machine, base: Registry, worker: str | None = None, *, by_cores: bool = True) -> Registry:
    """Return a registry with the models of a machine in the roles of another one.

    Its frontdoor has no adapters, and is told the cores or not. `worker` replaces the model of the role `worker`.
    """
    made = machine.registry(base)
    roles = {name: replace(role, lora=()) for name, role in base.roles.items() if role.model in made.models}
    roles[FRONTDOOR] = replace(roles[FRONTDOOR], plans_by_cores=by_cores)
    if worker is not None:
        roles[WORKER] = replace(roles[WORKER], model=worker)
    return replace(made, roles=MappingProxyType(roles))
