"""Pydantic AI."""

from typing import Any

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.embeddings import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("pydantic-ai-slim",)
LACKS: dict[str, str] = {}


def _provider(case: Case) -> Any:
    return OpenAIProvider(base_url=case.api, api_key=case.token)


def _agent(case: Case, max_tokens: int = 256, **more: Any) -> Any:
    settings = {"temperature": 0, "max_tokens": max_tokens}
    return Agent(OpenAIChatModel(case.model, provider=_provider(case)), model_settings=settings, **more)


def chat(case: Case) -> object:
    return _agent(case, ANSWER_TOKENS).run_sync(QUESTION).output


async def stream(case: Case) -> object:
    async with _agent(case, ANSWER_TOKENS).run_stream(QUESTION) as answer:
        return [piece async for piece in answer.stream_text(delta=True, debounce_by=None)]


def structured(case: Case) -> object:
    return _agent(case, output_type=NativeOutput(Person)).run_sync(PERSON_REQUEST).output.model_dump()


def embeddings(case: Case) -> object:
    model = OpenAIEmbeddingModel(case.model, provider=_provider(case))
    return [[*vector] for vector in Embedder(model).embed_documents_sync(TEXTS).embeddings]


def tools(case: Case) -> object:
    return _agent(case, tools=[*FUNCTIONS.values()]).run_sync(REQUEST).output


async def cancel(case: Case) -> object:
    read = 0
    async with _agent(case, LONG_TOKENS).run_stream(LONG_REQUEST) as answer:
        async for _ in answer.stream_text(delta=True, debounce_by=None):
            read += 1
            if read == READ_PIECES:
                await answer.cancel()
                break
    return read
