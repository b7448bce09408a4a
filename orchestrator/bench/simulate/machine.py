"""Read machine files: what a machine has, and how long the steps of its models take, measured or published."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.bench.real.measure import ROLES
from orchestrator.bench.simulate.engines import Behaviour, SimulatedDrafts, token_ids
from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.errors import InputError, Problem
from orchestrator.pool.machine import Core, Node, Topology
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.memory import MemoryEstimate
from orchestrator.registry.models import ModelEntry, Registry, RoleEntry
from orchestrator.registry.options import DraftName, LoadOptions
from orchestrator.task.taskir.problems import problems_of

MAX_BYTES: Final = 1 << 20
# What simulated texts consist of: a token is the first one, and as many of the others as follow. Hardly another text of
# a prompt has these characters.
FILLER: Final = "~"
CONTINUED: Final = "¬¦"
_FILLED: Final = rf"{FILLER}[{CONTINUED}]*"
# What tokenizers of models cut off on their own: words, of which long ones are several, digits and other marks.
_PIECES: Final = re.compile(rf"{_FILLED}|[^\W\d_]{{1,12}}|\S")
_PARTS: Final = re.compile(rf"{_FILLED}|[^{FILLER}]+")
_ROUNDING: Final = 1e-9
Vocabulary = Callable[[str], list[int]]  # returns the tokens of a text
Resource = Literal["memory bandwidth", "cores", "memory"]
RESOURCES: Final[tuple[Resource, ...]] = get_args(Resource)  # what a machine could have more of
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Drafts(_Form):
    """The draft tokens of a model."""

    source: DraftName = Field(description="the drafting method: a key of `registry.options.DRAFTING`")
    k: Count = Field(description="the most draft tokens of a sequence in a step")
    acceptance: float = Field(ge=0, le=1, description="of a draft token, given that those before it were accepted")
    offered: float = Field(default=1.0, ge=0, le=1, description="part of the steps in which there is one to propose")
    token_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="seconds to draft one")


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
    prompt_ratio: Positive = Field(
        default=1.0, description="time of a step for tokens of prompts, over that of one for as many draft tokens"
    )
    cell_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="seconds per token that is attended to"
    )
    verify_seconds: dict[Count, Positive] | None = Field(
        default=None,
        description="tokens of one sequence → seconds of the step; without it as for so many sequences",
    )
    threads: Count | None = Field(
        default=None, description="the threads that the times are for: with fewer, steps take in proportion longer"
    )
    token_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="seconds that the engine takes to sample a token"
    )
    batch_invariant: bool = Field(default=False, description="as in the registry")
    split: bool = Field(default=False, description="whether sequences have streams of KV cells of their own")
    pads: bool = Field(default=False, description="whether steps are padded where a wider one takes less time")
    drafts: Drafts | None = None
    message_tokens: int = Field(default=4, ge=0, description="tokens of each message of a prompt besides its text")
    word_tokens: Positive = Field(
        default=1.3,
        description="tokens of a prompt for each of its words, digits and other marks, unless the registry has a model"
        " of this name, whose vocabulary says more",
    )
    answer_characters: Positive = Field(default=4.0, description="characters of an answer for each of its tokens")

    @model_validator(mode="after")
    def _is_possible(self) -> "MachineModel":
        if 1 not in self.step_seconds:
            raise ValueError('step_seconds lacks the step of 1 sequence; accepted: also "1": SECONDS')
        if self.verify_seconds is not None and self.verify_seconds.get(1) != self.step_seconds[1]:
            raise ValueError(
                "verify_seconds has another time than step_seconds for a step of 1 token; "
                f"accepted: {self.step_seconds[1]:g}"
            )
        return self

    @property
    def costs(self) -> StepCostModel:
        """The costs of its steps."""
        points = _points(self.step_seconds)
        verify = points if self.verify_seconds is None else _points(self.verify_seconds)
        return StepCostModel(points, verify, self.prompt_token_seconds, self.cell_seconds, self.pads)

    def behaviour(self, seed: int, vocabulary: Vocabulary | None = None) -> Behaviour:
        """Return how its engine fills its steps. Without a vocabulary, `word_tokens` say how many tokens texts have."""
        drafts = self.drafts
        return Behaviour(
            costs=self.costs,
            split=self.split,
            drafting=None if drafts is None else SimulatedDrafts(**drafts.model_dump()),
            token_seconds=self.token_seconds,
            tokenize=self._tokens_by_words if vocabulary is None else partial(_tokens_by, vocabulary),
            message_tokens=self.message_tokens,
            seed=seed,
        )

    def _tokens_by_words(self, text: str) -> Tokens:
        """Return the tokens that stand for a text: `word_tokens` for each word, digit and mark in the mean.

        Simulated answers within the text have as many as they were written with.
        """
        pieces = _PIECES.findall(text)
        each = [1 if piece[0] == FILLER else self.word_tokens for piece in pieces]
        sums = np.cumsum(each)
        count = ceil(sums[-1] - _ROUNDING) if pieces else 0
        ends = [*(np.searchsorted(sums, np.arange(1, count) - _ROUNDING) + 1).tolist(), len(pieces)]
        return token_ids(["".join(pieces[start:end]) for start, end in pairwise([0, *ends])] if count else [])

    def with_twice(self, resource: Resource) -> "MachineModel":
        """Return the model on a machine with twice as much of a resource.

        A step of n tokens is taken to compute for n times `prompt_token_seconds`, since a long prompt reads the weights
        once for many tokens, and to read memory for the rest of its time (the roofline model of Williams et al. 2009,
        with sums for maxima). More memory is used for as many slots more.
        """
        if resource == "memory":
            return self.model_copy(update={"slots": 2 * self.slots, "cache_bytes": 2 * self.cache_bytes})

        def sooner(steps: dict[int, float]) -> dict[int, float]:
            computing = {size: min(seconds, size * self.prompt_token_seconds) for size, seconds in steps.items()}
            if resource == "cores":
                return {size: seconds - computing[size] / 2 for size, seconds in steps.items()}
            return {size: (seconds + computing[size]) / 2 for size, seconds in steps.items()}

        changed: dict[str, object] = {"step_seconds": sooner(self.step_seconds)}
        if self.verify_seconds is not None:
            changed["verify_seconds"] = sooner(self.verify_seconds)
        if resource == "cores":
            threads = None if self.threads is None else 2 * self.threads
            changed |= {"prompt_token_seconds": self.prompt_token_seconds / 2, "threads": threads}
        else:
            changed["cell_seconds"] = self.cell_seconds / 2
        return self.model_copy(update=changed)


class Overheads(_Form):
    """What the orchestrator itself takes on the machine, without its engines, in seconds."""

    commit_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="until events are durable")
    generation_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="computing for each generation, one after the other"
    )
    waiting_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="what each generation waits besides"
    )
    away_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="what a generation takes longer on another machine"
    )
    call_seconds: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="for each call of a tool, one after the other"
    )


class Machine(_Form):
    """A machine and its models."""

    name: str
    sources: tuple[str, ...] = Field(description="where the figures are from")
    cores: Count
    memory_bytes: Count = Field(description="for models")
    machines: Count = Field(default=1, description="of this kind in a cluster; cores and memory are those of one")
    nodes: Count = Field(default=1, description="NUMA nodes, among which cores and memory are divided evenly")
    models: dict[str, MachineModel] = Field(min_length=1)
    overheads: Overheads = Overheads()
    roles: dict[str, str] = Field(default_factory=dict, description="role → model; the first model plays all others")

    @model_validator(mode="after")
    def _names_what_is_there(self) -> "Machine":
        if missing := sorted(set(self.roles.values()) - set(self.models)):
            raise ValueError(f"roles name unknown models: {', '.join(missing)}; accepted: {', '.join(self.models)}")
        if self.nodes > self.cores:
            raise ValueError(
                f"{self.nodes} nodes cannot share {self.cores} cores; accepted: up to a node for each core"
            )
        return self

    @property
    def topology(self) -> Topology:
        """Its cores and memory by node; cores that cannot be divided evenly are left out."""
        each, memory = self.cores // self.nodes, self.memory_bytes // self.nodes
        return Topology(tuple(Node(at, _cores(at * each, each), memory) for at in range(self.nodes)))

    @property
    def worker(self) -> MachineModel:
        """The model that plays the role `worker`."""
        return self.models[self.roles.get("worker", next(iter(self.models)))]

    def with_twice(self, resource: Resource) -> "Machine":
        """Return the machine with twice as much of a resource."""
        changed: dict[str, object] = {
            "name": f"{self.name}, with twice the {resource}",
            "models": {name: model.with_twice(resource) for name, model in self.models.items()},
        }
        if resource == "cores":
            changed["cores"] = 2 * self.cores
        if resource == "memory":
            changed["memory_bytes"] = 2 * self.memory_bytes
        return self.model_copy(update=changed)

    def registry(self, base: Registry) -> Registry:
        """Return a registry of this machine's models, with the defaults of another one, and its prompts for a model."""
        first = next(iter(self.models))
        models = {name: self._entry(name, base.models.get(name)) for name in self.models}
        roles = {
            name: RoleEntry.plain(name, self.roles.get(name, first), tier, level, about, base.defaults.max_tokens)
            for name, tier, level, about in ROLES
        }
        defaults = replace(base.defaults, memory=self.memory_bytes)
        registry = replace(base, models=MappingProxyType(models), roles=MappingProxyType(roles), defaults=defaults)
        return registry.with_shipped_prompts()

    def _entry(self, name: str, base: ModelEntry | None) -> ModelEntry:
        model = self.models[name]
        entry = ModelEntry(
            id=name,
            file=Path(name),
            description="",
            residency="warm",
            options=LoadOptions(
                context=model.context, slots=model.slots, batch_invariant=model.batch_invariant, threads=model.threads
            ),
            instances=model.instances,
            replicas=None if self.machines == 1 else ReplicaLimits(self.machines, self.machines),
            memory=MemoryEstimate(weights=model.bytes, kv_cache=model.cache_bytes, compute=0),
        )
        return entry if base is None else replace(entry, prompts=base.prompts)


def _tokens_by(vocabulary: Vocabulary, text: str) -> Tokens:
    # As `MachineModel._tokens_by_words`.
    parts = _PARTS.findall(text)
    each = (token_ids([part]) if part[0] == FILLER else vocabulary(part) for part in parts)
    return np.fromiter(chain.from_iterable(each), dtype=np.int32)


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
        raise InputError(*_problems(file, text, error)) from error


def _problems(file: Path, text: bytes, error: ValidationError) -> list[Problem]:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first["ctx"]["error"]
        return [
            Problem(str(file), f"is no JSON: {reason}", "a machine file, as `orchestrator bench machine` prints it")
        ]
    problems = problems_of(error, json.loads(text), Machine)
    return [replace(problem, where=f"{file}: {problem.where}") for problem in problems]


def to_text(machine: Machine) -> str:
    """Return the text of a machine file."""
    return json.dumps(machine.model_dump(mode="json"), indent=1) + "\n"


def _points(steps: dict[int, float]) -> Points:
    sizes = tuple(sorted(steps))
    return Points(sizes, tuple(steps[size] for size in sizes))


def _cores(first: int, count: int) -> tuple[Core, ...]:
    return tuple((cpu,) for cpu in range(first, first + count))
