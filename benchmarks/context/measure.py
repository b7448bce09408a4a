"""Run the gathering step with and without context editing on a real engine, and count its tokens."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from benchmarks.context.gatherer import decide
from benchmarks.context.task import write_documents
from orchestrator.engine.client.engine import Completion, Engine, OnText
from orchestrator.engine.contract import EngineSpec, Generation, Message, Priority
from orchestrator.run.steps.attempt import Attempt
from orchestrator.run.steps.context.summary import SUMMARY
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.run.steps.tools.attempt import ToolRunner
from orchestrator.run.steps.tools.contract import ToolContext
from orchestrator.run.steps.tools.notes import Notes, RunNotes
from orchestrator.run.steps.tools.toolbox import Call, Toolbox
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import NoteChange, NoteChanged
from orchestrator.task.taskir.models import Step

log = structlog.get_logger(__name__)

# Context sizes for the edited conversation, in tokens; the first one is that of the embedded models.
CONTEXTS = (2_048, 4_096, 8_192)

WHOLE = 16_384  # Context size of the engine's sequences, in tokens: enough for the conversation without editing

ANSWER = 256  # the most tokens of an answer


@dataclass(slots=True)
class StepRunCost:
    """What one run of the step cost."""

    prompts: int = 0  # how many prompts there were
    prompt_tokens: int = 0
    computed: int = 0  # Prompt tokens that were not in the KV cache
    written: int = 0  # tokens of answers
    peak: int = 0  # tokens of the longest prompt
    prefill_seconds: float = 0.0
    prunings: int = 0
    condensations: int = 0
    handed_on: int = 0  # tokens of the step's output, which later steps read
    right: bool = False  # whether the output has all facts


class Gatherer:
    """Stands in for a model: a real engine computes each prompt, and a rule gives the answer."""

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        self._engine = engine
        self._names = names
        self.cost = StepRunCost()

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        """Return the number of tokens of a prompt."""
        return await self._engine.count(messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Let the engine compute the prompt and one token, and return the rule's answer."""
        done = await self._engine.generate(replace(request, max_tokens=1, schema=None))
        text, cost, usage = decide(request.messages, self._names, request.schema == SUMMARY), self.cost, done.usage
        cost.prompts += 1
        cost.prompt_tokens += usage.prompt_tokens
        cost.computed += usage.prompt_tokens - usage.cached_tokens
        cost.written += await self._engine.count([Message("assistant", text)])
        cost.peak = max(cost.peak, usage.prompt_tokens)
        cost.prefill_seconds += usage.prefill_seconds
        cost.prunings += '"prune"' in text
        cost.condensations += request.schema == SUMMARY
        return Completion(text, "stop", usage)


async def compare(model: Path, folder: Path, seed: int) -> dict[str, Any]:
    """Return the cost without editing, with editing in each context size, and the tokens of all documents together."""
    facts = await asyncio.to_thread(write_documents, folder, seed)
    texts = await asyncio.to_thread(lambda: {path.name: path.read_text() for path in sorted(folder.iterdir())})
    spec = EngineSpec(file=str(model), context=WHOLE, slots=2, niceness=0, step_costs=str(model.parent))
    costs = {}
    for context in (None, *CONTEXTS):
        async with await Engine.start(spec) as engine:
            costs[context] = asdict(await gather(engine, folder, tuple(texts), context, facts))
            log.info("gathered", context=context, **costs[context])
            everything = await engine.count([Message("user", "".join(texts.values()))])
    edited = {str(context): costs[context] for context in CONTEXTS}
    return {"without": costs[None], "with": edited, "everything": everything}


async def gather(
    engine: Engine, folder: Path, names: Sequence[str], context: int | None, facts: dict[str, int]
) -> StepRunCost:
    """Run the step, and return its cost. `context` is the context size for editing, or None for no editing."""
    gatherer = Gatherer(engine, names)
    step = Step(
        id="S1",
        actor="worker",
        action="Find all that the reports say about the Koldin.",
        outputs=("found.txt",),
        kind="tool",
        tools=("read_file",),
    )
    role = ResolvedRole(model="m", system="Do the task.", context=WHOLE, max_tokens=ANSWER)
    tools = ToolContext(Workspace(folder, names, {}, step.outputs), Notes(RunNotes(), "S1", _no_notes))
    runner = ToolRunner(Toolbox(step.tools, tools, _ignore), context)
    produced = await runner.run(Attempt(step=step, role=role), gatherer)
    text = produced.outputs["found.txt"].decode()
    gatherer.cost.right = all(f"The {fact} of the Koldin is {value}." in text for fact, value in facts.items())
    gatherer.cost.handed_on = await engine.count([Message("user", text)])
    return gatherer.cost


def _ignore(call: Call) -> None:
    """Do nothing: nobody follows the calls here."""


def _no_notes(note: str, change: NoteChange, text: str) -> NoteChanged:
    raise AssertionError("this task takes no notes")
