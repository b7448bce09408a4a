"""Make the tasks of the suite: the shapes that plans have, as TaskIR documents. Pure, and the same in every process.

A model that is asked to write as it likes ends where it likes, so every answer is a JSON string of a given number of
characters, which the grammar enforces. What is measured then depends on the speed of a model and not on its taste.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.engine.llama import vocabulary_of
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from

WIDTHS: Final = (4, 16, 64, 100)  # how many items the fan-outs gather
JOINED: Final = 32  # notes that fit into 2,048 tokens, the context of the embedded models
SAMPLE_WORDS: Final = 200
GROUP: Final = 16
AGENTS: Final = 100
# The tool calls of each of the `AGENTS`: 1,500 in one run, as in the report on Kimi K2.5.
CALLS: Final = 15
SHARED_TOKENS: Final = 1000  # the tokens of the long document, about
CODE_TOKENS: Final = 128
_WORDS: Final = (
    "harbour garden market council river bridge school winter ledger cargo timber window kettle signal orchard lantern "
    "meadow station cellar anchor ferry pepper copper marble village letter engine basket candle thunder"
).split()

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Tasks that run at the same time; usually it is one."""

    name: str
    about: str  # what it is like, in one sentence
    # The tasks by name. The name of the only task is that of the workload.
    tasks: Mapping[str, TaskIR]
    folder: Path | None = None  # whose files the tasks may read

    @property
    def paired(self) -> bool:
        """Whether a serial run of it can be compared with the run as planned."""
        return len(self.tasks) == 1


@dataclass(frozen=True, slots=True)
class Roles:
    """Who does the steps, and how long a text is for it."""

    worker: str = "worker"
    coder: str = "coder"
    tokens_per_word: float = 1.4  # of the model that reads the long document


def workloads(roles: Roles = Roles()) -> dict[str, Workload]:
    """Return the suite by name, in the order in which it runs."""
    documents: list[tuple[str, str, Document]] = [
        *((f"wide-{width}", f"{width} items are gathered at once and aggregated", wide(width)) for width in WIDTHS),
        ("deep", "a chain of 20 steps, each of which reads what the one before wrote", deep(20)),
        ("diamond", "one step, four that read it, one that reads the four", diamond(4)),
        ("irregular", "12 steps whose lengths are drawn from a heavy tail, in three stages", irregular(12)),
        (
            "map-reduce",
            "a list, then a step for each of its items, then one that reads them all",
            mapped(12),
        ),
        ("shared", "16 steps read the same document of about 1,000 tokens", shared(16, roles.tokens_per_word)),
        ("code", "code with gates, which is tried again and escalated where they refuse it", code(roles)),
        ("tools", f"{AGENTS} agents of which each makes {CALLS} tool calls", tools(AGENTS, CALLS)),
    ]
    suite = {name: Workload(name, about, {name: task_of(document, roles)}) for name, about, document in documents}
    mixed = {
        "mixed interactive": task_of(deep(3) | {"priority": "interactive"}, roles),
        "mixed batch": task_of(wide(32) | {"priority": "batch"}, roles),
    }
    suite["mixed"] = Workload("mixed", "an interactive chain of 3 next to a batch task that gathers 32 items", mixed)
    return suite


def choose(names: Sequence[str], known: Mapping[str, Workload]) -> list[str]:
    """Return the names of workloads that were meant: a name, or the beginning of several before a hyphen.

    Raises KeyError with the name that means none.
    """
    selected: dict[str, None] = {}
    for name in names:
        matches = [workload for workload in known if workload == name or workload.rpartition("-")[0] == name]
        if not matches:
            raise KeyError(name)
        selected.update(dict.fromkeys(matches))
    return list(selected)


def wide(width: int, characters: int = 60, joined: int = JOINED) -> Document:
    """Return a task that gathers items in parallel, in notes of this many `characters`, and aggregates them.

    More than `joined` notes are aggregated in groups first, since small models cannot read all of them at once.
    """
    steps = [_write(at, f"Write a note about item {at}.", characters, f"note{at}.json") for at in range(1, width + 1)]
    reads = [step["outputs"][0] for step in steps]
    if width > joined:
        groups = [reads[at : at + GROUP] for at in range(0, width, GROUP)]
        reads = [f"group{number}.json" for number in range(1, len(groups) + 1)]
        for group, output in zip(groups, reads, strict=True):
            steps.append(_write(len(steps) + 1, "Aggregate these notes.", 120, output, group))
    last = _write(len(steps) + 1, "Aggregate the notes.", 120, "all.json", reads)
    return _document("Gather items and aggregate them", [*steps, last])


def deep(length: int, characters: int = 60) -> Document:
    """Return a task of `length` steps in a chain, which write notes of this many `characters`."""
    steps = [_write(1, "Write a note.", characters, "note1.json")]
    for at in range(2, length + 1):
        steps.append(_write(at, "Go on with the note.", characters, f"note{at}.json", [f"note{at - 1}.json"]))
    return _document("Go on and on", steps)


