"""Ask engines what they have counted, and wait for none that is in a long step."""

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


class Counters:
    """What engines said when they were asked last. `tasks` outlives them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._said: WeakKeyDictionary[EngineHandle, EngineStats] = WeakKeyDictionary()
        self._asked: dict[EngineHandle, asyncio.Task[None]] = {}

    async def of(self, engines: Collection[EngineHandle]) -> Mapping[EngineHandle, EngineStats]:
        """Return what each has counted, as of now or, in a long step, as of earlier; without those who never said."""
        for engine in engines:
            if engine not in self._asked:
                self._asked[engine] = self._tasks.create_task(self._ask(engine))
        if asked := [self._asked[engine] for engine in engines]:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
        return {engine: said for engine in engines if (said := self._said.get(engine)) is not None}

    async def _ask(self, engine: EngineHandle) -> None:
        try:
            with contextlib.suppress(EngineDied):
                self._said[engine] = await engine.stats()
        finally:
            del self._asked[engine]


def together(counted: Sequence[EngineStats]) -> ModelCounters | None:
    """Return the counters of all engines of a model; None where none has said anything."""
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
