"""Haystack."""

import asyncio
import contextlib
from typing import Any

from haystack import Document
from haystack.components.agents import Agent
from haystack.components.embedders import OpenAIDocumentEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .case import TOOL_SYSTEM as SYSTEM
from .person import Person
from .tools import FUNCTIONS, TELLS

PACKAGES = ("haystack-ai",)
LACKS: dict[str, str] = {}


def _server(case: Case) -> Any:
    return {"api_key": Secret.from_token(case.token), "model": case.model, "api_base_url": case.api, "max_retries": 0}


def _generator(case: Case, max_tokens: int = 256, **more: Any) -> Any:
    return OpenAIChatGenerator(**_server(case), generation_kwargs={"temperature": 0, "max_tokens": max_tokens, **more})


def _said(text: str) -> Any:
    return [ChatMessage.from_user(text)]


def chat(case: Case) -> object:
    return _generator(case, ANSWER_TOKENS).run(_said(QUESTION))["replies"][0].text


def stream(case: Case) -> object:
    pieces: list[str] = []
    _generator(case, ANSWER_TOKENS).run(_said(QUESTION), streaming_callback=lambda one: pieces.append(one.content))
    return pieces


def structured(case: Case) -> object:
    done = _generator(case, response_format=Person).run(_said(PERSON_REQUEST))
    return Person.model_validate_json(done["replies"][0].text).model_dump()


def embeddings(case: Case) -> object:
    embedder = OpenAIDocumentEmbedder(**_server(case), progress_bar=False, raise_on_failure=True)
    # Documents get their ids from their texts, and two of the texts are the same.
    documents = [Document(id=str(number), content=text) for number, text in enumerate(TEXTS)]
    return [one.embedding for one in embedder.run(documents)["documents"]]


def tools(case: Case) -> object:
    offered = [create_tool_from_function(does, description=TELLS[name]) for name, does in FUNCTIONS.items()]
    agent = Agent(chat_generator=_generator(case), tools=offered, system_prompt=SYSTEM)
    return agent.run(_said(REQUEST))["last_message"].text


async def cancel(case: Case) -> object:
    read, enough = 0, asyncio.Event()

    async def count(_: Any) -> None:
        nonlocal read
        read += 1
        if read == READ_PIECES:
            enough.set()

    answer = asyncio.create_task(_generator(case, LONG_TOKENS).run_async(_said(LONG_REQUEST), streaming_callback=count))
    await enough.wait()
    answer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await answer
    return read
