"""Put the pauses in which the rest of a plan was written into the graph that a run is measured by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.daemon.story import ReplanRow
from orchestrator.scheduler import RunState


@dataclass(frozen=True, slots=True)
class Paced:
    """A run's graph with a node for each pause: behind the step that the plan went on after, before what it added.

    `seconds` are those of the pauses alone.
    """

    before: Mapping[str, tuple[str, ...]]
    order: Sequence[str]
    seconds: Mapping[str, float]


def paced(
    before: Mapping[str, tuple[str, ...]], order: Sequence[str], replans: Iterable[ReplanRow], state: RunState
) -> Paced:
    """Return the graph with its pauses. `before` and `order` have the children of `foreach` steps in them.

    A pause lasts until the first new step is there, not until the rest of the plan is written to its end: as with the
    first part of a plan, steps run meanwhile.
    """
    waits, places, seconds = dict(before), list(order), dict[str, float]()
    for row in replans:
        if row.pause_seconds is None:
            continue
        pause = f"replan after {row.after}"
        seconds[pause], waits[pause] = row.pause_seconds, (row.after,)
        places.insert(places.index(row.after) + 1, pause)
        for step in row.steps:
            for name in state.steps[step].children or (step,):
                waits[name] = (*waits[name], pause)
    return Paced(waits, places, seconds)
