"""An engine's process on a node, as `Engine` uses it: bytes over a socket, the rest by messages of the bridge."""

import asyncio
import os
import socket
from collections.abc import Callable

from orchestrator.cluster.messages import EngineBeat, EngineEnded
from orchestrator.engine.client.spawn import describe_exit
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.errors import LoadFailure
from orchestrator.pool.footprint import needed_of


class Refused(Exception):
    """A process could not be started on a node."""

    def __init__(self, kind: LoadFailure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NodeProcess:
    """A `ProcessHandle` for a process on `node`. `kill` asks the bridge to end it."""

    def __init__(self, node: str, ours: socket.socket, kill: Callable[[], None]) -> None:
        self.socket = ours
        self.place = f" on node {node}"
        self.ended = os.eventfd(0, os.EFD_CLOEXEC)
        self.lost = False
        self.started: asyncio.Future[EngineSpec] = asyncio.get_running_loop().create_future()
        self._kill = kill
        self._reason = ""
        self._end: EngineEnded | None = None
        self._beat: EngineBeat | None = None
        self._worked: bool | None = None  # by the beats since `worked` was called; None without any

    def start(self, spec: EngineSpec) -> None:
        """Note that the process waits for Load, with `spec`."""
        if not self.started.done():
            self.started.set_result(spec)

    def refuse(self, kind: LoadFailure, message: str) -> None:
        """Note that the process could not be started."""
        if not self.started.done():
            self.started.set_exception(Refused(kind, message))

    def abandon(self) -> None:
        """Give everything back before the process was loaded."""
        self.kill()
        self.socket.close()
        self.release()

    def note_beat(self, beat: EngineBeat) -> None:
        self._beat, self._worked = beat, beat.worked or bool(self._worked)

    def note_end(self, end: EngineEnded) -> None:
        self._end = end
        os.eventfd_write(self.ended, 1)

    def lose(self, reason: str) -> None:
        """Note that the node is gone, and the process with it."""
        self.lost, self._reason = True, reason
        if self.started.done():
            os.eventfd_write(self.ended, 1)
        else:
            self.refuse("lost", f"{self.place.strip()} was lost: {reason}")

    def worked(self) -> bool:
        # Without a new beat nobody knows. A node whose beats stay away is lost, which the bridge notices.
        worked, self._worked = self._worked, None
        return worked is None or worked

    def states(self) -> set[str]:
        return set() if self._beat is None else {*self._beat.states}

    def bytes(self, estimate: int) -> int | None:
        """Return how many bytes it needs, see `footprint.measure`; None if it has not said so."""
        if self._beat is None or not self._beat.resident:
            return None
        return needed_of(self._beat.resident, self._beat.shared, estimate)

    def exit_code(self) -> int | None:
        return None if self._end is None else self._end.code

    def describe_end(self) -> str:
        if self._end is None:
            return f"was lost: {self._reason}"
        return describe_exit(self._end.code, self._end.log)

    def log_tail(self) -> str:
        return "" if self._end is None else self._end.log

    def kill(self) -> None:
        if self._end is None and not self.lost:
            self._kill()

    def release(self) -> None:
        os.close(self.ended)
