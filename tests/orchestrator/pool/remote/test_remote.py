from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import BadGrammar, EngineError
from orchestrator.pool.remote.errors import (
    RemoteBusy,
    RemoteFailed,
    RemotePromptTooLong,
    RemoteRefused,
)
from orchestrator.pool.remote.http import TRIES
from orchestrator.pool.remote.wire import MAX_TOKEN_TEXT, SPARE_CHUNKS
from tests.orchestrator.pool.remote.conftest import Opened
from tests.orchestrator.pool.remote.remote_asking import HELLO, failing
from tests.orchestrator.pool.remote.server_answers import DONE, USAGE, call, does, error, event, ok, piece, stream
from tests.orchestrator.pool.remote.server_play import Remote


async def test_an_answer_is_streamed_and_counted_by_the_server(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("Hel", "lo", " wörld"))
    pieces: list[str] = []
    async with opened() as model:
        done = await model.generate(HELLO, pieces.append)
    assert (done.text, done.finish) == ("Hello wörld", "stop")
    assert pieces == ["Hel", "lo", " wörld"]
    usage = done.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.estimated_tokens) == (12, 4, 3, 0)
    assert usage.prefill_seconds > 0
    assert min(usage.queued_seconds, usage.decode_seconds) >= 0


async def test_a_request_says_all_that_the_caller_wants(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("{}"), ok("x"))
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = Generation(
        messages=HELLO.messages,
        max_tokens=7,
        temperature=0.25,
        top_p=0.5,
        seed=(1 << 40) + 5,
        stop=("\n",),
        schema=schema,
    )
    async with opened() as model:
        await model.generate(asked)
        await model.generate(Generation(messages=HELLO.messages))
    full, bare = (request["body"] for request in remote.seen())
    assert full == {
        "model": "served-name",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 7,
        "seed": 5,
        "stop": ["\n"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }
    assert bare.keys() == {"model", "messages", "stream", "stream_options", "temperature"}
    assert bare["temperature"] == 0.0


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
async def test_any_way_to_write_and_cut_the_stream_is_read(remote: Remote, opened: Opened, ends: str) -> None:
    split = event(choices=[{"delta": {"content": "ö→🙂"}}]).replace("data: {", "data: {\ndata:")
    text = f": a comment\n\nevent: message\nid: 7\n{piece(None)}{split}:\n\ndata:\n\n{stream('!')}"
    remote.plays(does(["dribble", text.replace("\n", ends)]))
    async with opened() as model:
        assert (await model.generate(HELLO)).text == "ö→🙂!"


async def test_without_counts_tokens_are_estimated_and_marked(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("a", "b", "c", usage=None))
    async with opened() as model:
        usage = (await model.generate(HELLO)).usage
    assert (usage.output_tokens, usage.prompt_tokens) == (3, -(-len("Be brief.Hello?") // 4))
    assert usage.estimated_tokens == usage.output_tokens + usage.prompt_tokens


@pytest.mark.parametrize(
    ("timings", "drafts"),
    [
        ({"predicted_n": 3, "draft_n": 60, "draft_n_accepted": 41}, (60, 41)),
        ({"predicted_n": 3}, (0, 0)),
        ({"draft_n": -1}, (0, 0)),
        ("12 ms", (0, 0)),
    ],
)
@pytest.mark.parametrize("late", [False, True])
async def test_drafts_are_counted_by_the_server(
    remote: Remote, opened: Opened, timings: object, drafts: tuple[int, int], late: bool
) -> None:
    # llama-server says it with the counts, after the answer; a daemon with the end of the answer.
    end: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    last: dict[str, Any] = {"choices": [], "usage": USAGE}
    ends = [end, last | {"timings": timings}] if late else [end | {"timings": timings}, last]
    remote.plays(does(["send", piece("Hello") + "".join(event(**fields) for fields in ends) + DONE]))
    async with opened() as model:
        done = await model.generate(HELLO)
    assert (done.text, done.usage.output_tokens) == ("Hello", 3)
    assert (done.usage.drafted_tokens, done.usage.accepted_tokens) == drafts


@pytest.mark.parametrize(("told", "meant"), [("stop", "stop"), ("length", "length"), ("abort", "cancelled")])
async def test_the_reasons_why_an_answer_ends(remote: Remote, opened: Opened, told: str, meant: str) -> None:
    remote.plays(ok("a", finish=told))
    async with opened() as model:
        assert (await model.generate(HELLO)).finish == meant


@pytest.mark.parametrize(
    ("told", "kind"), [("content_filter", RemoteRefused), ("maybe", RemoteFailed), ("new", RemoteFailed)]
)
async def test_reasons_that_give_no_answer(remote: Remote, opened: Opened, told: str, kind: type[EngineError]) -> None:
    remote.plays(ok("a", finish=told))
    async with opened() as model:
        await failing(model, kind=kind)
    assert len(remote.seen()) == 1


async def test_what_follows_a_whole_answer_cannot_spoil_it(remote: Remote, opened: Opened) -> None:
    whole = piece("a", "stop")
    remote.plays(
        does(["send", whole], ["reset"]),
        does(["send", whole + "data: rubbish\n\n"]),
        does(["send", whole + event(error={"message": "late", "code": 400})]),
        does(["send", whole], ["stall"]),
        does(["send", whole + DONE], ["stall"]),
    )
    async with opened() as model:
        answers = [await model.generate(HELLO) for _ in range(5)]
    assert [(answer.text, answer.finish) for answer in answers] == [("a", "stop")] * 5


@pytest.mark.parametrize(
    "passing",
    [
        error(500),
        error(503, "Loading model"),
        error(408),
        error(429, headers={"Retry-After": "0"}),
        does(["reset"]),
        does(["close"]),
        does(["send", piece(None)], ["reset"]),
        does(["send", piece(None)]),
        does(["send", event(error={"message": "overloaded", "code": 503})]),
    ],
    ids=lambda answer: str(answer["steps"][0])[:40],
)
async def test_what_may_pass_is_tried_again(remote: Remote, opened: Opened, passing: dict[str, Any]) -> None:
    remote.plays(*[passing] * (TRIES - 1), ok("fine"))
    async with opened() as model:
        assert (await model.generate(HELLO)).text == "fine"
    assert len(remote.seen()) == TRIES


async def test_trying_ends_somewhere_and_tells_the_last_failure(remote: Remote, opened: Opened) -> None:
    remote.plays(*[error(500, "first")] * (TRIES - 1), error(502, "the last one"), ok("too late"))
    async with opened() as model:
        assert "HTTP 502: the last one" in str(await failing(model, kind=RemoteFailed))
        assert "the last one" in (model.last_failure or "")
    assert len(remote.seen()) == TRIES


@pytest.mark.parametrize("broken", [[["reset"]], [], [["send", "data: rubbish\n\n"]], [["send", event(error="broke")]]])
async def test_nothing_is_tried_again_once_text_was_handed_on(
    remote: Remote, opened: Opened, broken: list[list[str]]
) -> None:
    remote.plays(does(["send", piece("some")], *broken), ok("else"))
    pieces: list[str] = []
    async with opened() as model:
        with pytest.raises(RemoteFailed, match=r"model far at http://127\.0\.0\.1"):
            await model.generate(HELLO, pieces.append)
    assert pieces == ["some"]
    assert len(remote.seen()) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (error(404, "no such model"), RemoteRefused, "HTTP 404: no such model"),
        (error(400, "bad field"), RemoteRefused, "HTTP 400: bad field"),
        (error(401, "who are you"), RemoteRefused, "who are you; the key in REMOTE_TEST_KEY"),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}, "steps": []}, RemoteRefused, "not followed"),
        (
            {"status": 200, "headers": {"Content-Type": "application/json"}, "steps": []},
            RemoteFailed,
            "application/json",
        ),
        (does(["send", "data: rubbish\n\n"]), RemoteFailed, "an invalid piece of an answer"),
        (
            does(["send", 'data: {"choices": [{"delta": {"content": 5}}]}\n\n']),
            RemoteFailed,
            "an invalid piece of an answer",
        ),
        (does(["send", "data: " + "x" * (1 << 21)]), RemoteFailed, "limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_would_only_happen_again_is_not_tried_again(
    remote: Remote, opened: Opened, answer: dict[str, Any], kind: type[EngineError], told: str
) -> None:
    remote.plays(answer, ok("x"))
    async with opened() as model:
        assert told in str(await failing(model, kind=kind))
    assert len(remote.seen()) == 1


