"""What users of llama-server rely on, as a list: each behaviour holds for this daemon, too.

Tokens, ranks, embeddings and cancelled requests are in `test_llama_server`, `test_embeddings`, `test_text_completions`.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

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


def test_completion_a_grammar_of_json_is_obeyed(client: httpx2.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    assert set(json.loads(completion(client, json_schema=schema, n_predict=64)["content"])) == {"ok"}


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
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
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
