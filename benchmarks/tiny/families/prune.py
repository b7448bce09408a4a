"""Prune: results that fill the context, and a task that needs some of them → the ids of the others."""

from functools import partial, reduce
from random import Random

from benchmarks.tiny.conversations import (
    after_call,
    estimate_tokens,
    example_of,
    open_with_tools,
    phrased,
    schema_of,
    tool_turn,
)
from benchmarks.tiny.families.tools import same_json
from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon, Split, listing
from orchestrator.run.steps.context.budget import SOFT, ContextBudget
from orchestrator.run.steps.context.window import Window
from orchestrator.run.steps.tools.loop import LINE
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.taskir.json_text import compact_json

PHRASES = (
    "compare {n}",
    "tell about {n}",
    "write about {n}",
    "sum up what the files say of {n}",
    "collect the facts about {n}",
    "make a report on {n}",
)
WITH_READ = (("read_file",), ("read_file",), ("read_file",), ("read_file", "grep"), ("search", "read_file"))
ANSWER = 256


def long_text(words: Lexicon, record: Record, fillers: int) -> str:
    """Return a text of several sentences with the facts of the record among them."""
    text = texts.source_text(words, record, fillers)
    while len(text) <= LINE:
        text = f"{text}\n{texts.filler(words)}"
    return text


def full(window: Window, share: float) -> ContextBudget:
    """Return the budget of a context of which the conversation fills this `share`."""
    return ContextBudget.of(round(estimate_tokens(window) / share) + ANSWER, ANSWER)


class PruneFamily:
    """The task of choosing results to drop. Each result has a record, and the task names the records that it needs."""

    name = "prune"

    def generate(self, rng: Random, split: Split, *, long: bool = False) -> Example:
        """Return a new example; `long` makes the results so long that the prompt takes up to 1,900 tokens."""
        words = Lexicon(rng, split)
        count = rng.randint(3, 6) if long else rng.choice((2, 2, 2, 2, 3))
        records = [texts.make_record(words, texts.make_keys(rng, 2, 2)) for _ in range(count)]
        wanted = rng.sample(range(count), rng.randint(1, count - 1))
        phrase = rng.choice(PHRASES).format(n=listing([records[index].name for index in wanted]))
        action, wording = phrased(rng, split, phrase)
        tools = tuple(TOOLS[name] for name in rng.choice(WITH_READ))
        reads = [
            tool_turn("read_file", long_text(words, record, rng.randint(6, 14) if long else 0), name=words.file())
            for record in records
        ]
        role, persona, begun = open_with_tools(rng, action, tools)
        budget = full(reduce(after_call, reads, begun), rng.uniform(SOFT + 0.02, 0.97))
        window = reduce(partial(after_call, budget=budget), reads, begun)
        answer = compact_json({"prune": [f"D{i + 1}" for i in range(count) if i not in wanted]})
        callable_tools = () if budget.pressure(estimate_tokens(window)) == "hard" else tools
        schema = schema_of(window, action, ("S1",), callable_tools)
        return example_of(self.name, (role, persona, window), answer, wording, schema)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same JSON value as the reference."""
        return same_json(example, answer)
