"""Schedules: the lines of the configuration, and when they are due."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.service.configuration import load_configuration
from orchestrator.service.schedules import MAX_COUNTED, schedule_from, schedules_from


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("line", "after", "due"),
    [
        ("0 3 * * * backup", "2026-03-01T02:59:59", "2026-03-01T03:00:00"),
        ("0 3 * * * backup", "2026-03-01T03:00:00", "2026-03-02T03:00:00"),
        ("*/15 9-17 * * MON-FRI backup", "2026-02-27T17:50:00", "2026-03-02T09:00:00"),
        ("@monthly vacuum days=30", "2026-01-15T12:00:00", "2026-02-01T00:00:00"),
        ("0 0 29 2 * backup", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
    ],
)
def test_a_line_says_when_a_procedure_is_due(line: str, after: str, due: str) -> None:
    assert schedule_from(line).after(at(after)) == at(due)


def test_a_line_has_the_procedure_and_its_inputs() -> None:
    found = schedule_from('30 4 * * 0 vacuum days=30 note="two words"')
    assert (found.procedure, dict(found.inputs)) == ("vacuum", {"days": "30", "note": "two words"})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "names no procedure"),
        ("0 3 * * *", "names no procedure"),
        ("@daily", "names no procedure"),
        ("61 3 * * * backup", "Bad minute"),
        ("0 0 30 2 * backup", "Bad day-of-month"),
        ("@daily vacuum days", "has no ="),
        ("@daily vacuum 'days", "quotation"),
    ],
)
def test_a_line_that_says_nothing_is_refused_with_what_would_be_accepted(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        schedule_from(line)
    assert "accepted: " in str(refused.value)


def test_the_configuration_has_schedules_and_names_one_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    environ = {"ORCHESTRATOR_CONFIG": str(file), "HOME": str(tmp_path)}
    file.write_text('[procedures]\nschedules = ["0 3,15 * * * backup"]\n')
    assert load_configuration(environ).procedures.schedules == ("0 3,15 * * * backup",)
    lines = {**environ, "ORCHESTRATOR_PROCEDURES_SCHEDULES": "0 3,15 * * * backup; @weekly vacuum days=30"}
    assert [one.procedure for one in schedules_from(load_configuration(lines).procedures.schedules)] == [
        "backup",
        "vacuum",
    ]
    file.write_text('[procedures]\nschedules = ["0 25 * * * backup"]\n')
    with pytest.raises(InputError, match=r"schedules.*Bad hour"):
        load_configuration(environ)


@given(
    begin=st.integers(1_600_000_000, 1_900_000_000),
    hours=st.integers(0, 100),
    line=st.sampled_from(["0 * * * * backup", "*/20 * * * * backup", "@daily backup", "5 4 * * MON backup"]),
)
def test_the_times_between_two_moments_are_those_one_after_the_other(begin: int, hours: int, line: str) -> None:
    schedule, end = schedule_from(line), begin + hours * 3600.0
    times, moment = [], float(begin)
    while (following := schedule.after(moment)) is not None and following <= end:
        times.append(following)
        moment = following
    assert schedule.between(begin, end) == (len(times), times[-1] if times else 0.0)


def test_the_last_time_is_right_also_where_there_were_too_many_to_count() -> None:
    begin, end = at("2026-01-01T00:00:00"), at("2026-03-01T11:00:01")
    assert schedule_from("* * * * * backup").between(begin, end) == (MAX_COUNTED, at("2026-03-01T11:00:00"))


@pytest.fixture
def summer_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Central Europe: on 2026-03-29 at 01:00 UTC an hour is skipped, on 2026-10-25 at 01:00 UTC one is repeated."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("summer_time")
@pytest.mark.parametrize(
    ("line", "after", "due"),
    [
        ("30 2 * * * backup", "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * * backup", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("30 2 * * * backup", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"),
        ("*/20 * * * * backup", "2026-10-25T00:40:00Z", "2026-10-25T01:00:00Z"),
        ("*/20 * * * * backup", "2026-10-25T01:00:00Z", "2026-10-25T01:20:00Z"),
        ("30 2 * * * backup", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
        ("30 * * * * backup", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"),
    ],
)
def test_around_a_change_of_the_clock_nothing_is_left_out_or_carried_out_twice(line: str, after: str, due: str) -> None:
    assert schedule_from(line).after(at(after)) == at(due)
