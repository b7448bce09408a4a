"""Define what a gate is given and what a failed one counts as."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from orchestrator.events import FailureKind, GateResult
from orchestrator.taskir import Step


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a step made, under the name that the plan gave it."""

    name: str
    data: bytes


def is_json(step: Step, name: str) -> bool:
    """Return whether the artifact `name` of a step has to be JSON: it has a schema, or its name ends in `.json`.

    A child of a `foreach` step writes `list.json[0]`, which is text: only the list that its parent joins is JSON.
    """
    return step.output_schema is not None or name.endswith(".json")


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may use beside the artifact."""

    step: Step


Gate = Callable[[Artifact, GateContext], Awaitable[GateResult]]
"""Looks at one artifact. It raises nothing for what the artifact holds; the pipeline measures its time."""

FAILURE_KINDS: Mapping[str, FailureKind] = {
    "schema": FailureKind.SCHEMA,
    "format": FailureKind.FORMAT,
    "lint": FailureKind.CODE,
    "shellcheck": FailureKind.CODE,
    "build": FailureKind.CODE,
    "typecheck": FailureKind.CODE,
    "unit": FailureKind.CODE,
    "integration": FailureKind.LOGIC,
    "security": FailureKind.CODE,
    "bench": FailureKind.LOGIC,
    "judge": FailureKind.LOGIC,
}
"""What the failure of each gate counts as."""
