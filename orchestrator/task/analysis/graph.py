"""Define the result of the analysis: StepGraph, its edges with their reasons, and the sources of names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.task.taskir.models import Step

Reason = Literal["explicit", "order only", "data", "write after read", "write after write"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Step `after` waits for step `before`; both are ids."""

    before: str
    after: str
    reason: Reason
    artifact: str | None = None  # None for an order without data
    dropped: bool = False  # by the mode, so that `after` does not wait


@dataclass(frozen=True, slots=True)
class Source:
    """What a name that a step reads stands for."""

    kind: Literal["artifact", "input", "file"]
    step: str | None = None  # the artifact's writer; None for inputs and files
    name: str = ""  # the writer's spelling, if the reader's differs; else empty


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The DAG of a plan. Steps are given by id."""

    steps: Mapping[str, Step]  # in document order
    edges: tuple[Edge, ...]
    before: Mapping[str, tuple[str, ...]]  # direct dependencies in document order, without dropped edges
    after: Mapping[str, tuple[str, ...]]  # the reverse
    order: tuple[str, ...]  # topological, with ties in document order
    waves: tuple[tuple[str, ...], ...]  # by depth; the first one waits for nothing
    width: int  # of the largest wave
    sources: Mapping[str, Mapping[str, Source]]  # of `inputs` and `foreach`, by step and name
