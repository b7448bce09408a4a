"""Read what a program writes, keep the beginning, and notice a flood."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

_CHUNK = 64 * 1024
FLOOD = 16
"""A program that writes this many times more than is kept is ended."""


@dataclass(slots=True)
class Captured:
    """The beginning of a stream; `cut` says that there was more."""

    text: bytearray = field(default_factory=bytearray)
    cut: bool = False


async def capture(stream: asyncio.StreamReader, keep: int, flooded: Callable[[], None]) -> Captured:
    """Read the stream to its end and keep `keep` bytes. Calls `flooded` once when there is far more than that."""
    captured = Captured()
    seen = 0
    while chunk := await stream.read(_CHUNK):
        if seen <= keep * FLOOD < seen + len(chunk):
            flooded()
        seen += len(chunk)
        captured.text += chunk[: keep - len(captured.text)]
        captured.cut = seen > keep
    return captured


async def feed(stream: asyncio.StreamWriter, content: bytes) -> None:
    """Write the program's stdin and close it. A program that does not want it all is free to leave it."""
    try:
        stream.write(content)
        await stream.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        stream.close()
