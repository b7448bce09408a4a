"""Collect the counters of engines, without waiting for an engine that is in a long step."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from orchestrator.engine.contract import NOT_SET_UP, EngineStats
from orchestrator.engine.errors import EngineDied
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.status import ModelCounters

PATIENCE_SECONDS: Final = 0.02
"""How long engines are waited for."""


class Counters:
    """The last counters of each engine. `tasks` has to be open as long as this is used."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._latest: WeakKeyDictionary[EngineHandle, EngineStats] = WeakKeyDictionary()
        self._pending: dict[EngineHandle, asyncio.Task[None]] = {}

    async def of(self, engines: Collection[EngineHandle]) -> Mapping[EngineHandle, EngineStats]:
        """Return each engine's counters: the present ones, or the last known ones if it does not answer at once.

        Engines that have never answered are left out.
        """
        for engine in engines:
            if engine not in self._pending:
                self._pending[engine] = self._tasks.create_task(self._ask(engine))
        if asked := [self._pending[engine] for engine in engines]:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
        return {engine: stats for engine in engines if (stats := self._latest.get(engine)) is not None}

    async def _ask(self, engine: EngineHandle) -> None:
        try:
            with contextlib.suppress(EngineDied):
                self._latest[engine] = await engine.stats()
        finally:
            del self._pending[engine]


def sum_counters(counted: Sequence[EngineStats]) -> ModelCounters | None:
    """Return the sums of the counters of a model's engines; None if there are none."""
    if not counted:
        return None
    return ModelCounters(
        prompt_tokens=sum(one.prompt_tokens for one in counted),
        reused_tokens=sum(one.reused_tokens for one in counted),
        output_tokens=sum(one.output_tokens for one in counted),
        preempted=sum(one.preempted for one in counted),
        drafted=sum(one.drafted for one in counted),
        accepted=sum(one.accepted for one in counted),
        saved_seconds=sum(one.saved_seconds for one in counted),
        speculation=None if counted[0].speculation == NOT_SET_UP else counted[0].speculation,
        llama_seconds=sum(one.llama_seconds for one in counted),
        own_seconds=sum(one.own_seconds for one in counted),
    )
