"""Servers that take one name of a parameter and not another: each is asked in the words that it takes."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.pool.remote.breaker import CLOSED
from orchestrator.pool.remote.errors import RemoteRefused
from tests.orchestrator.pool.remote.conftest import Opened
from tests.orchestrator.pool.remote.server_answers import error, ok
from tests.orchestrator.pool.remote.server_play import Remote

HELLO = Generation(messages=(Message("user", "Hello?"),), max_tokens=9, temperature=0.5, top_p=0.9)


def unsupported(name: str, what: str = "parameter", **fields: Any) -> dict[str, Any]:
    """Refuse a parameter as OpenAI does for its models that reason."""
    message = f"Unsupported {what}: '{name}' is not supported with this model."
    return error(400, message, type="invalid_request_error", param=name, code=f"unsupported_{what}", **fields)


async def test_a_server_that_takes_max_tokens_is_never_sent_another_name(remote: Remote, opened: Opened) -> None:
    remote.refuses(max_completion_tokens=error(400, "Unrecognized request argument: max_completion_tokens"))
    remote.plays(ok("a"), ok("b"))
    async with opened() as model:
        assert [(await model.generate(HELLO)).text for _ in range(2)] == ["a", "b"]
    assert [request["body"]["max_tokens"] for request in remote.seen()] == [9, 9]


async def test_a_server_that_wants_max_completion_tokens_is_asked_again_and_that_is_remembered(
    remote: Remote, opened: Opened
) -> None:
    remote.refuses(max_tokens=unsupported("max_tokens"))
    remote.plays(ok("a"), ok("b"))
    async with opened() as model:
        assert [(await model.generate(HELLO)).text for _ in range(2)] == ["a", "b"]
        assert (model.last_failure, model._breaker) == (None, CLOSED)
    first, *later = (request["body"] for request in remote.seen())
    assert len(later) == 2
    renamed = {**first, "max_completion_tokens": first.pop("max_tokens")}
    del renamed["max_tokens"]
    assert later == [renamed, renamed]


async def test_a_model_that_chooses_by_itself_how_it_draws_is_let_do_so(remote: Remote, opened: Opened) -> None:
    remote.refuses(
        max_tokens=unsupported("max_tokens"),
        temperature=unsupported("temperature", "value"),
        top_p=error(400, '{"error": "Unsupported parameter: \'top_p\'"}', code="invalid_request_body"),
    )
    remote.plays(ok("a"))
    async with opened() as model:
        assert (await model.generate(HELLO)).text == "a"
    *_, last = (request["body"] for request in remote.seen())
    assert len(remote.seen()) == 4
    assert last.keys() == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}


async def test_requests_that_wait_for_a_slot_learn_from_the_one_before(remote: Remote, opened: Opened) -> None:
    remote.refuses(max_tokens=unsupported("max_tokens"))
    remote.plays(*[ok("a")] * 3)
    async with opened(slots=1) as model:
        answers = await asyncio.gather(*(model.generate(HELLO) for _ in range(3)))
    assert [answer.text for answer in answers] == ["a"] * 3
    assert ["max_tokens" in request["body"] for request in remote.seen()] == [True, False, False, False]


@pytest.mark.parametrize(
    "answer",
    [
        unsupported("stop"),
        unsupported("max_completion_tokens"),
        error(400, "max_tokens is too large: 9.", param="max_tokens", code="invalid_value"),
        error(400, "no", param={"max_tokens": 9}, code="unsupported_parameter"),
    ],
)
async def test_other_refusals_are_reported_at_once(remote: Remote, opened: Opened, answer: dict[str, Any]) -> None:
    remote.plays(answer)
    async with opened() as model:
        with pytest.raises(RemoteRefused, match="HTTP 400"):
            await model.generate(replace(HELLO, stop=("x",)))
    assert len(remote.seen()) == 1


async def test_a_server_that_takes_neither_name_is_reported(remote: Remote, opened: Opened) -> None:
    remote.refuses(max_tokens=unsupported("max_tokens"), max_completion_tokens=unsupported("max_completion_tokens"))
    async with opened() as model:
        with pytest.raises(RemoteRefused, match="'max_completion_tokens' is not supported"):
            await model.generate(HELLO)
    assert len(remote.seen()) == 2
