"""Measure a shipped model through llama.cpp: exact answers per family, split and grammar, with Wilson intervals."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks.tiny import corpus
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import CONTEXT, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import Split
from orchestrator.bench.goals import wilson
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
class AccuracyRow:
    """The accuracy of one model on one family and split."""

    size: str
    family: str
    split: str
    grammar: bool  # whether answers were constrained to the schema
    prompts: int  # how many prompts there were
    right: int  # how many answers were right
    first_right: int  # how many of the first FIRST_PROMPTS answers were right, which the tests generate again
    longest_prompt: int  # the tokens of the longest prompt

    @property
    def share(self) -> float:
        """Return the share of right answers."""
        return self.right / self.prompts

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share."""
        return wilson(self.right, self.prompts)


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
    """Return the most tokens of an answer. One that is far longer than the reference is wrong anyway."""
    return len(shipped_tokenizer().encode(example.answer)) * 3 // 2 + 16


async def answers(engine: Engine, examples: Sequence[Example], grammar: bool) -> list[Completion]:
    """Return the greedy answers of `engine`, constrained to the schemas of the examples if `grammar`."""

    async def ask(example: Example) -> Completion:
        messages = tuple(example.messages)
        schema = example.schema if grammar else None
        return await engine.generate(Generation(messages=messages, schema=schema, max_tokens=longest_answer(example)))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(example)) for example in examples]
    return [task.result() for task in tasks]


def is_right(family: str, example: Example, completion: Completion) -> bool:
    """Return whether an answer ended by itself and says the same as the reference."""
    return completion.finish == "stop" and FAMILIES[LONG_FAMILIES.get(family, family)].check(example, completion.text)


async def measure(engine: Engine, size: str, family: str, split: Split, grammar: bool) -> AccuracyRow:
    """Return the accuracy of `engine` on the examples of one family and split."""
    examples = family_examples(family, split, LONG_PROMPTS if family in LONG_FAMILIES else PROMPTS)
    completions = await answers(engine, examples, grammar)
    right = list(map(partial(is_right, family), examples, completions))
    longest = max(completion.usage.prompt_tokens for completion in completions)
    return AccuracyRow(size, family, split, grammar, len(right), sum(right), sum(right[:FIRST_PROMPTS]), longest)


def engine_spec(file: Path) -> EngineSpec:
    """Return how the registry loads such a file by default: greedy answers do not depend on the batch."""
    return EngineSpec(file=str(file), context=CONTEXT, slots=SLOTS, threads=1, batch_invariant=True, niceness=0)


async def rows_of(size: Size) -> AsyncIterator[AccuracyRow]:
    """Return all rows of the model card for the trained model of `size`."""
    async with await Engine.start(engine_spec(size.trained)) as engine:
        for family in (*FAMILIES, *LONG_FAMILIES):
            for split in HELD_OUT:
                for grammar in (False, True) if family in STRUCTURED else (False,):
                    yield await measure(engine, size.name, family, split, grammar)


async def evaluate(size: Size, report: Callable[[str], None]) -> None:
    """Measure the trained model of `size`, and write its rows to a file."""
    if not size.trained.exists():
        raise SystemExit(f"{size.trained} is not there: python -m benchmarks.tiny export {size.name}")
    rows = []
    async for row in rows_of(size):
        low, high = row.interval
        report(f"{row.size} {row.family} {row.split} grammar={row.grammar}: {row.share:.3f} [{low:.3f}, {high:.3f}]")
        rows.append({**asdict(row), "share": row.share, "low": low, "high": high})
    size.measured.write_text(json.dumps(rows, indent=1), encoding="utf-8")
