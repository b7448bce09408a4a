"""What the tests of the pool have in common: requests, and ways to look and to wait."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import ModelStatus
from orchestrator.registry.models import Registry

MESSAGES = (Message("user", "hello there"),)
SHORT = Generation(messages=MESSAGES, max_tokens=4)


def flat(count: int) -> Topology:
    """Return a machine with so many cores."""
    return Topology.flat(count, 1 << 40)


def writes(max_tokens: int = 200) -> Generation:
    """A request that always writes `max_tokens` tokens: the grammar keeps the model from stopping."""
    return Generation(messages=MESSAGES, max_tokens=max_tokens, grammar='root ::= "a" root')


def status_of(pool: Pool, model: str) -> ModelStatus:
    """Describe one model."""
    return next(status for status in pool.snapshot().models if status.model == model)


def pid_of(pool: Pool, model: str) -> int:
    """Return the process of a model that is loaded and has one replica."""
    pid = status_of(pool, model).pid
    assert pid is not None, f"{model} is not loaded"
    return pid


class Begun:
    """A generation whose first text has arrived."""

    def __init__(self, pool: Pool, model: str, request: Generation) -> None:
        self._begun = asyncio.Event()
        self.task = asyncio.create_task(pool.generate(model, request, lambda _: self._begun.set()))

    async def begun(self) -> None:
        started = asyncio.create_task(self._begun.wait())
        await asyncio.wait([started, self.task], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        assert self._begun.is_set(), self.task


async def begin(pool: Pool, model: str, request: Generation | None = None) -> asyncio.Task[Completion]:
    """Start a generation, and return it when its first text has arrived."""
    running = Begun(pool, model, request or writes())
    await running.begun()
    return running.task


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody is told of."""
    async with asyncio.timeout(100):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def bytes_of(registry: Registry) -> int:
    """Return what the first model of a registry is estimated to take."""
    memory = next(iter(registry.models.values())).memory
    assert memory is not None
    return memory.total


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a generation and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def copy_file(source: Path, target: Path, length: int | None = None) -> None:
    """Copy a file, or the first bytes of it."""
    target.write_bytes(source.read_bytes()[:length])
