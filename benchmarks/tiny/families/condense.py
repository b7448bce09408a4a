"""Condense: results and the question for a summary → what is done, found and open; or how to continue from that."""

from dataclasses import dataclass
from random import Random

from benchmarks.tiny.conversations import (
    ToolTurn,
    after_call,
    example_of,
    open_with_tools,
    phrased,
    schema_of,
    tool_turn,
)
from benchmarks.tiny.families.prune import WITH_READ, long_text
from benchmarks.tiny.families.tools import same_json
from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import Lexicon, Split, listing
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.context.editor import with_summary_request
from orchestrator.run.steps.context.summary import SUMMARY, summary_text
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.taskir.json_text import compact_json

PHRASES = (
    "find the {k} of {n}",
    "look up the {k} of {n}",
    "find the {k} of {n} in the files",
    "collect the {k} of {n}",
    "read the files and give the {k} of {n}",
)
CONTINUED = 0.3


@dataclass(frozen=True, slots=True)
class History:
    """A task that asks for one key of several names, and the files that were read for it so far.

    `findings` has a line for each value that was found. `open_names` are the names that were in none of the files.
    """

    phrase: str
    key: str
    reads: tuple[ToolTurn, ...]
    findings: tuple[str, ...]
    open_names: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Return the answer as JSON: the files read, a line for each value found, and a line for each missing one."""
        lacking = [f"{self.key} of {name}" for name in self.open_names]
        read = f"read {', '.join(self.files)}"
        return compact_json({"plan_state": read, "findings": list(self.findings), "open_points": lacking})

    @property
    def next_action(self) -> str:
        """Return the answer that follows the summary: search for a missing value, or finish with what was found."""
        if self.open_names:
            return tool_turn("grep", "", pattern=self.open_names[0]).answer
        return compact_json({"finish": "\n".join(self.findings)})


def make_history(words: Lexicon, long: bool) -> History:
    """Return a task and the files read for it: some of the records asked for, and sometimes an unrelated one."""
    rng = words.rng
    keys = texts.make_keys(rng, 2, 2)
    records = [
        texts.make_record(words, keys) for _ in range(rng.randint(2, 4) if long else rng.choice((1, 2, 2, 2, 3)))
    ]
    lacking = rng.sample(records, rng.randint(len(records) // 3, len(records) // 2))
    read = [record for record in records if record not in lacking]
    rng.shuffle(read)
    if rng.random() < (0.3 if long else 0.1):
        read.insert(rng.randint(0, len(read)), texts.make_record(words, keys))
    key = rng.choice(keys)
    files = [f"{words.word()}.txt" if len(read) > 3 else words.file() for _ in read]
    results = [
        long_text(words, record, rng.randint(5, 15)) if long else texts.source_text(words, record, 0) for record in read
    ]
    return History(
        rng.choice(PHRASES).format(k=key, n=listing([record.name for record in records])),
        key,
        tuple(tool_turn("read_file", text, name=file) for file, text in zip(files, results, strict=True)),
        tuple(f"{record.name}: {key} {record.value(key)}" for record in read if record in records),
        tuple(record.name for record in records if record in lacking),
        tuple(files),
    )


class Condense:
    """The task of summarizing a conversation that got too long; some examples ask for the action after a summary."""

    name = "condense"

    def generate(self, rng: Random, split: Split, *, long: bool = False) -> Example:
        """Return a new example; `long` makes the results so long that the prompt takes up to 1,700 tokens."""
        history = make_history(Lexicon(rng, split), long)
        action, wording = phrased(rng, split, history.phrase)
        continued = not long and rng.random() < CONTINUED
        tools = tuple(TOOLS[name] for name in (("read_file", "grep") if continued else rng.choice(WITH_READ)))
        role, persona, window = open_with_tools(rng, action, tools)
        for read in history.reads:
            window = after_call(window, read)
        if continued:
            window = window.condense(summary_text(action, 1, history.summary))
            schema, answer = schema_of(window, action, ("S1",), tools), history.next_action
        else:
            # The question for a summary comes before the notice that goes with the last result.
            window = with_summary_request(window.remark(""), prompt_set("tiny").condense)
            schema, answer = SUMMARY, history.summary
        return example_of(self.name, (role, persona, window), answer, wording, schema)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same JSON value as the reference."""
        return same_json(example, answer)
