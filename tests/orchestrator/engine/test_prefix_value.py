"""Which prefixes stay on disk."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kv.prefix_value import (
    HALF_LIFE_SECONDS,
    LEAST_TOKENS,
    LONGEST_UNUSED_SECONDS,
    KeptPrefix,
    pays,
    to_remove,
)

NOW = 1e9
PREFIXES = st.dictionaries(
    st.integers(0, 30),
    st.builds(
        KeptPrefix,
        size=st.integers(1, 1000),
        seconds=st.floats(0, 100),
        used=st.floats(NOW - 2 * LONGEST_UNUSED_SECONDS, NOW),
    ),
    max_size=12,
)


def of(size: int, seconds: float, age: float = 0.0) -> KeptPrefix:
    return KeptPrefix(size, seconds, NOW - age)


@given(PREFIXES, st.integers(0, 5000))
def test_the_rest_fits_and_nothing_is_removed_without_need(prefixes: dict[int, KeptPrefix], most_bytes: int) -> None:
    removed = to_remove(prefixes, most_bytes, NOW)
    assert len(set(removed)) == len(removed)
    kept = sum(prefix.size for name, prefix in prefixes.items() if name not in removed)
    assert kept <= most_bytes
    fresh = [name for name in removed if NOW - prefixes[name].used <= LONGEST_UNUSED_SECONDS]
    if fresh:
        assert kept + prefixes[fresh[-1]].size > most_bytes, "the last one would have fitted"
    assert all(NOW - prefix.used <= LONGEST_UNUSED_SECONDS for name, prefix in prefixes.items() if name not in removed)


@given(PREFIXES, st.integers(0, 5000), st.integers(0, 5000))
def test_with_less_room_the_same_go_first(prefixes: dict[int, KeptPrefix], most_bytes: int, less: int) -> None:
    removed = to_remove(prefixes, most_bytes, NOW)
    assert to_remove(prefixes, max(0, most_bytes - less), NOW)[: len(removed)] == removed


@given(PREFIXES, st.integers(0, 5000))
def test_what_stays_is_worth_about_as_much_per_byte_as_what_goes(
    prefixes: dict[int, KeptPrefix], most_bytes: int
) -> None:
    def worth(prefix: KeptPrefix) -> float:
        return float(max(prefix.seconds, 1e-9) / prefix.size * 2 ** -((NOW - prefix.used) / HALF_LIFE_SECONDS))

    removed = to_remove(prefixes, most_bytes, NOW)
    fresh = [name for name in removed if NOW - prefixes[name].used <= LONGEST_UNUSED_SECONDS]
    kept = [worth(prefix) for name, prefix in prefixes.items() if name not in removed]
    if fresh and kept:
        assert max(worth(prefixes[name]) for name in fresh) <= 2.001 * min(kept)


def test_of_equal_values_the_least_recently_used_goes() -> None:
    prefixes = {"old": of(100, 1.0, age=60), "new": of(100, 1.1, age=10), "dear": of(100, 9.0, age=3600)}
    assert to_remove(prefixes, 250, NOW) == ["old"]
    assert to_remove(prefixes, 150, NOW) == ["old", "new"]


def test_a_value_halves_in_a_day_without_use() -> None:
    prefixes = {"unused": of(100, 8.0, age=5 * HALF_LIFE_SECONDS), "used": of(100, 1.0)}
    assert to_remove(prefixes, 100, NOW) == ["unused"]


def test_what_nobody_has_used_for_a_month_goes_even_if_there_is_room() -> None:
    prefixes = {"forgotten": of(1, 1e6, age=LONGEST_UNUSED_SECONDS + 1), "cheap": of(1, 1e-6)}
    assert to_remove(prefixes, 1000, NOW) == ["forgotten"]


@given(st.integers(0, 100_000), st.floats(0, 100), st.floats(0, 100))
def test_a_prompt_is_read_only_if_that_is_faster_and_it_is_long(tokens: int, compute: float, read: float) -> None:
    assert pays(tokens, compute, read) == (tokens >= LEAST_TOKENS and read < compute)
