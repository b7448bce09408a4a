"""Merge: 2 to 16 lists → one list; 2 to 16 texts → one text of all their lines."""

from random import Random

from orchestrator.bench.families import texts
from orchestrator.bench.families.compare import format_record, listed_input
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.words import Lexicon, Split, WordingPool
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.json_text import compact_json

ACTIONS = WordingPool(
    (
        "Merge the {w}.",
        "Merge the {w}.",
        "Merge the {w}.",
        "Please merge the {w}.",
        "Join the {w}.",
        "Merge these {w}.",
        "Merge all {w} into one.",
        "Put the {w} together.",
        "Combine the {w} into one.",
        "Combine all {w}.",
        "Join these {w} into one.",
        "Could you merge the {w}?",
    ),
    (
        "Please join the {w}.",
        "Merge all {w}.",
        "Combine these {w}.",
        "Join all {w} into one.",
        "Could you combine the {w}?",
    ),
)
TEXT_NOUNS = ("summaries", "summaries", "records", "results", "texts")
PERSONAS = ("bullets", "table")


def merged_list(items: list[str], persona: str) -> str:
    """Return `items` as a JSON list, as bullet points or as a table of one column."""
    if persona == "bullets":
        return "\n".join(f"- {item}" for item in items)
    return "\n".join(f"| {item} |" for item in ("item", "---", *items)) if persona == "table" else compact_json(items)


class Merge:
    """The task of merging. Lists are written in the form that the persona asks for; texts are joined unchanged."""

    name = "merge"

    def generate(self, rng: Random, split: Split, *, join: int = 0) -> Example:
        """Return a new example of `join` inputs, or of a random number of them."""
        words = Lexicon(rng, split)
        count = join or rng.choice((2, 2, 2, 3, 3, 4, 5, 6))
        lists, form = rng.random() < 0.5, rng.choice(("inline", "inline", "inline", "bullets", "json"))
        persona = pick_persona(rng, PERSONAS)
        if lists:
            noun = "lists"
            parts = [[words.name() for _ in range(rng.randint(1, 3 if count > 6 else 4))] for _ in range(count)]
            bulleted = rng.random() < 0.3
            contents = ["\n".join(f"- {item}" for item in part) if bulleted else compact_json(part) for part in parts]
            answer = merged_list([item for part in parts for item in part], persona)
        else:
            noun = rng.choice(TEXT_NOUNS)
            keys = texts.make_keys(rng, 1, 3)
            contents = [format_record(texts.make_record(words, keys), form) for _ in range(count)]
            answer = "\n".join(contents)
        steps = rng.random() < 0.7
        inputs = [
            StepInput(f"S{index}" if steps else words.file(), content)
            for index, content in enumerate(contents, rng.choice((1, 1, 2, 5)))
        ]
        if not lists and form == "inline" and rng.random() < 0.2:
            inputs = [listed_input(words, contents)]
        wording = ACTIONS.pick(rng, split)
        return step_example(self.name, rng, persona, inputs, wording.format(w=noun), answer, wording)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` is the reference, white space at its ends aside."""
        return answer.strip() == example.answer
