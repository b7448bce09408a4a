"""LangChain's model and vectors for OpenAI's API, and an agent of LangGraph."""

from itertools import islice
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("langgraph", "langchain", "langchain-openai")
LACKS: dict[str, str] = {}


def _model(case: Case, max_tokens: int | None = None) -> Any:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": max_tokens, "max_retries": 0}
    return ChatOpenAI(model=case.model, base_url=case.api, api_key=case.token, **settings)


def chat(case: Case) -> object:
    return _model(case, ANSWER_TOKENS).invoke(QUESTION).content


def stream(case: Case) -> object:
    return [piece.content for piece in _model(case, ANSWER_TOKENS).stream(QUESTION)]


def structured(case: Case) -> object:
    return _model(case).with_structured_output(Person, method="json_schema").invoke(PERSON_REQUEST).model_dump()


def embeddings(case: Case) -> object:
    # Otherwise it sends ids of tokens of a vocabulary that it would have to download.
    plain: dict[str, Any] = {"check_embedding_ctx_length": False}
    model = OpenAIEmbeddings(model=case.model, base_url=case.api, api_key=case.token, **plain)
    return model.embed_documents(TEXTS)


def tools(case: Case) -> object:
    agent = create_agent(_model(case), [*FUNCTIONS.values()])
    return agent.invoke({"messages": [("user", REQUEST)]})["messages"][-1].content


def cancel(case: Case) -> object:
    pieces = _model(case, LONG_TOKENS).stream(LONG_REQUEST)
    read = len([*islice(pieces, READ_PIECES)])
    pieces.close()
    return read
