"""Retry: a task and what a gate found in an earlier answer to it → the right answer."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from benchmarks.tiny.families.judge import corrupt, critique
from orchestrator.bench.families.code import Code
from orchestrator.bench.families.example import Example, Family
from orchestrator.bench.families.extract import Extract
from orchestrator.bench.families.shell import Shell
from orchestrator.bench.families.summarize import Summarize
from orchestrator.bench.families.words import Lexicon, Split
from orchestrator.run.gates.findings import Finding, format_findings
from orchestrator.run.steps.role import after_failure
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.failures import feedback
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.validation import OutputSchema, SchemaMismatch

MODULES = tuple("os re sys json math random".split())
PARSED = "Fix any mentioned problems and try again."


@dataclass(frozen=True, slots=True)
class Flawed:
    """A wrong answer, as the `text` of the artifact `file`, and how a `gate` rejects it."""

    gate: str
    kind: FailureKind
    file: str
    text: str
    evidence: str


def _code(gate: str, file: str, text: str, *places: tuple[int, str, str]) -> Flawed:
    """Return a flawed artifact with what was found in it: (line, code, message)."""
    findings = [Finding(file, line, code, message) for line, code, message in places]
    return Flawed(gate, FailureKind.CODE, file, text, format_findings(findings, {file: text.encode()}))


def _parameters(source: str) -> list[str]:
    (node,) = ast.parse(source).body
    arguments = node.args if isinstance(node, ast.FunctionDef) else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        arguments = node.value.args
    assert arguments is not None, "the answer is a function"
    return [argument.arg for argument in arguments.args]


def _misspelt(words: Lexicon, source: str) -> tuple[str, str, str]:
    """Return the source with a parameter misspelt where it is last used, the wrong name, and the line that has it."""
    parameter, wrong = words.rng.choice(_parameters(source)), words.word()
    *_, last = re.finditer(rf"\b{parameter}\b", source)
    text = f"{source[: last.start()]}{wrong}{source[last.end() :]}"
    return text, wrong, text.splitlines()[-1].strip()


def undefined_name(words: Lexicon, source: str) -> Flawed:
    """Return code that uses an undefined name, rejected by the linter."""
    text, wrong, _ = _misspelt(words, source)
    return _code("lint", f"{words.stem()}.py", text, (len(text.splitlines()), "F821", f"Undefined name `{wrong}`"))


def unused_import(words: Lexicon, source: str) -> Flawed:
    """Return code with an unused import, rejected by the linter."""
    module = words.rng.choice(MODULES)
    text = f"import {module}\n\n\n{source}"
    return _code("lint", f"{words.stem()}.py", text, (1, "F401", f"`{module}` imported but unused"))


def no_colon(words: Lexicon, source: str) -> Flawed:
    """Return a function without the colon after its parameters, or a lambda with an undefined name."""
    if not source.startswith("def "):
        return undefined_name(words, source)
    head, _, body = source.partition("\n")
    text, file = f"{head.removesuffix(':')}\n{body}", f"{words.stem()}.py"
    if words.rng.random() < 0.5:
        return _code("lint", file, text, (1, "SyntaxError:", "Expected `:`, found newline"))
    return _code("build", file, text, (1, "", "SyntaxError: expected ':'"))


def no_indent(words: Lexicon, source: str) -> Flawed:
    """Return a function whose body is not indented, or a lambda with an unused import."""
    if not source.startswith("def "):
        return unused_import(words, source)
    text, file = re.sub(r"^ +", "", source, flags=re.MULTILINE), f"{words.stem()}.py"
    missing = "xpected an indented block after function definition"
    if words.rng.random() < 0.5:
        return _code("lint", file, text, (2, "SyntaxError:", f"E{missing}"))
    return _code("build", file, text, (2, "", f"IndentationError: e{missing} on line 1"))


def failed_test(words: Lexicon, source: str) -> Flawed:
    """Return code that fails a unit test: it returns a wrong value, or uses an undefined name."""
    rng = words.rng
    stem = words.word()
    names = _parameters(source)
    function = re.findall(r"\w+", source.removeprefix("def "))[0]
    call = f"{function}({', '.join(str(rng.randint(0, 20)) for _ in names)})"
    got, right = rng.sample(range(50), 2)
    message = f"assert {call} == {right} assert {got} == {right} + where {got} = {call}"
    text = source
    if rng.random() < 0.5:
        text, wrong, line = _misspelt(words, source)
        message = f"{line} NameError: name '{wrong}' is not defined"
    counted = rng.choice(("1 failed", f"1 failed, {rng.randint(1, 5)} passed"))
    evidence = format_findings([Finding(f"test_{stem}.py::test_{function}", 0, "", message)], {})
    return Flawed("unit", FailureKind.CODE, f"{stem}.py", text, f"{evidence}\n{counted}")


def open_quote(words: Lexicon, command: str) -> Flawed:
    """Return a command with a quote that is not closed."""
    kind, sign = words.rng.choice((("double", '"'), ("single", "'")))
    head, _, last = command.replace("'", "").rpartition(" ")
    couldnt = f"Couldn't parse this {kind} quoted string. Fix to allow more checks."
    places = (1, "SC1073", couldnt), (2, "SC1072", f"Expected end of {kind} quoted string. {PARSED}")
    return _code("shellcheck", f"{words.stem()}.sh", f"{head} {sign}{last}\n", *places)


def open_pipe(words: Lexicon, command: str) -> Flawed:
    """Return a command that ends in a pipe."""
    return _code("shellcheck", f"{words.stem()}.sh", f"{command} |\n", (2, "SC1072", f"Expected a command. {PARSED}"))


def unassigned(words: Lexicon, command: str) -> Flawed:
    """Return a command with a variable that has no value."""
    name = words.word()
    message = f"{name} is referenced but not assigned."
    return _code("shellcheck", f"{words.stem()}.sh", f"{command.split()[0]} ${name}\n", (1, "SC2154", message))


def unquoted(words: Lexicon, command: str) -> Flawed:
    """Return a command with an unquoted command substitution."""
    text = f"cat $({command})\n"
    return _code("shellcheck", f"{words.stem()}.sh", text, (1, "SC2046", "Quote this to prevent word splitting."))


def out_of_form(words: Lexicon, example: Example) -> Flawed:
    """Return an answer that is JSON against its schema, or no JSON."""
    rng = words.rng
    value, file = json.loads(example.answer), f"{words.stem()}.json"
    if rng.random() < 0.3:
        text = example.answer[: rng.randint(1, len(example.answer) - 1)]
    elif isinstance(value, list):
        text = compact_json([*value[:-1], rng.randint(0, 99)])
    else:
        key = rng.choice(list(value))
        text = compact_json(
            {**value, key: [value[key]]} if rng.random() < 0.4 else {k: value[k] for k in value if k != key}
        )
    return Flawed("schema", FailureKind.SCHEMA, file, text, f"{file}: {_refused(example, text)}")


def refused(words: Lexicon, example: Example) -> Flawed:
    """Return an answer with a wrong, missing or added fact, rejected by the judge."""
    text, message = corrupt(words, example.answer, example.inputs)
    return Flawed("judge", FailureKind.LOGIC, f"{words.stem()}.txt", text, critique(message))


def _refused(example: Example, text: str) -> str:
    try:
        OutputSchema(example.schema).read(text)
    except SchemaMismatch as error:
        return error.evidence
    raise AssertionError(f"the schema accepts {text}")


CODE: tuple[Callable[[Lexicon, str], Flawed], ...] = (undefined_name, unused_import, no_colon, no_indent, failed_test)
SHELL: tuple[Callable[[Lexicon, str], Flawed], ...] = (open_quote, open_pipe, unassigned, unquoted)
BASES: dict[str, Family] = {"code": Code(), "shell": Shell(), "extract": Extract(), "summarize": Summarize()}
WEIGHTS = (5, 2, 3, 2)


def flawed(words: Lexicon, base: str, example: Example) -> Flawed:
    """Return a wrong answer to `example`, which is of the family `base`."""
    if base == "summarize" or (base == "extract" and words.rng.random() < 0.5):
        return refused(words, example)
    if base == "extract":
        return out_of_form(words, example)
    return words.rng.choice(CODE if base == "code" else SHELL)(words, example.answer)


class RetryFamily:
    """The task of answering again after a gate has failed. The right answer is that of an example of another family."""

    name = "retry"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example."""
        (base,) = rng.choices(list(BASES), WEIGHTS)
        example = BASES[base].generate(rng, split)
        flaw = flawed(Lexicon(rng, split), base, example)
        first = flaw.evidence.partition("\n")[0]
        failure = Failure(flaw.kind, f"gate {flaw.gate} failed: {first}", flaw.evidence)
        system, user = example.messages
        # What the gate found comes after the action, which is the end of the first prompt.
        again = user._replace(content=after_failure(user.content, feedback([failure])))
        return replace(example, family=self.name, messages=(system, again), wording=f"{base}: {example.wording}")

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` passes the check of the family that the example is from."""
        return BASES[example.wording.partition(":")[0]].check(example, answer)
