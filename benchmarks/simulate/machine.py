"""Read machine files: what a machine has, and how long the steps of its models take, measured or published."""

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmarks.real.measure import ROLES
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.errors import InputError, Problem
from orchestrator.pool.placement import Core, Node, Topology
from registry.memory import MemoryEstimate
from registry.models import ModelEntry, Registry, RoleEntry
from registry.options import LoadOptions

MAX_BYTES: Final = 1 << 20
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MachineModel(_Form):
    """A model as it runs on the machine. Times are in seconds, for the number of cores that a replica gets there."""

    bytes: Count = Field(description="the memory of its weights")
    cache_bytes: int = Field(default=0, ge=0, description="the memory of its KV cache, for all slots")
    context: Count = Field(default=8192, description="tokens of one sequence")
    slots: Count = Field(default=16, description="sequences at a time, in each replica")
    instances: Count = Field(default=1, description="replicas, of which each is bound to a node of its own")
    load_seconds: Positive = 1.0
    step_seconds: dict[Count, Positive] = Field(description="sequences that get a token each → seconds of the step")
    prompt_token_seconds: Positive = Field(description="seconds of one more prompt token in a large batch")
    cell_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="seconds per token that is attended to"
    )

    @model_validator(mode="after")
    def _starts_with_one(self) -> "MachineModel":
        if 1 not in self.step_seconds:
            raise ValueError("step_seconds lacks the step of 1 sequence")
        return self

    @property
    def costs(self) -> StepCostModel:
        """The costs of its steps."""
        sizes = tuple(sorted(self.step_seconds))
        points = Points(sizes, tuple(self.step_seconds[size] for size in sizes))
        return StepCostModel(points, points, self.prompt_token_seconds, self.cell_seconds)


class Machine(_Form):
    """A machine and its models."""

    name: str
    sources: tuple[str, ...] = Field(description="where the figures are from")
    cores: Count
    memory_bytes: Count = Field(description="for models")
    nodes: Count = Field(default=1, description="NUMA nodes, among which cores and memory are divided evenly")
    models: dict[str, MachineModel] = Field(min_length=1)
    roles: dict[str, str] = Field(default_factory=dict, description="role → model; the first model plays all others")

    @model_validator(mode="after")
    def _names_what_is_there(self) -> "Machine":
        if missing := sorted(set(self.roles.values()) - set(self.models)):
            raise ValueError(f"roles name models that are not there: {', '.join(missing)}")
        if self.nodes > self.cores:
            raise ValueError(f"{self.nodes} nodes cannot share {self.cores} cores")
        return self

    @property
    def topology(self) -> Topology:
        """Its cores and memory by node; cores that cannot be divided evenly are left out."""
        each, memory = self.cores // self.nodes, self.memory_bytes // self.nodes
        return Topology(tuple(Node(at, _cores(at * each, each), memory) for at in range(self.nodes)))

    def registry(self, base: Registry) -> Registry:
        """Return a registry of this machine's models, with the defaults of another one."""
        first = next(iter(self.models))
        models = {name: _entry(name, model) for name, model in self.models.items()}
        roles = {
            name: RoleEntry.plain(name, self.roles.get(name, first), tier, level, about, base.defaults.max_tokens)
            for name, tier, level, about in ROLES
        }
        defaults = replace(base.defaults, memory=self.memory_bytes)
        made = replace(base, models=MappingProxyType(models), roles=MappingProxyType(roles), defaults=defaults)
        return made.with_shipped_prompts()


def read_machine(file: Path) -> Machine:
    """Return the machine in a file. Raises InputError."""
    try:
        text = file.read_bytes()[: MAX_BYTES + 1]
    except OSError as error:
        raise InputError(Problem(str(file), error.strerror or str(error), "a machine file")) from error
    if len(text) > MAX_BYTES:
        raise InputError(Problem(str(file), "is longer than 1 MiB", "a machine file"))
    try:
        return Machine.model_validate_json(text)
    except ValidationError as error:
        problems = (
            Problem(f"{file}: {'/'.join(map(str, one['loc'])) or 'the whole'}", one["msg"], "what the schema says")
            for one in error.errors()
        )
        raise InputError(*problems) from error


def published_model(rate: float, size: int, *, batching: float, prompt_rate: float | None = None) -> MachineModel:
    """Return a model of which only published figures are known.

    `rate` is its tokens per second alone, and `batching` how many times more 16 sequences make together: the weights
    of a dense model are read once for all of them, while a mixture of experts reads others for each. `prompt_rate` is
    its prompt tokens per second; without it, ten times `rate`.
    """
    first = 1 / rate
    further = (16 / batching - 1) / 15  # what each further sequence adds, as a part of a step of one
    steps = {size: first * (1 + further * (size - 1)) for size in (1, 2, 4, 8, 16)}
    return MachineModel(
        bytes=size,
        step_seconds=steps,
        prompt_token_seconds=1 / (prompt_rate or 10 * rate),
        cell_seconds=first * 1e-5,
    )


def to_text(machine: Machine) -> str:
    """Return the text of a machine file."""
    return json.dumps(machine.model_dump(mode="json"), indent=1) + "\n"


def _cores(first: int, count: int) -> tuple[Core, ...]:
    return tuple((cpu,) for cpu in range(first, first + count))


def _entry(name: str, model: MachineModel) -> ModelEntry:
    return ModelEntry(
        id=name,
        file=Path(name),
        description="",
        residency="warm",
        options=LoadOptions(context=model.context, slots=model.slots),
        instances=model.instances,
        memory=MemoryEstimate(weights=model.bytes, kv_cache=model.cache_bytes, compute=0),
    )
