import time

import pytest

from orchestrator.run.state_folder import SystemClock


def test_clock_tells_the_wall_time() -> None:
    before = time.time()
    assert before - 1.0 < SystemClock().now() < time.time() + 1.0


def test_clock_begins_no_earlier_than_its_start() -> None:
    last = time.time() + 3600.0
    clock = SystemClock(not_before=last)
    first = clock.now()
    assert last <= first <= clock.now()


def test_time_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, counted = SystemClock(), time.clock_gettime
    first = clock.now()
    monkeypatch.setattr(time, "clock_gettime", lambda which: counted(which) + 3600.0 * (which == time.CLOCK_BOOTTIME))
    assert first + 3600.0 <= clock.now() < first + 7200.0


def test_step_of_the_system_clock_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    first, told = clock.now(), time.time()
    monkeypatch.setattr(time, "time", lambda: told - 86_400.0)
    assert first <= clock.now() < first + 3600.0
