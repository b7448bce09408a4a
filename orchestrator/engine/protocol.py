"""Define the messages between an engine's client and its process, and how they are framed.

A frame is a length (4 bytes, little endian) and that many bytes of msgpack. Both ends should be of the same release of
this package; the client's first message holds its `VERSION`, and the process refuses another one than its own.
"""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from orchestrator.engine.contract import (
    EngineSpec,
    EngineStats,
    Finish,
    Generation,
    Message,
    ModelInfo,
    OfferedTool,
    TokenLogprob,
)
from registry.thinking import Thinking

VERSION = 8
MAX_FRAME = 256 << 20
"""The most bytes of a message."""
_LENGTH = struct.Struct("<I")


class WireMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all messages. They are encoded as arrays, since some are sent a thousand times a second."""


class Load(WireMessage, frozen=True):
    """Load a model. The first message, and sent once; answered by Ready or LoadFailed."""

    version: int
    spec: EngineSpec


class Submit(WireMessage, frozen=True):
    """Generate a text. Answered by Finished or Failed."""

    seq: int
    """The number of the request, which its answer repeats. The same holds for all messages with `seq`."""
    generation: Generation
    """Its schema, if it had one, is a grammar by now, and its seed is set."""
    stream: bool
    """Whether Prompts and Texts are to be sent on the way."""
    is_json: bool = False
    """Whether the grammar was made of a schema."""


class Cancel(WireMessage, frozen=True):
    """Cancel a request. A Submit is then answered by Finished, unless it had been answered; an Embed not at all."""

    seq: int


class Count(WireMessage, frozen=True):
    """Count the tokens of a prompt. Answered by Counted or Failed."""

    seq: int
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    """The tools that the model's chat template is given."""
    thinking: Thinking = "auto"
    """How much the model is to think, which its chat template may be told."""


class Tokenize(WireMessage, frozen=True):
    """Turn a text into tokens. Answered by Tokenized or Failed."""

    seq: int
    text: str
    special: bool
    """Whether names of control tokens in the text mean these tokens."""
    whole: bool
    """Whether the tokens that the model needs around its whole input are added, such as BOS."""


class Detokenize(WireMessage, frozen=True):
    """Turn tokens into text. Answered by Rendered or Failed."""

    seq: int
    tokens: tuple[int, ...]


class Render(WireMessage, frozen=True):
    """Render messages through the model's chat template. Answered by Rendered or Failed."""

    seq: int
    messages: tuple[Message, ...]
    arguments: dict[str, bool | int | float | str | None]
    """Variables of the template."""
    tools: tuple[OfferedTool, ...] = ()


class Embed(WireMessage, frozen=True):
    """Make a vector of each text. Answered by Embedded or Failed, or after Cancel not at all."""

    seq: int
    texts: tuple[str, ...]
    query: str | None = None
    """For an engine that ranks: what the texts are to be relevant to. Each text's vector is then one number."""


class SetThreads(WireMessage, frozen=True):
    """Compute with at most this many threads from the next step on. With 0 the engine rests until it may use some."""

    threads: int


class GetStats(WireMessage, frozen=True):
    """Return the counters. Answered by Stats."""

    seq: int


class Shutdown(WireMessage, frozen=True):
    """End the process."""


class Ready(WireMessage, frozen=True):
    """The model is loaded, and requests are accepted."""

    info: ModelInfo


class LoadFailed(WireMessage, frozen=True):
    """The model cannot be loaded, and the process ends."""

    kind: str
    """A `LoadFailure`."""
    message: str


class Queued(WireMessage, frozen=True):
    """These Submits were understood, and wait in the engine's queue."""

    seqs: tuple[int, ...]


class Started(WireMessage, frozen=True):
    """These requests leave the queue: they are computed from the next step on."""

    seqs: tuple[int, ...]


class Prompts(WireMessage, frozen=True):
    """How long requests wait that have no text yet. Not every change is sent."""

    queued: list[tuple[int, int]]
    """Pairs of a request's number and how many others leave the queue before it."""
    read: list[tuple[int, int, int]]
    """Of requests that have left the queue: number, tokens of the prompt that are computed or cached, and all of its
    tokens."""


