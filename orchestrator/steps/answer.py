"""Say what a step's answer has to look like, and take the artifacts out of an answer or a result.

A step that generates has an answer. Where the step has one output, the answer is the artifact; where it has several,
the answer is a JSON object with the outputs as keys. JSON is enforced by a grammar and validated in any case, since a
grammar cannot express all that a schema can. An `output_schema` holds for each output on its own.

A step that acts has a result: what its code gave to `final`, or its model or its tool returned. The same holds for the
result, but for outputs that were written with `write_artifact`, which need not be in it.
"""

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from orchestrator.engine.client.engine import Completion
from orchestrator.events import Failure, FailureKind
from orchestrator.gates import BadSchema, OutputSchema, SchemaMismatch, file_name, is_json
from orchestrator.steps.errors import AttemptError
from orchestrator.taskir import Step
from orchestrator.taskir.json_text import compact_json

ANY_JSON: dict[str, Any] = {}

_FENCED = re.compile(r"```[^\n`]*\n(?P<inside>.*?)\n?[ \t]*```", re.DOTALL)
_BLOCK = re.compile(r"^ {0,3}```[^\n`]*\n(?P<inside>.*?)(?:^ {0,3}```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_CODE_BEFORE = re.compile(r"\A#!|\"\"\"|'''|<<")
"""What shows that a text is code already before its first fence, which then belongs to a string of it."""
CODE_ENDINGS = frozenset(
    ".bash .bat .c .cc .cfg .cpp .cs .css .go .h .hpp .html .ini .java .js .jsx .kt .lua .php .pl .ps1 .py .pyi .r .rb "
    ".rs .scala .sh .sql .svg .swift .toml .ts .tsx .xml .yaml .yml .zsh".split()
)
"""What the names of outputs end in that are code or settings, in which no prose may stand around a fenced block."""


class AnswerShape:
    """What the answer of one step has to look like."""

    def __init__(self, step: Step) -> None:
        """Raises `AttemptError` for an output schema that is no valid schema: no answer could ever match it."""
        self._step = step
        self._json = [name for name in step.outputs if is_json(step, name)]
        try:
            self._checked = OutputSchema(step.output_schema)
            self._whole = OutputSchema(self._object(ANY_JSON)) if len(step.outputs) > 1 else self._checked
        except BadSchema as error:
            raise _unusable_schema(error) from error

    @property
    def structured(self) -> bool:
        """Whether the answer has to be JSON."""
        return bool(self._json) or len(self._step.outputs) > 1

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the whole answer, for the engine's grammar, as far as one schema can express it.

        None for an answer that is free text.
        """
        if not self.structured:
            return None
        wanted = self._checked.schema
        if len(self._step.outputs) == 1:
            return wanted
        # A reference means the root of the schema it stands in, which would be another one inside of this object.
        return self._object(ANY_JSON if '"$ref"' in json.dumps(wanted) else wanted)

    def read(self, completion: Completion) -> dict[str, bytes]:
        """Return the artifacts by name. Raises `AttemptError` for one that is cut off, empty or does not match."""
        if failure := self._unfinished(completion):
            raise AttemptError(failure)
        text = strip_fence(completion.text)
        if not text:
            message = "the answer is empty"
            raise AttemptError(Failure(FailureKind.FORMAT, message, message))
        try:
            return self._read(text)
        except SchemaMismatch as error:
            message = f"the answer does not match: {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message, error.evidence)) from error
        except BadSchema as error:
            raise _unusable_schema(error) from error

    def _read(self, text: str) -> dict[str, bytes]:
        names = self._step.outputs
        if not self.structured:
            code = PurePosixPath(file_name(names[0])).suffix.lower() in CODE_ENDINGS
            return {names[0]: (only_block(text) if code else text).encode()}
        value = self._whole.read(text)
        if len(names) == 1:
            return {names[0]: text.encode()}
        assert isinstance(value, dict), "the schema of the whole answer asks for an object"
        for name in self._json:
            try:
                self._checked.check(value[name])
            except SchemaMismatch as error:
                raise SchemaMismatch(f"in {name}: {error.evidence}") from error
        return {name: (compact_json(value[name]) if name in self._json else value[name]).encode() for name in names}

    def _object(self, json_output: dict[str, Any]) -> dict[str, Any]:
        outputs = self._step.outputs
        properties = {name: json_output if name in self._json else {"type": "string"} for name in outputs}
        return {"type": "object", "properties": properties, "required": [*outputs], "additionalProperties": False}

    def _unfinished(self, completion: Completion) -> Failure | None:
        tokens = completion.usage.output_tokens
        match completion.finish:
            case "stop":
                return None
            case "length":
                # A stronger role would not help here; a shorter answer does.
                kind = FailureKind.SCHEMA if self.structured else FailureKind.FORMAT
                message = f"the answer was cut off after {tokens} tokens; it has to be shorter"
                return Failure(kind, message, message, cut_at=tokens)
            case "repetition":
                # A stronger model may get out of the loop that this one is caught in.
                kind = FailureKind.SCHEMA if self.structured else FailureKind.LOGIC
                message = "the answer repeats itself without end"
            case "deadline":
                return Failure(FailureKind.TIMEOUT, f"no answer in time: {tokens} tokens were written by then")
            case "cancelled":
                return Failure(FailureKind.INFRASTRUCTURE, "the engine gave the answer up")
        return Failure(kind, message, message)


def strip_fence(text: str) -> str:
    """Return the text without white space around it, and without a code fence that encloses the whole of it."""
    stripped = text.strip()
    fenced = _FENCED.fullmatch(stripped)
    if fenced is None or re.search("^[ \t]*```", fenced["inside"], re.MULTILINE):
        return stripped
    return fenced["inside"].strip("\n").rstrip()


def only_block(text: str) -> str:
    """Return what stands in the only fenced block of a text, without the prose around it.

    A block without an end goes on to the end of the text. A text with no block or several is returned as it is, and so
    is code that holds a block in a string.
    """
    blocks = [*_BLOCK.finditer(text)]
    if len(blocks) != 1 or _CODE_BEFORE.search(text[: blocks[0].start()]):
        return text
    return blocks[0]["inside"].strip("\n").rstrip()


def _unusable_schema(error: BadSchema) -> AttemptError:
    return AttemptError(Failure(FailureKind.SCHEMA, f"output_schema cannot be used: {error}", final=True))


def outputs_from(step: Step, value: Any, written: Mapping[str, str]) -> dict[str, bytes]:
    """Return the artifacts of a step that acts, by name: what it has `written`, and the rest from its result `value`.

    Raises `AttemptError` for a value that lacks an output, or does not match the step's schema.
    """
    missing = [name for name in step.outputs if name not in written]
    given = dict(written) | _given(step, missing, value)
    return {name: _artifact(step, name, given[name]) for name in step.outputs}


def _given(step: Step, missing: list[str], value: Any) -> dict[str, Any]:
    if not missing:
        return {}
    if len(step.outputs) == 1:
        if value is None or value == "":
            raise _mismatch(f"there is no value for {missing[0]}; accepted: a text that is not empty, or JSON")
        return {missing[0]: value}
    if not isinstance(value, dict) or not value.keys() >= set(missing):
        raise _mismatch(f"the value has to be an object with {', '.join(missing)}")
    return {name: value[name] for name in missing}


def _artifact(step: Step, name: str, value: Any) -> bytes:
    text = value if isinstance(value, str) else compact_json(value)
    if is_json(step, name):
        text = _json(step, name, value, text)
    return text.encode()


def _json(step: Step, name: str, value: Any, text: str) -> str:
    """Return the artifact as JSON that matches the step's schema.

    A `value` that is a string either is JSON text already, or stands for the JSON string that the schema asks for.
    """
    try:
        form = OutputSchema(step.output_schema)
        if not isinstance(value, str):
            form.check(value)
            return text
        try:
            form.read(text)
        except SchemaMismatch:
            if step.output_schema is None:
                raise
            form.check(value)
            return compact_json(value)
        return text
    except SchemaMismatch as error:
        raise _mismatch(f"{name}: {error.evidence}") from error
    except BadSchema as error:
        message = f"output_schema cannot be used: {error}"
        raise AttemptError(Failure(FailureKind.SCHEMA, message, final=True)) from error


def _mismatch(evidence: str) -> AttemptError:
    return AttemptError(Failure(FailureKind.SCHEMA, f"the result does not match: {evidence}", evidence))
