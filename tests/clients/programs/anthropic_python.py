"""anthropic, the Python package."""

from collections.abc import Callable
from functools import wraps
from itertools import islice
from typing import Any

from anthropic import Anthropic, beta_tool

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TOOL_REQUEST, Case
from .person import Person
from .tools import FUNCTIONS, TELLS

PACKAGES = ("anthropic",)
LACKS = {"embeddings": "Anthropic's API has none"}


def _client(case: Case) -> Anthropic:
    return Anthropic(base_url=case.address, api_key=case.token, max_retries=0)


def _asked(case: Case, text: str, max_tokens: int) -> Any:
    return {
        "model": case.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "extra_body": {"temperature": 0},
    }


def chat(case: Case) -> object:
    return _client(case).messages.create(**_asked(case, QUESTION, ANSWER_TOKENS)).content[0].text


def stream(case: Case) -> object:
    with _client(case).messages.stream(**_asked(case, QUESTION, ANSWER_TOKENS)) as pieces:
        return [*pieces.text_stream]


def structured(case: Case) -> object:
    parsed: Any = _client(case).messages.parse(**_asked(case, PERSON_REQUEST, 200), output_format=Person).parsed_output
    return parsed.model_dump()


def _telling(does: Callable[..., int]) -> Any:
    """Return the function as one whose result is a text, which the tools of this client have to give."""

    @wraps(does)
    def told(**arguments: Any) -> str:
        return str(does(**arguments))

    return told


def tools(case: Case) -> object:
    offered = [beta_tool(_telling(does), description=TELLS[name]) for name, does in FUNCTIONS.items()]
    runner: Any = _client(case).beta.messages.tool_runner(
        model=case.model, max_tokens=256, messages=[{"role": "user", "content": TOOL_REQUEST}], tools=offered
    )
    return "".join(block.text for block in runner.until_done().content if block.type == "text")


def cancel(case: Case) -> object:
    with _client(case).messages.stream(**_asked(case, LONG_REQUEST, LONG_TOKENS)) as pieces:
        return len([*islice(pieces.text_stream, READ_PIECES)])
