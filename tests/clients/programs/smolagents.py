"""smolagents."""

import gc
from itertools import islice
from typing import Any

from smolagents import OpenAIModel, ToolCallingAgent, tool
from smolagents.agents import EMPTY_PROMPT_TEMPLATES

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, Case
from .case import TOOL_REQUEST as REQUEST
from .case import TOOL_SYSTEM as SYSTEM
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("smolagents",)
LACKS = {"embeddings": "it is for agents"}


def _model(case: Case, max_tokens: int = 256) -> Any:
    once: Any = {"client_kwargs": {"max_retries": 0}}
    return OpenAIModel(case.model, case.api, case.token, **once, temperature=0, max_tokens=max_tokens)


def _said(text: str) -> Any:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def chat(case: Case) -> object:
    return _model(case, ANSWER_TOKENS).generate(_said(QUESTION)).content


def stream(case: Case) -> object:
    return [piece.content or "" for piece in _model(case, ANSWER_TOKENS).generate_stream(_said(QUESTION))]


def structured(case: Case) -> object:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
    done = _model(case).generate(_said(PERSON_REQUEST), response_format=form)
    return Person.model_validate_json(done.content).model_dump()


def tools(case: Case) -> object:
    # The small model was not taught to read the agent's own system prompt, which is several pages long.
    templates: Any = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": SYSTEM}
    agent = ToolCallingAgent([tool(does) for does in FUNCTIONS.values()], _model(case), templates, max_steps=6)
    return agent.run(REQUEST)


def cancel(case: Case) -> object:
    pieces = _model(case, LONG_TOKENS).generate_stream(_said(LONG_REQUEST))
    read = len([*islice(pieces, READ_PIECES)])
    pieces.close()
    gc.collect()  # the stream of OpenAI's library refers to itself, and closes its connection when it is collected
    return read
