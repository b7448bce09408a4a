"""Lay out the conversations of steps that act, turn by turn, with the functions that the steps themselves use."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.tiny.example import STEP_ROLES, SYSTEM_PROMPTS, Example, persona_texts, pick_persona
from benchmarks.tiny.sizes import CONTEXT
from benchmarks.tiny.words import Pool, Split, sentence
from orchestrator.steps.context.budget import ContextBudget
from orchestrator.steps.context.editor import BYTES_A_TOKEN, with_budget_notice
from orchestrator.steps.context.window import Turn, Window
from orchestrator.steps.foreach import compact_json
from orchestrator.steps.prompt import step_messages
from orchestrator.steps.tools.actions import Allowed, UseTool, action_schema, instructions
from orchestrator.steps.tools.contract import Tool
from orchestrator.steps.tools.loop import turn_of
from orchestrator.steps.tools.toolbox import TOOLS
from orchestrator.taskir import Step

ANSWER = 512
"""Tokens that an answer may take."""

ROOMY = ContextBudget.of(CONTEXT, ANSWER)
MODEL_TOOLS = ("read_file", "list_files", "search", "grep", "write_artifact", "notes")

FRAMES = Pool(
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
class Act:
    """A call and the text of its result."""

    call: UseTool
    result: str

    @property
    def wrote(self) -> str:
        """The answer that makes the call."""
        return compact_json({"tool": self.call.tool, "arguments": self.call.arguments})


@dataclass(frozen=True, slots=True)
class Scene:
    """A task: what `phrase` asks for, which calls lead there, and the answer at the end.

    `confusing` are tools that could do the same: they are not among those offered.
    """

    phrase: str
    acts: tuple[Act, ...]
    finish: str
    outputs: tuple[str, ...] = ("S1",)
    confusing: frozenset[str] = field(default_factory=frozenset)


def act(tool: str, result: object, **arguments: object) -> Act:
    """Return a call of `tool` with its result, as JSON where it is no text."""
    return Act(UseTool(tool, arguments), result if isinstance(result, str) else compact_json(result))


def asked(rng: Random, split: Split, phrase: str) -> tuple[str, str]:
    """Return an action that asks for what `phrase` says, and its wording."""
    frame = FRAMES.pick(rng, split)
    return sentence(frame.format(p=phrase)), frame


def offered(rng: Random, scene: Scene) -> tuple[Tool, ...]:
    """Return those tools that the scene needs and a few others, at most four, in any order."""
    needed = list(dict.fromkeys(one.call.tool for one in scene.acts))
    others = [name for name in MODEL_TOOLS if name not in needed and name not in scene.confusing]
    count = rng.randint(min(4, max(2, len(needed))), 4) - len(needed)
    names = needed + rng.sample(others, max(0, count))
    rng.shuffle(names)
    return tuple(TOOLS[name] for name in names)


def opened(rng: Random, instruction: str) -> tuple[str, str, Window]:
    """Return a role, a persona and the conversation before the first answer."""
    role, persona = rng.choice(STEP_ROLES), pick_persona(rng, ())
    return role, persona, Window(step_messages(SYSTEM_PROMPTS[role], persona_texts()[persona], (), instruction))


def opened_with_tools(rng: Random, action: str, tools: tuple[Tool, ...]) -> tuple[str, str, Window]:
    """Return a role, a persona and the conversation of a step with `tools` before its first answer."""
    return opened(rng, instructions(action, tools))


def estimated(window: Window) -> int:
    """Return the tokens of a conversation as a step estimates them."""
    return -(-sum(len(text.encode()) for _, text in window.messages) // BYTES_A_TOKEN)


def acted(window: Window, done: Act, budget: ContextBudget = ROOMY) -> Window:
    """Return the conversation after a call."""
    return settled(window.add(turn_of(window, done.call, done.wrote, done.result)), budget)


def settled(window: Window, budget: ContextBudget = ROOMY, *, prunes: bool = True) -> Window:
    """Return the conversation with the notice of how full it is."""
    return with_budget_notice(window, estimated(window), budget, prunes=prunes)


def schema_of(window: Window, action: str, outputs: tuple[str, ...], tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Return the schema of a step's next answer."""
    step = Step(id="S1", actor="worker", action=action, outputs=outputs, kind="tool")
    ids = [document.id for document in window.shown]
    return action_schema(step, Allowed(tools, ids, [document.id for document in window.kept]))


def example_of(
    family: str, begun: tuple[str, str, Window], answer: str, wording: str, schema: dict[str, Any] | None = None
) -> Example:
    """Return the example that asks for the next answer of a conversation."""
    role, persona, window = begun
    return Example(family, role, persona, window.messages, answer, wording, schema)


def said(window: Window, wrote: str, result: str) -> Window:
    """Return the conversation of a step that writes code after one more turn."""
    return settled(window.add(Turn(wrote, result)), prunes=False)