async def test_a_server_that_asks_for_more_patience_than_there_is_is_not_waited_for(
    remote: Remote, opened: Opened
) -> None:
    remote.plays(error(429, "slow down", headers={"Retry-After": "3600"}), error(429, headers={"Retry-After": "20"}))
    async with opened() as model:
        failed = await failing(model, kind=RemoteBusy)
        assert isinstance(failed, RemoteBusy)
        assert failed.retry_after == 3600
        hurried = Generation(messages=HELLO.messages, deadline_seconds=10)
        assert isinstance(await failing(model, hurried), RemoteBusy)
    assert len(remote.seen()) == 2


OPENAI = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages)"
LLAMA = "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it"


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        (error(400, OPENAI, code="context_length_exceeded"), (9000, 8192)),
        (error(400, VLLM, code=400, type="BadRequestError"), (5000, 4096)),
        (error(400, LLAMA, code=400, type="exceed_context_size_error"), (9412, 8192)),
        (error(400, "no", type="exceed_context_size_error", n_prompt_tokens=9412, n_ctx=8192), (9412, 8192)),
        (error(400, "too much", code="context_length_exceeded"), (0, 0)),
        (does(["send", event(error={"message": "context size", "code": 400})]), (0, 0)),
        (does(["send", event(object="error", message=VLLM, code=400)]), (5000, 4096)),
    ],
)
async def test_a_prompt_that_is_too_long_is_recognised(
    remote: Remote, opened: Opened, answer: dict[str, Any], numbers: tuple[int, int]
) -> None:
    remote.plays(answer)
    async with opened() as model:
        failed = await failing(model, kind=RemotePromptTooLong)
    assert isinstance(failed, RemotePromptTooLong)
    assert (failed.tokens, failed.limit) == numbers
    assert "model far at" in str(failed)


