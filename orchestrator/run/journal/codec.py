"""Turn events into JSON and back, for the journal's table."""

from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.task.events import Event


@cache  # built at the first use, which most commands never reach
def _events() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def encode_event(event: Event) -> str:
    """Return the event as one JSON object."""
    # Fields of a TaskIR that its author did not set are left out.
    return _events().dump_json(event, exclude_unset=True).decode()


def decode_event(body: str) -> Event:
    """Return the event that `encode_event` encoded. Raises `ValueError`, with a reason in one line, for other text."""
    try:
        return _events().validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from error
