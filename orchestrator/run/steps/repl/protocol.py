"""Define the messages between the host and a step's interpreter, and validate those that come from the interpreter.

Each message is one JSON object. The host sends InputText and Run. The interpreter sends Printed and Ask; the host
answers each Ask by one Answer, and Done ends the turn that Run began.
"""

from typing import Any

import msgspec


class ReplProtocolError(Exception):
    """The interpreter sent something that is no message."""


class InputText(msgspec.Struct, tag_field="type", tag="input", frozen=True):
    """A text that the step reads, or the next piece of it."""

    name: str
    text: str


class Run(msgspec.Struct, tag_field="type", tag="run", frozen=True):
    """Run the code of a turn. It may compute for `seconds` and print `output` characters."""

    turn: int
    code: str
    seconds: float
    output: int


class Answer(msgspec.Struct, frozen=True):
    """The outcome of an Ask: a `value`, or an `error` that says what was wrong."""

    value: Any = None
    error: str | None = None


class Printed(msgspec.Struct, tag_field="type", tag="printed", frozen=True, forbid_unknown_fields=True):
    """The code has printed something."""

    text: str


class Ask(msgspec.Struct, tag_field="type", tag="ask", frozen=True, forbid_unknown_fields=True):
    """The code asks the host to do something. `name` is one of those that `Host` knows."""

    id: int
    name: str
    arguments: dict[str, Any]


class Done(msgspec.Struct, tag_field="type", tag="done", frozen=True, forbid_unknown_fields=True):
    """The turn is over: by an `error` (its traceback), by `final` with a `value`, or at the end of its code."""

    error: str | None
    final: bool
    value: Any


class LlmCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask a model. `inputs` are texts that stand before the prompt, by name; they are shared between calls."""

    prompt: str
    role: str | None = None
    persona: str | None = None
    inputs: dict[str, str] = {}
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None


class LlmBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask models many things at once."""

    calls: list[LlmCall]


class ToolAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Call one of the step's tools."""

    tool: str
    arguments: dict[str, Any]


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write one of the step's outputs."""

    name: str
    text: str


class ReadOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read back a part of what a turn has printed: out1, out2, …."""

    name: str
    start: int
    length: int


FromInterpreter = Printed | Ask | Done

_DECODER: msgspec.json.Decoder[FromInterpreter] = msgspec.json.Decoder(FromInterpreter)


def decode(body: bytes) -> FromInterpreter:
    """Return the message. Raises `ReplProtocolError`."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReplProtocolError(f"no message of the interpreter: {error}") from error


def encode(message: InputText | Run | Answer) -> bytes:
    """Return the message as it is sent."""
    return msgspec.json.encode(message)
