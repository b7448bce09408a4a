"""Which waiting run begins next."""

from collections import Counter
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.service.queue import PATIENCE, RunQueue
from orchestrator.task.modes import Priority

PRIORITIES = st.sampled_from(["interactive", "batch"])


def filled(places: int, reserved: int, **runs: int) -> RunQueue:
    """Return a queue in which so many runs of each class wait."""
    queue = RunQueue(places, reserved)
    for priority, count in runs.items():
        for number in range(count):
            queue.push(f"{priority}{number}", "batch" if priority == "batch" else "interactive")
    return queue


def begun(queue: RunQueue) -> list[str]:
    """Let begin what may."""
    found = []
    while (run := queue.pop()) is not None:
        found.append(run)
    return found


def test_interactive_runs_go_first_and_batch_runs_leave_places_to_them() -> None:
    queue = filled(4, 1, batch=5)
    assert begun(queue) == ["batch0", "batch1", "batch2"]
    queue.push("chat", "interactive")
    assert begun(queue) == ["chat"]
    queue.end("batch0")
    queue.push("chat2", "interactive")
    assert begun(queue) == ["chat2"], "before the batch runs, which came earlier"


def test_a_flood_of_interactive_runs_does_not_starve_a_batch_run() -> None:
    queue = filled(1, 1, batch=1, interactive=3 * PATIENCE)
    order = []
    while (run := queue.pop()) is not None:
        order.append(run)
        queue.end(run)
    assert order.index("batch0") == PATIENCE - 1


def test_batch_runs_run_even_where_every_place_is_reserved() -> None:
    assert begun(filled(1, 5, batch=2)) == ["batch0"]


def test_a_run_that_was_taken_out_does_not_begin() -> None:
    queue = filled(1, 0, interactive=3)
    assert queue.position("interactive2") == 2
    assert queue.remove("interactive0")
    assert not queue.remove("interactive0")
    assert not queue.remove("nobody")
    assert (queue.waiting, queue.position("interactive2"), queue.position("interactive0")) == (2, 1, None)
    assert begun(queue) == ["interactive1"]


@given(
    places=st.integers(1, 5),
    reserved=st.integers(0, 6),
    moves=st.lists(st.one_of(PRIORITIES, st.just("end"), st.just("remove")), max_size=60),
)
def test_every_run_begins_once_in_the_order_of_its_class_and_places_are_kept(
    places: int, reserved: int, moves: list[str]
) -> None:
    queue = RunQueue(places, reserved)
    pushed: dict[str, Priority] = {}
    removed: set[str] = set()
    order: list[str] = []

    def pump() -> None:
        order.extend(begun(queue))
        classes = Counter(pushed[run] for run in queue.running)
        assert len(queue.running) <= places
        assert classes["batch"] <= max(1, places - reserved)

    for number, move in enumerate(moves):
        if move in ("interactive", "batch"):
            pushed[f"r{number}"] = "batch" if move == "batch" else "interactive"
            queue.push(f"r{number}", pushed[f"r{number}"])
        elif move == "end" and queue.running:
            queue.end(min(queue.running))
        elif move == "remove" and pushed and queue.remove(max(pushed)):
            removed.add(max(pushed))
        pump()
        assert sum(queue.waiting_as(priority) for priority in get_args(Priority)) == queue.waiting
    while queue.running:
        queue.end(min(queue.running))
        pump()
    assert queue.waiting == 0
    assert sorted(order) == sorted(set(pushed) - removed)
    for priority in ("interactive", "batch"):
        of_class = [run for run in pushed if pushed[run] == priority and run not in removed]
        assert [run for run in order if pushed[run] == priority] == of_class


def test_runs_are_counted_by_class() -> None:
    queue = filled(3, 1, interactive=2, batch=3)
    assert [queue.waiting_as(name) for name in get_args(Priority)] == [2, 3]
    assert queue.pop() is not None
    assert (queue.waiting_as("interactive"), queue.running_as("interactive"), queue.running_as("batch")) == (1, 1, 0)
    queue.end("interactive0")
    assert queue.running_as("interactive") == 0
