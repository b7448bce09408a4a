"""Measure the tool caller through the engine: exact answers for each syntax, split, and with or without thoughts."""

import asyncio
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.tiny.evaluate import engine_spec
from benchmarks.tool_caller.syntax import SYNTAXES, Syntax, answer_text
from benchmarks.tool_caller.tasks import CallExample, example
from benchmarks.tool_caller.variants import with_template
from orchestrator.bench.families.words import Split, seeded
from orchestrator.bench.goals import wilson
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import Generation, Message, OfferedTool, ToolCall

EXAMPLES: Final = 40  # how many answers are measured of each kind
HELD_OUT: Final[tuple[Split, ...]] = ("entity", "wording")


@dataclass(frozen=True, slots=True)
class CallAccuracyRow:
    """How often the model answers exactly as it was taught."""

    syntax: Syntax
    split: Split
    thinks: bool
    answers: int
    right: int
    thoughts: int  # how many thoughts were exactly those that it was taught

    @property
    def shown(self) -> dict[str, Any]:
        """Return the row as it is published, with the share of right answers and its 95 % interval."""
        low, high = wilson(self.right, self.answers)
        return {**asdict(self), "share": self.right / self.answers, "low": low, "high": high}


def examples(syntax: Syntax, split: Split, count: int) -> list[CallExample]:
    """Return the first `count` examples for a syntax and a split."""
    return [
        example(seeded(f"tool caller/{syntax}/{split}/{index}"), split, several=syntax == "hermes")
        for index in range(count)
    ]


def generation(example: CallExample, *, thinks: bool) -> Generation:
    """Return the request for the answer to an example."""
    return Generation(
        messages=tuple(_message(message) for message in example.messages),
        tools=tuple(_offered(tool["function"]) for tool in example.tools),
        thinking="on" if thinks else "off",
        max_tokens=200,
    )


def _message(message: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], json.dumps(call["function"]["arguments"], ensure_ascii=False))
        for call in message.get("tool_calls", ())
    )
    return Message(message["role"], message["content"], calls, message.get("tool_call_id", ""))


def _offered(function: dict[str, Any]) -> OfferedTool:
    return OfferedTool(function["name"], function["description"], json.dumps(function["parameters"]))


async def answers(engine: Engine, asked: list[CallExample], *, thinks: bool) -> list[Completion]:
    """Return the model's answers."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(engine.generate(generation(example, thinks=thinks))) for example in asked]
    return [task.result() for task in tasks]


async def measure(
    engine: Engine, syntax: Syntax, split: Split, *, thinks: bool, count: int = EXAMPLES
) -> CallAccuracyRow:
    """Return how often the model answers the first `count` examples of a split right."""
    asked = examples(syntax, split, count)
    completions = await answers(engine, asked, thinks=thinks)
    pairs = [*zip(asked, completions, strict=True)]
    right = sum(done.finish == "stop" and done.text == answer_text(syntax, example.answer) for example, done in pairs)
    thoughts = sum(done.reasoning == example.answer.thought for example, done in pairs)
    return CallAccuracyRow(syntax, split, thinks, count, right, thoughts)


async def rows(file: Path, count: int = EXAMPLES) -> list[CallAccuracyRow]:
    """Return all rows for the model in `file`."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for syntax in SYNTAXES:
            model = with_template(file, Path(folder) / f"{syntax}.gguf", syntax)
            async with await Engine.start(engine_spec(model)) as engine:
                for split in HELD_OUT:
                    for thinks in (True, False):
                        table.append(await measure(engine, syntax, split, thinks=thinks, count=count))
    return table
