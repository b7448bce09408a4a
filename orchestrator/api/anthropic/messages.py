"""Answer /v1/messages, whole or streamed, and count the tokens of its prompts.

The token is also accepted as `x-api-key`, and any `anthropic-version` is accepted. Errors have the form of Anthropic's
API.
"""

import asyncio
import secrets
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from orchestrator.api.anthropic.answers import MessageAnswer, message_answer, message_events
from orchestrator.api.anthropic.requests import (
    CountBody,
    MessagesBody,
    TurnBody,
    messages_of,
    request_of,
    thinking_of,
    toolbox_of,
)
from orchestrator.api.anthropic.threads import Thread
from orchestrator.api.dependencies import LimiterDep, ServiceDep, StoredThreadsDep, read_body
from orchestrator.api.errors import MESSAGES_DOCUMENTED
from orchestrator.api.llama_server.tokens import MAX_RENDERED, check_length
from orchestrator.api.openai.calling import tool_prompt
from orchestrator.api.openai.completion import AnsweringDep
from orchestrator.api.openai.names import role_named
from orchestrator.api.sse import DOCUMENTED_STREAM
from orchestrator.engine.contract import texts_of
from orchestrator.pool.errors import ModelRemote
from orchestrator.service.service import Service

router = APIRouter(prefix="/v1/messages", tags=["anthropic"], responses=dict(MESSAGES_DOCUMENTED))


class TokenCount(BaseModel):
    """How many tokens a prompt has."""

    input_tokens: int


@router.post("", response_model=MessageAnswer, responses={200: DOCUMENTED_STREAM})
async def create(body: MessagesBody, answering: AnsweringDep, threads: StoredThreadsDep) -> MessageAnswer | Response:
    """Answer a conversation. `model` is a role, a persona, a model, `auto`, `orchestrate`, or an alias of one."""
    thread = await asyncio.to_thread(Thread.of, body, threads, answering.access)
    body, earlier = thread.body, thread.earlier
    read = await read_body(body, lambda: request_of(body, f"msg_{secrets.token_hex(12)}", earlier))
    started = await answering.start(read)
    if not body.stream:
        (completion,) = await started.completions()
        answer = message_answer(started.completion_request, completion)
        await thread.keep(answer)
        return answer
    await started.wait_begun()
    try:
        tokens = await _count(body, answering.service, started.model, earlier)
    except ModelRemote:
        tokens = 0  # only its server can count them, and says so at the end
    except BaseException:
        started.handle.cancel()
        raise
    return started.stream(message_events(started.completion_request, tokens, started.handle, thread.keep))


@router.post("/count_tokens")
async def count_tokens(body: CountBody, request: Request, service: ServiceDep, limiter: LimiterDep) -> TokenCount:
    """Count the tokens that a conversation has as a prompt, with the role's own system prompt and the tools."""
    check_length("messages", texts_of(messages_of(body)), MAX_RENDERED)
    return TokenCount(input_tokens=await limiter.run_while_connected(request, lambda: _count(body, service)))


async def _count(body: CountBody, service: Service, model: str | None = None, earlier: Sequence[TurnBody] = ()) -> int:
    # For a run, `model` is "orchestrate", which is not in the registry: then `body.model` decides.
    role = role_named(body.model, service, model if model in service.orchestrator.registry.models else None)
    prompt, tools = await read_body(body, lambda: tool_prompt(messages_of(body, earlier), role, toolbox_of(body)))
    return await service.orchestrator.pool.count(role.model, prompt, tools=tools, thinking=thinking_of(body))
