"""REPL: a task over inputs → the Python code of one turn that does it."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from string import Template

from benchmarks.tiny.conversations import after_code, example_of, open_conversation, phrased
from benchmarks.tiny.families.tools import lines_with_facts
from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import Lexicon, Split, listing
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.repl.attempt import code_in, instructions
from orchestrator.run.steps.role import StepInput

BATCH = """\
found = llm_batch([{"prompt": f"$verb {name}.", "inputs": {name: text}} for name, text in inputs.items()])
final($result)"""
CALL = 'llm_call("Summarize $a.", inputs={"$a": inputs["$a"]})'
JOINED = '"\\n".join(found)'


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """A kind of task: `phrases` that ask for it, the `program` that does it, and its number of `outputs`.

    `{a}` in a phrase and `$a` in the program stand for the same name, word or number; so do `b`, `w`, `n`, `o` and `p`.
    """

    phrases: tuple[str, ...]
    program: str
    outputs: int = 1


SHAPES = (
    ProgramShape(
        ("find the lines with {w}", "give all lines that contain {w}", "show the lines with {w}"),
        'final("\\n".join(line for _, _, line in grep("$w")))',
    ),
    ProgramShape(
        ("find the lines with {w} in {a}", "give the lines of {a} that contain {w}", "show the lines of {a} with {w}"),
        'final("\\n".join(line for _, _, line in grep("$w", "$a")))',
    ),
    ProgramShape(
        ("give the first {n} characters of {a}", "show the first {n} characters of {a}"),
        'final(peek("$a", 0, $n))',
    ),
    ProgramShape(
        ("join {a} and {b}", "put {a} and {b} together", "give {a} followed by {b}"),
        'final(inputs["$a"] + "\\n" + inputs["$b"])',
    ),
    ProgramShape(
        ("count the lines of {a}", "say how many lines {a} has", "give the number of lines in {a}"),
        'final(len(inputs["$a"].splitlines()))',
    ),
    ProgramShape(
        ("list the names of the inputs", "give the names of all inputs", "say what the inputs are called"),
        'final("\\n".join(inputs))',
    ),
    ProgramShape(
        ("summarize {a}", "give a summary of {a}", "sum up {a}"),
        f"final({CALL})",
    ),
    ProgramShape(
        ("summarize {a} into {o} and {b} into {p}", "write a summary of {a} to {o} and one of {b} to {p}"),
        f'artifacts["$o"] = {CALL}\nartifacts["$p"] = {CALL.replace("$a", "$b")}\nfinal(None)',
        outputs=2,
    ),
)
SUMMARIES = ("summarize each input", "summarize all inputs", "give a summary of every input", "sum up each text")
EXTRACTS = (
    "extract {k} from each input",
    "get {k} from all inputs",
    "find {k} in every input",
    "read {k} from each text",
)
LOOKUPS = (
    "find the {k} of {n}",
    "look up the {k} of {n}",
    "search the inputs for the {k} of {n}",
    "tell me the {k} of {n}",
)


@dataclass(frozen=True, slots=True)
class ReplTask:
    """A task over `inputs`: the `code` of its last turn, and the code and the output of each turn `before`."""

    phrase: str
    inputs: tuple[StepInput, ...]
    outputs: tuple[str, ...]
    code: str
    before: tuple[tuple[str, str], ...] = ()


def make_inputs(words: Lexicon, count: int, in_a_line: bool) -> tuple[tuple[StepInput, ...], texts.Record]:
    """Return `count` inputs, each with a different record, and one of these records."""
    rng = words.rng
    records = [texts.make_record(words, texts.make_keys(rng, 2, 2)) for _ in range(count)]
    inputs = tuple(
        StepInput(words.file(), lines_with_facts(words, record, in_a_line, int(rng.random() < 0.2)))
        for record in records
    )
    return inputs, rng.choice(records)


def output_name(words: Lexicon) -> str:
    """Return the name of an output that is text."""
    return words.rng.choice(("S1", "S2", "S3", f"{words.stem()}.txt", f"{words.stem()}.md"))


def _shaped(words: Lexicon) -> ReplTask:
    rng = words.rng
    shape = rng.choice(SHAPES)
    inputs, _ = make_inputs(words, 2, rng.random() < 0.5)
    first, second = rng.sample([source.name for source in inputs], 2)
    outputs = tuple(f"{words.stem()}.txt" for _ in range(2)) if shape.outputs == 2 else (output_name(words),)
    names = {"a": first, "b": second, "o": outputs[0], "p": outputs[-1], "w": words.word(), "n": rng.randint(2, 400)}
    code = Template(shape.program).substitute(names)
    return ReplTask(rng.choice(shape.phrases).format(**names), inputs, outputs, code)


def _batched(words: Lexicon) -> ReplTask:
    """Return a task that asks a model about each input. Answers are joined unless the output is a JSON file."""
    rng = words.rng
    inputs, record = make_inputs(words, rng.randint(1, 3), rng.random() < 0.5)
    output = f"{words.stem()}.json" if rng.random() < 0.4 else output_name(words)
    keys = listing([key for key, _ in record.facts][: rng.randint(1, 2)])
    phrase, verb = rng.choice(SUMMARIES), "Summarize"
    if rng.random() < 0.5:
        phrase, verb = rng.choice(EXTRACTS).format(k=keys), f"Extract {keys} from"
    result = "found" if output.endswith(".json") else JOINED
    return ReplTask(phrase, inputs, (output,), Template(BATCH).substitute(verb=verb, result=result))


def _looked_up(words: Lexicon) -> ReplTask:
    """Return a task whose first turn prints the lines that it finds, and whose second turn answers from them."""
    rng = words.rng
    inputs, record = make_inputs(words, rng.randint(1, 2), in_a_line=True)
    key = rng.choice(record.facts)[0]
    phrase = rng.choice(LOOKUPS).format(k=key, n=record.name)
    look = f'print(grep("{record.name}"))'
    if rng.random() < 0.5:
        return ReplTask(phrase, inputs, (output_name(words),), look)
    hits = [
        (source.name, number, line)
        for source in inputs
        for number, line in enumerate(source.text.splitlines(), start=1)
        if record.name in line
    ]
    answer = f'final("{record.value(key)}")'
    return ReplTask(phrase, inputs, (output_name(words),), answer, ((look, repr(hits)),))


WORKS: tuple[Callable[[Lexicon], ReplTask], ...] = (_shaped, _batched, _looked_up)
WEIGHTS = (8, 5, 4)


class Repl:
    """The task of writing code for a REPL. Names, keys and words in the code are copied from the task."""

    name = "repl"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example."""
        work = rng.choices(WORKS, WEIGHTS)[0](Lexicon(rng, split))
        action, wording = phrased(rng, split, work.phrase)
        role, persona, window = open_conversation(
            rng, instructions(prompt_set("tiny").repl, action, work.inputs, work.outputs, ())
        )
        for answer, printed in work.before:
            window = after_code(window, answer, printed)
        return example_of(self.name, (role, persona, window), work.code, wording)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether the code in `answer` has the syntax tree of the reference."""
        try:
            return ast.dump(ast.parse(code_in(answer))) == ast.dump(ast.parse(example.answer))
        except (SyntaxError, ValueError):
            return False
