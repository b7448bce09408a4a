"""Turn events into JSON and back, for the journal's table."""

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.events import Event

_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def encode_event(event: Event) -> str:
    """Return the event as one JSON object. A TaskIR inside keeps only what its author wrote."""
    return _EVENTS.dump_json(event, exclude_unset=True).decode()


def decode_event(body: str) -> Event:
    """Return the event that `encode_event` wrote. Raises `ValueError` with a one-line reason for anything else."""
    try:
        return _EVENTS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from error
