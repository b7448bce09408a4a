"""LiteLLM."""

from itertools import islice
from typing import Any

import litellm

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case, said
from .person import Person
from .tools import DESCRIBED, worked_off

PACKAGES = ("litellm",)
LACKS: dict[str, str] = {}


def _ask(case: Case, messages: list[Any], **more: Any) -> Any:
    server = {"model": f"openai/{case.model}", "api_base": case.api, "api_key": case.token}
    return litellm.completion(**server, messages=messages, temperature=0, **more)


def chat(case: Case) -> object:
    return _ask(case, said(QUESTION), max_tokens=ANSWER_TOKENS).choices[0].message.content


def stream(case: Case) -> object:
    pieces = _ask(case, said(QUESTION), max_tokens=ANSWER_TOKENS, stream=True)
    return [piece.choices[0].delta.content or "" for piece in pieces]


def structured(case: Case) -> object:
    done = _ask(case, said(PERSON_REQUEST), response_format=Person)
    return Person.model_validate_json(done.choices[0].message.content).model_dump()


def embeddings(case: Case) -> object:
    server = {"model": f"openai/{case.model}", "api_base": case.api, "api_key": case.token}
    return [one["embedding"] for one in litellm.embedding(**server, input=TEXTS, encoding_format="float").data]


def tools(case: Case) -> object:
    return worked_off(lambda so_far: _ask(case, so_far, tools=[*DESCRIBED]).choices[0].message)


def cancel(case: Case) -> object:
    pieces = _ask(case, said(LONG_REQUEST), max_tokens=LONG_TOKENS, stream=True)
    read = len([*islice(pieces, READ_PIECES)])
    pieces.close()
    return read
