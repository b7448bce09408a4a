"""Exchange messages with a program in the sandbox while it runs.

The program has its end of the stream as descriptor 3 (`CHANNEL`). A message is its length (four bytes, big-endian) and
its bytes, or a line for programs that are not ours. The stream is a Unix socket pair that leads nowhere else;
descriptors sent over it are dropped.
"""

import asyncio
import struct

from orchestrator.run.sandbox.contract import JobOutcome
from orchestrator.run.sandbox.errors import ChannelBroken
from orchestrator.run.sandbox.inside import CHANNEL
from orchestrator.run.sandbox.process import SandboxedProcess

__all__ = ["CHANNEL", "MESSAGE_LIMIT", "Session"]

MESSAGE_LIMIT = 16 * 1024 * 1024  # bytes of the longest message
_LENGTH = struct.Struct(">I")
_CHUNK = 64 * 1024


class Session:
    def __init__(
        self,
        process: SandboxedProcess,
        outcome: "asyncio.Task[JobOutcome]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._outcome = outcome
        self._reader = reader
        self._writer = writer
        self._lines = bytearray()

    async def send(self, message: bytes) -> bool:
        """Send one message, waiting while the program does not read. Returns False if it has closed the channel."""
        assert len(message) <= MESSAGE_LIMIT, "callers keep to MESSAGE_LIMIT"
        return await self._write(_LENGTH.pack(len(message)) + message)

    async def send_line(self, line: bytes) -> bool:
        """Send one line, without a line feed in it."""
        assert b"\n" not in line, "callers send one line"
        return await self._write(line + b"\n")

    async def receive_line(self) -> bytes | None:
        """Return the next line, or None if the program has closed the channel or ended.

        Raises ChannelBroken for a line of more than MESSAGE_LIMIT bytes.
        """
        searched = 0
        while (end := self._lines.find(b"\n", searched)) < 0:
            searched = len(self._lines)
            if searched > MESSAGE_LIMIT:
                raise ChannelBroken(f"a line of more than {MESSAGE_LIMIT} bytes was written")
            try:
                chunk = await self._reader.read(_CHUNK)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._lines += chunk
        line = bytes(self._lines[:end])
        del self._lines[: end + 1]
        return line

    async def receive(self) -> bytes | None:
        """Return the next message, or None if the program has closed the channel or ended.

        Raises ChannelBroken if it announces more than MESSAGE_LIMIT bytes.
        """
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MESSAGE_LIMIT:
                raise ChannelBroken(f"a message of {length} bytes was announced; accepted: up to {MESSAGE_LIMIT}")
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def _write(self, data: bytes) -> bool:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    async def end(self) -> JobOutcome:
        """Close the channel, and return how the program ended."""
        self._writer.close()
        return await asyncio.shield(self._outcome)

    def kill(self) -> None:
        self._process.kill()
