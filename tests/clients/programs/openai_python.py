"""openai, the Python package."""

from itertools import islice
from typing import Any

from openai import OpenAI

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case, said
from .person import Person
from .tools import DESCRIBED, worked_off

PACKAGES = ("openai",)
LACKS: dict[str, str] = {}


def _client(case: Case) -> OpenAI:
    return OpenAI(base_url=case.api, api_key=case.token, max_retries=0)


def _ask(case: Case, text: str = QUESTION, max_tokens: int = ANSWER_TOKENS, **more: Any) -> Any:
    create: Any = _client(case).chat.completions.create
    return create(model=case.model, messages=said(text), max_tokens=max_tokens, temperature=0, **more)


def chat(case: Case) -> object:
    return _ask(case).choices[0].message.content


def stream(case: Case) -> object:
    return [piece.choices[0].delta.content or "" for piece in _ask(case, stream=True) if piece.choices]


def structured(case: Case) -> object:
    parse: Any = _client(case).chat.completions.parse
    done = parse(model=case.model, messages=said(PERSON_REQUEST), response_format=Person)
    return done.choices[0].message.parsed.model_dump()


def embeddings(case: Case) -> object:
    return [one.embedding for one in _client(case).embeddings.create(model=case.model, input=TEXTS).data]


def tools(case: Case) -> object:
    create: Any = _client(case).chat.completions.create
    return worked_off(lambda so_far: create(model=case.model, messages=so_far, tools=DESCRIBED).choices[0].message)


def cancel(case: Case) -> object:
    with _ask(case, LONG_REQUEST, LONG_TOKENS, stream=True) as pieces:
        return len([*islice(pieces, READ_PIECES)])