async def test_a_schema_that_the_server_cannot_enforce_is_distinguished_from_other_refusals(
    remote: Remote, opened: Opened
) -> None:
    refusal = error(400, "JSON schema conversion failed:\nUnrecognized schema")
    remote.plays(refusal, refusal)
    async with opened() as model:
        await failing(model, Generation(messages=HELLO.messages, schema={"type": "object"}), BadGrammar)
        assert not isinstance(await failing(model), BadGrammar)


@pytest.mark.parametrize("schema", [{}, True])
async def test_any_json_is_left_to_the_prompt(remote: Remote, opened: Opened, schema: dict[str, object] | bool) -> None:
    remote.plays(ok("[1]"))
    async with opened() as model:
        assert (await model.generate(Generation(messages=HELLO.messages, schema=schema))).text == "[1]"
    assert "response_format" not in remote.seen()[0]["body"]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Generation(messages=HELLO.messages, grammar='root ::= "a"'), BadGrammar),
        (Generation(messages=HELLO.messages, schema=False), BadGrammar),
        (Generation(messages=HELLO.messages, schema={"maximum": float("nan")}), BadGrammar),
        (Generation(messages=(Message("user", "\ud800"),)), EngineError),
        (Generation(messages=()), EngineError),
        (Generation(messages=HELLO.messages, temperature=float("nan")), EngineError),
    ],
)
async def test_what_no_server_could_do_is_refused_before_it_is_sent(
    remote: Remote, opened: Opened, request_: Generation, kind: type[EngineError]
) -> None:
    async with opened() as model:
        await failing(model, request_, kind)
    assert remote.seen() == []


async def test_a_server_that_ignores_max_tokens_is_cut_off(remote: Remote, opened: Opened) -> None:
    piece_of_8_kib = piece("x" * 8192)
    endless = does(["send", piece_of_8_kib * 100], ["stall"])
    remote.plays(endless)
    async with opened() as model:
        done = await model.generate(replace(HELLO, max_tokens=10))
    assert done.finish == "length"
    assert len(done.text) <= MAX_TOKEN_TEXT * (10 + SPARE_CHUNKS) + 8192
    assert remote.wait_seen(lambda seen: seen[0]["ended"] is not None)[0]["ended"] == "closed by the client"


async def test_tool_arguments_without_an_end_are_cut_off(remote: Remote, opened: Opened) -> None:
    first, more = call("look", "{"), call(None, "x" * 8192)
    made = "".join(event(choices=[{"index": 0, "delta": {"tool_calls": [one]}}]) for one in [first, *[more] * 50])
    remote.plays(does(["send", made], ["stall"]))
    async with opened() as model:
        done = await model.generate(replace(HELLO, max_tokens=10))
    assert (done.finish, len(done.text) < 200_000) == ("length", True)


async def test_many_events_without_text_end_the_answer(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["send", piece("") * 20_000], ["stall"]))
    async with opened() as model:
        done = await model.generate(replace(HELLO, max_tokens=10))
    assert (done.text, done.finish) == ("", "length")


async def test_more_json_than_an_answer_can_have_is_refused(remote: Remote, opened: Opened) -> None:
    padded = event(choices=[{"index": 0, "delta": {"content": "x"}}], padding="y" * (1 << 19))
    remote.plays(does(["send", padded * 20], ["stall"]))
    async with opened() as model:
        failed = await failing(model, replace(HELLO, max_tokens=1))
    assert isinstance(failed, RemoteFailed)
    assert "for an answer of at most 1 tokens; accepted: at most" in str(failed)
