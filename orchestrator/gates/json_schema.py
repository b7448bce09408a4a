"""Check JSON text against a JSON Schema. The one file through which jsonschema enters."""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from orchestrator.taskir.json_text import read_json
from orchestrator.taskir.problems import pointer

MESSAGE_LENGTH = 300
ERRORS_WEIGHED = 100


class SchemaMismatch(Exception):
    """Text that is no JSON, or JSON that the schema refuses. `evidence` says where and why in one line."""

    def __init__(self, evidence: str) -> None:
        super().__init__(evidence)
        self.evidence = evidence


class BadSchema(Exception):
    """A schema that is none, or that cannot be applied. No answer could ever match it."""


class OutputSchema:
    """A JSON Schema ready for use; without one, any JSON matches. References are never fetched."""

    def __init__(self, schema: Mapping[str, object] | None) -> None:
        """Raises `BadSchema`."""
        self.schema: dict[str, object] = dict(schema or {})
        try:
            self._validator = _validator(json.dumps(self.schema))
        except SchemaError as error:
            raise BadSchema(f"not a JSON Schema: at {pointer(error.absolute_path)}: {_clip(error.message)}") from error
        except RecursionError as error:
            raise BadSchema("not a JSON Schema that can be read: nested too deep") from error
        except (AttributeError, TypeError, ValueError) as error:  # jsonschema looks up "$schema" before it checks it
            raise BadSchema(f"not a JSON Schema: at /$schema: {_clip(repr(self.schema.get('$schema')))}") from error

    def read(self, text: str) -> object:
        """Return what the text says. Raises `SchemaMismatch` and `BadSchema` as `check` does."""
        value, problems = read_json(text)
        if problems:
            raise SchemaMismatch(str(problems[0]))
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raises `SchemaMismatch` if the value does not match, `BadSchema` when the schema turns out unusable."""
        try:
            worst = best_match(islice(self._validator.iter_errors(value), ERRORS_WEIGHED))
        except (Unresolvable, ValueError) as error:  # ValueError: the parts of a URL make none together
            raise BadSchema(f"the schema refers to something that is not in it: {_clip(str(error))}") from error
        except RecursionError as error:
            raise BadSchema("the schema refers to itself without end") from error
        if isinstance(worst, ValidationError):
            raise SchemaMismatch(f"{pointer(worst.absolute_path)}: {_clip(worst.message)}")


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    """Return the validator of a schema. To check a schema takes longer than most answers, and attempts share theirs."""
    known = json.loads(schema)
    kind = validator_for(known, default=Draft202012Validator)
    kind.check_schema(known)
    return kind(known, registry=Registry())


def _clip(message: str) -> str:
    """Shorten a message that quotes the whole answer: it goes into the next prompt."""
    if len(message) <= MESSAGE_LENGTH:
        return message
    return f"{message[: MESSAGE_LENGTH // 2]} … {message[-MESSAGE_LENGTH // 2 :]}"
