"""Values travel from the process of the code to the one that judges as plain data alone."""

import enum
import math
from collections import Counter, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.gates.inside.values import Approximate, decode, decoys, encode, holds

Pair = namedtuple("Pair", "first second")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


class Everything(int):
    """Claims to equal everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Length(enum.IntEnum):
    SHORT = 1


@given(PLAIN)
def test_plain_data_arrive_as_they_were(value: object) -> None:
    text = encode(value)
    assert text is not None
    assert decode(text) == value
    assert holds(decode(text), "==", value)


@given(PLAIN)
def test_decoys_are_other_values(value: object) -> None:
    assert all(other != value for other in decoys(value))


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_approximate_means_what_pytest_means(
    actual: float, expected: float, relative: float | None, absolute: float | None
) -> None:
    theirs = actual == pytest.approx(expected, relative, absolute)
    assert Approximate(expected, relative, absolute).matches(actual) is theirs
    assert holds([actual], "==", Approximate([expected], relative, absolute)) is theirs


@pytest.mark.parametrize(
    ("value", "same"),
    [(Pair(1, 2), (1, 2)), (Length.SHORT, 1), (10**5000, 10**5000), (math.inf, math.inf)],
    ids=["tuple", "number", "long number", "infinity"],
)
def test_subclasses_that_compare_as_their_base_are_plain(value: object, same: object) -> None:
    text = encode(value)
    assert text is not None
    assert decode(text) == same


@pytest.mark.parametrize(
    "value", [Everything(1), [Everything(1)], Counter("a"), object(), math.nan, "a" * 200_000, [()] * 60_000]
)
def test_other_values_do_not_travel(value: object) -> None:
    assert encode(value) is None


def test_depth_is_limited() -> None:
    nested: list[object] = []
    for _ in range(1000):
        nested = [nested]
    assert encode(nested) is None


@pytest.mark.parametrize("text", ["1 +", "f()", "(" * 1000, "__import__('os')"])
def test_only_literals_are_read(text: str) -> None:
    with pytest.raises(ValueError, match="is no value"):
        decode(text)


@pytest.mark.parametrize(
    ("left", "comparison", "right", "result"),
    [
        (1, "is", True, False),
        (True, "is", True, True),
        (None, "is not", None, False),
        (1, "in", [1, 2], True),
        (1, "not in", [1, 2], False),
        ("a", "<", 1, False),
        (2, ">=", 2, True),
    ],
)
def test_comparisons(left: object, comparison: str, right: object, result: bool) -> None:
    assert holds(left, comparison, right) is result
