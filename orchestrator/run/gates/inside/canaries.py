"""Write tests with known results: some pass and some fail, with random names and in random order.

They run among the user's tests. If one that must fail passes, the code has changed pytest, Python or how values
compare, and no result of that process counts.
"""

import secrets
import string
from dataclasses import dataclass

_RANDOM = secrets.SystemRandom()

_PASSING = (
    "assert [{a}, {b}] == [{a}, {b}]",
    "with pytest.raises(KeyError):\n    raise KeyError({a})",
    "assert {a} + {b} == {sum}",
    "assert 0.1 + 0.2 == pytest.approx(0.3)",
)
_FAILING = (
    "assert [{a}, {b}] == [{b}, {a}, {b}]",
    "assert {a} + {b} == {sum} + 1",
    "assert str({a}) == '{b}x'",
    "with pytest.raises(KeyError):\n    raise ValueError({a})",
    "with pytest.raises((TypeError, ValueError)):\n    int('{a}')",
    "raise RuntimeError({a})",
    "assert isinstance('{a}', int)",
    "assert {a}.5 == pytest.approx({b}.25)",
    "assert not {{'{a}': {b}}}",
    "assert {a} is None",
)
_CASE = """import unittest


class Test{case}(unittest.TestCase):
    def test_{passing}(self):
        self.assertEqual({a} + {b}, {sum})

    def test_{failing}(self):
        self.assertEqual({a} + {b}, {sum} + 1)

    def test_{raising}(self):
        with self.assertRaises(KeyError):
            str({a})
"""


@dataclass(frozen=True, slots=True)
class Canaries:
    file: str
    text: str
    passes: dict[str, bool]  # whether a test must pass, by its name in pytest


def plant(*, with_cases: bool) -> Canaries:
    """Return a new file of planted tests, some that pass and some that fail. `with_cases` adds tests of unittest."""
    file = f"test_{_word()}.py"
    passes: dict[str, bool] = {}
    bodies = [(body, True) for body in _RANDOM.sample(_PASSING, 2)] + [(body, False) for body in _FAILING]
    _RANDOM.shuffle(bodies)
    parts = ["import pytest\n"]
    for body, result in bodies:
        name = f"test_{_word()}"
        lines = body.format(**_numbers()).splitlines()
        parts.append("\n".join([f"def {name}():", *(f"    {line}" for line in lines)]) + "\n")
        passes[f"{file}::{name}"] = result
    # Only if the user's tests have some: the import of unittest takes time.
    if with_cases:
        words = {role: _word() for role in ("case", "passing", "failing", "raising")}
        parts.append(_CASE.format(**words, **_numbers()))
        for role in ("passing", "failing", "raising"):
            passes[f"{file}::Test{words['case']}::test_{words[role]}"] = role == "passing"
    return Canaries(file, "\n\n".join(parts), passes)


def _word() -> str:
    return "".join(_RANDOM.choices(string.ascii_lowercase, k=10))


def _numbers() -> dict[str, int]:
    first = _RANDOM.randrange(10, 500)
    second = first + _RANDOM.randrange(2, 400)
    return {"a": first, "b": second, "sum": first + second}
