"""Thoughts of remote models come apart from their answers, however a server sends them, and end in time."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message
from tests.orchestrator.pool.remote.conftest import Opened
from tests.orchestrator.pool.remote.server_answers import DONE, does, error, event, ok, piece
from tests.orchestrator.pool.remote.server_play import Remote

ASKED = Generation(messages=(Message("user", "Hello?"),), max_tokens=9)
USAGE = {"prompt_tokens": 12, "completion_tokens": 7}


def thought(text: str, field: str) -> str:
    return event(choices=[{"index": 0, "delta": {field: text}, "finish_reason": None}])


def thinks(*thoughts: str, field: str = "reasoning_content", usage: dict[str, Any] | None = None) -> dict[str, Any]:
    pieces = [thought(one, field) for one in thoughts] + [piece("yes"), piece(None, "stop")]
    counted = "" if usage is None else event(choices=[], usage=usage)
    return does(["send", "".join(pieces) + counted + DONE])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_a_field_of_their_own(remote: Remote, opened: Opened, field: str) -> None:
    remote.plays(thinks("Why ", "not?", field=field, usage=USAGE))
    thoughts: list[str] = []
    pieces: list[str] = []
    async with opened() as model:
        done = await model.generate(ASKED, pieces.append, thoughts.append)
    assert (done.reasoning, done.text) == ("Why not?", "yes")
    assert (thoughts, pieces) == (["Why ", "not?"], ["yes"])
    assert (done.usage.output_tokens, done.usage.reasoning_tokens) == (7, 2)


async def test_tags_in_the_text(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("<thi", "nk>\nWhy", " not?\n</th", "ink>\n\n", "yes"))
    async with opened() as model:
        done = await model.generate(ASKED)
    assert (done.reasoning, done.text) == ("Why not?", "yes")


async def test_a_text_that_only_begins_like_a_tag_is_whole(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("<th"), ok("  <b>"))
    async with opened() as model:
        assert [(await model.generate(ASKED)).text for _ in range(2)] == ["<th", "  <b>"]


async def test_the_servers_count_goes_before_an_estimate(remote: Remote, opened: Opened) -> None:
    remote.plays(thinks("Why not?", usage={**USAGE, "completion_tokens_details": {"reasoning_tokens": 5}}))
    async with opened() as model:
        done = await model.generate(ASKED)
    assert (done.usage.output_tokens, done.usage.reasoning_tokens, done.usage.estimated_tokens) == (7, 5, 0)


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        ("auto", {"max_tokens": 9}),
        ("off", {"max_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}),
        ("on", {"max_tokens": 9 + 8192, "chat_template_kwargs": {"enable_thinking": True}}),
        (100, {"max_tokens": 109, "chat_template_kwargs": {"enable_thinking": True}}),
        (
            "low",
            {
                "max_tokens": 9 + 1024,
                "reasoning_effort": "low",
                "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"},
            },
        ),
    ],
)
async def test_what_a_server_is_asked_for(remote: Remote, opened: Opened, thinking: Any, sent: dict[str, Any]) -> None:
    remote.plays(ok("yes"))
    async with opened(context=16_384) as model:
        await model.generate(replace(ASKED, thinking=thinking))
    (request,) = remote.seen()
    names = ("max_tokens", "reasoning_effort", "chat_template_kwargs")
    assert {name: request["body"][name] for name in names if name in request["body"]} == sent


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "Unrecognized request argument supplied: chat_template_kwargs"),
        error(
            400, "Unknown parameter: 'chat_template_kwargs'.", code="unknown_parameter", param="chat_template_kwargs"
        ),
        {
            "status": 422,
            "steps": [["send", '{"detail":[{"type":"extra_forbidden","loc":["body","chat_template_kwargs"]}]}']],
        },
    ],
)
async def test_a_server_that_knows_no_variables_is_asked_without(
    remote: Remote, opened: Opened, refusal: dict[str, Any]
) -> None:
    remote.refuses(chat_template_kwargs=refusal)
    remote.plays(ok("yes"))
    async with opened() as model:
        assert (await model.generate(replace(ASKED, thinking="off"))).text == "yes"


async def test_after_a_thought_over_its_budget_the_model_is_asked_not_to_think(remote: Remote, opened: Opened) -> None:
    first = does(["send", "".join(thought(f"{n} ", "reasoning_content") for n in range(4))], ["stall"])
    remote.plays(first, ok("yes"))
    async with opened() as model:
        done = await model.generate(replace(ASKED, thinking=3))
    assert (done.reasoning, done.text, done.finish) == ("0 1 2 3 ", "yes", "stop")
    assert done.usage.reasoning_tokens == 4
    assert done.usage.output_tokens == 4 + 3, "those of the thought, and those that the server has counted"
    asked = [request["body"]["chat_template_kwargs"] for request in remote.seen()]
    assert asked == [{"enable_thinking": True}, {"enable_thinking": False}]
