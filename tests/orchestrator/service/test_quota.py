"""What runs have used and how long they were at work, by their events."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.service.quota import Totals, seconds_at_work
from orchestrator.task.events import AttemptGenerated, AttemptStarted, Event, RunAccepted, RunBegun, Shipped, Usage


def happened(at: float) -> Event:
    return AttemptStarted(at=at, step="S1", number=1, role="worker", persona=None, model="m", reason="a test")


def lives(*spans: tuple[float, list[float]]) -> list[Event]:
    """Return the events of a run that began again and again: (when, what happened so many seconds later)."""
    events: list[Event] = [RunAccepted(at=0.0, run="R", mode="serial", request="x")]
    for begun, later in spans:
        events += [RunBegun(at=begun), *(happened(begun + seconds) for seconds in later)]
    return events


def test_neither_waiting_nor_a_pause_between_two_daemons_counts() -> None:
    assert seconds_at_work(lives()) == 0.0
    assert seconds_at_work(lives((100.0, []))) == 0.0
    assert seconds_at_work(lives((100.0, [3.0]), (5000.0, [1.0, 4.0]))) == 7.0


def test_a_clock_that_is_set_back_between_two_daemons_takes_nothing_away() -> None:
    assert seconds_at_work(lives((1000.0, [3.0]), (10.0, [4.0]))) == 7.0


@given(st.lists(st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 100), max_size=4).map(sorted)), max_size=5))
def test_each_time_counts_to_the_last_thing_that_happened(spans: list[tuple[int, list[int]]]) -> None:
    told = seconds_at_work(lives(*((begun, [*map(float, later)]) for begun, later in spans)))
    assert told == sum(max(later, default=0) for _, later in spans)


def test_what_was_shipped_counts_for_the_model_of_the_attempt() -> None:
    totals, models = Totals(), dict[tuple[str, int], str]()
    accepted = RunAccepted(at=0.0, run="R", mode="serial", request="x")
    usage = Usage(shipped=(Shipped(700, 3000, 0.25, "east"), Shipped(300, 1000, 0.5, "head")))
    for event in (happened(1.0), AttemptGenerated(at=2.0, step="S1", number=1, usage=usage)):
        totals.count(event, accepted, models)
    assert totals.shipped == {("m", "tokens"): 1000, ("m", "bytes"): 4000}
    assert totals.shipped_seconds == {"m": 0.75}
