"""Measure what runs and the state folder use, cancel a run that exceeds its limits, and count events for metrics."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.view import accepted_in
from orchestrator.run.updates import EventUpdate
from orchestrator.service.configuration import FolderSettings, RunSettings
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    ReplanFinished,
    RunAccepted,
    RunBegun,
    RunFinished,
    RunLimits,
    StepGathered,
    Usage,
)
from orchestrator.task.reuse import Reuse

DEFAULT_RUN_SECONDS: Final = 5.0  # assumed as long as no run has ended


@dataclass(slots=True)
class Totals:
    accepted: int = 0  # runs
    refused: int = 0  # runs, because too many waited
    runs: Counter[str] = field(default_factory=Counter)  # that have ended, by status
    doubtful: int = 0  # runs that were done with a doubtful answer
    run_seconds: Counter[str] = field(default_factory=Counter)  # from acceptance to end, by status
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)  # that have ended, by model and outcome
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)  # by model and kind: prompt, cached or output
    reuse: dict[str, Reuse] = field(default_factory=dict)  # of prompts, by model
    shipped: Counter[tuple[str, str]] = field(default_factory=Counter)  # by model: "tokens" and "bytes"
    shipped_seconds: Counter[str] = field(default_factory=Counter)  # by model
    exports: Counter[str] = field(default_factory=Counter)  # of runs to a collector, by outcome
    executions: int = 0  # of runs, until they ended or were interrupted
    execution_seconds: float = 0.0

    @property
    def typical_seconds(self) -> float:
        """The mean duration of an execution."""
        return self.execution_seconds / self.executions if self.executions else DEFAULT_RUN_SECONDS

    def count_execution(self, seconds: float) -> None:
        self.executions += 1
        self.execution_seconds += seconds

    def count(self, event: Event, accepted: RunAccepted, models: dict[tuple[str, int], str]) -> None:
        """Count an event of a run. `models` maps its open attempts, by step and number, to models, and is updated."""
        match event:
            case AttemptStarted(step=step, number=number, model=model):
                models[step, number] = model
            case AttemptGenerated(step=step, number=number, usage=usage):
                model = models.get((step, number), "")
                self.tokens[model, "prompt"] += usage.prompt_tokens
                self.tokens[model, "cached"] += usage.cached_tokens
                self.tokens[model, "output"] += usage.output_tokens
                self.reuse[model] = self.reuse.get(model, Reuse()) + usage.reuse
                for shipped in usage.shipped:
                    self.shipped[model, "tokens"] += shipped.tokens
                    self.shipped[model, "bytes"] += shipped.bytes
                    self.shipped_seconds[model] += shipped.seconds  # type: ignore[assignment]
            case AttemptSucceeded(step=step, number=number):
                self.attempts[models.pop((step, number), ""), "done"] += 1
            case AttemptFailed(step=step, number=number, failure=failure):
                self.attempts[models.pop((step, number), ""), failure.kind.value] += 1
            case RunFinished(status=status, doubt=doubt):
                self.runs[status] += 1
                self.doubtful += bool(doubt)
                self.run_seconds[status] += event.at - accepted.at  # type: ignore[assignment]


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
