"""Define the messages between an engine's client and its process, and their framing.

A frame is a length (4 bytes, little endian) and that many bytes of msgpack. The client's first message holds its
`VERSION`; the process refuses any version but its own.
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
    HeldPrefix,
    Message,
    ModelInfo,
    OfferedTool,
    PrefixFile,
    TokenLogprob,
)
from orchestrator.registry.thinking import Thinking
from orchestrator.task.reuse import Reuse

VERSION = 11
MAX_FRAME = 256 << 20  # bytes
_LENGTH = struct.Struct("<I")


class WireMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all messages."""  # encoded as arrays, since some are sent a thousand times a second


class Load(WireMessage, frozen=True):
    """The first message; answered by Ready or LoadFailed."""

    version: int
    spec: EngineSpec


class Submit(WireMessage, frozen=True):
    """Generate a text. Answered by Finished or Failed."""

    seq: int  # the request's number, repeated in its answer; likewise in all messages
    generation: Generation  # a schema has been turned into a grammar, and the seed is set
    stream: bool  # send Prompts and Texts on the way
    is_json: bool = False  # the grammar was made from a schema


class Cancel(WireMessage, frozen=True):
    """Cancel a request. A Submit is still answered by Finished, an Embed is not answered."""

    seq: int


class Hurry(WireMessage, frozen=True):
    """Let a Submit go before others, as if it had no slack at all. Not answered."""

    seq: int


class Count(WireMessage, frozen=True):
    """Count the tokens of a prompt. Answered by Counted or Failed."""

    seq: int
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    thinking: Thinking = "auto"


class Tokenize(WireMessage, frozen=True):
    """Answered by Tokenized or Failed."""

    seq: int
    text: str
    special: bool  # names of control tokens in the text mean these tokens
    whole: bool  # add the tokens that the model needs around its whole input, such as BOS


class Detokenize(WireMessage, frozen=True):
    """Answered by Rendered or Failed."""

    seq: int
    tokens: tuple[int, ...]


class Render(WireMessage, frozen=True):
    """Render messages with the model's chat template. Answered by Rendered or Failed."""

    seq: int
    messages: tuple[Message, ...]
    arguments: dict[str, bool | int | float | str | None]
    tools: tuple[OfferedTool, ...] = ()


class Locate(WireMessage, frozen=True):
    """Say how much of a prompt need not be computed. Answered by Located or Failed."""

    seq: int
    generation: Generation


class Export(WireMessage, frozen=True):
    """Have a file with the KV cells of at least `least` tokens of a prompt. Answered by Exported or Failed."""

    seq: int
    generation: Generation
    key: str  # of the engine that will use it
    least: int


class Embed(WireMessage, frozen=True):
    """Make a vector of each text. Answered by Embedded or Failed; after Cancel not at all."""

    seq: int
    texts: tuple[str, ...]
    query: str | None = None  # for an engine that ranks: a text's vector is then its score


class SetThreads(WireMessage, frozen=True):
    """Use at most this many threads from the next step on; 0 pauses the engine."""

    threads: int


class GetStats(WireMessage, frozen=True):
    """Answered by Stats."""

    seq: int


class Shutdown(WireMessage, frozen=True):
    """End the process."""


class Ready(WireMessage, frozen=True):
    """The model is loaded, and requests are accepted."""

    info: ModelInfo


class LoadFailed(WireMessage, frozen=True):
    """The model cannot be loaded, and the process ends."""

    kind: str  # a `LoadFailure`
    message: str


class Queued(WireMessage, frozen=True):
    """These Submits are valid and wait in the engine's queue."""

    seqs: tuple[int, ...]


class Started(WireMessage, frozen=True):
    """These requests have left the queue; they are computed from the next step on."""

    seqs: tuple[int, ...]
    prompts: tuple[bytes, ...]  # of each, see `Completion.prompt_blocks`


class Prompts(WireMessage, frozen=True):
    """Progress of requests that have no text yet. Not every change is sent."""

    queued: list[tuple[int, int]]  # pairs of a request's number and how many requests leave the queue before it
    read: list[tuple[int, int, int]]  # request number, prompt tokens computed or cached, all prompt tokens


class Texts(WireMessage, frozen=True):
    """The new text of some sequences since the last such message."""

    texts: list[tuple[int, str]]  # pairs of a request's number and the text
    thoughts: list[tuple[int, str]] = []  # the same for thoughts, which precede the text
    logprobs: list[tuple[int, list[TokenLogprob]]] = []  # the tokens of these texts, for requests with `logprobs`


class Finished(WireMessage, frozen=True):
    """A text has ended."""

    seq: int
    text: str  # the whole text, including what was streamed
    finish: Finish
    prompt_tokens: int
    cached_tokens: int  # prompt tokens that came from a shared prefix
    output_tokens: int
    queued_seconds: float  # includes waits after preemptions
    prefill_seconds: float  # from the queue to the first token
    decode_seconds: float  # from the first token to the end
    reasoning: str = ""
    reasoning_tokens: int = 0  # how many of the `output_tokens` belong to thoughts
    work_seconds: float = 0.0  # its share of the time of its steps, see `events.Usage`; likewise the next two
    alone_seconds: float = 0.0
    packed_seconds: float = 0.0
    stop_string: str = ""  # the stop string that ended the text
    logprobs: tuple[TokenLogprob, ...] = ()  # all tokens of the text, if the request has `logprobs`
    prompt_logprobs: tuple[TokenLogprob, ...] = ()  # all tokens of the prompt, if the request has `prompt_logprobs`
    reuse: Reuse = Reuse()  # by the prompts before, on this engine
    drafted_tokens: int = 0  # that were verified, see `events.Usage`
    accepted_tokens: int = 0


class Failed(WireMessage, frozen=True):
    """A request has failed; see `errors.format_error`."""

    seq: int
    kind: str  # the name of the error's class
    message: str
    numbers: tuple[int, ...] = ()


class Counted(WireMessage, frozen=True):
    seq: int
    tokens: int


class Tokenized(WireMessage, frozen=True):
    seq: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]  # see `TokenizedText`


class Rendered(WireMessage, frozen=True):
    seq: int
    text: str


class Located(WireMessage, frozen=True):
    seq: int
    held: HeldPrefix


class Exported(WireMessage, frozen=True):
    seq: int
    file: PrefixFile | None  # None: it has fewer tokens, another key, or no room on its disk


class Embedded(WireMessage, frozen=True):
    seq: int
    tokens: int  # of all texts together
    vectors: bytes  # little-endian 32-bit floats: the vectors of the texts in order


class Stats(WireMessage, frozen=True):
    seq: int
    stats: EngineStats


class Heartbeat(WireMessage, frozen=True):
    """A sign of life, sent after a second without other messages and before a long step."""

    next_seconds: float  # expected duration of the next step


EngineCommand = (
    Load
    | Submit
    | Cancel
    | Hurry
    | Count
    | Tokenize
    | Detokenize
    | Render
    | Locate
    | Export
    | Embed
    | SetThreads
    | GetStats
    | Shutdown
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
    | Located
    | Exported
    | Embedded
    | Stats
    | Heartbeat
)

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(EngineCommand)
_replies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Reply)


class ProtocolError(Exception):
    """Invalid data from the other end, or a message that is not allowed at this point."""


def encode(message: EngineCommand | Reply) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes, and yield every body that is now complete.

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
    """Raises ProtocolError."""
    try:
        command: EngineCommand = _commands.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is no command: {error}") from error
    return command


def decode_reply(body: bytes) -> Reply:
    """Raises ProtocolError."""
    try:
        reply: Reply = _replies.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is no reply: {error}") from error
    return reply
