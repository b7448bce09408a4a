"""Ship the KV cells of a prompt's start between machines when that is predicted to take less time than computing them.

The engine that has them writes a file, which is carried into the folder of prefixes of the other machine. The engine
there finds it like one of its own. Whatever goes wrong costs at most the time of computing the cells.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from orchestrator.engine.contract import Generation, PrefixFile
from orchestrator.engine.kv.prefix_value import LEAST_TOKENS
from orchestrator.pool.handle import EngineHandle
from orchestrator.registry.forms import HEAD
from orchestrator.task.events import Shipped

# Assumed until files were shipped: the calls that do not depend on size, and the bytes per second of writing a file at
# the source, and of verifying and reading it at the target.
CALL_SECONDS: Final = 0.02
WRITE_RATE: Final = 200e6
READ_RATE: Final = 400e6
LEARNING_RATE: Final = 0.3
PAUSE_SECONDS: Final = 60.0  # after a failure, until cells of a model are shipped between two machines again


class NotCarried(Exception):
    """A file did not reach another machine, or was damaged when it did. The message says why."""


class Carrier(Protocol):
    """The port to what connects machines. Their names are those of `Machine`, empty for this one."""

    async def carry(self, file: PrefixFile, source: str, target: str) -> None:
        """Copy a file between the folders of prefixes of two machines, and verify it there. Raises NotCarried."""


class Links:
    """What it takes to ship files between machines, by transfers so far. `carrier` carries them out.

    `bytes_per_second` returns what was measured between this machine and another when that joined.
    """

    def __init__(self, carrier: Carrier, bytes_per_second: Callable[[str], float]) -> None:
        self.carrier = carrier
        self._measured = bytes_per_second
        self._seconds_per_byte: dict[tuple[str, str], float] = {}

    def seconds(self, source: str, target: str, size: float) -> float:
        """Return how long a file of `size` bytes takes, from the request for it to its use."""
        return CALL_SECONDS + size * self._expected(source, target)

    def _expected(self, source: str, target: str) -> float:
        learned = self._seconds_per_byte.get((source, target))
        slower = min(self._measured(source), self._measured(target))
        return 1 / slower + 1 / WRITE_RATE + 1 / READ_RATE if learned is None else learned

    def learn(self, source: str, target: str, size: int, seconds: float) -> None:
        """Note that a file took this long from the request for it to its arrival."""
        before = self._expected(source, target)
        latest = max(0.0, seconds - CALL_SECONDS) / size + 1 / READ_RATE
        self._seconds_per_byte[source, target] = before + LEARNING_RATE * (latest - before)

    def forget(self, machine: str) -> None:
        """Forget what was learned of a machine, which has left."""
        learned = self._seconds_per_byte.items()
        self._seconds_per_byte = {ends: seconds for ends, seconds in learned if machine not in ends}


@dataclass(slots=True, eq=False)
class Shipment:
    """Cells that were promised to a replica when it got a request, and are shipped when the request comes to it."""

    source: EngineHandle
    machine: str  # of the source
    prompt_token: float  # seconds to compute one at the target
    seconds: float  # to compute all cells there, and so the most that shipping may take
    task: "asyncio.Task[Shipped | None] | None" = None  # once it has started


async def ship(
    links: Links, shipment: Shipment, engine: EngineHandle, machine: str, request: Generation
) -> Shipped | None:
    """Ship the start of a request's prompt to `engine` on `machine`, and return what was shipped.

    Returns None if there is nothing to gain after all. Raises EngineError, NotCarried, TimeoutError.
    """
    clock = asyncio.get_running_loop().time
    start = clock()
    async with asyncio.timeout(shipment.seconds):
        at_source, at_target = await asyncio.gather(shipment.source.locate(request), engine.locate(request))
        if not at_source.key or at_source.key != at_target.key:
            raise NotCarried("the two engines compute cells in different ways, or store none")
        least = at_target.tokens + LEAST_TOKENS
        file = None if at_source.tokens < least else await shipment.source.export(request, at_target.key, least)
        if file is None:
            return None
        tokens = file.tokens - at_target.tokens
        if links.seconds(shipment.machine, machine, file.bytes) >= tokens * shipment.prompt_token:
            return None
        await links.carrier.carry(file, shipment.machine, machine)
    seconds = clock() - start
    links.learn(shipment.machine, machine, file.bytes, seconds)
    return Shipped(tokens, file.bytes, seconds, shipment.machine or HEAD)
