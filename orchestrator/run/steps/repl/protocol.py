"""The messages between the host and a step's interpreter; those of the interpreter are validated.

Each message is a JSON object. The host sends InputText and Run, the interpreter Printed and Ask. The host answers each
Ask with one Answer, and Done ends the turn.
"""

from typing import Any

import msgspec


class ReplProtocolError(Exception):
    """The interpreter sent something that is no message."""


class InputText(msgspec.Struct, tag_field="type", tag="input", frozen=True):
    """A text that the step reads, or its next piece."""

    name: str
    text: str


class Run(msgspec.Struct, tag_field="type", tag="run", frozen=True):
    """Run a turn, which may compute for `seconds` and print `output` characters."""

    turn: int
    code: str
    seconds: float
    output: int


class Answer(msgspec.Struct, frozen=True):
    """The outcome of an Ask: a `value`, or an `error` that says what was wrong."""

    value: Any = None
    error: str | None = None


class Printed(msgspec.Struct, tag_field="type", tag="printed", frozen=True, forbid_unknown_fields=True):
    text: str


class Ask(msgspec.Struct, tag_field="type", tag="ask", frozen=True, forbid_unknown_fields=True):
    """A request of the code. `name` is one of those that `Host` knows."""

    id: int
    name: str
    arguments: dict[str, Any]


class Done(msgspec.Struct, tag_field="type", tag="done", frozen=True, forbid_unknown_fields=True):
    """The end of a turn: by an `error` (its traceback), by `final` with a `value`, or at the end of the code."""

    error: str | None
    final: bool
    value: Any


class LlmCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask a model. `inputs` are texts before the prompt, by name; calls share them."""

    prompt: str
    role: str | None = None
    persona: str | None = None
    inputs: dict[str, str] = {}
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None


class LlmBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    calls: list[LlmCall]


class ToolAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    arguments: dict[str, Any]


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    text: str


class ReadOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a part of an output (out1, out2, …), in characters."""

    name: str
    start: int
    length: int


FromInterpreter = Printed | Ask | Done

_DECODER: msgspec.json.Decoder[FromInterpreter] = msgspec.json.Decoder(FromInterpreter)


def decode(body: bytes) -> FromInterpreter:
    """Raises `ReplProtocolError`."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReplProtocolError(f"no message of the interpreter: {error}") from error


def encode(message: InputText | Run | Answer) -> bytes:
    return msgspec.json.encode(message)
