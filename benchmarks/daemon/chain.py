"""Measure the daemon's own time per step: a chain of width 1, its wall time less the time in the engine."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.daemon.bodies import chain
from benchmarks.daemon.figures import Part
from benchmarks.daemon.served import ended, idle, served, submit
from benchmarks.goals import at_most
from orchestrator.events import AttemptGenerated, AttemptStarted, AttemptSucceeded, Event
from orchestrator.journal import JournalReader

ROUNDS: Final = 5
WARMING_STEPS: Final = 50
GOAL_MS: Final = 3.0


async def measure(folder: Path, steps: int) -> Part:
    """Run chains of `steps` steps, watched by one client and watched by none, in turns."""
    found: dict[str, list[dict[str, float]]] = {"watched": [], "unwatched": []}
    with served(folder / "home") as daemon:
        async with daemon.client() as client:
            await ended(client, await submit(client, chain(WARMING_STEPS)))
            for _ in range(ROUNDS):
                for name, rounds in found.items():
                    run = await submit(client, chain(steps))
                    await (ended(client, run) if name == "watched" else idle(client))
                    with JournalReader.open_to_read(daemon.home) as journal:
                        rounds.append(figures([event for _, event in journal.events(run)]))
    medians = {name: statistics.median(one["overhead_ms"] for one in rounds) for name, rounds in found.items()}
    told: dict[str, Any] = {"steps": steps, "overhead_ms": medians, "rounds": found}
    return Part(told, [at_most("daemon overhead per step, ms", medians["watched"], GOAL_MS)])


def figures(events: Sequence[Event]) -> dict[str, float]:
    """Return what a chain took per step, in milliseconds. What an engine did is told by itself."""
    begun = next(event.at for event in events if isinstance(event, AttemptStarted))
    done = [event.at for event in events if isinstance(event, AttemptSucceeded)]
    usages = [event.usage for event in events if isinstance(event, AttemptGenerated)]
    wall, count = done[-1] - begun, len(done)
    engine = sum(usage.prefill_seconds + usage.decode_seconds for usage in usages)
    queued = sum(usage.queued_seconds for usage in usages)
    named = {"wall_ms": wall, "engine_ms": engine, "overhead_ms": wall - engine, "of_it_before_prefill_ms": queued}
    return {name: round(1000 * seconds / count, 4) for name, seconds in named.items()}
