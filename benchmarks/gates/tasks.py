"""Make the tasks: one step each, with gates for its family. The same family and number always give the same task."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.tiny.families import FAMILIES
from orchestrator.bench.families.code import Specification, specify
from orchestrator.bench.families.code_operations import INT, LIST, STR
from orchestrator.bench.families.words import Lexicon, Split, seeded
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from

# How many of 200 tasks each family has. There are many summaries so that all kinds of failure occur: only one in 130 of
# the smallest model's has a wrong format.
SHARES: Mapping[str, int] = {"code": 85, "shell": 25, "extract": 30, "summarize": 60}

SPLIT: Split = "wording"
# The most tokens of an answer: 1.5 times those of the longest right one, except for code, which has a deadline.
MAX_TOKENS: Mapping[str, int] = {"code": 1024, "shell": 64, "extract": 256, "summarize": 128}

PATIENCE = 30.0  # the timeout of an attempt in seconds, where there is no deadline yet or the family has none

CODE_GATES = ("format", "lint", "build", "typecheck", "security", "unit")
_SAMPLES: Mapping[str, tuple[object, ...]] = {
    INT: (7, 2, -3, 0, 40, 81),
    STR: ("a b", "aba", "", " Two words ", "b"),
    LIST: ([3, 1, 2], [5], [], [2, 2, 9, 40, 100]),
}
_TEST = """import pytest

from {name} import {name}

{reference}


@pytest.mark.parametrize("arguments", {samples})
def test_{name}(arguments):
    expected = reference(*arguments)
    assert {name}(*arguments) == expected
"""


@dataclass(frozen=True, slots=True)
class BenchTask:
    """A task, and a check whether an output is right, which is not known to the gates."""

    name: str
    family: str
    step: Mapping[str, Any]
    inputs: tuple[Mapping[str, str], ...]
    right: Callable[[str], bool]

    @property
    def output(self) -> str:
        """Return the name of its only output."""
        return str(self.step["outputs"][0])

    def task(self, *, gates: bool, deadline: float = PATIENCE) -> TaskIR:
        """Return the task as a document, with or without gates. `deadline` is the timeout of code, in seconds."""
        timeout = deadline if self.family == "code" else PATIENCE
        step = {**self.step, "run_gates": gates, "timeout_seconds": timeout}
        names = {"objective": self.name, "task_id": self.name}
        return task_from({**names, "inputs": [*self.inputs], "plan": {"steps": [step]}})


def make_tasks(count: int) -> list[BenchTask]:
    """Return `count` tasks, distributed over the families as in SHARES."""
    total = sum(SHARES.values())
    wanted = {family: max(1, share * count // total) for family, share in SHARES.items()}
    wanted["code"] += max(0, count - sum(wanted.values()))
    return [task for family, number in wanted.items() for task in _family(family, number)][:count]


def _family(family: str, count: int) -> Iterator[BenchTask]:
    for number in range(count):
        yield _code(number) if family == "code" else _other(family, number)


def correct_answer(task: BenchTask) -> str:
    """Return an answer to a task of the family code that passes all of its gates."""
    reference = task.inputs[0]["value"].split("def reference", 1)[1].split("\n\n", 1)[0]
    return f"def {task.output.removesuffix('.py')}{reference}\n"


def _code(number: int) -> BenchTask:
    name = f"code/{number}"
    spec, action, _ = specify(Lexicon(seeded(f"gates/{name}"), SPLIT), SPLIT)
    file = f"{spec.name}.py"
    wanted = ast.dump(ast.parse(spec.source("")))
    test = {"type": "text", "label": f"test_{file}", "value": unit_test(spec)}
    step = _step("code", action, file, gates=[*CODE_GATES])
    return BenchTask(name, "code", step, (test,), lambda text: _tree(text) == wanted)


def unit_test(spec: Specification) -> str:
    """Return a test that compares a function with its specification on samples. No answer can make it skip a sample."""
    columns = [_SAMPLES[kind] for kind in spec.operation.kinds]
    rows = range(max(map(len, columns)))
    samples = [tuple(column[(row + shift) % len(column)] for shift, column in enumerate(columns)) for row in rows]
    reference = Specification("reference", spec.parameters, spec.operation, spec.constant).source("")
    defined = [arguments for arguments in samples if _is_defined(reference, arguments)]
    return _TEST.format(name=spec.name, reference=reference, samples=defined)


def _is_defined(reference: str, arguments: tuple[object, ...]) -> bool:
    """Return whether a function is defined for the arguments: not for a division by 0 or the first of no items."""
    names: dict[str, Any] = {}
    exec(reference, names)  # noqa: S102 - the text is our own
    try:
        names["reference"](*arguments)
    except (ZeroDivisionError, IndexError, ValueError):
        return False
    return True


def _other(family: str, number: int) -> BenchTask:
    """Return a task of a family other than code, made of an example of it."""
    name = f"{family}/{number}"
    example = FAMILIES[family].generate(seeded(f"gates/{name}/0"), SPLIT)
    output = {"shell": "command.sh", "extract": "facts.json", "summarize": "summary.txt"}[family]
    gates = {"shell": ["shellcheck", "security"], "extract": ["schema", "judge"], "summarize": ["judge"]}[family]
    persona, schema = example.persona or None, example.schema
    step = _step(family, example.action, output, gates=gates, persona=persona, output_schema=schema)
    inputs = tuple({"type": "text", "label": read.name, "value": read.text} for read in example.inputs)
    if inputs:
        step["inputs"] = [read.name for read in example.inputs]
    return BenchTask(name, family, step, inputs, lambda text: FAMILIES[family].check(example, text))


def _step(family: str, action: str, output: str, **more: Any) -> dict[str, Any]:
    fixed = {"id": "S1", "actor": "worker", "action": action, "outputs": [output], "max_tokens": MAX_TOKENS[family]}
    return {**fixed, **{key: value for key, value in more.items() if value is not None}}


def _tree(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return None
