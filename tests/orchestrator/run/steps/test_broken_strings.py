"""Code in a JSON answer is mended if its string literals are broken by newlines, and only then."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Completion
from orchestrator.run.steps.answer import AnswerShape
from orchestrator.run.steps.broken_strings import mended
from orchestrator.task.events import Usage
from orchestrator.task.taskir.models import Step

CODES = [
    "def listing(pets):\n    return '\\n'.join(map(str, pets))",
    'print("first\\nsecond\\n", end="")\nprint("# no comment\\n")',
    "import re\n\nLINES = re.compile(r'[^\\n]+\\n')  # it's a pattern\nTEXT = f'{LINES}\\n'",
    'def f():\n    """Say "it" in\n    two lines."""\n    return "a" "\\n" \'b\'',
]


@pytest.mark.parametrize("code", CODES)
def test_newlines_that_were_not_escaped_twice_are_escapes_again(code: str) -> None:
    assert mended(code.replace("\\n", "\n")) == code
    assert mended(code) == code


@pytest.mark.parametrize(
    "code",
    [
        "assert f(1) == 2, 'Test 1 failed\nassert f(2) == 3, 'Test 2 failed'",
        "print('never closed\n",
        "x = 'a\nb'\ny = (",
        "text = 'a\\\nb'",
        "TEXT = '''\nit's\n'''\nprint(TEXT)",
        "",
    ],
)
def test_other_code_stays_as_it_is(code: str) -> None:
    assert mended(code) == code


@given(st.text(alphabet="'\"#\\\n a=(", max_size=40))
def test_any_text_stays_or_differs_by_newlines_alone(text: str) -> None:
    assert mended(text).replace("\\n", "\n") == text.replace("\\n", "\n")


def test_each_program_of_an_answer_is_mended() -> None:
    step = Step(id="S1", actor="coder", action="Go.", outputs=("a.py", "b.txt"))
    answer = json.dumps({"a.py": "TEXT = '\n'", "b.txt": "It's\nnot code: '\n'"})
    outputs = AnswerShape(step).read(Completion(answer, "stop", Usage()))
    assert outputs == {"a.py": b"TEXT = '\\n'", "b.txt": b"It's\nnot code: '\n'"}
