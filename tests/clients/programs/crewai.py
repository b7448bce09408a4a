"""CrewAI, with its own client of OpenAI's API."""

import asyncio
import contextlib
from typing import Any

from crewai import LLM, Agent
from crewai.events import LLMStreamChunkEvent, crewai_event_bus
from crewai.rag.embeddings.factory import build_embedder
from crewai.tools import tool

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("crewai",)
LACKS: dict[str, str] = {}


def _model(case: Case, max_tokens: int = 256, **more: Any) -> Any:
    server = {"model": case.model, "base_url": case.api, "api_key": case.token, "custom_openai": True}
    return LLM(**server, temperature=0, max_tokens=max_tokens, max_retries=0, **more)


def chat(case: Case) -> object:
    return _model(case, ANSWER_TOKENS).call(QUESTION)


def stream(case: Case) -> object:
    pieces: list[str] = []
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(lambda _, event: pieces.append(event.chunk))
        _model(case, ANSWER_TOKENS, stream=True).call(QUESTION)
        crewai_event_bus.flush()
    return pieces


def structured(case: Case) -> object:
    found = _model(case).call(PERSON_REQUEST, response_model=Person)
    return (found if isinstance(found, Person) else Person.model_validate_json(found)).model_dump()


def embeddings(case: Case) -> object:
    config = {"api_key": case.token, "api_base": case.api, "model_name": case.model}
    spec: Any = {"provider": "openai", "config": config}
    return [[float(number) for number in vector] for vector in build_embedder(spec)(TEXTS)]


def tools(case: Case) -> object:
    offered = [tool(name)(does) for name, does in FUNCTIONS.items()]
    about = {"role": "Assistant", "goal": "Answer the question.", "backstory": "You use tools."}
    return Agent(**about, llm=_model(case), tools=offered, max_iter=6).kickoff(REQUEST).raw


async def cancel(case: Case) -> object:
    read, enough, loop = 0, asyncio.Event(), asyncio.get_running_loop()

    def count(_: Any, __: Any) -> None:
        nonlocal read
        read += 1
        if read == READ_PIECES:
            loop.call_soon_threadsafe(enough.set)

    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(count)
        answer = asyncio.create_task(_model(case, LONG_TOKENS, stream=True).acall(LONG_REQUEST))
        await enough.wait()
        answer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answer
    return read
