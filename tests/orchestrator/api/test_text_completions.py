"""/v1/completions with the official OpenAI client, and /completion and /infill as editors ask for them."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.orchestrator.api.daemon_process import Running, cancelled

PROMPT = "The ship sails at"


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def go_on(ai: OpenAI, **more: Any) -> Any:
    asked = {"model": "worker", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, **more}
    return ai.completions.create(**asked)


def test_a_text_is_gone_on_with(ai: OpenAI) -> None:
    answer = go_on(ai)
    (choice,) = answer.choices
    assert answer.object == "text_completion"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 12
    assert go_on(ai, max_tokens=3).choices[0].text == choice.text[: len(go_on(ai, max_tokens=3).choices[0].text)]
    assert go_on(ai, model="auto").choices[0].text


def test_tokens_are_gone_on_with_as_their_text(ai: OpenAI, client: httpx2.Client) -> None:
    asked = {"content": PROMPT, "add_special": True}
    tokens = client.post("/tokenize", json=asked).json()["tokens"]
    text = go_on(ai).choices[0].text
    assert go_on(ai, prompt=tokens).choices[0].text == text
    both = go_on(ai, prompt=[tokens, tokens], n=2)
    assert [choice.text for choice in both.choices] == [text] * 4
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.usage.prompt_tokens == 2 * len(tokens)


def test_an_answer_may_begin_with_the_prompt(ai: OpenAI) -> None:
    text = go_on(ai).choices[0].text
    assert go_on(ai, echo=True).choices[0].text == PROMPT + text
    chunks = list(go_on(ai, echo=True, prompt=[PROMPT, "A"], stream=True))
    for index, prompt in enumerate((PROMPT, "A")):
        said = "".join(c.text for chunk in chunks for c in chunk.choices if c.index == index)
        assert said == prompt + go_on(ai, prompt=prompt).choices[0].text


def test_a_stream_has_the_whole_text_in_pieces(ai: OpenAI) -> None:
    whole = go_on(ai)
    chunks = list(go_on(ai, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == whole.choices[0].text
    # How many of them were cached may differ.
    streamed = chunks[-1].usage
    assert streamed.prompt_tokens == whole.usage.prompt_tokens
    assert streamed.completion_tokens == whole.usage.completion_tokens
    assert streamed.total_tokens == whole.usage.total_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_text_ends_at_a_stop_string(ai: OpenAI, client: httpx2.Client) -> None:
    whole = go_on(ai).choices[0].text
    mark = whole[len(whole) // 2 :][:2]
    assert go_on(ai, stop=mark).choices[0].text == whole[: whole.index(mark)]
    native = client.post("/completion", json={"prompt": PROMPT, "n_predict": 12, "temperature": 0, "stop": [mark]})
    answer = native.json()
    assert answer["content"] == whole[: whole.index(mark)]
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", mark)


def test_it_is_said_how_likely_the_tokens_were(ai: OpenAI) -> None:
    (choice,) = go_on(ai, logprobs=2).choices
    said = choice.logprobs
    assert "".join(said.tokens) == choice.text
    assert [choice.text[at : at + len(token)] for at, token in zip(said.text_offset, said.tokens, strict=True)] == (
        said.tokens
    )
    assert all(len(one) == 2 for one in said.top_logprobs)
    chunks = [chunk.choices[0] for chunk in go_on(ai, logprobs=2, stream=True)]
    parts = [chunk.logprobs for chunk in chunks if chunk.logprobs]
    assert [token for part in parts for token in part.tokens] == said.tokens
    assert [at for part in parts for at in part.text_offset] == said.text_offset


def test_it_is_said_how_likely_the_prompt_was_as_evaluation_harnesses_want_it(
    ai: OpenAI, client: httpx2.Client
) -> None:
    (choice,) = go_on(ai, echo=True, logprobs=2, max_tokens=1).choices
    said = choice.logprobs
    assert "".join(said.tokens) == choice.text
    assert choice.text.startswith(PROMPT)
    assert [choice.text[at : at + len(token)] for at, token in zip(said.text_offset, said.tokens, strict=True)] == (
        said.tokens
    )
    tokens, plain = (
        client.post("/tokenize", json={"content": PROMPT, "add_special": special}).json()["tokens"]
        for special in (True, False)
    )
    before = len(tokens) - len(plain)
    """How many tokens, such as BOS, the model needs before a text."""
    assert len(said.tokens) == len(said.token_logprobs) == len(plain) + 1
    for place, (logprob, top) in enumerate(zip(said.token_logprobs, said.top_logprobs, strict=True)):
        if logprob is None:
            assert (place, top, before) == (0, None, 0)
        else:
            assert logprob <= max(top.values()) <= 0
    (again,) = go_on(ai, echo=True, logprobs=2, max_tokens=0, prompt=tokens).choices
    assert again.text.endswith(PROMPT)
    assert again.logprobs.tokens[before:] == said.tokens[:-1]
    assert again.logprobs.token_logprobs[0] is None
    assert again.logprobs.token_logprobs[1:] == pytest.approx(said.token_logprobs[1 - before : -1], abs=1e-3)
    for length in (2, len(plain) - 1):  # what comes after a text is as likely as it is within one
        (begun,) = go_on(ai, logprobs=2, prompt=tokens[: length + before], max_tokens=1).choices
        assert begun.logprobs.top_logprobs[0] == pytest.approx(said.top_logprobs[length], abs=1e-3)
    (chunk,) = [c for c in go_on(ai, echo=True, logprobs=2, max_tokens=1, stream=True) if c.choices]
    assert chunk.choices[0].text == choice.text
    assert chunk.choices[0].logprobs.tokens == said.tokens


def test_a_long_prompt_is_told_whole_beside_others(ai: OpenAI) -> None:
    long = PROMPT * 60
    several = go_on(ai, prompt=[long, long[:900], PROMPT], echo=True, logprobs=0, max_tokens=4)
    for choice, prompt in zip(several.choices, (long, long[:900], PROMPT), strict=True):
        assert choice.text.startswith(prompt)
        assert "".join(choice.logprobs.tokens) == choice.text
        assert sum(one is None for one in choice.logprobs.token_logprobs) <= 1
        assert len(set(choice.logprobs.token_logprobs)) > 3


def test_a_token_ends_an_answer(ai: OpenAI, client: httpx2.Client) -> None:
    whole = go_on(ai, logprobs=0).choices[0]
    pieces = whole.logprobs.tokens
    place = next(n for n in range(1, len(pieces)) if pieces[n] not in pieces[:n])
    (token,) = client.post("/tokenize", json={"content": pieces[place]}).json()["tokens"][-1:]
    stopped = go_on(ai, extra_body={"stop_token_ids": [token, token]})
    assert stopped.choices[0].text == "".join(pieces[: place + 1])
    assert stopped.choices[0].finish_reason == "stop"
    later = go_on(ai, extra_body={"stop_token_ids": [token], "min_tokens": place + 2})
    assert later.choices[0].text.startswith("".join(pieces[: place + 2]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [5_000_000]}, "5000000 is no token of the model"),
        ({"best_of": 3}, "best_of: is 3, and n is 1; accepted: the same number as n"),
        ({"suffix": "end", "echo": True}, "echo"),
        ({"suffix": "end"}, "the model cannot fill a place in a text: its vocabulary has no FIM tokens"),
        ({"max_tokens": 0}, "max_tokens: is 0 without echo; accepted: at least 1, -1, or echo: true with it"),
        ({"max_tokens": -2}, "max_tokens: is -2; accepted"),
        ({"prompt": "word " * 9000}, "tokens"),
        ({"model": "orchestrate"}, "orchestrate takes no raw prompts"),
        ({"extra_body": {"guided_regex": "(?=a)b"}}, "guided_regex: the pattern has no grammar: look-around"),
        ({"extra_body": {"prompt_logprobs": 1}}, "prompt_logprobs"),
        ({"extra_body": {"stop_token_ids": [5_000_000]}}, "5000000 is no token of the model"),
    ],
)
def test_what_cannot_be_done_is_refused(ai: OpenAI, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        go_on(ai, **wrong)


def test_what_does_not_match_its_schema_is_refused_since_nothing_can_be_said_to_a_raw_prompt(ai: OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="does not obey"):
        go_on(ai, extra_body={"json_schema": {"enum": [1, 2], "not": {"type": "number"}}})


def test_a_text_is_no_longer_written_when_the_client_has_gone(ai: OpenAI, daemon: Running) -> None:
    several = {"prompt": [PROMPT] * 8, "temperature": 1.5, "seed": 1}  # which takes longer than to notice that it left
    with cancelled(daemon, 8 * 1500):
        stream = go_on(ai, **several, max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()


def test_the_form_of_llama_server(client: httpx2.Client) -> None:
    asked = {"prompt": PROMPT, "n_predict": 12, "temperature": 0, "cache_prompt": True, "id_slot": -1}
    whole = client.post("/completion", json=asked).raise_for_status().json()
    assert whole["stop"] is True
    assert whole["tokens_predicted"] == whole["timings"]["predicted_n"] > 0
    assert whole["tokens_evaluated"] == whole["timings"]["prompt_n"] + whole["timings"]["cache_n"]
    events = lines(client.post("/completion", json={**asked, "stream": True}).text)
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    several = client.post("/completion", json={**asked, "prompt": [PROMPT, PROMPT]}).json()
    assert [one["content"] for one in several] == [whole["content"]] * 2
    warmed = client.post("/completion", json={**asked, "n_predict": 0}).json()
    assert warmed["content"] == ""
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(client.post("/completion", json={**asked, "json_schema": schema}).json()["content"]) == {"a": 1}


def test_a_place_cannot_be_filled_without_fim_tokens(client: httpx2.Client) -> None:
    asked = {"input_prefix": "def f(", "input_suffix": "return 1", "input_extra": [{"filename": "a", "text": "b"}]}
    refused = client.post("/infill", json=asked)
    assert refused.status_code == 400
    assert "FIM" in refused.json()["error"]["message"]


def lines(text: str) -> list[dict[str, Any]]:
    """Return the data of the events of a stream."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
