"""Let a model call tools, turn by turn, until it finishes.

A call that a model repeats with the same result is noticed, as a model in a loop makes them.
"""

from collections import Counter
from typing import Any, Final

from orchestrator.engine.client.engine import Completion
from orchestrator.run.steps.attempt import Attempt, AttemptError
from orchestrator.run.steps.context.conversation import Conversation
from orchestrator.run.steps.context.window import CallResult, Turn, Window
from orchestrator.run.steps.tools.actions import (
    Action,
    Allowed,
    BadAction,
    FinishStep,
    Prune,
    UseTool,
    action_schema,
    hands_on,
    read_action,
)
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.run.steps.tools.files import GREP, LIST_FILES, READ_FILE, SEARCH
from orchestrator.run.steps.tools.toolbox import Toolbox, shortened
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.taskir.json_text import compact_json

# The attempt ends with the call of this number that has the same arguments and the same result.
MAX_SAME: Final = 3
# Calls of these change nothing.
_READING: Final = frozenset(tool.name for tool in (READ_FILE, LIST_FILES, SEARCH, GREP))


class Repeats:
    """Counts the calls of one attempt by arguments and result; a new call that may change something resets it."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._made: set[tuple[str, str, str]] = set()

    def count(self, tool: str, arguments: str, result: str) -> int:
        """Count a call, and return how often it has had this result."""
        call = (tool, arguments, result)
        if tool not in _READING and call not in self._made:
            # Tests may be run again after a change.
            self._calls.clear()
        self._made.add(call)
        self._calls[call] += 1
        return self._calls[call]


# The attempt fails after this many answers in a row that are no action.
MAX_BAD = 3

# The most characters of a result that the model is shown.
RESULT = 4_000

# A result of at most this many characters is shown as it is: as a document it would not be worth pruning.
LINE = 80


# Before the result of a call that the model makes a second time.
AGAIN = "You made this call before, and it has the same result. Use the result, change the call, or finish."


class ToolLoop:
    def __init__(self, attempt: Attempt, toolbox: Toolbox, conversation: Conversation) -> None:
        self._attempt = attempt
        self._toolbox = toolbox
        self._talk = conversation
        self._repeats = Repeats()
        self.acted = False  # whether a call has had a result

    async def run(self, turns: int) -> Any:
        """Act until the model finishes; return the step's result. Raises `AttemptError`, EngineError, PoolError."""
        bad = 0
        for _ in range(turns):
            allowed = self._allowed()
            completion = await self._talk.ask(action_schema(self._attempt.step, allowed))
            try:
                action = _action(completion, allowed)
            except BadAction as error:
                bad += 1
                if bad == MAX_BAD:
                    message = f"{MAX_BAD} answers in a row are no action: {error}"
                    raise AttemptError(Failure(FailureKind.SCHEMA, message, str(error))) from error
                await self._talk.add(Turn(completion.text, str(error)))
                continue
            bad = 0
            if isinstance(action, FinishStep):
                return self._value(action)
            await self._act(action, completion.text)
        message = f"not done after {turns} turns"
        raise AttemptError(Failure(FailureKind.LOGIC, message, message))

    def _allowed(self) -> Allowed:
        window = self._talk.window
        tools = () if self._talk.pressure == "hard" else self._toolbox.tools
        return Allowed(tools, [document.id for document in window.shown], [document.id for document in window.kept])

    async def _act(self, action: UseTool | Prune, wrote: str) -> None:
        if isinstance(action, Prune):
            await self._talk.prune(wrote, action.ids)
            return
        try:
            result = await self._toolbox.call(action.tool, action.arguments)
        except ToolError as error:
            failed = f"{action.tool} failed: {error}"
            await self._talk.add(Turn(wrote, self._pointed_out(action, failed)))
            return
        self.acted = True
        text = result.value if isinstance(result.value, str) else compact_json(result.value)
        await self._talk.add(turn_of(self._talk.window, action, wrote, self._pointed_out(action, text)))

    def _pointed_out(self, action: UseTool, text: str) -> str:
        times = self._repeats.count(action.tool, compact_json(action.arguments), text)
        if times == MAX_SAME:
            message = f"the model made the same call {times} times with the same result: {_name(action)}"
            raise AttemptError(Failure(FailureKind.LOGIC, message, message))
        return text if times == 1 else f"{AGAIN}\n{text}"

    def _value(self, finish: FinishStep) -> Any:
        if not finish.documents or not hands_on(self._attempt.step):
            return finish.answer
        by_id = {document.id: document for document in self._talk.window.kept}
        parts = [f"[{by_id[name].name}]\n{by_id[name].text}" for name in finish.documents]
        return "\n\n".join([str(finish.answer), *parts])


def turn_of(window: Window, action: UseTool, wrote: str, text: str) -> Turn:
    """Return the turn of a call. Its result is a document, unless it is short."""
    if len(text) <= LINE:
        return Turn(wrote, text)
    return Turn(wrote, document=CallResult(window.next_id, _name(action), _cut(text)))


def _action(completion: Completion, allowed: Allowed) -> Action:
    if completion.finish != "stop":
        raise BadAction(f"the answer did not come to its end ({completion.finish}); accepted: a shorter one")
    return read_action(completion.text, allowed)


def _name(action: UseTool) -> str:
    arguments = action.arguments if isinstance(action.arguments, dict) else {}
    if action.tool == "read_file" and arguments.keys() == {"name"}:
        return str(arguments["name"])
    return f"{action.tool} {shortened(arguments)}"


def _cut(text: str) -> str:
    if len(text) <= RESULT:
        return text
    return f"{text[:RESULT]}\n… {len(text) - RESULT} of {len(text)} characters left out; ask for a part"
