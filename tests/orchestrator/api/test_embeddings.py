"""The official OpenAI client gets embeddings from a GGUF model of the registry, and from the lexical embedder."""

import asyncio
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from fastapi import Request
from openai import OpenAI
from starlette.exceptions import HTTPException

from benchmarks.models import ModelShape, write_bert
from orchestrator.api.limiter import CLIENT_CLOSED_REQUEST, GenerationLimiter
from orchestrator.api.openai.names import embedder_names, find_embedder
from orchestrator.errors import InputError
from orchestrator.registry.load import load_registry
from orchestrator.task.lexical import embed
from tests.orchestrator.api.daemon_process import Running, running_daemon

TEXTS = ["the ship sails at dawn", "tax figures", "x"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon whose registry has nothing but an embedder, with vectors of 64 numbers, and a reranker."""
    folder = tmp_path_factory.mktemp("embedder")
    for name, pooling in (("bert", "mean"), ("ranker", "rank")):
        write_bert(folder / f"{name}.gguf", ModelShape(context=64, pooling=pooling))
    registry = folder / "model_registry.yaml"
    registry.write_text(
        "models:\n  bert: {file: bert.gguf, context: 64, threads: 1}\n"
        "  ranker: {file: ranker.gguf, context: 64, threads: 1}\n"
        "roles: {embedder: {model: bert, tier: D}, reranker: {model: ranker}}\n"
    )
    with running_daemon(folder / "home", ORCHESTRATOR_REGISTRY=str(registry)) as running:
        yield running


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def vectors_of(ai: OpenAI, texts: list[str] | str, **more: Any) -> np.ndarray:
    answer = ai.embeddings.create(model="embedder", input=texts, **more)
    assert [line.index for line in answer.data] == list(range(len(answer.data)))
    return np.array([line.embedding for line in answer.data])


def test_texts_are_embedded_by_the_model(ai: OpenAI) -> None:
    answer = ai.embeddings.create(model="embedder", input=TEXTS)
    assert answer.model == "bert"
    tokens = sum(len(text.replace(" ", "")) + 2 for text in TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens, (
        "one token for each letter, and two that enclose the text"
    )
    together = np.array([line.embedding for line in answer.data])
    assert together.shape == (3, 64)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([vectors_of(ai, text) for text in TEXTS])
    np.testing.assert_allclose(alone, together, atol=1e-4)
    np.testing.assert_allclose(vectors_of(ai, TEXTS, encoding_format="float"), together, atol=1e-6)


def test_vectors_can_be_shortened_but_not_lengthened(ai: OpenAI) -> None:
    whole = vectors_of(ai, TEXTS)
    np.testing.assert_array_equal(vectors_of(ai, TEXTS, dimensions=64), whole)
    short = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors_of(ai, TEXTS, dimensions=8), short, atol=1e-6)
    for wrong, message in ((65, "is 65, and the model's vectors have 64; accepted: 1 to 64"), (0, "greater than")):
        with pytest.raises(openai.BadRequestError, match=message):
            vectors_of(ai, "x", dimensions=wrong)


def test_texts_that_cannot_be_embedded_are_refused(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="text 1 has 82 tokens; one text of this model may have 1 to 64"):
        vectors_of(ai, ["fine", "z" * 80])
    for wrong in ("", ["x", ""]):
        with pytest.raises(openai.BadRequestError, match="is empty"):
            vectors_of(ai, wrong)
    with pytest.raises(openai.NotFoundError, match="there is no embedder 'ranker'; accepted: lexical, embedder"):
        ai.embeddings.create(model="ranker", input="x")
    with pytest.raises(openai.BadRequestError, match="loaded to embed texts, and was asked to write"):
        ai.chat.completions.create(model="bert", messages=[{"role": "user", "content": "x"}])
    assert len(vectors_of(ai, "x")) == 1


def test_the_models_of_the_roles_have_their_own_names_too(ai: OpenAI, daemon: Running) -> None:
    able = {one.id: one.model_dump()["abilities"] for one in ai.models.list()}
    assert (able["bert"], able["ranker"]) == (["embeddings", "rerank"], ["rerank"])
    assert ai.embeddings.create(model="bert", input="x") == ai.embeddings.create(model="embedder", input="x")
    asked = {"query": "the ship", "documents": TEXTS}
    with daemon.client() as client:
        for role, model in (("reranker", "ranker"), ("embedder", "bert")):
            by_role, by_id = (client.post("/v1/rerank", json={**asked, "model": one}).json() for one in (role, model))
            assert by_role["results"] == by_id["results"]


def test_token_ids_are_embedded_as_their_text(ai: OpenAI, daemon: Running) -> None:
    with daemon.client() as client:
        asked = {"model": "embedder", "content": "tax figures"}
        ids = client.post("/tokenize", json=asked).raise_for_status().json()["tokens"]
    text = vectors_of(ai, "tax figures")
    for given in (ids, [ids]):
        answer = ai.embeddings.create(model="embedder", input=given)
        np.testing.assert_allclose([answer.data[0].embedding], text, atol=1e-5)
    with pytest.raises(openai.BadRequestError, match="9999 is no token of the model"):
        ai.embeddings.create(model="embedder", input=[9999])


def test_documents_are_ranked_by_the_reranker_or_by_cosines(daemon: Running) -> None:
    with daemon.client() as client:
        asked = {"query": "the ship", "documents": TEXTS}
        ranked = client.post("/v1/rerank", json=asked).raise_for_status().json()
        assert ranked["model"] == "ranker"
        scores = [one["relevance_score"] for one in ranked["results"]]
        assert scores == sorted(scores, reverse=True)
        compared = client.post("/v1/rerank", json={**asked, "model": "embedder"}).json()
        assert compared["model"] == "bert"
        assert all(-1.001 <= one["relevance_score"] <= 1.001 for one in compared["results"])
        assert client.post("/v1/rerank", json={**asked, "documents": ["z" * 80]}).status_code == 400
        assert client.post("/v1/embeddings", json={"model": "reranker", "input": "a"}).status_code == 404


def test_too_much_is_refused_at_once(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="input: has 2049 texts; accepted: at most 2048"):
        ai.embeddings.create(model="embedder", input=["a"] * 2049)
    for ids in ([32] * 3000, [[32] * 3000]):
        with pytest.raises(openai.BadRequestError, match="tokens"):
            ai.embeddings.create(model="embedder", input=ids)
    wrong: Any = [["x"] * 200_000]
    with pytest.raises(openai.BadRequestError, match="input/0/0"):
        ai.embeddings.create(model="embedder", input=wrong)


def test_the_lexical_embedder_can_still_be_used(ai: OpenAI) -> None:
    assert {"lexical", "embedder"} <= {model.id for model in ai.models.list()}
    answer = ai.embeddings.create(model="lexical", input=TEXTS)
    assert answer.model == "lexical"
    np.testing.assert_array_equal(np.array([line.embedding for line in answer.data]), embed(TEXTS))
    for wrong in (63, 2049):
        with pytest.raises(openai.BadRequestError, match=f"dimensions: is {wrong}; accepted: 64 to 2048"):
            ai.embeddings.create(model="lexical", input="x", dimensions=wrong)


def test_an_embedder_of_the_registry_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "model_registry.yaml"
    mine = "{file: mine.gguf}"
    there = "{backend: openai, base_url: 'http://localhost:1/v1', model: m}"
    file.write_text(f"models: {{mine: {mine}}}\nroles: {{worker: {{model: mine, tier: C}}}}\n")
    registry = load_registry(file)
    assert embedder_names(registry) == ["lexical", "embedder"]
    assert find_embedder("embedder", registry) is None
    for model, reason in ((mine, "cannot be read"), (there, "another server runs it")):
        file.write_text(f"models: {{mine: {model}}}\nroles: {{embedder: {{model: mine, tier: D}}}}\n")
        registry = load_registry(file)
        assert embedder_names(registry) == ["lexical"]
        assert find_embedder("lexical", registry) is None
        with pytest.raises(InputError, match=f"role embedder is of model mine, which cannot embed: .*{reason}"):
            find_embedder("embedder", registry)


async def test_work_is_cancelled_when_the_client_disconnects() -> None:
    gone = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def long() -> None:
        gone.set()
        await asyncio.Event().wait()

    async def short() -> int:
        return 7

    request = Request({"type": "http"}, receive)
    async with asyncio.TaskGroup() as tasks:
        limiter = GenerationLimiter(tasks, lambda: 1)
        with pytest.raises(HTTPException) as caught:
            await limiter.run_while_connected(request, long)
        assert caught.value.status_code == CLIENT_CLOSED_REQUEST
        gone.clear()
        assert await limiter.run_while_connected(request, short) == 7, "the cancelled work no longer counts"
