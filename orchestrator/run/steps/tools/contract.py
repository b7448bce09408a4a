"""Define a tool: its name, its arguments, and what it returns."""

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.run.gates import RunJob, no_sandbox
from orchestrator.run.steps.tools.notes import Notes
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import Failure, FailureKind


class ToolError(Exception):
    """A call failed. The message says what was wrong and what would be accepted, so that the model may try again.

    `kind` is the kind of failure that it is for a step which consists of this one call.
    """

    def __init__(self, message: str, kind: FailureKind = FailureKind.RESOURCE) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call returns."""

    value: Any
    """The result as JSON, for a model or for code."""
    text: str | None = None
    """The result as a text, for a step which consists of this one call; None if it is the `value`."""
    failure: Failure | None = None
    """Set where the call itself went well, but what it ran failed: a test, or a command with an exit code."""


class ToolServerFailed(Exception):
    """An MCP server does not start, has gone, or does not speak MCP. The message names it and says what it said.

    The attempt fails, since a model or its code can do nothing about it; another attempt connects anew.
    """


Propose = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""Keeps the plan of the procedure with this name and these inputs, to wait for a person's approval, and returns what to
tell of it. Raises `ToolError`."""


async def no_procedures(_name: str, _inputs: Mapping[str, Any]) -> str:
    """Default for `Propose`: raise `ToolError`, as there are no procedures."""
    raise ToolError("there are no procedures here")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What the calls of one attempt work on."""

    workspace: Workspace
    """The texts that can be read and written."""
    notes: Notes
    """The notes of the run."""
    run: RunJob = no_sandbox
    propose: Propose = no_procedures
    scope: str = ""
    """The run and the step, which all attempts at the step have in common."""
    made: Counter[str] = field(default_factory=Counter)
    """How often each call was made in this attempt, by its digest."""

    def call_key(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the idempotency key of the next call of a tool.

        It is the same when another attempt at the step makes the same call, after a crash or a failure. Equal calls in
        one attempt have different keys.
        """
        said = json.dumps([self.scope, tool, arguments], sort_keys=True, default=str)
        digest = hashlib.sha256(said.encode()).hexdigest()
        self.made[digest] += 1
        return f"{digest}-{self.made[digest]}"


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    description: str
    """What it does, in one line for the model."""
    call: Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolResult]]
    """Carries out a call whose arguments match `parameters`. Raises `ToolError`, `NoSuchText`, `GateError`,
    `ToolServerFailed`."""
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The JSON Schema of each argument."""
    required: tuple[str, ...] = ()
    """The arguments that may not be left out."""
    sandboxed: bool = False
    """Whether it runs jobs in the sandbox."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of all arguments together, where it says more than `properties` and `required`, as that of an MCP
    server's tool may; None where these two make it."""

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
