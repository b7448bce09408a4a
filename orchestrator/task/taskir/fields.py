"""Declare the types of TaskIR's fields with their limits.

The types are strict: nothing is coerced, so a document can be returned as it was read. The published JSON Schema has
the same limits; it states the two that it cannot express (bytes and depth of the document) in its `$comment`.
"""

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

REQUEST_LABEL = "request"  # how steps read the user's request, in runs that started with one
PRIOR_RUNS = "context.prior_task_ids"  # the place in a document of the earlier runs that it names, for problems

MAX_BYTES = 10 * 1024 * 1024
MAX_DEPTH = 64
MAX_STEPS = 100_000
MAX_NAME = 200
MAX_TEXT = 1_000_000
MAX_ITEMS = 10_000
MAX_DIGITS = 300
MAX_TOKENS = 1_000_000
MAX_CONCURRENCY = 100_000
MAX_WORDS = 100
MAX_SECONDS = 7 * 24 * 3600

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_FIRST = rf"[^/.{_CONTROL}]"
_REST = rf"[^/{_CONTROL}]"
_PART = rf"(?:{_FIRST}{_REST}*|\.{_FIRST}{_REST}*|\.\.{_REST}+)"
_DAY = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|60)(?:[.,][0-9]{1,9})?)?"
_ZONE = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"

STEP_ID = "^S[0-9]{1,9}$"
NAME = rf"^[^{_CONTROL}]+$"
ARTIFACT = rf"^{_PART}(?:/{_PART})*$"
TIMESTAMP = f"^[0-9]{{4}}-{_DAY}(?:[Tt ]{_TIME}{_ZONE}?)?$"

# For error messages.
PATTERN_DESCRIPTIONS = {
    STEP_ID: "S1, S2, … (S and a whole number of up to nine digits)",
    NAME: "text on one line, without control characters",
    ARTIFACT: "a relative POSIX name such as notes/a.txt, without empty, '.' or '..' parts or control characters",
    TIMESTAMP: "an ISO 8601 date or time such as 2026-01-31T12:00:00Z",
}


def _seconds(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise PydanticCustomError("seconds", f"a number of seconds above 0 and up to {MAX_SECONDS}")
    return value


def _same(value: Any) -> Any:
    return value


Text = Annotated[str, Field(strict=True, max_length=MAX_TEXT)]
FilledText = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_TEXT)]
Name = Annotated[str, Field(strict=True, max_length=MAX_NAME, pattern=NAME)]
ArtifactName = Annotated[str, Field(strict=True, max_length=MAX_NAME, pattern=ARTIFACT)]
StepId = Annotated[str, Field(strict=True, max_length=10, pattern=STEP_ID)]
Timestamp = Annotated[str, Field(strict=True, max_length=40, pattern=TIMESTAMP)]
Flag = Annotated[bool, Field(strict=True)]
Concurrency = Annotated[int, Field(strict=True, ge=1, le=MAX_CONCURRENCY)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)]
# An int stays an int: a document with 60 is returned with 60, not with 60.0.
Seconds = Annotated[
    float,
    PlainValidator(_seconds),
    PlainSerializer(_same),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS}),
]
FreeForm = Annotated[Any, WithJsonSchema({})]
JsonObject = Annotated[dict[str, Any], Field(max_length=MAX_ITEMS)]

Texts = Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)]
CommandWords = Annotated[tuple[FilledText, ...], Field(min_length=1, max_length=MAX_WORDS)]
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)]
Reads = Annotated[tuple[Name, ...], Field(max_length=MAX_STEPS)]
ArtifactNames = Annotated[tuple[ArtifactName, ...], Field(max_length=MAX_ITEMS)]
StepIds = Annotated[tuple[StepId, ...], Field(max_length=MAX_STEPS)]
