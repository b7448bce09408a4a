from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.remote.http import FIRST_PAUSE, LONGEST_PAUSE, PATIENCE, TRIES, pause, retry_after

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHANCE = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, TRIES - 1), st.none() | st.floats(0, PATIENCE), CHANCE)
def test_a_pause_is_what_was_asked_for_and_some_jitter(tries: int, asked: float | None, chance: float) -> None:
    seconds = pause(tries, asked, chance)
    assert seconds is not None
    assert 0 <= seconds - (asked or 0.0) <= min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1))


@given(st.integers(1, 50), st.none() | st.floats(0, 1e6), CHANCE)
def test_there_is_an_end_to_trying_and_to_patience(tries: int, asked: float | None, chance: float) -> None:
    assert (pause(tries, asked, chance) is None) == (tries >= TRIES or (asked or 0.0) > PATIENCE)


def test_the_jitter_is_full_and_its_bound_doubles() -> None:
    assert pause(1, None, 0.0) == 0.0
    assert [pause(tries, None, 0.5) for tries in (1, 2, 3)] == [FIRST_PAUSE / 2, FIRST_PAUSE, 2 * FIRST_PAUSE]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("Fri, 02 Jan 2026 03:04:06 -0000", 1.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@given(st.text(max_size=40))
def test_no_header_breaks_the_reader(header: str) -> None:
    seconds = retry_after(header, NOW)
    assert seconds is None or seconds >= 0
