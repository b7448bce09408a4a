"""Talk to a program in the sandbox while it runs.

The program finds its end of a duplex byte stream as descriptor 3 (`CHANNEL`), so that what it prints does not mix with
what it says. A message is its length, four bytes big-endian, and its bytes; both sides speak like this. The stream is a
Unix socket of our own, which reaches nothing else; descriptors sent over it are dropped.
"""

import asyncio
import struct

from orchestrator.sandbox.contract import Outcome
from orchestrator.sandbox.errors import ChannelBroken
from orchestrator.sandbox.inside import CHANNEL
from orchestrator.sandbox.process import SandboxedProcess

__all__ = ["CHANNEL", "MESSAGE_LIMIT", "Session"]

MESSAGE_LIMIT = 16 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class Session:
    """A running program and the channel to it. It ends with the program, its wall-clock limit, or the block."""

    def __init__(
        self,
        process: SandboxedProcess,
        outcome: "asyncio.Task[Outcome]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._outcome = outcome
        self._reader = reader
        self._writer = writer

    async def send(self, message: bytes) -> bool:
        """Send one message; waits while the program does not read. False if the program no longer listens."""
        assert len(message) <= MESSAGE_LIMIT, "the caller knows the limit"
        try:
            self._writer.write(_LENGTH.pack(len(message)) + message)
            await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    async def receive(self) -> bytes | None:
        """Return the next message, or None when the program has closed the channel or ended.

        Raises ChannelBroken if it announces more than MESSAGE_LIMIT bytes.
        """
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MESSAGE_LIMIT:
                raise ChannelBroken(f"a message of {length} bytes was announced; accepted: up to {MESSAGE_LIMIT}")
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def end(self) -> Outcome:
        """Close the channel, let the program end by itself within its limits, and return how it ended."""
        self._writer.close()
        return await asyncio.shield(self._outcome)

    def kill(self) -> None:
        """End the program now; `end` then tells of it."""
        self._process.kill()
