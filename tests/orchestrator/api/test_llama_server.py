"""What clients of llama-server ask for: tokens, the chat template, properties, slots, metrics, ranks."""

import re
from typing import Any

import httpx2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.task.lexical import embed
from tests.orchestrator.api.daemon_process import Running

CHAT = [{"role": "user", "content": "Which colour?"}]


def test_texts_become_tokens_and_come_back(client: httpx2.Client) -> None:
    for text in ("hello world", "", "für 猫"):
        found = client.post("/tokenize", json={"content": text}).raise_for_status().json()
        assert found["count"] == len(found["tokens"])
        back = client.post("/detokenize", json={"tokens": found["tokens"]}).json()
        assert back["content"] == back["prompt"] == text
    same = client.post("/tokenize", json={"model": "worker", "prompt": "hello world", "add_special_tokens": False})
    assert same.json() == client.post("/tokenize", json={"content": "hello world"}).json()


def test_pieces_of_tokens_make_the_text(client: httpx2.Client) -> None:
    tokens = client.post("/tokenize", json={"content": "für 猫", "with_pieces": True}).json()["tokens"]
    pieces = [one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in tokens]
    assert b"".join(pieces).decode() == "für 猫"


def test_the_rendered_template_is_what_a_chat_gives_the_model(client: httpx2.Client) -> None:
    prompt = client.post("/apply-template", json={"model": "tiny-large", "messages": CHAT}).json()["prompt"]
    assert "Which colour?" in prompt
    options = {"model": "tiny-large", "max_tokens": 8, "temperature": 0}
    chat = client.post("/v1/chat/completions", json={**options, "messages": CHAT}).json()
    raw = client.post("/v1/completions", json={**options, "prompt": prompt}).json()
    assert raw["choices"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert raw["usage"]["prompt_tokens"] == chat["usage"]["prompt_tokens"]


@pytest.mark.parametrize("where", ["add_generation_prompt", "chat_template_kwargs"])
def test_a_template_is_rendered_without_the_beginning_of_an_answer_if_asked(client: httpx2.Client, where: str) -> None:
    def rendered(wanted: bool) -> str:
        option = wanted if where == "add_generation_prompt" else {"add_generation_prompt": wanted}
        asked = {"model": "tiny-large", "messages": CHAT, where: option}
        return str(client.post("/apply-template", json=asked).json()["prompt"])

    usual = client.post("/apply-template", json={"model": "tiny-large", "messages": CHAT}).json()["prompt"]
    assert rendered(True) == usual
    assert usual.startswith(rendered(False))
    assert len(rendered(False)) < len(usual)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", {}, "content: is missing; accepted: a text, as content or as prompt"),
        ("/tokenize", {"content": 5}, "content: is 5; accepted: string"),
        ("/detokenize", {"tokens": [1 << 30]}, "is no token of the model"),
        ("/detokenize", {"tokens": ["a"]}, 'tokens/0: is "a"'),
        ("/apply-template", {"messages": []}, "messages: "),
        ("/tokenize", {"model": "nobody", "content": "a"}, "there is no model 'nobody'"),
    ],
)
def test_bad_requests_are_refused(client: httpx2.Client, path: str, body: dict[str, Any], message: str) -> None:
    answer = client.post(path, json=body)
    assert 400 <= answer.status_code < 500
    assert message in answer.json()["error"]["message"]


def test_what_is_too_large_for_one_go_is_refused(client: httpx2.Client) -> None:
    text = "word " * 250_000
    large: list[tuple[str, dict[str, Any], str]] = [
        ("/tokenize", {"content": text}, "content: has 1250000 characters; accepted: at most 1048576"),
        ("/detokenize", {"tokens": [1] * ((1 << 20) + 1)}, "tokens: are 1048577 tokens"),
        ("/apply-template", {"messages": [{"role": "user", "content": text}] * 4}, "messages: has 5000000 characters"),
        (
            "/v1/messages/count_tokens",
            {"model": "worker", "messages": [{"role": "user", "content": text}] * 4},
            "messages: has 5000000 characters",
        ),
    ]
    for path, body, message in large:
        answer = client.post(path, json=body)
        assert answer.status_code == 413
        assert message in answer.json()["error"]["message"]
    assert client.post("/tokenize", json={"content": text[:100_000]}).json()["count"] > 10_000


def test_a_schema_that_is_too_large_is_refused(client: httpx2.Client) -> None:
    properties = {f"p{number}": {"type": "string", "description": "x" * 2000} for number in range(600)}
    chat = {"model": "worker", "messages": CHAT, "max_tokens": 1}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": properties}}}
    refused = client.post("/v1/chat/completions", json={**chat, "response_format": form})
    assert refused.status_code == 400
    assert "and may have 1048576" in refused.json()["error"]["message"]
    tools = [
        {"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object", "properties": part}}}
        for n in range(3)
        for part in [dict(list(properties.items())[200 * n : 200 * n + 200])]
    ]
    refused = client.post("/v1/chat/completions", json={**chat, "tools": tools})
    assert refused.status_code == 400
    assert "the parameters of all tools have" in refused.json()["error"]["message"]


