"""Call the tools that a step was granted: check its rights and the arguments, make the call, report it."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from orchestrator.run.gates.contract import GateError
from orchestrator.run.gates.jobs import JobClock
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult, ToolServerFailed
from orchestrator.run.steps.tools.files import GREP, LIST_FILES, READ_FILE, SEARCH, WRITE_ARTIFACT
from orchestrator.run.steps.tools.notes import MAX_TEXT, NoSuchNote
from orchestrator.run.steps.tools.running import RUN_TESTS, SHELL
from orchestrator.run.steps.tools.workspace import NoSuchText
from orchestrator.task.events import CallOutcome, Failure, FailureKind
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch


async def _procedure(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    notice = await context.propose(arguments["name"], arguments.get("inputs", {}))
    return ToolResult(notice, notice)


PROCEDURE = Tool(
    "procedure",
    "Plan a maintenance procedure. It changes nothing: the plan waits for the approval of a person.",
    _procedure,
    {
        "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "as `procedures list` names it"},
        "inputs": {"type": "object", "maxProperties": 100, "description": "its inputs by name"},
    },
    ("name",),
)


_NEEDS: Mapping[str, tuple[str, ...]] = {"add": ("text",), "edit": ("id", "text"), "drop": ("id",), "list": ()}


async def _notes(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    change = arguments["change"]
    if missing := [name for name in _NEEDS[change] if name not in arguments]:
        raise ToolError(f"to {change} a note takes {' and '.join(_NEEDS[change])}; missing: {', '.join(missing)}")
    try:
        match change:
            case "add":
                return ToolResult(await context.notes.add(arguments["text"]))
            case "edit":
                await context.notes.edit(arguments["id"], arguments["text"])
            case "drop":
                await context.notes.drop(arguments["id"])
    except NoSuchNote as error:
        raise ToolError(str(error)) from error
    listed = [{"id": note.id, "text": note.text, "step": note.step} for note in context.notes.all]
    return ToolResult(listed, "\n".join(f"{note.id} {note.text}" for note in context.notes.all))


NOTES = Tool(
    "notes",
    "Change or list the notes that all steps of this run share.",
    _notes,
    {
        "change": {"enum": list(_NEEDS), "description": "add takes text, edit id and text, drop id"},
        "id": {"type": "string", "minLength": 1, "maxLength": 20},
        "text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
    },
    ("change",),
)


SHOWN_ARGUMENTS = 400  # characters of a call's arguments that are journaled and shown

# All but those of MCP servers.
TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (READ_FILE, LIST_FILES, SEARCH, GREP, WRITE_ARTIFACT, RUN_TESTS, SHELL, NOTES, PROCEDURE)
}

_FORMS = {name: OutputSchema(tool.parameters) for name, tool in TOOLS.items()}


@dataclass(frozen=True, slots=True)
class Call:
    """A finished call, as it is journaled."""

    tool: str
    arguments: str  # JSON of at most `SHOWN_ARGUMENTS` characters
    outcome: CallOutcome
    message: str = ""  # why it was refused or failed
    seconds: float = 0.0
    work_seconds: float | None = None  # computing, as in ToolCalled
    awaited_seconds: float = 0.0  # waiting for an MCP server, as in ToolCalled


OnCall = Callable[[Call], None]


class Toolbox:
    """The tools that the step names. `served` are those of connected MCP servers; `on_call` gets each finished call."""

    def __init__(
        self,
        granted: Sequence[str],
        context: ToolContext,
        on_call: OnCall,
        served: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        self.context = context
        self._granted = tuple(granted)
        self._on_call = on_call
        self._served = frozenset(served)
        self._by_name = {**served, **TOOLS}
        self._forms = {**{name: OutputSchema(tool.parameters) for name, tool in served.items()}, **_FORMS}

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._by_name[name] for name in self._granted if name in self._by_name)

    async def call(self, name: str, arguments: object) -> ToolResult:
        """Call a tool; report it however it ends. Raises `ToolError`, and `AttemptError` if its MCP server failed."""
        clock = asyncio.get_running_loop().time
        jobs = JobClock(self.context.run, clock)
        sent_at: float | None = None
        outcome: CallOutcome = "refused"
        message = ""
        awaited = 0.0
        try:
            tool, checked = self._checked(name, arguments)
            outcome, message = "failed", "it was stopped"
            sent_at = clock() if name in self._served else None
            result = await tool.call(replace(self.context, run=jobs.run), checked)
            outcome = "failed" if result.failure else "done"
            message = result.failure.message if result.failure else ""
        except NoSuchText as error:
            message = str(error)
            raise ToolError(message) from error
        except GateError as error:
            message = str(error)
            raise ToolError(message, FailureKind.INFRASTRUCTURE) from error
        except ToolServerFailed as error:
            message = str(error)
            raise AttemptError(Failure(FailureKind.INFRASTRUCTURE, f"{name}: {message}")) from error
        except ToolError as error:
            message = str(error)
            raise
        finally:
            seconds, work = jobs.read()
            if sent_at is not None:
                awaited = clock() - sent_at
                work = max(0.0, seconds - awaited)
            self._on_call(Call(name, shortened(arguments), outcome, message, seconds, work, awaited))
        return result

    def _checked(self, name: str, arguments: object) -> tuple[Tool, Mapping[str, Any]]:
        granted = {tool.name: tool for tool in self.tools}
        if name not in granted:
            accepted = ", ".join(granted) or "none"
            raise ToolError(f"this step has no tool {name!r}; accepted: {accepted}", FailureKind.SCHEMA)
        try:
            self._forms[name].check(arguments)
        except SchemaMismatch as error:
            takes = json.dumps(granted[name].parameters.get("properties", {}))
            raise ToolError(f"{name}: {error.evidence}; it takes {takes}", FailureKind.SCHEMA) from error
        except BadSchema as error:  # parts of a server's schema may only turn out to be unusable with a value
            raise ToolError(f"{name}: {error}", FailureKind.SCHEMA) from error
        assert isinstance(arguments, dict), "the parameters of a tool are an object"
        return granted[name], arguments


def shortened(arguments: object) -> str:
    """Return arguments as JSON for people to read, cut at the end if too long."""
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_ARGUMENTS else f"{text[:SHOWN_ARGUMENTS]}…"
