"""A tool: its name, its arguments, and what it returns."""

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.run.gates.contract import RunJob, no_sandbox
from orchestrator.run.steps.tools.notes import Notes
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import Failure, FailureKind


class ToolError(Exception):
    """A call failed. The message says what would be accepted, so that the model can try again.

    `kind` is the kind of failure for a step that consists of this one call.
    """

    def __init__(self, message: str, kind: FailureKind = FailureKind.RESOURCE) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ToolResult:
    value: Any  # JSON, for a model or for code
    text: str | None = None  # for a step that consists of this one call; None if it is `value`
    # Set if the call worked, but what it ran failed: a test, or a command with an exit code.
    failure: Failure | None = None


class ToolServerFailed(Exception):
    """An MCP server does not start, has gone, or does not speak MCP. The message names it.

    The attempt fails, since neither the model nor its code can help that. Another attempt connects again.
    """


# Keeps the plan of a procedure (name, inputs) until a person approves it; returns a text about it. Raises `ToolError`.
Propose = Callable[[str, Mapping[str, Any]], Awaitable[str]]


async def no_procedures(_name: str, _inputs: Mapping[str, Any]) -> str:
    """Default for `Propose`: raise `ToolError`."""
    raise ToolError("there are no procedures here")


@dataclass(frozen=True, slots=True)
class ToolContext:
    workspace: Workspace
    notes: Notes  # of the run
    run: RunJob = no_sandbox
    propose: Propose = no_procedures
    scope: str = ""  # the run and the step, the same for all attempts at the step
    made: Counter[str] = field(default_factory=Counter)  # how often each call was made in this attempt, by digest

    def call_key(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the idempotency key of the next call.

        Another attempt that makes the same call, after a crash or a failure, gets the same key. Equal calls in one
        attempt get different keys.
        """
        request = json.dumps([self.scope, tool, arguments], sort_keys=True, default=str)
        digest = hashlib.sha256(request.encode()).hexdigest()
        self.made[digest] += 1
        return f"{digest}-{self.made[digest]}"


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str  # one line for the model
    # The arguments match `parameters`. Raises ToolError, NoSuchText, GateError, ToolServerFailed.
    call: Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolResult]]
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the JSON Schema of each argument
    required: tuple[str, ...] = ()
    sandboxed: bool = False  # whether it runs jobs in the sandbox
    # Of all arguments, if it says more than `properties` and `required`, as an MCP server's may.
    schema: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of all arguments together."""
        if self.schema is not None:
            return dict(self.schema)
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }
