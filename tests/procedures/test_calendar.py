"""Schedules that are due, and which of their times were missed."""

import time
from datetime import datetime, timedelta
from pathlib import Path

from orchestrator.procedures.queue import Calendar
from orchestrator.service.schedules import LATE_SECONDS, schedules_from

HOURLY = "0 * * * * backup"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_what_was_missed_is_known_after_a_restart_and_of_new_schedules_nothing_is(tmp_path: Path) -> None:
    schedules, now = schedules_from([HOURLY]), at("2026-03-01T10:30:00")
    calendar = Calendar(tmp_path)
    calendar.begin(schedules, now)
    assert calendar.due(schedules, now + 60) == []
    (due,) = calendar.due(schedules, at("2026-03-01T11:00:01"))
    assert (due.at, due.missed, due.is_late) == (at("2026-03-01T11:00:00"), 0, False)
    calendar.handled(schedules[0], at("2026-03-01T11:00:01"))
    assert calendar.due(schedules, at("2026-03-01T11:30:00")) == []

    again = Calendar(tmp_path)
    again.begin(schedules, at("2026-03-01T15:30:00"))
    (due,) = again.due(schedules, at("2026-03-01T15:30:00"))
    assert (due.at, due.missed, due.is_late) == (at("2026-03-01T15:00:00"), 3, True)
    (due,) = again.due(schedules, at("2026-03-01T15:00:00") + LATE_SECONDS)
    assert (due.missed, due.is_late) == (3, False)

    again.begin((), now)
    again.begin(schedules, at("2026-03-02T15:30:00"))
    assert again.due(schedules, at("2026-03-02T15:30:00")) == []


def test_a_calendar_that_cannot_be_read_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "schedules.json").write_text("[not json")
    calendar, schedules = Calendar(tmp_path), schedules_from([HOURLY])
    calendar.begin(schedules, time.time())
    assert calendar.due(schedules, time.time() + timedelta(hours=2).total_seconds())


def test_a_clock_that_was_far_ahead_does_not_silence_a_schedule(tmp_path: Path) -> None:
    schedules, calendar, now = schedules_from([HOURLY]), Calendar(tmp_path), at("2026-03-01T10:30:00")
    calendar.begin(schedules, now + 365 * 86_400)
    calendar.begin(schedules, now)
    assert [one.at for one in calendar.due(schedules, now + 1800)] == [at("2026-03-01T11:00:00")]
    calendar.handled(schedules[0], now + 1800)
    calendar.begin(schedules, now)
    assert calendar.due(schedules, now + 1800) == []
