"""Measure what runs and the state folder use, and cancel a run that exceeds its limits."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.view import accepted_in
from orchestrator.run.updates import EventUpdate
from orchestrator.service.configuration import FolderSettings, RunSettings
from orchestrator.service.totals import Totals
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptSucceeded,
    Event,
    PlanFinished,
    ReplanFinished,
    RunBegun,
    RunLimits,
    StepGathered,
    Usage,
)

N = TypeVar("N", int, float)

_REMOVABLE: Final = "runs (`orchestrator vacuum`, after `orchestrator delete RUN` too), backups"


def effective_limits(requested: RunLimits, settings: RunSettings) -> RunLimits:
    """Return the limits of a run: the requested ones, or the settings' if these are lower."""
    return RunLimits(
        tokens=_least(requested.tokens, settings.max_tokens),
        seconds=_least(requested.seconds, settings.max_seconds),
        bytes=_least(requested.bytes, settings.max_bytes),
    )


def _least(requested: N | None, most: N) -> N | None:
    return min((number for number in (requested, most or None) if number is not None), default=None)


@dataclass(slots=True)
class RunUsage:
    """What a run has used so far."""

    tokens: int = 0  # of prompts and answers together
    bytes: int = 0  # of artifacts

    def count(self, event: Event, size: Callable[[str], int]) -> None:
        """Add what an event says was used. `size` returns the bytes of an object, given its digest."""
        match event:
            case AttemptGenerated(usage=usage) | PlanFinished(usage=usage) | ReplanFinished(usage=usage):
                self.tokens += tokens_of(usage)
            case AttemptFailed(gates=gates):
                self.tokens += sum(gate.tokens for gate in gates)
            case AttemptSucceeded(outputs=outputs, gates=gates):
                self.tokens += sum(gate.tokens for gate in gates)
                self.bytes += sum(map(size, outputs.values()))
            case StepGathered(outputs=outputs):
                self.bytes += sum(map(size, outputs.values()))

    def excess(self, limits: RunLimits) -> str | None:
        """Return which limit the run exceeds, in words, or None."""
        if limits.tokens is not None and self.tokens > limits.tokens:
            return f"quota: {self.tokens} tokens used, {limits.tokens} allowed"
        if limits.bytes is not None and self.bytes > limits.bytes:
            return f"quota: {self.bytes} bytes of artifacts, {limits.bytes} allowed"
        return None


def seconds_at_work(events: Iterable[Event]) -> float:
    """Return how many seconds a run was being executed, by its events.

    Each RunBegun starts an execution, which lasts until the last event before the next RunBegun.
    """
    total, last = 0.0, 0.0
    begun: float | None = None
    for event in events:
        if isinstance(event, RunBegun):
            total, begun, last = total + _passed(begun, last), event.at, event.at
        last = max(last, event.at)
    return total + _passed(begun, last)


def _passed(begun: float | None, last: float) -> float:
    return 0.0 if begun is None else max(0.0, last - begun)


def tokens_of(usage: Usage) -> int:
    return usage.prompt_tokens + usage.output_tokens


async def enforce_quota(orchestrator: Orchestrator, run: str, past: Sequence[Event], totals: Totals) -> None:
    """Watch a run until it ends, count its events in `totals`, and cancel it if it exceeds its limits.

    `past` are the events of earlier executions; the first one is RunAccepted.
    """
    accepted = accepted_in(past)
    limits, used, models = accepted.limits, RunUsage(), dict[tuple[str, int], str]()
    timer = None
    if limits.seconds is not None:
        remaining = limits.seconds - seconds_at_work(past)
        timer = asyncio.create_task(_end_after(orchestrator, run, remaining, limits.seconds))
    over = False
    try:
        async with aclosing(orchestrator.watch(run)) as updates:
            async for update in updates:
                if not isinstance(update, EventUpdate):
                    continue
                used.count(update.event, orchestrator.journal.objects.size)
                if update.number > len(past):  # earlier executions have counted the others
                    totals.count(update.event, accepted, models)
                if not over and (excess := used.excess(limits)) is not None:
                    over = True
                    await orchestrator.cancel(run, reason=excess)
    finally:
        if timer is not None:
            timer.cancel()


async def _end_after(orchestrator: Orchestrator, run: str, remaining: float, limit: float) -> None:
    await asyncio.sleep(remaining)
    await orchestrator.cancel(run, reason=f"quota: not done within {limit:g} s")


def folder_bytes(path: Path) -> int:
    """Return the bytes of all files below a folder. A file with several hard links counts once."""
    inodes: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:  # removed meanwhile
                continue
            if (status.st_dev, status.st_ino) not in inodes:
                inodes.add((status.st_dev, status.st_ino))
                total += status.st_size
    return total


def why_full(path: Path, settings: FolderSettings) -> str | None:
    """Return why the state folder is too full for another run, or None. A limit of its size needs a walk over it."""
    free = shutil.disk_usage(path).free
    if free < settings.min_free_bytes:
        less = "lower [folder] min_free_bytes in the configuration"
        state = f"{free} bytes are free on the disk of {path}, {settings.min_free_bytes} have to stay free"
        return f"{state}; accepted when {_REMOVABLE} or other files are gone, or {less}"
    if settings.max_bytes and (used := folder_bytes(path)) > settings.max_bytes:
        more = "raise [folder] max_bytes in the configuration (0: no limit)"
        full = f"{path} takes {used} bytes, {settings.max_bytes} are allowed"
        return f"{full}; accepted when {_REMOVABLE} are gone, or {more}"
    return None
