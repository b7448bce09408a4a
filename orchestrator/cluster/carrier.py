"""Have the bridge carry files with KV cells between machines, as the pool wants them."""

import asyncio
import itertools
from collections.abc import Callable

from orchestrator.cluster.messages import CarryPrefix, DaemonMessage, GiveUpPrefix, PrefixCarried
from orchestrator.engine.contract import PrefixFile
from orchestrator.pool.shipping import NotCarried

GONE = "the connection to the cluster was lost"


class PrefixCarrier:
    """A `Carrier`. `send` returns whether there is a bridge; `epoch` returns that of a node, None if it is gone."""

    def __init__(self, send: Callable[[DaemonMessage], bool], epoch: Callable[[str], int | None]) -> None:
        self._send = send
        self._epoch = epoch
        self._numbers = itertools.count(1)
        self._under_way: dict[int, asyncio.Future[str]] = {}

    async def carry(self, file: PrefixFile, source: str, target: str) -> None:
        """Copy a file and verify it there. Raises NotCarried."""
        number = next(self._numbers)
        done = self._under_way[number] = asyncio.get_running_loop().create_future()
        try:
            if not self._send(CarryPrefix(number, file, self._epoch_of(source), self._epoch_of(target))):
                raise NotCarried(GONE)
            problem = await done
        except asyncio.CancelledError:
            self._send(GiveUpPrefix(number))
            raise
        finally:
            del self._under_way[number]
        if problem:
            raise NotCarried(problem)

    def note(self, message: PrefixCarried) -> None:
        self._end(message.number, message.problem)

    def lose(self) -> None:
        """Note that the bridge has ended."""
        for number in tuple(self._under_way):
            self._end(number, GONE)

    def _end(self, number: int, problem: str) -> None:
        done = self._under_way.get(number)
        if done is not None and not done.done():
            done.set_result(problem)

    def _epoch_of(self, machine: str) -> int:
        if not machine:
            return 0
        epoch = self._epoch(machine)
        if epoch is None:
            raise NotCarried(f"node {machine} was lost")
        return epoch
