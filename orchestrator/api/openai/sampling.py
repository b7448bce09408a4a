"""Read what clients ask of a generation, and refuse what would silently be something else."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.openai.messages import prompt_of
from orchestrator.api.openai.names import Target
from orchestrator.api.openai.tools import Toolbox
from orchestrator.engine.contract import Generation, Message
from orchestrator.errors import InputError, Problem
from orchestrator.gates.json_schema import BadSchema, OutputSchema

ANY_OBJECT: Final = {"type": "object"}

Fraction = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Tokens = Annotated[int, Field(ge=1, le=1 << 22)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class Lenient(BaseModel):
    """Part of a request. What has no meaning here is passed over, as with other servers."""

    model_config = ConfigDict(extra="ignore")


class SchemaBody(Lenient):
    """A JSON Schema with a name."""

    name: str = ""
    json_schema: dict[str, Any] | bool | None = Field(default=None, alias="schema")


class FormatBody(Lenient):
    """The form of an answer: text, json_object or json_schema."""

    type: str
    json_schema: SchemaBody | None = None
    json_schema_flat: dict[str, Any] | bool | None = Field(default=None, alias="schema")


def answer_schema(form: FormatBody | None, where: str) -> dict[str, Any] | bool | None:
    """Return the schema that an answer has to match, or None for text. Raises InputError."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return dict(ANY_OBJECT)
    if form.type != "json_schema":
        raise InputError(Problem(f"{where}/type", f"{form.type!r} is not known", "text, json_object, json_schema"))
    schema = form.json_schema.json_schema if form.json_schema is not None else form.json_schema_flat
    if schema is None:
        raise InputError(Problem(f"{where}/json_schema", "there is no schema", "a JSON Schema"))
    if isinstance(schema, Mapping):
        try:
            OutputSchema(schema)
        except BadSchema as error:
            raise InputError(Problem(f"{where}/json_schema/schema", str(error), "a JSON Schema")) from error
    return schema


def generation(
    pairs: list[Message],
    target: Target,
    toolbox: Toolbox,
    schema: dict[str, Any] | bool | None,
    *,
    max_tokens: int | None,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
    stop: tuple[str, ...] = (),
) -> Generation:
    """Return what to ask an engine. What the client leaves out is the role's. Raises InputError."""
    if toolbox.forced and schema is not None:
        raise InputError(Problem("response_format", "goes with no tool that has to be called", "one of both"))
    asked = Generation(
        messages=prompt_of(pairs, target, toolbox.instructions),
        max_tokens=target.max_tokens if max_tokens is None else max_tokens,
        temperature=target.temperature if temperature is None else temperature,
        top_p=target.top_p if top_p is None else top_p,
        seed=seed,
        stop=stop,
        schema=toolbox.schema if toolbox.forced else schema,
    )
    if (problem := asked.problem()) is not None:
        raise InputError(Problem("request", problem))
    return asked


def refuse_options(options: Mapping[str, object]) -> None:
    """Raise InputError for an option that is set but cannot be had: to ignore it would change what the answer means."""
    for name, value in options.items():
        if value:
            raise InputError(Problem(name, f"{value!r} cannot be had", "leave it out"))