def diamond(width: int) -> Document:
    """Return a task that branches once and joins once."""
    middle = [
        _write(at, f"Write part {at} from the outline.", 100, f"part{at}.json", ["outline.json"])
        for at in range(2, width + 2)
    ]
    reads = [step["outputs"][0] for step in middle]
    last = _write(width + 2, "Join the parts.", 120, "whole.json", reads)
    return _document("Branch and join", [_write(1, "Write an outline.", 80, "outline.json"), *middle, last])


def ordered(count: int) -> Document:
    """Return a task whose plan puts steps in an order that no artifact asks for, as models that plan often do."""
    steps = [_write(at, f"Write a note about item {at}.", 60, f"note{at}.json") for at in range(1, count + 1)]
    for at, step in enumerate(steps[1:], start=1):
        step["depends_on"] = [f"S{at}"]
    reads = [step["outputs"][0] for step in steps]
    return _document(
        "Write notes in order", [*steps, _write(count + 1, "Aggregate the notes.", 120, "all.json", reads)]
    )


def irregular(count: int) -> Document:
    """Return a task whose steps have lengths from a Pareto distribution (shape 1.2), so that a few are very long."""
    draw = random.Random(count)  # noqa: S311 - no secret
    steps: list[Document] = []
    for at in range(1, count + 1):
        length = min(400, round(20 * draw.paretovariate(1.2)))
        earlier = [step["outputs"][0] for step in steps[: 4 * ((at - 1) // 4)]]
        reads = draw.sample(earlier, min(len(earlier), 2))
        steps.append(_write(at, f"Write part {at}.", length, f"part{at}.json", reads))
    return _document("Steps of very different lengths", steps)


def mapped(count: int) -> Document:
    """Return a task with a fan-out whose items are known only when its first step is done."""
    items = {"type": "string", "minLength": 6, "maxLength": 6}
    listed = _write(1, f"List {count} items.", 0, "items.json")
    listed["output_schema"] = {"type": "array", "minItems": count, "maxItems": count, "items": items}
    each = _write(2, "Write a note about the item.", 60, "notes")
    each["foreach"] = "items.json"
    return _document("Map and reduce", [listed, each, _write(3, "Aggregate the notes.", 120, "all.json", ["notes"])])


def shared(readers: int, tokens_per_word: float, tokens: int = SHARED_TOKENS) -> Document:
    """Return a task of steps that read one document of about `tokens` tokens."""
    steps = [
        _write(at, f"Answer question {at} about the document.", 80, f"answer{at}.json", ["document"])
        for at in range(1, readers + 1)
    ]
    text = sample_text(round(tokens / tokens_per_word))
    return _document("Read a document", steps) | {"inputs": [{"type": "text", "label": "document", "value": text}]}


def code(roles: Roles) -> Document:
    """Return a task whose steps write functions, which gates look at. Whether they are right depends on the model."""
    sums = ("sum", "difference", "product", "maximum")
    steps = [
        {
            "id": f"S{at}",
            "actor": roles.coder,
            "action": f"Write a function of_{name}(price, stock) that returns the {name} of price and stock.",
            "outputs": [f"of_{name}.py"],
            "gates": ["format", "lint"],
            "max_tokens": CODE_TOKENS,
        }
        for at, name in enumerate(sums, start=1)
    ]
    return _document("Write functions", steps)


def tools(agents: int, calls: int) -> Document:
    """Return a task of agents of which each writes a note and then calls a tool again and again."""
    steps: list[Document] = []
    for agent in range(1, agents + 1):
        before = f"note{agent}.json"
        steps.append(_write(len(steps) + 1, f"Write note {agent}.", 20, before))
        for call in range(1, calls + 1):
            output = f"listing{agent}-{call}.txt"
            steps.append(
                {
                    "id": f"S{len(steps) + 1}",
                    "actor": "",
                    "kind": "tool",
                    "tools": ["list_files"],
                    "arguments": {},
                    "action": "List the files.",
                    "inputs": [before],
                    "outputs": [output],
                    "run_gates": False,
                }
            )
            before = output
    return _document("Call tools", steps)


def _write(at: int, action: str, characters: int, output: str, reads: Sequence[str] = ()) -> Document:
    return {
        "id": f"S{at}",
        "actor": "",
        "action": action,
        "inputs": [*reads],
        "outputs": [output],
        "output_schema": {"type": "string", "minLength": characters, "maxLength": characters},
        "run_gates": False,
    }


def _document(objective: str, steps: Sequence[Document]) -> Document:
    return {"objective": objective, "plan": {"steps": [*steps]}}


def task_of(document: Document, roles: Roles = Roles()) -> TaskIR:
    """Return the task of a document. The worker does the steps without an actor."""
    copied: Document = json.loads(json.dumps(document))
    for step in copied["plan"]["steps"]:
        step["actor"] = step["actor"] or roles.worker
    return task_from(copied)


def sample_text(words: int) -> str:
    """Return a text of `words` words, the same in every process."""
    draw = random.Random(words)  # noqa: S311 - no secret
    return " ".join(draw.choice(_WORDS) for _ in range(words))


def tokens_per_word(file: Path) -> float:
    """Return how many tokens a word of our texts has for a model, by its vocabulary alone."""
    with vocabulary_of(file) as vocabulary:
        return len(vocabulary.tokenize(sample_text(SAMPLE_WORDS), special=False)) / SAMPLE_WORDS
