"""What users of llama-server rely on, as a list: each behaviour holds for this daemon, too.

Tokens, ranks, embeddings and cancelled requests are in `test_llama_server`, `test_embeddings`, `test_text_completions`.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from orchestrator.api.timings import timings_of
from orchestrator.task.events import Usage
from tests.orchestrator.api.daemon_process import Running

MODEL = "tiny-large"
TEXT = "The ship sails at dawn, and its owner is Renzer. "


def completion(client: httpx2.Client, **more: Any) -> dict[str, Any]:
    asked = {"model": MODEL, "prompt": TEXT, "n_predict": 16, "temperature": 0, **more}
    found = client.post("/completion", json=asked).raise_for_status().json()
    assert isinstance(found, dict)
    return found


def test_completion_a_seed_gives_the_same_text_again(client: httpx2.Client) -> None:
    texts = {completion(client, temperature=1.0, seed=seed)["content"] for seed in (1, 1, 2, 3, 4)}
    assert 1 < len(texts) <= 4
    assert (
        completion(client, temperature=1.0, seed=7)["content"] == completion(client, temperature=1.0, seed=7)["content"]
    )


def test_completion_a_prompt_of_an_earlier_request_is_not_computed_again(client: httpx2.Client) -> None:
    prompt = TEXT * 12
    first, second = completion(client, prompt=prompt), completion(client, prompt=prompt)
    assert second["content"] == first["content"]
    assert second["tokens_cached"] > 0.8 * second["tokens_evaluated"]
    longer = completion(client, prompt=prompt + "More.")
    assert longer["tokens_cached"] > 0.8 * first["tokens_evaluated"]


def test_completion_tokens_and_their_probabilities_come_where_they_are_asked_for(client: httpx2.Client) -> None:
    plain = completion(client, n_predict=5)
    assert plain["tokens"] == []
    assert "completion_probabilities" not in plain
    found = completion(client, n_predict=5, n_probs=3, return_tokens=True)
    listed = found["completion_probabilities"]
    assert found["content"] == plain["content"] == "".join(token["token"] for token in listed)
    assert found["tokens"] == [token["id"] for token in listed]
    assert (
        client.post("/detokenize", json={"model": MODEL, "tokens": found["tokens"]}).json()["content"]
        == found["content"]
    )
    for token in listed:
        assert len(token["top_logprobs"]) == 3
        assert token["logprob"] <= 0
        best = token["top_logprobs"][0]
        assert (best["id"], best["bytes"]) == (token["id"], list(token["token"].encode()))
    refused = client.post("/completion", json={"model": MODEL, "prompt": TEXT, "post_sampling_probs": True})
    assert "post_sampling_probs" in refused.json()["error"]["message"]


def test_completion_a_stream_has_the_same_text_tokens_and_probabilities(client: httpx2.Client) -> None:
    options = {"n_predict": 12, "n_probs": 2, "return_tokens": True}
    whole = completion(client, **options)
    body = {"model": MODEL, "prompt": TEXT, "temperature": 0, "stream": True, **options}
    lines = client.post("/completion", json=body).raise_for_status().text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [token for event in events for token in event["tokens"]] == whole["tokens"]
    listed = [token for event in events for token in event["completion_probabilities"]]
    assert [token["id"] for token in listed] == whole["tokens"]


def test_completion_tokens_and_texts_are_prompts_alone_and_together(client: httpx2.Client) -> None:
    tokens = client.post("/tokenize", json={"model": MODEL, "content": TEXT, "add_special": True}).json()["tokens"]
    alone = completion(client)["content"]
    assert completion(client, prompt=tokens)["content"] == alone
    several = client.post(
        "/completion", json={"model": MODEL, "prompt": [tokens, TEXT], "n_predict": 16, "temperature": 0}
    )
    assert [one["content"] for one in several.json()] == [alone, alone]
    assert [one["index"] for one in several.json()] == [0, 1]


def test_completion_texts_may_stand_among_tokens(client: httpx2.Client) -> None:
    def tokens(text: str, *, whole: bool = False) -> list[int]:
        asked = {"model": MODEL, "content": text, "add_special": whole}
        return list(client.post("/tokenize", json=asked).json()["tokens"])

    first, second = "The ship sails ", "at dawn. "
    expected = completion(client, prompt=[*tokens(first, whole=True), *tokens(second)])["content"]
    for prompt in ([first, *tokens(second)], [*tokens(first, whole=True), second]):
        assert completion(client, prompt=prompt)["content"] == expected
    body = {"model": MODEL, "prompt": [[first, *tokens(second)], TEXT], "n_predict": 16, "temperature": 0}
    assert [one["content"] for one in client.post("/completion", json=body).json()] == [
        expected,
        completion(client)["content"],
    ]
    echoed = client.post(
        "/v1/completions", json={"model": MODEL, "prompt": [*tokens(first), second], "max_tokens": 4, "echo": True}
    )
    assert echoed.json()["choices"][0]["text"].startswith(first + second)
    refused = client.post("/completion", json={"model": MODEL, "prompt": [1, None]})
    assert refused.status_code == 400
    assert "prompt" in refused.json()["error"]["message"]


def test_completion_it_is_told_how_the_model_was_asked(client: httpx2.Client) -> None:
    settings = completion(client, top_k=7, seed=3, stop=["never"])["generation_settings"]
    assert [settings[name] for name in ("n_predict", "temperature", "top_k", "seed", "stop")] == [
        16,
        0,
        7,
        3,
        ["never"],
    ]
    assert completion(client)["generation_settings"]["seed"] == 0xFFFFFFFF, "it stands for a random one"


@pytest.mark.parametrize("path", ["completion", "chat/completions"])
def test_timings_are_told_at_the_end_and_for_each_piece_of_a_stream_if_asked(client: httpx2.Client, path: str) -> None:
    body = {"model": MODEL, "prompt": TEXT, "messages": [{"role": "user", "content": TEXT}], "max_tokens": 12}
    body = {name: value for name, value in body.items() if name != ("messages" if path == "completion" else "prompt")}
    whole = client.post(f"/{path}", json=body).raise_for_status().json()["timings"]
    assert whole["predicted_n"] > 0
    assert whole["predicted_per_token_ms"] == pytest.approx(whole["predicted_ms"] / whole["predicted_n"])
    text = client.post(f"/{path}", json={**body, "stream": True, "timings_per_token": True}).raise_for_status().text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    *so_far, last = [event["timings"] for event in events if "timings" in event]
    counts = [one["predicted_n"] for one in so_far]
    assert counts == sorted(counts)
    assert last["predicted_n"] >= counts[-1] > 0
    assert last["prompt_n"] + last["cache_n"] > 0
    usual = client.post(f"/{path}", json={**body, "stream": True}).text
    assert usual.count('"timings"') == 1


def test_timings_have_drafts_only_if_there_were_any() -> None:
    drafted = Usage(output_tokens=4, drafted_tokens=3, accepted_tokens=2)
    timings = timings_of([drafted, drafted]).model_dump()
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (6, 4)
    assert not {"draft_n", "draft_n_accepted"} & timings_of([Usage(output_tokens=4)]).model_dump().keys()


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_slots_cannot_be_saved_and_it_is_said_so(client: httpx2.Client, action: str) -> None:
    answer = client.post("/slots/0", params={"action": action}, json={"filename": "a.bin"})
    assert answer.status_code == 400
    assert f"action: is {action}, and the slots of a model" in answer.json()["error"]["message"]
    assert client.post("/slots/0", params={"action": "paint"}).status_code == 400


def test_completion_only_the_wanted_fields_are_returned(client: httpx2.Client) -> None:
    wanted = ["content", "timings/predicted_n", "timings/nothing", "nothing"]
    found = completion(client, n_predict=4, response_fields=wanted)
    assert [*found] == ["content", "timings/predicted_n"]
    assert found["timings/predicted_n"] <= 4
    assert "model" in completion(client, n_predict=4, response_fields=[])


def test_completion_the_end_of_the_text_may_be_ignored(client: httpx2.Client) -> None:
    assert completion(client, n_predict=48, ignore_eos=True)["tokens_predicted"] == 48


def test_completion_a_grammar_that_is_none_is_refused(client: httpx2.Client) -> None:
    answer = client.post("/completion", json={"model": MODEL, "prompt": TEXT, "grammar": "root ::= nowhere"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_grammar")
    assert completion(client, grammar='root ::= "a"{5,5}')["content"] == "aaaaa"


def test_completion_a_grammar_of_json_is_obeyed(client: httpx2.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    assert set(json.loads(completion(client, json_schema=schema, n_predict=64)["content"])) == {"ok"}


@pytest.mark.slow
def test_limits_an_answer_ends_where_the_context_ends(client: httpx2.Client) -> None:
    context = client.get("/props", params={"model": MODEL}).json()["default_generation_settings"]["n_ctx"]
    tokens = client.post("/tokenize", json={"model": MODEL, "content": TEXT}).json()["count"]
    prompt = TEXT * ((context - 40) // tokens)
    endless = {"json_schema": {"type": "array", "items": {"type": "integer"}, "minItems": 9000}}
    full = completion(client, prompt=prompt, n_predict=-1, **endless)
    assert full["stop_type"] == "limit"
    assert full["tokens_evaluated"] + full["tokens_predicted"] <= context
    too_long = client.post("/completion", json={"model": MODEL, "prompt": TEXT * context, "n_predict": 4})
    assert too_long.status_code == 400
    error = too_long.json()["error"]
    assert (error["code"], error["n_ctx"]) == ("context_length_exceeded", context)
    assert error["n_prompt_tokens"] > context
    assert f"the prompt has at least {error['n_prompt_tokens']} tokens" in error["message"]
    assert completion(client)["content"] == completion(client)["content"], "the next request is answered as usual"


@pytest.mark.parametrize("limit", [1, 5])
def test_limits_an_answer_has_at_most_as_many_tokens_as_asked(client: httpx2.Client, limit: int) -> None:
    found = completion(client, n_predict=limit)
    assert found["tokens_predicted"] <= limit


def test_slots_more_requests_than_slots_are_all_answered_alike(daemon: Running) -> None:
    with daemon.client() as client:
        count = 2 * len(client.get("/slots", params={"model": MODEL}).json()) + 1
        alone = completion(client)["content"]

    def ask(number: int) -> str:
        with daemon.client() as client:
            return str(completion(client, prompt=TEXT if number % 2 else "A list of ships: ")["content"])

    with ThreadPoolExecutor(count) as threads:
        texts = list(threads.map(ask, range(count)))
    assert set(texts[1::2]) == {alone}
    assert len(set(texts[0::2])) == 1


def test_chat_messages_of_several_turns_are_answered(client: httpx2.Client) -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Who owns the ship?"},
    ]
    asked = {"model": MODEL, "messages": talk, "max_tokens": 8}
    answer = client.post("/chat/completions", json=asked).raise_for_status().json()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] <= 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": "hello"},
        {"messages": [{"role": "user"}, "x"]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "sound"}},
        {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema"}},
        {"messages": [{"role": "user", "content": "x"}], "stop": [""]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
    ],
)
def test_chat_what_is_no_chat_is_refused(client: httpx2.Client, wrong: dict[str, Any]) -> None:
    answer = client.post("/v1/chat/completions", json={"model": MODEL, **wrong})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert client.get("/health").json() == {"status": "ok"}


PICTURE = "data:image/png;base64,iVBORw0KGgo="
ANTHROPIC_PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


@pytest.mark.parametrize("model", [MODEL, "orchestrate"])
@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]},
            "messages/0/content/0: is a picture (type 'image_url')",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]}]},
            "messages/0/content/0: is sound (type 'input_audio')",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}]},
            "input/0/content/0: is a picture (type 'input_image')",
        ),
        (
            "messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": [ANTHROPIC_PICTURE]}]},
            "messages/0/content/0: is a picture (type 'image')",
        ),
    ],
)
def test_chat_what_is_no_text_is_refused_as_what_it_is(
    client: httpx2.Client, model: str, path: str, body: dict[str, Any], where: str
) -> None:
    answer = client.post(f"/v1/{path}", json={"model": model, **body})
    assert answer.status_code == 400
    assert f"{where}, which no model here can take in; accepted: text" in answer.json()["error"]["message"]


@pytest.mark.parametrize("extra", [{}, {"filename": "ok"}, {"filename": 1, "text": "a"}, {"filename": "a", "text": 4}])
def test_infill_what_is_no_file_is_refused(client: httpx2.Client, extra: dict[str, Any]) -> None:
    body = {"model": MODEL, "input_prefix": "a", "input_suffix": "b", "input_extra": [extra]}
    answer = client.post("/infill", json=body)
    assert answer.status_code == 400
    assert "input_extra/0/" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("most", "count"), [(None, 3), (2, 2), (99, 3)])
def test_rerank_both_forms_are_known(client: httpx2.Client, most: int | None, count: int) -> None:
    texts = ["tax figures", "the ship sails", "a ship"]
    asked = {"model": "lexical", "query": "the ship sails", "top_n": most}
    ranked = client.post("/rerank", json={**asked, "documents": texts}).json()["results"]
    scored = client.post("/rerank", json={**asked, "texts": texts}).json()
    assert scored == [{"index": one["index"], "score": one["relevance_score"]} for one in ranked]
    assert len(ranked) == count
    with_text = client.post("/rerank", json={**asked, "texts": texts, "return_text": True}).json()
    assert with_text[0]["text"] == texts[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"documents": []}, "documents: is []; accepted: list of 1 or more"),
        ({"documents": None}, "documents: is missing, or given together with texts; accepted: exactly one of both"),
        ({"documents": ["a"], "texts": ["a"]}, "exactly one of both"),
        ({"documents": 123}, "documents: is 123; accepted: list"),
        ({"documents": [1]}, "documents/0: is 1; accepted: string or object"),
        ({"texts": ["a", ""]}, "texts/1: is empty"),
        ({"documents": ["a"], "query": ""}, 'query: is ""; accepted: string of 1 or more characters'),
    ],
)
def test_rerank_what_cannot_be_ranked_is_refused(client: httpx2.Client, wrong: dict[str, Any], message: str) -> None:
    answer = client.post("/rerank", json={"model": "lexical", "query": "ship", **wrong})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
