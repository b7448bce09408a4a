"""Let a `foreach` step run as its children: make them, and say what becomes of it when all of them have ended."""

from orchestrator.scheduler.states import State
from orchestrator.scheduler.step import Cause, StepRecord


def spread(record: StepRecord, count: int) -> tuple[StepRecord, ...]:
    """Give a step one child for each of the `count` items of its list, and return them in order."""
    record.children = tuple(_child(record, item) for item in range(count))
    record.pending = count
    return record.children


def joined(record: StepRecord) -> tuple[State, Cause] | None:
    """Return how a step ends whose children have all ended, and why; None if its outputs are to be gathered.

    If it was to be cancelled, that comes first; then the first child that failed counts, then one that was cancelled.
    """
    if record.cause:
        return State.CANCELLED, record.cause
    children = record.children or ()
    failed = [child for child in children if child.state is State.FAILED]
    spoilt = next((child.cause for child in (*failed, *children) if child.cause), None)
    if spoilt is None:
        return None
    return State.FAILED if failed else State.CANCELLED, spoilt


def _child(record: StepRecord, item: int) -> StepRecord:
    """Return the child for one item of the list: the same step in all but its id and the names of its outputs."""
    names = tuple(f"{name}[{item}]" for name in record.step.outputs)
    step = record.step.model_copy(update={"id": f"{record.id}[{item}]", "outputs": names})
    return StepRecord(step, record.rank, parent=record, item=item)
