"""What a step's answer has to look like, and the artifacts in an answer or a result.

If a step has one output, its answer is the artifact. If it has several, the answer is a JSON object with the outputs
as keys, or a fenced block under the name of each output. JSON is enforced by a grammar and also validated, since a
grammar cannot express every schema. `output_schema` applies to each output.

The same holds for the result of a step that acts, but outputs written with `write_artifact` need not be in it.
"""

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from orchestrator.engine.client.engine import Completion
from orchestrator.run.fences import file_text, files_text
from orchestrator.run.gates.planned import file_name, is_json
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.broken_strings import mended
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

ONCE: Final = "Write everything once only, and end there."  # asked for after an answer without an end
ANY_JSON: dict[str, Any] = {}
_PYTHON = (".py", ".pyi")
# JSON answers are read under this name, whatever their outputs are called.
_ANY_JSON_FILE = "answer.json"


class AnswerShape:
    def __init__(self, step: Step) -> None:
        """Raises `AttemptError` if the step has an invalid `output_schema`: no answer could match it."""
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
        """The whole answer's JSON Schema for the engine, as far as one can express it; None for free text."""
        if not self.structured:
            return None
        output_schema = self._checked.schema
        if len(self._step.outputs) == 1:
            return output_schema
        # `$ref` is resolved from the root of its schema, which would be another root inside this object.
        return self._object(ANY_JSON if '"$ref"' in json.dumps(output_schema) else output_schema)

    def read(self, completion: Completion) -> dict[str, bytes]:
        """Return the artifacts by name. Raises `AttemptError` if the answer is cut off, empty or does not match."""
        if failure := self._unfinished(completion):
            raise AttemptError(failure)
        text = completion.text.strip()
        if not text:
            raise _empty()
        try:
            return self._read(text)
        except SchemaMismatch as error:
            message = f"the answer does not match: {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message, error.evidence)) from error
        except BadSchema as error:
            raise _unusable_schema(error) from error

    def _read(self, text: str) -> dict[str, bytes]:
        names = self._step.outputs
        if len(names) > 1:
            return self._read_files(text)
        content = file_text(text, _ANY_JSON_FILE if self._json else file_name(names[0]), self._step.inputs)
        if not content:
            raise _empty()
        if self._json:
            self._whole.read(content)
        return {names[0]: content.encode()}

    def _read_files(self, text: str) -> dict[str, bytes]:
        names = self._step.outputs
        files = None if text.startswith("{") else files_text(text, [file_name(name) for name in names])
        if files is not None:
            texts = {name: files[file_name(name)] for name in names}
        else:
            value = self._whole.read(file_text(text, _ANY_JSON_FILE))
            assert isinstance(value, dict), "the schema of the whole answer asks for an object"
            texts = {name: compact_json(value[name]) if name in self._json else value[name] for name in names}
        for name in names:
            if name in self._json:
                self._check_json(name, texts[name])
                continue
            texts[name] = file_text(texts[name], file_name(name), self._step.inputs)
            if files is None:
                texts[name] = _with_whole_strings(name, texts[name])
        return {name: texts[name].encode() for name in names}

    def _check_json(self, name: str, text: str) -> None:
        try:
            self._checked.read(text)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"in {name}: {error.evidence}") from error

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
                # A model that is shown such an answer continues it.
                return Failure(kind, message, message, demand=ONCE)
            case "deadline":
                return Failure(FailureKind.TIMEOUT, f"no answer in time: {tokens} tokens were written by then")
            case "cancelled":
                return Failure(FailureKind.INFRASTRUCTURE, "the engine gave the answer up")


def _empty() -> AttemptError:
    message = "the answer is empty"
    return AttemptError(Failure(FailureKind.FORMAT, message, message))


def _unusable_schema(error: BadSchema) -> AttemptError:
    return AttemptError(Failure(FailureKind.SCHEMA, f"output_schema cannot be used: {error}", final=True))


def outputs_from(step: Step, value: Any, written: Mapping[str, str]) -> dict[str, bytes]:
    """Return the artifacts of a step that acts: those `written`, and the rest from its result `value`.

    Raises `AttemptError` if `value` lacks an output or does not match the step's schema.
    """
    missing = [name for name in step.outputs if name not in written]
    values = dict(written) | _from_result(step, missing, value)
    return {name: _artifact(step, name, values[name]) for name in step.outputs}


def _from_result(step: Step, missing: list[str], value: Any) -> dict[str, Any]:
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
    text = _json(step, name, value, text) if is_json(step, name) else _with_whole_strings(name, text)
    return text.encode()


def _with_whole_strings(name: str, text: str) -> str:
    return mended(text) if PurePosixPath(file_name(name)).suffix in _PYTHON else text


def _json(step: Step, name: str, value: Any, text: str) -> str:
    # A string is JSON text already, or stands for the JSON string that the schema asks for.
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
