"""Check what must hold for a run's state between any two events."""

from collections.abc import Iterator
from itertools import pairwise

from orchestrator.run.scheduler.run import RunState
from orchestrator.run.scheduler.step import StepRecord
from orchestrator.task.failures import MAX_RETRIES, retries_used
from orchestrator.task.states import ACTIVE, FINAL, TRANSITIONS, State


def violations(state: RunState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold. Linear in the size of the plan."""
    for record in state._steps.values():
        yield from _of_step(state, record)
        if record.fans_out:
            yield from _of_parent(record)
    yield from _of_slots(state)
    unfinished = sum(record.state not in FINAL for record in state._steps.values())
    if unfinished != state._unfinished:
        yield f"{unfinished} steps have not ended, but {state._unfinished} are counted"
    if state._ending.finished and unfinished:
        yield f"the run has finished, but {unfinished} steps have not ended"
    awaited = None if state._ending.is_due else state._plan.awaited
    if awaited and state._steps[awaited].state in FINAL:
        yield f"the plan waits for {awaited}, which has ended"
    if state._to_cancel or state._commands:
        yield "something is left to do, but no event will cause it to be done"


def _of_step(state: RunState, record: StepRecord) -> Iterator[str]:
    before = [state._steps[step] for step in state.graph.before.get(record.id, ())]
    unmet = [step.id for step in before if step.state is not State.DONE]
    failed_before = [step.id for step in before if step.state in (State.FAILED, State.CANCELLED)]
    if record.state is State.WAITING and (not unmet or len(unmet) != record.unmet):
        yield f"{record.id} waits for {unmet}, but counts {record.unmet}"
    if record.state is State.WAITING and failed_before:
        yield f"{record.id} waits for {failed_before}, which will never be done"
    if record.state not in (State.WAITING, State.CANCELLED) and unmet:
        yield f"{record.id} is {record.state} before {unmet} are done"
    if record.lost and not record.cause:
        yield f"{record.id} was lost in a restart, but it is not to be cancelled"
    if record.cause and record.state not in (State.FAILED, State.CANCELLED, *ACTIVE):
        yield f"{record.id} is {record.state} in spite of {record.cause}"
    if not record.cause and record.state in (State.FAILED, State.CANCELLED):
        yield f"{record.id} is {record.state} without a cause"
    if record.state_history[-1] is not record.state or any(
        pair not in TRANSITIONS for pair in pairwise(record.state_history)
    ):
        yield f"{record.id} is {record.state} with an impossible state_history {record.state_history}"
    if record.state_history.count(State.DONE) > 1 + record.repaired or any(
        retries_used(record.failures, role) > MAX_RETRIES for role in {failed.role for failed in record.failures}
    ):
        yield f"{record.id} has run too often: {record.failures}"


def _of_parent(record: StepRecord) -> Iterator[str]:
    pending = sum(child.state not in FINAL for child in record.children or ())
    if pending != record.pending:
        yield f"{record.id} has {pending} children that have not ended, but counts {record.pending}"
    if record.state is State.DONE and any(child.state is not State.DONE for child in record.children or ()):
        yield f"{record.id} is done, but not all of its children"


def _of_slots(state: RunState) -> Iterator[str]:
    queue, records = state._queue, state._steps.values()
    if queue.ready != {record.id for record in records if record.state is State.READY}:
        yield f"queued are {sorted(queue.ready)}, which is not what is ready"
    active = [record for record in records if record.state in ACTIVE]
    at_work = {record.id: record.lane for record in active if not (record.pending or record.lost)}
    if queue.holders != at_work:
        yield f"slots are held by {dict(queue.holders)}, but at work are {at_work}"
    for lane, slots in queue.limits.slots.items():
        held = sum(lane in queue.limits.lanes(role) for role in queue.holders.values())
        if held > slots:
            yield f"{held} steps hold the {slots} slots of {lane}"
    if (idle := queue.first()) is not None:
        yield f"{idle} is ready and the limits admit it, but it was not started"