def test_a_model_is_described(client: httpx2.Client) -> None:
    props = client.get("/props").raise_for_status().json()
    listed = client.get("/v1/models/worker").json()
    assert props["default_generation_settings"]["n_ctx"] == listed["context_length"]
    assert "messages" in props["chat_template"]
    slots = client.get("/slots").json()
    assert len(slots) == props["total_slots"]
    assert not any(slot["is_processing"] for slot in slots)
    assert client.get("/slots", params={"fail_on_no_slot": "1"}).is_success
    assert client.get("/props", params={"model": "nobody"}).status_code == 404
    assert client.post("/props", json={}).status_code == 405


def test_the_metrics_of_llama_server_are_there(client: httpx2.Client) -> None:
    def value(name: str) -> float:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return next(sample.value for family in families for sample in family.samples if sample.name == name)

    before = value("llamacpp:tokens_predicted_total")
    asked = {"model": "worker", "messages": CHAT, "max_tokens": 5}
    usage = client.post("/v1/chat/completions", json=asked).raise_for_status().json()["usage"]
    assert value("llamacpp:tokens_predicted_total") == before + usage["completion_tokens"]
    for name in (
        "prompt_tokens_total",
        "prompt_seconds_total",
        "tokens_predicted_seconds_total",
        "prompt_tokens_seconds",
        "predicted_tokens_seconds",
    ):
        assert value(f"llamacpp:{name}") > 0
    assert 0 <= value("llamacpp:kv_cache_usage_ratio") <= 1
    assert value("llamacpp:requests_processing") == value("llamacpp:requests_deferred") == 0
    assert "orchestrator_model_tokens_per_second" in client.get("/metrics").text


def test_documents_are_ordered_by_an_embedder(client: httpx2.Client) -> None:
    documents = ["quarterly tax figures", {"text": "a ship sails at dawn"}, "the ship sails at dawn"]
    asked = {"model": "lexical", "query": "the ship sails at dawn", "documents": documents}
    ranked = client.post("/v1/rerank", json={**asked, "return_documents": True}).raise_for_status().json()
    assert [one["index"] for one in ranked["results"]] == [2, 1, 0]
    scores = [one["relevance_score"] for one in ranked["results"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1)
    query, document = embed(["the ship sails at dawn", "a ship sails at dawn"])
    assert scores[1] == pytest.approx(float(np.dot(query, document)), abs=1e-6)
    assert ranked["results"][1]["document"] == {"text": "a ship sails at dawn"}
    short = client.post("/rerank", json={**asked, "top_n": 1}).json()
    assert [set(one) for one in short["results"]] == [{"index", "relevance_score"}]
    refused: list[dict[str, Any]] = [{"documents": []}, {"documents": [""]}, {"query": ""}, {"model": "worker"}]
    for wrong in (*refused, {"top_n": 0}):
        assert 400 <= client.post("/rerank", json={**asked, **wrong}).status_code < 500


def test_over_tcp_all_of_it_needs_the_token(daemon: Running) -> None:
    with daemon.tcp() as anybody:
        for path in (
            "/tokenize",
            "/detokenize",
            "/apply-template",
            "/completion",
            "/infill",
            "/v1/messages",
            "/rerank",
        ):
            assert anybody.post(path, json={}).status_code == 401
        assert [anybody.get(path).status_code for path in ("/props", "/slots", "/metrics")] == [401] * 3


def test_messages_about_bad_bodies_are_plain(client: httpx2.Client) -> None:
    chat = {"model": "worker", "messages": CHAT}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({**chat, "temperature": "hot"}, 'temperature: is "hot"; accepted: number'),
        ({**chat, "messages": [{"role": "user", "content": 5}]}, "messages/0/content: is 5; accepted: string or list"),
        ({**chat, "messages": [{"role": "user", "content": [{}]}]}, "messages/0/content/0/type: is missing"),
        (
            {**chat, "messages": [{"role": "nobody", "content": ""}]},
            "messages/0/role: is \"nobody\"; accepted: 'system'",
        ),
        ({"messages": CHAT}, "model: is missing"),
    ]
    for body, message in wrong:
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(message)
    unknown = client.post("/v1/runs", json={"request": "Count.", "limits": {"tokenz": 1}})
    assert unknown.json()["error"]["message"] == "limits/tokenz: is not known"
    raw = client.post("/v1/chat/completions", content=b"{nope", headers={"Content-Type": "application/json"})
    assert raw.json()["error"]["message"].startswith("body: is no JSON: ")
    assert not re.search(r"b'|Input should|Value error|list\[", raw.text)
