"""What endpoints share: the dependencies that FastAPI hands to them, and the base class of request bodies."""

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final, TypeVar, cast

from fastapi import Depends, Header, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticKnownError

from orchestrator.api.access import access_in
from orchestrator.api.limiter import GenerationLimiter
from orchestrator.service.awaited_runs import Resending
from orchestrator.service.callers import Access
from orchestrator.service.permissions import FORCED_MODEL
from orchestrator.service.service import Service
from orchestrator.service.stored_responses import StoredResponses
from procedures.ports import Caller

Made = TypeVar("Made")
Item = TypeVar("Item")


MAX_ENTRIES: Final = 4096
"""How many entries a list in a request may have, if nothing else limits it."""
Entries = Annotated[list[Item], Field(max_length=MAX_ENTRIES, fail_fast=True)]
"""A list in a request. Only its first invalid entry is reported, because an error takes as long as many entries."""


def at_most(entries: int) -> BeforeValidator:
    """Return a limit for the entries of an object, which pydantic itself checks only after all entries."""

    def check(given: object) -> object:
        if isinstance(given, dict) and len(given) > entries:
            sizes = {"field_type": "Dictionary", "max_length": entries, "actual_length": len(given)}
            raise PydanticKnownError("too_long", sizes)
        return given

    return BeforeValidator(check)


class LenientBody(BaseModel):
    """A request body, or a part of one, whose unknown fields are ignored, as other OpenAI-compatible servers do."""

    model_config = ConfigDict(extra="ignore")


_THREADS: Final = ThreadPoolExecutor(2, "schemas")
_SHAPING: Final = (
    *("tools", "response_format", "json_schema", "guided_json", "structured_outputs", "grammar", "guided_grammar"),
    *("guided_choice", "guided_regex", "regex", "text", "output_format", "output_config"),
)
"""The fields of bodies that have schemas or grammars. To check and to convert them takes long where they are large."""


async def read_body(body: BaseModel, read: Callable[[], Made]) -> Made:
    """Return what `read` makes of a body, in a thread where the body says what the answer shall look like."""
    return await aside(read) if any(getattr(body, name, None) is not None for name in _SHAPING) else read()


async def aside(work: Callable[[], Made]) -> Made:
    """Return the result of work with schemas that may take seconds. Two such works are done at a time, in threads."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class StrictBody(BaseModel):
    """A request body, or a part of one, whose unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


def _limiter(request: Request) -> GenerationLimiter:
    return cast(GenerationLimiter, request.app.state.limiter)


def _stored_responses(request: Request) -> StoredResponses:
    return cast(StoredResponses, request.app.state.responses)


def _stored_threads(request: Request) -> StoredResponses:
    return cast(StoredResponses, request.app.state.threads)


def _access(request: Request) -> Access:
    return access_in(request.scope)


def _caller(request: Request) -> Caller:
    return access_in(request.scope).caller


async def _resending(
    request: Request,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=200,
            description="All requests with the same key get the answer of the same run, where a run answers.",
        ),
    ] = None,
    retries: Annotated[str | None, Header(alias="X-Stainless-Retry-Count", include_in_schema=False)] = None,
) -> Resending:
    """Return how a caller's request is recognised when it is sent again: by its key, or by path, headers and body."""
    forced, caller = request.headers.get(FORCED_MODEL, ""), access_in(request.scope).key
    head = f"{caller}\n{request.url.path}\n{forced}\n".encode(errors="replace")
    digest = hashlib.sha256(head + await request.body()).hexdigest()
    return Resending(digest, key, again=retries is not None and retries.isdecimal() and int(retries) > 0)


ServiceDep = Annotated[Service, Depends(_service)]
LimiterDep = Annotated[GenerationLimiter, Depends(_limiter)]
StoredResponsesDep = Annotated[StoredResponses, Depends(_stored_responses)]
StoredThreadsDep = Annotated[StoredResponses, Depends(_stored_threads)]
ResendingDep = Annotated[Resending, Depends(_resending)]
AccessDep = Annotated[Access, Depends(_access)]
CallerDep = Annotated[Caller, Depends(_caller)]
ForcedModel = Annotated[
    str | None,
    Header(
        alias=FORCED_MODEL,
        min_length=1,
        max_length=200,
        description="The model that has to be used, whatever the registry or the router would choose. Its outcome"
        " teaches the router, so it needs the permission teach.",
    ),
]
