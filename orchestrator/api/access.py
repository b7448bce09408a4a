"""Hand the service to the endpoints."""

from typing import Annotated, cast

from fastapi import Depends, Request

from orchestrator.service.service import Service


def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


def _is_local(request: Request) -> bool:
    """Say whether a request came over the socket, so from the user whom the daemon runs as."""
    return bool(getattr(request.state, "local", False))


TheService = Annotated[Service, Depends(_service)]
IsLocal = Annotated[bool, Depends(_is_local)]
