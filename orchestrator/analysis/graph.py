"""Hold what the analysis finds: edges with their reasons, sources of names, order and waves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.taskir import Step

Reason = Literal["explicit", "order only", "data", "write after read", "write after write"]


@dataclass(frozen=True, slots=True)
class Edge:
    """`after` waits for `before`. `artifact` is what passes between the two; a dropped edge holds nobody up."""

    before: str
    after: str
    reason: Reason
    artifact: str | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """What a name that a step reads stands for: the artifact of a step, an input of the task, or a file."""

    kind: Literal["artifact", "input", "file"]
    step: str | None = None


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The DAG of a plan.

    `steps` are in document order. `before` and `after` are the direct neighbours over the edges that were kept, each
    once, in document order. `order` is topological, with ties by document order; `waves` are the steps at one depth,
    and `width` is the size of the largest wave. `sources` says for each step what the names it reads (`inputs` and
    `foreach`) stand for.
    """

    steps: Mapping[str, Step]
    edges: tuple[Edge, ...]
    before: Mapping[str, tuple[str, ...]]
    after: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...]
    waves: tuple[tuple[str, ...], ...]
    width: int
    sources: Mapping[str, Mapping[str, Source]]
