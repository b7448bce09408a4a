"""Summarize: a record in lines or prose with filler → its facts, in a sentence, bullet points or a table."""

from random import Random

from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import Lexicon, Split, WordingPool
from orchestrator.run.steps.role import StepInput

ACTIONS = WordingPool(
    (
        "Summarize {f}.",
        "Summarize {f}.",
        "Summarize {f}.",
        "Summarize {f}.",
        "Give a summary of {f}.",
        "Give me a summary of {f}.",
        "Write a summary of {f}.",
        "Make a short summary of {f}.",
        "Sum up {f}.",
        "Please summarize {f}.",
        "Please write a summary of {f}.",
        "Say what {f} says in short.",
        "Read {f} and summarize it.",
        "What does {f} say? Summarize.",
        "Short summary of {f}, please.",
        "Summarize the facts of {f}.",
        "Summarize what {f} says.",
        "I need a summary of {f}.",
        "I want you to summarize {f}.",
        "Write down the facts of {f}.",
        "Could you summarize {f}?",
        "Tell me the facts of {f} in short.",
        "Please give a summary of {f}.",
        "Please make a summary of {f}.",
        "Could you sum up {f}?",
        "Could you give me a summary of {f}?",
        "Read {f} and write a summary.",
        "Read {f} and sum it up.",
        "I want a summary of {f}.",
        "Sum up what {f} says.",
        "Give a short summary of {f}.",
        "Summarize {f} for me.",
        "Sum up the facts of {f} in short.",
    ),
    (
        "Please give me a summary of {f}.",
        "Write a short summary of {f}.",
        "Summarize {f}, please.",
        "Read {f} and write a summary of it.",
        "I want a short summary of {f}.",
        "Could you write a summary of {f}?",
        "Please sum up {f}.",
        "Summarize the facts of {f} in short.",
    ),
)
PERSONAS = ("bullets", "table")


def summary(record: Record, persona: str) -> str:
    """Return the reference summary of `record` in the form that `persona` asks for."""
    if persona == "bullets":
        return texts.bullets(record)
    return texts.table(record) if persona == "table" else texts.inline(record)


class Summarize:
    """The task of summarizing a record. Three of four examples have one input with one record.

    In the others a record has to be looked up in a file by an item of a list, or there is a second input.
    """

    name = "summarize"

    def generate(self, rng: Random, split: Split, *, long: bool = False, among: int = 0) -> Example:
        """Return a new example. In training, `among` is from how many inputs the right one has to be chosen.

        With `long` so many sentences of filler are added that the prompt takes up to 2,000 tokens.
        """
        words = Lexicon(rng, split)
        persona = pick_persona(rng, PERSONAS)
        wording = ACTIONS.pick(rng, split)
        record = texts.make_record(words, texts.make_keys(rng))
        roll = 1.0 if long else rng.random()
        if among:
            inputs, target = texts.among(words, record, among)
        elif roll < 0.18:
            inputs, target = texts.item_inputs(words, record), "the item"
        # Training has more examples with two inputs, because models learn late which of them is asked for.
        elif roll < (0.5 if split == "train" else 0.3):
            inputs, target = texts.among(words, record, 2)
        else:
            name = texts.input_name(words)
            text = texts.source_text(words, record, texts.filler_count(rng, long))
            target = rng.choice(("the text", "the request", "it")) if name == "request" else name
            if name == "request" and rng.random() < 0.7:
                text = f"{rng.choice(('Summarize this', 'Sum this up', 'Please summarize', 'Summary of this'))}: {text}"
            elif rng.random() < 0.1:
                target = rng.choice(("the text", "the file", "the record", "the item"))
            inputs = [StepInput(name, text)]
        answer = summary(record, persona)
        return step_example(self.name, rng, persona, inputs, wording.format(f=target), answer, wording)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` is the reference, white space at its ends aside."""
        return answer.strip() == example.answer
