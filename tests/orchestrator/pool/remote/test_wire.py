import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import BadRequest
from orchestrator.pool.remote.wire import InvalidChunk, one_line, read_chunk, read_problem, wire_request
from orchestrator.registry.options import SamplingOptions

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "delta", "content", "error", "usage", "message", "code"]), inner)
    ),
)


@given(JSON)
def test_any_json_is_a_piece_or_is_refused(value: object) -> None:
    try:
        chunk = read_chunk(json.dumps(value))
    except InvalidChunk:
        return
    assert isinstance(value, dict)
    assert isinstance(chunk.text, str)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_of_an_error_gives_a_message(body: bytes) -> None:
    assert (read_problem(body).message or "").isprintable() or one_line(read_problem(body).message or "").isprintable()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "m", "code": null}}', "m"),
        (b'{"error": "m"}', "m"),
        (b'{"object": "error", "message": "m", "code": 400}', "m"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": "m"}', "m"),
        (b'{"detail": [{"loc": 1}]}', '{"detail": [{"loc": 1}]}'),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_the_ways_to_say_what_is_wrong(body: bytes, message: str) -> None:
    assert read_problem(body).message == message


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(InvalidChunk):
        read_chunk(r'{"choices": [{"delta": {"content": "\ud83d"}}]}')


def test_pieces_without_text_or_choices_are_empty() -> None:
    for data in (
        '{"choices": []}',
        '{"choices": [{"delta": {"role": "assistant", "content": null}}]}',
        '{"choices": [{}]}',
        '{"choices": [{"delta": {}, "finish_reason": ""}]}',
    ):
        chunk = read_chunk(data)
        assert (chunk.text, chunk.reason, chunk.problem) == ("", None, None)


@given(st.text(max_size=30), st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 30))
def test_any_good_request_becomes_json_that_every_server_takes(text: str, seed: int, max_tokens: int) -> None:
    request = Generation(messages=(Message("user", text),), seed=seed, max_tokens=max_tokens)
    body = json.loads(wire_request("m", request, 4096).body)
    assert body["messages"] == [{"role": "user", "content": text}]
    assert 0 <= body["seed"] < 1 << 31
    assert body["max_tokens"] == min(max_tokens, 4096)


def test_penalties_are_sent_where_they_are_asked_for() -> None:
    asked = SamplingOptions(presence_penalty=0.5, dry_multiplier=0.8)
    request = Generation(messages=(Message("user", "hello"),), sampling=asked)
    plain = json.loads(wire_request("m", replace(request, sampling=SamplingOptions()), 4096).body)
    body = json.loads(wire_request("m", request, 4096).body)
    assert body == {**plain, "presence_penalty": 0.5, "dry_multiplier": 0.8}
    assert json.loads(wire_request("m", request, 4096, {"dry_multiplier"}).body) == {**plain, "presence_penalty": 0.5}


def test_what_shapes_an_answer_is_sent_by_the_names_that_servers_have() -> None:
    request = Generation(
        messages=(Message("user", "hello"), Message("assistant", "I")),
        sampling=SamplingOptions(top_k=3, min_p=0.1),
        logit_bias=((5, 1.5), (7, -math.inf)),
        logprobs=2,
        min_tokens=4,
        ignore_end=True,
        continues=True,
    )
    body = json.loads(wire_request("m", request, 4096).body)
    assert (body["top_k"], body["min_p"], body["min_tokens"], body["ignore_eos"]) == (3, 0.1, 4, True)
    assert body["logit_bias"] == {"5": 1.5, "7": -100}
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    with pytest.raises(BadRequest, match=r"logit_bias names the text 'no'.*accepted: ids of tokens"):
        wire_request("m", replace(request, logit_bias=(("no", 1.0),)), 4096)


def test_logprobs_of_a_server_are_read() -> None:
    entry = {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": [{"token": "e", "logprob": -0.5}]}
    chunk = read_chunk(json.dumps({"choices": [{"delta": {"content": "é"}, "logprobs": {"content": [entry]}}]}))
    (token,) = chunk.logprobs
    assert (token.data, token.logprob, token.top[0].data) == ("é".encode(), -0.5, b"e")
    assert read_chunk('{"choices": [{"delta": {"content": "x"}, "logprobs": {"content": null}}]}').logprobs == ()


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(BadRequest, match="no Unicode"):
        wire_request("m", Generation(messages=(Message("user", "\udc80"),)), 4096)


@given(st.text())
def test_a_servers_words_fit_on_one_line(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= 400
