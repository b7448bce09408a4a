"""Measure the daemon's own time per step: the wall time of a chain of width 1 without the time in the engine."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.daemon.bodies import chain
from benchmarks.daemon.figures import PartResult
from benchmarks.daemon.process import running_daemon, submit, wait_ended, wait_idle
from orchestrator.bench.goals import at_most
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import AttemptGenerated, AttemptStarted, AttemptSucceeded, Event

ROUNDS: Final = 5
WARMING_STEPS: Final = 50
GOAL_MS: Final = 3.0


async def measure(folder: Path, steps: int) -> PartResult:
    """Run chains of `steps` steps, alternately with one client that follows the events and with none."""
    rounds_by_name: dict[str, list[dict[str, float]]] = {"watched": [], "unwatched": []}
    with running_daemon(folder / "home") as daemon:
        async with daemon.client() as client:
            await wait_ended(client, await submit(client, chain(WARMING_STEPS)))
            for _ in range(ROUNDS):
                for name, rounds in rounds_by_name.items():
                    run = await submit(client, chain(steps))
                    await (wait_ended(client, run) if name == "watched" else wait_idle(client))
                    with JournalReader.open_to_read(daemon.home) as journal:
                        rounds.append(figures([event for _, event in journal.events(run)]))
    medians = {
        name: statistics.median(measured["overhead_ms"] for measured in rounds)
        for name, rounds in rounds_by_name.items()
    }
    result: dict[str, Any] = {"steps": steps, "overhead_ms": medians, "rounds": rounds_by_name}
    return PartResult(result, [at_most("daemon overhead per step, ms", medians["watched"], GOAL_MS)])


def figures(events: Sequence[Event]) -> dict[str, float]:
    """Return what a chain took per step, in milliseconds. The engine's time is reported separately."""
    begun = next(event.at for event in events if isinstance(event, AttemptStarted))
    done = [event.at for event in events if isinstance(event, AttemptSucceeded)]
    usages = [event.usage for event in events if isinstance(event, AttemptGenerated)]
    wall, count = done[-1] - begun, len(done)
    engine = sum(usage.prefill_seconds + usage.decode_seconds for usage in usages)
    queued = sum(usage.queued_seconds for usage in usages)
    seconds_by_name = {
        "wall_ms": wall,
        "engine_ms": engine,
        "overhead_ms": wall - engine,
        "of_it_before_prefill_ms": queued,
    }
    return {name: round(1000 * seconds / count, 4) for name, seconds in seconds_by_name.items()}
