"""What endpoints share: FastAPI dependencies, and the base classes of request bodies."""

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
from orchestrator.service.telemetry import parent_span

Made = TypeVar("Made")
Item = TypeVar("Item")

MAX_ENTRIES: Final = 4096  # of a list in a request, unless something else limits it
# A list in a request. It fails fast, because building one error takes as long as checking many entries.
Entries = Annotated[list[Item], Field(max_length=MAX_ENTRIES, fail_fast=True)]


def at_most(entries: int) -> BeforeValidator:
    """Return a limit for the entries of an object. pydantic itself counts only after it has checked them all."""

    def check(value: object) -> object:
        if isinstance(value, dict) and len(value) > entries:
            sizes = {"field_type": "Dictionary", "max_length": entries, "actual_length": len(value)}
            raise PydanticKnownError("too_long", sizes)
        return value

    return BeforeValidator(check)


class LenientBody(BaseModel):
    """A request body, or a part of one, that ignores unknown fields, as other OpenAI-compatible servers do."""

    model_config = ConfigDict(extra="ignore")


_THREADS: Final = ThreadPoolExecutor(2, "schemas")
# Fields with schemas or grammars. Checking and converting a large one takes long.
_SHAPING: Final = (
    *("tools", "response_format", "json_schema", "guided_json", "structured_outputs", "grammar", "guided_grammar"),
    *("guided_choice", "guided_regex", "regex", "text", "output_format", "output_config"),
)


async def read_body(body: BaseModel, read: Callable[[], Made]) -> Made:
    """Return what `read` makes of a body, in a thread if the body has a schema or a grammar."""
    return await aside(read) if any(getattr(body, name, None) is not None for name in _SHAPING) else read()


async def aside(work: Callable[[], Made]) -> Made:
    """Return the result of work on schemas, which may take seconds. It runs in one of two threads."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class StrictBody(BaseModel):
    """A request body, or a part of one, that refuses unknown fields."""

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
    forced, caller = request.headers.get(FORCED_MODEL, ""), access_in(request.scope).key
    head = f"{caller}\n{request.url.path}\n{forced}\n".encode(errors="replace")
    # Without a key, a request that is sent again is recognised by this digest.
    digest = hashlib.sha256(head + await request.body()).hexdigest()
    return Resending(digest, key, again=retries is not None and retries.isdecimal() and int(retries) > 0)


def _traceparent(
    header: Annotated[
        str | None,
        Header(
            alias="traceparent", description="The caller's span (W3C Trace Context), the parent of an exported run."
        ),
    ] = None,
) -> str:
    # W3C Trace Context has an invalid one ignored.
    return header if header is not None and parent_span(header) is not None else ""


ServiceDep = Annotated[Service, Depends(_service)]
LimiterDep = Annotated[GenerationLimiter, Depends(_limiter)]
StoredResponsesDep = Annotated[StoredResponses, Depends(_stored_responses)]
StoredThreadsDep = Annotated[StoredResponses, Depends(_stored_threads)]
ResendingDep = Annotated[Resending, Depends(_resending)]
TraceparentDep = Annotated[str, Depends(_traceparent)]
AccessDep = Annotated[Access, Depends(_access)]
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
