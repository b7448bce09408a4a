"""Endpoints for routed chats: list, show, rate."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import AccessDep, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.run.journal.chats import ChatRated, ChatRecord
from orchestrator.service.ratings import MAX_NOTE_LENGTH

router = APIRouter(prefix="/v1/chats", tags=["chats"], responses=dict(DOCUMENTED))


class ChatRatingBody(StrictBody):
    """A rating of a chat. Who rates is the caller; a field `by` is refused."""

    score: float = Field(ge=0, le=1, allow_inf_nan=False, description="from 0 (bad) to 1 (good)")
    note: str = Field(default="", max_length=MAX_NOTE_LENGTH, description="the reason")


class ChatList(BaseModel):
    """Chats, newest first."""

    chats: list[ChatRecord]


@router.get("")
async def listed(service: ServiceDep, access: AccessDep, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ChatList:
    """List the caller's newest chats whose model the router has chosen: the choice, how they ended, the ratings."""
    return ChatList(chats=await asyncio.to_thread(service.orchestrator.journal.chats, limit, access.only))


@router.get("/{chat}")
async def show(chat: str, service: ServiceDep) -> ChatRecord:
    """Return what is journaled of a chat. `chat` is the `id` of the answer to it."""
    return await service.orchestrator.journal.find_chat(chat)


@router.post("/{chat}/ratings", status_code=201)
async def rate(chat: str, body: ChatRatingBody, service: ServiceDep, access: AccessDep) -> ChatRated:
    """Rate a chat. `chat` is the `id` of the answer to it. It may be rated more than once."""
    return await service.rate_chat(chat, body.score, access.key, body.note)
