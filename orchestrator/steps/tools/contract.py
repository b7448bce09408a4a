"""Define a tool: what it is called, what it takes, and what it gives back."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.events import Failure, FailureKind
from orchestrator.gates import RunJob, no_sandbox
from orchestrator.steps.tools.notes import Notes
from orchestrator.steps.tools.workspace import Workspace


class ToolError(Exception):
    """A call that came to nothing: what was wrong, and what would be accepted. The caller may try another one.

    `kind` is what it counts as where nobody can: in a step that is this one call.
    """

    def __init__(self, message: str, kind: FailureKind = FailureKind.RESOURCE) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gives: a JSON `value` for who asked, and the `text` that a step writes which is this one call.

    `failure` says that the call went well but what it ran did not: a test that fails, an exit code.
    """

    value: Any
    text: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What the calls of one attempt work on. `run` runs jobs in the sandbox."""

    workspace: Workspace
    notes: Notes
    run: RunJob = no_sandbox


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `parameters` is the JSON Schema of its arguments; `call` gets them once they match.

    `sandboxed` tools run jobs. `call` raises `ToolError`, `NoSuchText` and `GateError`.
    """

    name: str
    description: str
    call: Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolResult]]
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    sandboxed: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }
