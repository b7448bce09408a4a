"""Define the result of the analysis: StepGraph, its edges with their reasons, and the sources of names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.task.taskir import Step

Reason = Literal["explicit", "order only", "data", "write after read", "write after write"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Step `after` waits for step `before`; both are ids."""

    before: str
    after: str
    reason: Reason
    artifact: str | None = None
    """The artifact for which it waits, or None for an order without one."""
    dropped: bool = False
    """Whether the mode has dropped the edge, so that `after` does not wait."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a name that a step reads stands for."""

    kind: Literal["artifact", "input", "file"]
    step: str | None = None
    """The id of the step that writes the artifact; None for inputs and files."""
    name: str = ""
    """The name under which that step writes it, if the reader names it in another way; else empty."""


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The DAG of a plan."""

    steps: Mapping[str, Step]
    """The steps by id, in document order."""
    edges: tuple[Edge, ...]
    """All edges, dropped ones too."""
    before: Mapping[str, tuple[str, ...]]
    """The steps for which each step waits directly, in document order. Dropped edges do not count."""
    after: Mapping[str, tuple[str, ...]]
    """The steps that wait directly for each step, in document order. Dropped edges do not count."""
    order: tuple[str, ...]
    """The ids in topological order, with ties in document order."""
    waves: tuple[tuple[str, ...], ...]
    """The ids by depth: first the steps that wait for none."""
    width: int
    """The size of the largest wave."""
    sources: Mapping[str, Mapping[str, Source]]
    """What each name that a step reads (`inputs` and `foreach`) stands for, by step id and name."""
