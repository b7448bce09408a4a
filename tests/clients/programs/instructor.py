"""Instructor, which forces a tool to be called for a structured answer."""

from itertools import islice
from typing import Any

import instructor
from openai import OpenAI

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, Case, said
from .person import Person

PACKAGES = ("instructor", "openai")
LACKS = {
    "embeddings": "it is for structured answers",
    "tools": "it is for structured answers, and runs no tools",
}


def _ask(case: Case, text: str, form: type[Person] | None, **more: Any) -> Any:
    client = instructor.from_openai(OpenAI(base_url=case.api, api_key=case.token, max_retries=0))
    return client.create(model=case.model, messages=said(text), response_model=form, temperature=0, **more)


def chat(case: Case) -> object:
    return _ask(case, QUESTION, None, max_tokens=ANSWER_TOKENS).choices[0].message.content


def stream(case: Case) -> object:
    pieces = _ask(case, QUESTION, None, max_tokens=ANSWER_TOKENS, stream=True)
    return [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]


def structured(case: Case) -> object:
    return _ask(case, PERSON_REQUEST, Person, max_retries=0).model_dump()


def cancel(case: Case) -> object:
    with _ask(case, LONG_REQUEST, None, max_tokens=LONG_TOKENS, stream=True) as pieces:
        return len([*islice(pieces, READ_PIECES)])
