"""Build the conversations of steps that use tools or write code, with the functions that the steps themselves use."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.tiny.sizes import CONTEXT
from orchestrator.bench.families.example import STEP_ROLES, SYSTEM_PROMPTS, Example, persona_texts, pick_persona
from orchestrator.bench.families.words import Split, WordingPool, sentence
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.context.budget import ContextBudget
from orchestrator.run.steps.context.editor import BYTES_A_TOKEN, with_budget_notice
from orchestrator.run.steps.context.window import Turn, Window
from orchestrator.run.steps.role import step_messages
from orchestrator.run.steps.tools.actions import Allowed, UseTool, action_schema, instructions
from orchestrator.run.steps.tools.contract import Tool
from orchestrator.run.steps.tools.loop import turn_of
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import Step

ANSWER = 512  # the most tokens of an answer

EMPTY = ContextBudget.of(CONTEXT, ANSWER)
MODEL_TOOLS = ("read_file", "list_files", "search", "grep", "write_artifact", "notes")

FRAMES = WordingPool(
    (
        "{p}.",
        "{p}.",
        "{p}.",
        "{p}.",
        "please {p}.",
        "{p}, please.",
        "now {p}.",
        "can you {p}?",
        "I need you to {p}.",
        "I want you to {p}.",
        "your task is to {p}.",
        "you should {p}.",
        "help me to {p}.",
        "go on and {p}.",
        "it is time to {p}.",
    ),
    ("could you {p}?", "please {p} now.", "you have to {p}.", "I would like you to {p}."),
)


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """A call of a tool, and the text of its result."""

    call: UseTool
    result: str

    @property
    def answer(self) -> str:
        """Return the model's answer that makes the call."""
        return compact_json({"tool": self.call.tool, "arguments": self.call.arguments})


@dataclass(frozen=True, slots=True)
class ToolTask:
    """A task that is done with tools."""

    phrase: str  # what the task asks for
    turns: tuple[ToolTurn, ...]  # the calls that lead to the answer
    finish: str  # the final answer
    outputs: tuple[str, ...] = ("S1",)
    confusing: frozenset[str] = field(default_factory=frozenset)  # Tools that could do the same, and so are not offered


def tool_turn(tool: str, result: object, **arguments: object) -> ToolTurn:
    """Return a call of `tool` with its result, which is written as JSON unless it is text."""
    return ToolTurn(UseTool(tool, arguments), result if isinstance(result, str) else compact_json(result))


def phrased(rng: Random, split: Split, phrase: str) -> tuple[str, str]:
    """Return (an action that asks for what `phrase` says, the wording that it is made of)."""
    frame = FRAMES.pick(rng, split)
    return sentence(frame.format(p=phrase)), frame


def choose_tools(rng: Random, task: ToolTask) -> tuple[Tool, ...]:
    """Return the tools that the task needs and a few others, at most four, in random order."""
    needed = list(dict.fromkeys(turn.call.tool for turn in task.turns))
    others = [name for name in MODEL_TOOLS if name not in needed and name not in task.confusing]
    count = rng.randint(min(4, max(2, len(needed))), 4) - len(needed)
    names = needed + rng.sample(others, max(0, count))
    rng.shuffle(names)
    return tuple(TOOLS[name] for name in names)


def open_conversation(rng: Random, instruction: str) -> tuple[str, str, Window]:
    """Return a role, a persona and the conversation before the first answer."""
    role, persona = rng.choice(STEP_ROLES), pick_persona(rng, ())
    return role, persona, Window(step_messages(SYSTEM_PROMPTS[role], persona_texts()[persona], (), instruction))


def open_with_tools(rng: Random, action: str, tools: tuple[Tool, ...]) -> tuple[str, str, Window]:
    """Return a role, a persona and the conversation of a step with `tools` before its first answer."""
    return open_conversation(rng, instructions(prompt_set("tiny").tools, action, tools))


def estimate_tokens(window: Window) -> int:
    """Return the estimated number of tokens of a conversation, computed as steps do."""
    return -(-sum(len(message.content.encode()) for message in window.messages) // BYTES_A_TOKEN)


def after_call(window: Window, turn: ToolTurn, budget: ContextBudget = EMPTY) -> Window:
    """Return the conversation after a call."""
    return with_notice(window.add(turn_of(window, turn.call, turn.answer, turn.result)), budget)


def with_notice(window: Window, budget: ContextBudget = EMPTY, *, prunes: bool = True) -> Window:
    """Return the conversation with the notice of how full its context is."""
    return with_budget_notice(window, estimate_tokens(window), budget, prompt_set("tiny"), prunes=prunes)


def schema_of(window: Window, action: str, outputs: tuple[str, ...], tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Return the schema of a step's next answer."""
    step = Step(id="S1", actor="worker", action=action, outputs=outputs, kind="tool")
    ids = [document.id for document in window.shown]
    return action_schema(step, Allowed(tools, ids, [document.id for document in window.kept]))


def example_of(
    family: str, opening: tuple[str, str, Window], answer: str, wording: str, schema: dict[str, Any] | None = None
) -> Example:
    """Return the example that asks for the next answer of a conversation."""
    role, persona, window = opening
    return Example(family, role, persona, window.messages, answer, wording, schema)


def after_code(window: Window, answer: str, result: str) -> Window:
    """Return the conversation of a step that writes code, after one more turn."""
    return with_notice(window.add(Turn(answer, result)), prunes=False)
