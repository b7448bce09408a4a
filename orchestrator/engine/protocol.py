"""Define the messages between an engine's client and its process, and how they are framed.

A frame is a length (4 bytes, little endian) and that many bytes of msgpack. Both ends are the same release of this
package; `VERSION` in the first message guards against a process of another one.
"""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from orchestrator.engine.contract import EngineSpec, EngineStats, Finish, Generation, Message, ModelInfo

VERSION = 2
MAX_FRAME = 256 << 20
_LENGTH = struct.Struct("<I")


class WireMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Any message. `array_like` because they travel a thousand times a second."""


class Load(WireMessage, frozen=True):
    """Load this model; the first message, answered by Ready or LoadFailed."""

    version: int
    spec: EngineSpec


class Submit(WireMessage, frozen=True):
    """Generate. The schema has become a grammar, and the seed is set. `stream` asks for Texts on the way."""

    seq: int
    generation: Generation
    stream: bool


class Cancel(WireMessage, frozen=True):
    """Drop a sequence, wherever it is. Answered by Finished, unless it had ended already."""

    seq: int


class Count(WireMessage, frozen=True):
    """How many tokens is this prompt? Answered by Counted or Failed."""

    seq: int
    messages: tuple[Message, ...]


class Embed(WireMessage, frozen=True):
    """Make a vector of each text. Answered by Embedded or Failed, by neither after Cancel."""

    seq: int
    texts: tuple[str, ...]


class SetThreads(WireMessage, frozen=True):
    """Compute with this many threads from the next step on; with 0, rest until there are some."""

    threads: int


class GetStats(WireMessage, frozen=True):
    """Answered by Stats."""

    seq: int


class Stop(WireMessage, frozen=True):
    """End the process."""


class Ready(WireMessage, frozen=True):
    """The model is loaded."""

    info: ModelInfo


class LoadFailed(WireMessage, frozen=True):
    """The model is not loaded, and the process ends. `kind` is a LoadFailure."""

    kind: str
    message: str


class Texts(WireMessage, frozen=True):
    """What a step has added, as (sequence, text) pairs."""

    texts: list[tuple[int, str]]


class Finished(WireMessage, frozen=True):
    """A sequence has ended. `text` is all of it; times in seconds."""

    seq: int
    text: str
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_seconds: float
    prefill_seconds: float
    decode_seconds: float


class Failed(WireMessage, frozen=True):
    """A request came to nothing. `kind` is the name of an error class; `numbers` are its attributes in order."""

    seq: int
    kind: str
    message: str
    numbers: tuple[int, ...] = ()


class Counted(WireMessage, frozen=True):
    """The answer to Count."""

    seq: int
    tokens: int


class Embedded(WireMessage, frozen=True):
    """The answer to Embed. `vectors` are little-endian 32-bit floats, text after text; `tokens` of all texts."""

    seq: int
    tokens: int
    vectors: bytes


class Stats(WireMessage, frozen=True):
    """The answer to GetStats."""

    seq: int
    stats: EngineStats


class Heartbeat(WireMessage, frozen=True):
    """The process lives, and the next one is due in about this many seconds."""

    next_seconds: float


Command = Load | Submit | Cancel | Count | Embed | SetThreads | GetStats | Stop
Reply = Ready | LoadFailed | Texts | Finished | Failed | Counted | Embedded | Stats | Heartbeat

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Command)
_replies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Reply)


class ProtocolError(Exception):
    """The other end does not speak this protocol."""


def encode(message: Command | Reply) -> bytes:
    """Return the frame of a message."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cut a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes and yield every body that is now complete. Raises ProtocolError for an impossible length."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ProtocolError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body


def decode_command(body: bytes) -> Command:
    """Return the command in a frame. Raises ProtocolError."""
    try:
        command: Command = _commands.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"no command: {error}") from error
    return command


def decode_reply(body: bytes) -> Reply:
    """Return the reply in a frame. Raises ProtocolError."""
    try:
        reply: Reply = _replies.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"no reply: {error}") from error
    return reply