class Texts(WireMessage, frozen=True):
    """The pieces of text that some sequences have got since the last such message."""

    texts: list[tuple[int, str]]
    """Pairs of the request's number and the text."""
    thoughts: list[tuple[int, str]] = []
    """The same for thoughts, which come before the text."""
    logprobs: list[tuple[int, list[TokenLogprob]]] = []
    """The tokens that make these pieces of text, of requests that want to know how likely they were."""


class Finished(WireMessage, frozen=True):
    """A text has ended."""

    seq: int
    text: str
    """All of it, the pieces that were streamed included."""
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    """Tokens of the prompt that a shared prefix held."""
    output_tokens: int
    queued_seconds: float
    """The time in the queue, also after preemptions."""
    prefill_seconds: float
    """From there to the first token."""
    decode_seconds: float
    """From the first token to the end."""
    reasoning: str = ""
    """All thoughts, which are no part of `text`."""
    reasoning_tokens: int = 0
    """How many of the `output_tokens` belong to thoughts."""
    work_seconds: float = 0.0
    """Its share of the time of the steps that it was in, see `events.Usage`; likewise the two that follow."""
    alone_seconds: float = 0.0
    packed_seconds: float = 0.0
    stop_string: str = ""
    """The stop string that has ended the text."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """All tokens of the text, where the request wants to know how likely they were."""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """All tokens of the prompt, where the request wants to know that of them, see `Completion`."""


class Failed(WireMessage, frozen=True):
    """A request has failed. `errors.format_error` makes these fields, and `errors.parse_error` the error of them."""

    seq: int
    kind: str
    """The name of the error's class."""
    message: str
    numbers: tuple[int, ...] = ()


class Counted(WireMessage, frozen=True):
    """The answer to Count."""

    seq: int
    tokens: int


class Tokenized(WireMessage, frozen=True):
    """The answer to Tokenize."""

    seq: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]
    """What each token stands for, see `TokenizedText`."""


class Rendered(WireMessage, frozen=True):
    """The answer to Detokenize and to Render."""

    seq: int
    text: str


class Embedded(WireMessage, frozen=True):
    """The answer to Embed."""

    seq: int
    tokens: int
    """How many tokens the texts have in all."""
    vectors: bytes
    """Little-endian 32-bit floats: the vector of the first text, then that of the second, and so on."""


class Stats(WireMessage, frozen=True):
    """The answer to GetStats."""

    seq: int
    stats: EngineStats


class Heartbeat(WireMessage, frozen=True):
    """A sign of life, sent when nothing else was for a second, and before a long step."""

    next_seconds: float
    """How long the next step should take."""


EngineCommand = (
    Load | Submit | Cancel | Count | Tokenize | Detokenize | Render | Embed | SetThreads | GetStats | Shutdown
)
Reply = (
    Ready
    | LoadFailed
    | Queued
    | Started
    | Prompts
    | Texts
    | Finished
    | Failed
    | Counted
    | Tokenized
    | Rendered
    | Embedded
    | Stats
    | Heartbeat
)

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(EngineCommand)
_replies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Reply)


class ProtocolError(Exception):
    """The other end has sent something that is no message, or not one that is allowed at this point."""


def encode(message: EngineCommand | Reply) -> bytes:
    """Return the frame of a message."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes that have arrived, and yield every body that is complete by now.

        Raises ProtocolError for a frame longer than `MAX_FRAME`.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ProtocolError(f"a frame is {length} bytes long")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body


def decode_command(body: bytes) -> EngineCommand:
    """Return the command in the body of a frame. Raises ProtocolError."""
    try:
        command: EngineCommand = _commands.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is no command: {error}") from error
    return command


def decode_reply(body: bytes) -> Reply:
    """Return the reply in the body of a frame. Raises ProtocolError."""
    try:
        reply: Reply = _replies.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is no reply: {error}") from error
    return reply
