"""Measure a shipped model through llama.cpp: exact answers per family, split and grammar, with Wilson intervals."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks.tiny import corpus
from benchmarks.tiny.example import Example
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import CONTEXT, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import Tokenizer
from benchmarks.tiny.words import Split
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation

# Prompts of a family, and of one with long prompts or answers.
PROMPTS, LONG_PROMPTS = 200, 16
FIRST_PROMPTS = 16
SLOTS = 8
HELD_OUT: tuple[Split, ...] = ("entity", "wording")
STRUCTURED = ("plan", "extract", "judge", "tools", "prune", "condense")
LONG_FAMILIES = {
    "long extract": "extract",
    "long summarize": "summarize",
    "compare 16": "compare",
    "merge 16": "merge",
    "plan 8": "plan",
    "long prune": "prune",
    "long condense": "condense",
}


@dataclass(frozen=True, slots=True)
class Row:
    """How many of `prompts` answers of a model were right, and how many of the first FIRST_PROMPTS of them.

    The tests ask those again. `longest_prompt` is in tokens.
    """

    size: str
    family: str
    split: str
    grammar: bool
    prompts: int
    right: int
    first_right: int
    longest_prompt: int

    @property
    def share(self) -> float:
        """The share of right answers."""
        return self.right / self.prompts

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.right, self.prompts)


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the score interval of a share (Wilson 1927)."""
    share = right / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - spread), min(1.0, centre + spread)


def family_examples(family: str, split: Split, count: int) -> list[Example]:
    """Return the first `count` evaluation examples of `family`, an entry of FAMILIES or of LONG_FAMILIES."""
    rngs = (corpus.example_rng(family, split, index) for index in range(count))
    if family in LONG_FAMILIES:
        return [corpus.example(rng, split, family) for rng in rngs]
    return [FAMILIES[family].generate(rng, split) for rng in rngs]


@cache
def shipped_tokenizer() -> Tokenizer:
    """Return the tokenizer of the shipped models."""
    return Tokenizer.load(TOKENIZER_FILE)


def longest_answer(example: Example) -> int:
    """Return how many tokens an answer may take: one far longer than the reference is wrong, whatever follows."""
    return len(shipped_tokenizer().encode(example.answer)) * 3 // 2 + 16


async def answers(engine: Engine, examples: Sequence[Example], grammar: bool) -> list[Completion]:
    """Return the greedy answers of `engine`, each within the schema of its example if `grammar`."""

    async def ask(example: Example) -> Completion:
        messages = tuple(example.messages)
        schema = example.schema if grammar else None
        return await engine.generate(Generation(messages=messages, schema=schema, max_tokens=longest_answer(example)))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(example)) for example in examples]
    return [task.result() for task in tasks]


def is_right(family: str, example: Example, completion: Completion) -> bool:
    """Return whether a completed answer says what the reference says."""
    return completion.finish == "stop" and FAMILIES[LONG_FAMILIES.get(family, family)].check(example, completion.text)


async def measure(engine: Engine, size: str, family: str, split: Split, grammar: bool) -> Row:
    """Let `engine` answer the examples of one family and split."""
    examples = family_examples(family, split, LONG_PROMPTS if family in LONG_FAMILIES else PROMPTS)
    completions = await answers(engine, examples, grammar)
    right = list(map(partial(is_right, family), examples, completions))
    longest = max(completion.usage.prompt_tokens for completion in completions)
    return Row(size, family, split, grammar, len(right), sum(right), sum(right[:FIRST_PROMPTS]), longest)


def engine_spec(file: Path) -> EngineSpec:
    """Return how the registry loads such a file by default: greedy answers are the same alone and in company."""
    return EngineSpec(file=str(file), context=CONTEXT, slots=SLOTS, threads=1, batch_invariant=True, niceness=0)


async def rows_of(size: Size) -> AsyncIterator[Row]:
    """Measure everything that the model card tells of `size`, as it was trained."""
    async with await Engine.start(engine_spec(size.trained)) as engine:
        for family in (*FAMILIES, *LONG_FAMILIES):
            for split in HELD_OUT:
                for grammar in (False, True) if family in STRUCTURED else (False,):
                    yield await measure(engine, size.name, family, split, grammar)


async def evaluate(size: Size, report: Callable[[str], None]) -> None:
    """Measure `size` as it was trained, and keep its rows."""
    if not size.trained.exists():
        raise SystemExit(f"{size.trained} is not there: python -m benchmarks.tiny export {size.name}")
    rows = []
    async for row in rows_of(size):
        low, high = row.interval
        report(f"{row.size} {row.family} {row.split} grammar={row.grammar}: {row.share:.3f} [{low:.3f}, {high:.3f}]")
        rows.append({**asdict(row), "share": row.share, "low": low, "high": high})
    size.measured.write_text(json.dumps(rows, indent=1), encoding="utf-8")
