"""Code: the specification of a function → a Python function, a lambda or an annotated function."""

import ast
from dataclasses import dataclass
from random import Random

from orchestrator.bench.families.code_operations import INT, LIST, OPERATIONS, STR, CodeOperation
from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.words import Lexicon, Split, WordingPool, sentence
from orchestrator.run.steps.role import StepInput

ACTIONS = WordingPool(
    (
        "Write a function {s} that returns {p}.",
        "Write a function {s} that returns {p}.",
        "Write a function {s} that returns {p}.",
        "Write a Python function {s} that returns {p}.",
        "Write the function {s}. It returns {p}.",
        "Implement {s}. It returns {p}.",
        "Implement a function {s} returning {p}.",
        "Please write a function {s} that returns {p}.",
        "I need a function {s} that gives {p}.",
        "Define {s}, which returns {p}.",
        "Make a function {s} that computes {p}.",
        "Code a function {s} which returns {p}.",
        "Give me a function {s} returning {p}.",
        "Could you write {s}? It should return {p}.",
        "The function {s} should return {p}. Write it.",
    ),
    (
        "Please implement {s}. It returns {p}.",
        "Write a Python function {s} returning {p}.",
        "I need a Python function {s} that returns {p}.",
        "Define a function {s} that returns {p}.",
        "Could you implement a function {s} that computes {p}?",
        "Give me the function {s}. It should return {p}.",
    ),
)
FILE_ACTIONS = WordingPool(
    (
        "Write the function described in {f}.",
        "Write the function described in {f}.",
        "Implement {f}.",
        "Implement the function from {f}.",
        "Read {f} and write the function.",
    ),
    ("Please write the function described in {f}.", "Read {f} and implement the function."),
)
SPECIFICATIONS = (
    "The function {s} returns {p}.",
    "Function: {s}\nReturns: {p}",
    "We need {s}. It returns {p}.",
    "{s} should return {p}.",
)
PARAMETERS = {
    INT: tuple("a b n m x y k i count value number total size".split()),
    STR: tuple("s t text word line name title part label".split()),
    LIST: tuple("items values numbers xs data rows scores".split()),
}
PERSONAS = ("terse", "annotated")


@dataclass(frozen=True, slots=True)
class Specification:
    """Describes a function to write: its name, its parameters with their types, and what it returns."""

    name: str
    parameters: tuple[str, ...]
    operation: CodeOperation
    constant: int

    @property
    def signature(self) -> str:
        """The name with its parameters, as requests give it."""
        return f"{self.name}({', '.join(self.parameters)})"

    def fill(self, template: str) -> str:
        """Return `template` with the names and the constant of this function."""
        return template.format(a=self.parameters[0], b=self.parameters[-1], n=self.constant)

    def source(self, persona: str) -> str:
        """Return the reference code in the style that `persona` asks for: a lambda, annotated, or plain."""
        body = self.fill(self.operation.expression)
        if persona == "terse":
            return f"{self.name} = lambda {', '.join(self.parameters)}: {body}"
        if persona == "annotated":
            typed = ", ".join(f"{p}: {k}" for p, k in zip(self.parameters, self.operation.kinds, strict=True))
            head = f"def {self.name}({typed}) -> {self.operation.returns}:"
            return f'{head}\n    """Return {self.fill(self.operation.phrases[0])}."""\n    return {body}'
        return f"def {self.signature}:\n    return {body}"


def make_specification(words: Lexicon) -> Specification:
    """Return the specification of a function with a new name. One in four parameters is named by a made-up word."""
    rng = words.rng
    operation = rng.choice(OPERATIONS)
    parameters: list[str] = []
    while len(parameters) < len(operation.kinds):
        kind = operation.kinds[len(parameters)]
        parameter = words.word() if rng.random() < 0.25 else rng.choice(PARAMETERS[kind])
        # No parameter may be called `x`, because the comprehensions in the expressions use that name.
        if parameter not in parameters and not (parameter == "x" and "for x" in operation.expression):
            parameters.append(parameter)
    return Specification(words.identifier(), tuple(parameters), operation, rng.randint(1, 99))


def specify(words: Lexicon, split: Split) -> tuple[Specification, str, str]:
    """Return a function, the request for it (an action) and the wording of the request."""
    spec = make_specification(words)
    wording = ACTIONS.pick(words.rng, split)
    phrase = spec.fill(words.rng.choice(spec.operation.phrases))
    return spec, wording.format(s=spec.signature, p=phrase), wording


class Code:
    """The task of writing a function. Most requests have the specification in the action, some have it in a file."""

    name = "code"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example."""
        words = Lexicon(rng, split)
        spec, action, wording = specify(words, split)
        inputs: list[StepInput] = []
        if rng.random() < 0.2:
            wording = FILE_ACTIONS.pick(rng, split)
            file = words.file()
            phrase = spec.fill(rng.choice(spec.operation.phrases))
            inputs = [StepInput(file, rng.choice(SPECIFICATIONS).format(s=spec.signature, p=phrase))]
            action = wording.format(f=file)
        elif rng.random() < 0.08:
            inputs, action = [StepInput("request", sentence(action))], "Write the code."
        persona = pick_persona(rng, PERSONAS)
        return step_example(self.name, rng, persona, inputs, action, spec.source(persona), wording)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` has the syntax tree of the reference, docstring and annotations included."""
        try:
            return ast.dump(ast.parse(answer)) == ast.dump(ast.parse(example.answer))
        except (SyntaxError, ValueError):
            return False
