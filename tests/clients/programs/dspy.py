"""DSPy."""

import json
from typing import Any

import dspy
from dspy import lm15

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case, said
from .case import TOOL_REQUEST as REQUEST
from .person import Person
from .tools import DESCRIBED, FUNCTIONS

PACKAGES = ("dspy",)
LACKS: dict[str, str] = {}


def _model(case: Case, max_tokens: int = 256) -> Any:
    server = lm15.ProviderDefinition.chat(
        lm15.AccessPolicy(provider="daemon", base_url=case.api), compat=lm15.OpenAIChatCompat()
    )
    abilities = lm15.ModelSupport(function_calling=True, response_schema=True)
    lm15.register_provider(server, supports=abilities)
    settings = {"temperature": 0, "max_tokens": max_tokens, "cache": False, "num_retries": 0}
    return dspy.LM(f"daemon/{case.model}", api_key=case.token, **settings)


def chat(case: Case) -> object:
    return _model(case, ANSWER_TOKENS)(messages=said(QUESTION))[0]


def _streamed(case: Case, text: str, max_tokens: int) -> Any:
    model = _model(case, max_tokens)

    class Ask(dspy.Module):  # type: ignore[misc]
        def forward(self, messages: Any) -> object:
            return dspy.Prediction(answer=model(messages=messages)[0])

    return dspy.streamify(Ask())(messages=said(text))


async def stream(case: Case) -> object:
    pieces = [piece async for piece in _streamed(case, QUESTION, ANSWER_TOKENS)]
    return [piece.choices[0].delta.content or "" for piece in pieces if hasattr(piece, "choices")]


def structured(case: Case) -> object:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
    return json.loads(_model(case)(messages=said(PERSON_REQUEST), response_format=form)[0])


def embeddings(case: Case) -> object:
    server = {"model": f"openai/{case.model}", "api_base": case.api, "api_key": case.token}
    return dspy.Embedder(**server, caching=False)(TEXTS).tolist()


def tools(case: Case) -> object:
    # Its agents explain themselves to the model in a prompt that is longer than what the small model can read.
    model = _model(case)
    messages: list[Any] = [*said(REQUEST)]
    for _ in range(6):
        done = model(messages=messages, tools=[*DESCRIBED])[0]
        if isinstance(done, str) or not done.get("tool_calls"):
            return done if isinstance(done, str) else done["text"]
        calls = [_plain(call) for call in done["tool_calls"]]
        messages.append({"role": "assistant", "content": done.get("text") or "", "tool_calls": calls})
        for call in calls:
            result = FUNCTIONS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
    raise RuntimeError("there is no answer after six requests")


def _plain(call: Any) -> dict[str, Any]:
    """Return a call as OpenAI's API has it."""
    found: dict[str, Any] = call if isinstance(call, dict) else call.model_dump(exclude_none=True)
    return {"id": found["id"], "type": "function", "function": found["function"]}


async def cancel(case: Case) -> object:
    read, pieces = 0, _streamed(case, LONG_REQUEST, LONG_TOKENS)
    async for _ in pieces:
        read += 1
        if read == READ_PIECES:
            break
    await pieces.aclose()
    return read
