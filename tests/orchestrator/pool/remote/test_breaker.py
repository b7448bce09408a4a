import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from orchestrator.pool.remote.breaker import CLOSED, FIRST_PAUSE, GIVE_UP, LONGEST_PAUSE, THRESHOLD, Breaker


def _opened(now: float = 0.0) -> Breaker:
    breaker = CLOSED
    for _ in range(THRESHOLD):
        breaker, permit = breaker.ask(now)
        assert permit is not None
        breaker = breaker.failed(permit, now)
    return breaker


def test_failures_in_a_row_open_it_and_a_success_starts_the_count_anew() -> None:
    breaker = CLOSED
    for _ in range(3):
        for _ in range(THRESHOLD - 1):
            breaker = breaker.failed(0, 0.0)
        assert breaker.state == "closed"
        breaker = breaker.succeeded(0)
    assert _opened().state == "open"


def test_it_stays_open_for_the_pause_and_then_lets_one_probe_through() -> None:
    breaker = _opened(now=100.0)
    assert breaker.open_seconds(101.0) == FIRST_PAUSE - 1
    assert breaker.ask(100.0 + FIRST_PAUSE - 0.001)[1] is None
    breaker, permit = breaker.ask(100.0 + FIRST_PAUSE)
    assert permit is not None
    assert breaker.ask(1e9) == (breaker, None)


@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_each_failed_probe_doubles_the_pause_up_to_a_limit(rounds: int) -> None:
    breaker, now = _opened(), 0.0
    for _ in range(rounds):
        now += breaker.open_seconds(now)
        breaker, permit = breaker.ask(now)
        assert permit is not None
        breaker = breaker.failed(permit, now)
    assert breaker.open_seconds(now) == min(LONGEST_PAUSE, FIRST_PAUSE * 2**rounds)


def test_there_is_hope_for_some_minutes_and_again_after_a_success() -> None:
    breaker, now = _opened(), 0.0
    while not breaker.hopeless:
        now += breaker.open_seconds(now)
        breaker, permit = breaker.ask(now)
        assert permit is not None
        breaker = breaker.failed(permit, now)
    assert breaker.reopened == GIVE_UP
    assert 300 < now < 900
    now += breaker.open_seconds(now)
    breaker, permit = breaker.ask(now)
    assert permit is not None
    assert not breaker.answered(permit).succeeded(permit).hopeless


def test_an_answered_probe_closes_it_on_trial() -> None:
    breaker, permit = _opened().ask(FIRST_PAUSE)
    assert permit is not None
    answered = breaker.answered(permit)
    assert answered.state == "closed"
    assert answered.failed(permit, FIRST_PAUSE).state == "open"
    well = answered.succeeded(permit)
    assert well.failed(permit, FIRST_PAUSE).state == "closed"
    assert well.pause == FIRST_PAUSE


class Circuit(RuleBasedStateMachine):
    """Any course of requests. `permits` are those under way, with whether each has been answered."""

    permits = Bundle("permits")

    @initialize()
    def start(self) -> None:
        self.breaker, self.now = CLOSED, 0.0
        self.under_way: list[int] = []

    @rule(seconds=st.floats(0, 2 * LONGEST_PAUSE))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=permits)
    def ask(self) -> int | MultipleResults[int]:
        before = self.breaker
        self.breaker, permit = before.ask(self.now)
        resting = before.state == "open" and self.now < before.until
        assert (permit is None) == (resting or before.state == "half-open")
        if permit is None:
            assert self.breaker == before
            return multiple()
        self.under_way.append(permit)
        return permit

    @rule(permit=permits)
    def is_answered(self, permit: int) -> None:
        self.breaker = self.breaker.answered(permit)

    @rule(permit=consumes(permits))
    def succeeds(self, permit: int) -> None:
        before = self.breaker
        self._ends(permit, before.succeeded(permit))
        fresh = permit == before.epoch
        assert (self.breaker.failures == 0) if fresh else (self.breaker == before)

    @rule(permit=consumes(permits))
    def fails(self, permit: int) -> None:
        before = self.breaker
        self._ends(permit, before.failed(permit, self.now))
        if permit != before.epoch:
            assert self.breaker == before
        elif before.state == "half-open" or before.failures + 1 == THRESHOLD:
            assert (self.breaker.state, self.breaker.until) == ("open", self.now + before.pause)
        else:
            assert self.breaker.failures == before.failures + 1

    @rule(permit=consumes(permits))
    def is_given_up(self, permit: int) -> None:
        before = self.breaker
        self._ends(permit, before.abandoned(permit))
        assert self.breaker.failures == before.failures

    def _ends(self, permit: int, breaker: Breaker) -> None:
        self.under_way.remove(permit)
        self.breaker = breaker

    @invariant()
    def it_can_always_get_out(self) -> None:
        """It never waits for a probe that nobody makes, and never rests for longer than the longest pause."""
        probes = self.under_way.count(self.breaker.epoch)
        if self.breaker.state == "half-open":
            assert probes == 1
        if self.breaker.state == "open":
            assert probes == 0
            assert self.breaker.open_seconds(self.now) <= LONGEST_PAUSE
            assert self.breaker.ask(self.now + self.breaker.open_seconds(self.now))[1] is not None

    @invariant()
    def the_count_stays_below_the_threshold(self) -> None:
        assert 0 <= self.breaker.failures < THRESHOLD
        assert FIRST_PAUSE <= self.breaker.pause <= LONGEST_PAUSE


TestCircuit = Circuit.TestCase
