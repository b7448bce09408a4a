import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.checks import why_no_key
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Endpoint, Registry
from tests.registry.conftest import WriteGguf

SERVERS = [
    {"base_url": "http://gpu:8000/v1", "model": "org/name", "slots": 32, "api_key_env": "FAR_KEY"},
    {"base_url": "https://proxy.example/east/v1/", "model": "name", "timeout_seconds": 9},
]
SECRET = "sk-Never/Tell+Anyone"  # noqa: S105 - nobody's
GOOD = {"backend": "openai", "base_url": "https://models.example:8443/v1/", "model": "org/name:tag"}


def _load(folder: Path, write_gguf: WriteGguf, **changes: object) -> Registry:
    entry = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    local = write_gguf(folder / "local.gguf") if not (folder / "local.gguf").exists() else folder / "local.gguf"
    models = {"far": entry, "near": {"file": str(local), "slots": 2}}
    roles = {"worker": {"model": "far", "tier": "C"}, "draft": {"model": "near", "tier": "D"}}
    defaults = {"residency": "hot", "context": 1024, "slots": 6, "batch_invariant": True}
    path = folder / "model_registry.yaml"
    path.write_text(json.dumps({"defaults": defaults, "models": models, "roles": roles}))
    return load_registry(path)


def _problems(folder: Path, write_gguf: WriteGguf, **changes: object) -> list[str]:
    with pytest.raises(RegistryError) as caught:
        _load(folder, write_gguf, **changes)
    return [problem.removeprefix(f"{folder}/") for problem in str(caught.value).splitlines()]


def test_a_remote_model_has_an_endpoint_and_no_file(tmp_path: Path, write_gguf: WriteGguf) -> None:
    registry = _load(tmp_path, write_gguf)
    far = registry.models["far"]
    assert far.servers == (Endpoint("https://models.example:8443/v1", "org/name:tag", None, 120.0, slots=6),)
    assert far.servers[0].name == "models.example:8443"
    assert (far.file, far.header, far.memory, far.why_not) == (None, None, None, None)
    assert (far.residency, far.context, far.slots, far.countable_context) == ("remote", 1024, 6, None)
    assert registry.models["near"].servers == ()
    assert registry.models["near"].countable_context == 1024
    assert "worker" in registry.usable_roles
    own = _load(tmp_path, write_gguf, context=200_000, slots=64, timeout_seconds=9, description="big").models["far"]
    assert (own.context, own.slots, own.description) == (200_000, 64, "big")
    assert (own.servers[0].slots, own.servers[0].timeout_seconds) == (64, 9)


ONLY_SERVERS = {"base_url": None, "model": None}


def test_a_model_has_several_servers(tmp_path: Path, write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAR_KEY", raising=False)
    far = _load(tmp_path, write_gguf, **ONLY_SERVERS, servers=SERVERS).models["far"]
    assert [(server.name, server.model, server.slots) for server in far.servers] == [
        ("gpu:8000", "org/name", 32),
        ("proxy.example/east", "name", 6),
    ]
    assert "FAR_KEY" in (far.servers[0].unavailable or "")
    assert (far.why_not, far.is_remote, far.servers[1].timeout_seconds) == (None, True, 9)
    keyless = _load(tmp_path, write_gguf, **ONLY_SERVERS, servers=SERVERS[:1])
    assert "FAR_KEY, which is to hold its API key, is not set" in (keyless.why_not("worker") or "")


def test_a_model_with_a_file_has_servers_too(tmp_path: Path, write_gguf: WriteGguf) -> None:
    file = str(write_gguf(tmp_path / "far.gguf"))
    both = _load(tmp_path, write_gguf, **ONLY_SERVERS, backend=None, file=file, servers=SERVERS).models["far"]
    assert (both.is_remote, both.residency, len(both.servers)) == (False, "hot", 2)
    assert (both.header is not None, both.countable_context, both.why_not) == (True, None, None)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ([{"model": "m"}], "models.far.servers.0.base_url: is required for a server"),
        ([{"base_url": "http://h/v1"}], "models.far.servers.0.model: is required for a server"),
        ([{**SERVERS[0], "base_url": "http://h/v1?a=b"}], "models.far.servers.0.base_url: holds a query"),
        ([{**SERVERS[0], "api_key_env": "sk-x"}], "models.far.servers.0.api_key_env: is no name of an environment"),
        ([SERVERS[1], SERVERS[1]], "models.far.servers.1.base_url: is that of another server of the model"),
        ([{**SERVERS[0], "slots": 0}], "models.far.servers.0.slots: is 0; accepted: greater than or equal to 1"),
        ([{**SERVERS[0], "url": "http://h"}], "models.far.servers.0.url: unknown key"),
        ([{**SERVERS[0], "context": 9}], "models.far.servers.0.context: unknown key"),
        ("http://h/v1", "models.far.servers: is 'http://h/v1'; accepted: "),
    ],
)
@pytest.mark.parametrize("local", [False, True])
def test_servers_that_make_no_sense_are_refused(
    tmp_path: Path, write_gguf: WriteGguf, servers: object, expected: str, local: bool
) -> None:
    own = {"backend": None, "file": str(write_gguf(tmp_path / "far.gguf"))} if local else {}
    problems = _problems(tmp_path, write_gguf, **ONLY_SERVERS, **own, servers=servers)
    assert len(problems) == 1
    assert expected in problems[0]


def test_a_server_stands_in_the_list_or_in_the_entry(tmp_path: Path, write_gguf: WriteGguf) -> None:
    problems = _problems(tmp_path, write_gguf, servers=SERVERS)
    expected = "is of a server, and the entry has a list of them; accepted: the key in an entry of servers"
    assert [problem.partition(": ")[2] for problem in problems] == [
        f"models.far.{key}: {expected}" for key in ("base_url", "model")
    ]


def test_an_embedder_has_no_servers(tmp_path: Path, write_gguf: WriteGguf) -> None:
    write_gguf(tmp_path / "local.gguf")
    models = {name: {"file": str(tmp_path / "local.gguf")} for name in ("near", "vectors")}
    models["vectors"]["servers"] = SERVERS  # type: ignore[assignment]
    roles = {"worker": {"model": "near"}, "embedder": {"model": "vectors"}}
    path = tmp_path / "model_registry.yaml"
    path.write_text(json.dumps({"models": models, "roles": roles}))
    with pytest.raises(
        RegistryError, match=r"models\.vectors\.servers: is for a model that writes text, and vectors embeds"
    ):
        load_registry(path)


def test_the_key_is_in_the_environment_and_nowhere_else(
    tmp_path: Path, write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAR_KEY", raising=False)
    registry = _load(tmp_path, write_gguf, api_key_env="FAR_KEY")
    assert "FAR_KEY, which is to hold its API key, is not set" in (registry.why_not("worker") or "")
    assert "worker" not in registry.usable_roles
    monkeypatch.setenv("FAR_KEY", SECRET)
    registry = _load(tmp_path, write_gguf, api_key_env="FAR_KEY")
    assert registry.why_not("worker") is None
    assert SECRET not in repr(registry)


def test_a_cold_remote_model_is_not_used(tmp_path: Path, write_gguf: WriteGguf) -> None:
    reason = _load(tmp_path, write_gguf, residency="cold").why_not("worker")
    assert reason == "model far is cold: it is known but not used; accepted: an entry without residency"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base_url": None}, "models.far.base_url: is required with backend: openai"),
        ({"model": None}, "models.far.model: is required with backend: openai"),
        ({"backend": "vllm"}, "models.far.backend: is 'vllm'; accepted: 'llama.cpp' or 'openai'"),
        ({"backend": None}, "models.far.base_url: is for a model that another server runs; accepted: with backend"),
        ({"backend": None}, "models.far.file: is required"),
        ({"file": "a.gguf"}, "models.far.file: is for a model that llama.cpp loads here"),
        ({"threads": 4}, "models.far.threads: is for a model that llama.cpp loads here; with backend: openai its"),
        ({"mlock": False}, "models.far.mlock: is for a model that llama.cpp loads here"),
        ({"kv_type_k": "q8_0"}, "models.far.kv_type_k: is for a model that llama.cpp loads here"),
        ({"batch_invariant": True}, "models.far.batch_invariant: is for a model that llama.cpp loads here"),
        ({"prompt_lookup": {}}, "models.far.prompt_lookup: is for a model that llama.cpp loads here"),
        ({"speculation": {"draft": "draft"}}, "models.far.speculation: is for a model that llama.cpp loads here"),
        ({"residency": "hot"}, "models.far.residency: is 'hot', but a model that another server runs is never loaded"),
        ({"timeout_seconds": 0}, "models.far.timeout_seconds: is 0; accepted: greater than 0"),
        ({"slots": 0}, "models.far.slots: is 0; accepted: greater than or equal to 1"),
        ({"base_url": "ftp://host/v1"}, "models.far.base_url: is no such URL; accepted: http(s)://HOST[:PORT][/PATH]"),
        ({"base_url": "http://host/v1?api-version=1"}, "models.far.base_url: holds a query or a fragment"),
        ({"base_url": "http://host/v1#a"}, "models.far.base_url: holds a query or a fragment"),
        ({"base_url": "http://"}, "models.far.base_url: is no such URL"),
        ({"base_url": "http://host:99999/"}, "models.far.base_url: is no such URL"),
        ({"base_url": "http://a b/"}, "models.far.base_url: is no such URL"),
        ({"base_url": "http://a..b/v1"}, "models.far.base_url: is no such URL"),
        ({"base_url": f"http://{'a' * 64}.b/v1"}, "models.far.base_url: is no such URL"),
        ({"base_url": "http://host/\n"}, "models.far.base_url: is no such URL"),
        ({"base_url": "http://[::zz]/"}, "models.far.base_url: is no such URL"),
        ({"base_url": 5}, "models.far.base_url: has a value of the wrong form; accepted: a valid string"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    tmp_path: Path, write_gguf: WriteGguf, changes: dict[str, object], expected: str
) -> None:
    problems = _problems(tmp_path, write_gguf, **changes)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "http://[::1]:8080", "https://a_b.c-d.example/x/~y/v1"])
def test_these_are_good_urls(tmp_path: Path, write_gguf: WriteGguf, url: str) -> None:
    far = _load(tmp_path, write_gguf, base_url=url).models["far"]
    assert far.servers[0].base_url == url


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": f"https://user:{SECRET}@host/v1"},
        {"base_url": f"https://{SECRET}@host/v1"},
        {"base_url": f"https://host/v1?key={SECRET}"},
        {"base_url": [SECRET]},
        {"api_key_env": SECRET},
        {"api_key_env": [SECRET]},
        {"api_key": SECRET},
    ],
)
def test_a_secret_in_the_file_is_refused_without_telling_it(
    tmp_path: Path, write_gguf: WriteGguf, changes: dict[str, object]
) -> None:
    problems = _problems(tmp_path, write_gguf, **changes)
    assert len(problems) == 1
    assert "sk-" not in problems[0]
    assert "Tell" not in problems[0]


def test_a_remote_model_cannot_draft_for_a_local_one(tmp_path: Path, write_gguf: WriteGguf) -> None:
    write_gguf(tmp_path / "m.gguf")
    models = {"far": GOOD, "near": {"file": "m.gguf", "speculation": {"draft": "worker"}}}
    path = tmp_path / "model_registry.yaml"
    path.write_text(json.dumps({"models": models, "roles": {"worker": {"model": "far", "tier": "C"}}}))
    with pytest.raises(RegistryError, match="far cannot draft: another server runs it"):
        load_registry(path)


def test_who_can_read_the_key_on_its_way() -> None:
    def endpoint(url: str, variable: str | None = "FAR_KEY") -> Endpoint:
        return Endpoint(url, "m", variable, 9.0)

    assert endpoint("http://models.example/v1").sends_key_in_clear
    assert endpoint("http://10.0.0.5/v1").sends_key_in_clear
    assert not endpoint("http://models.example/v1", None).sends_key_in_clear
    for url in ("https://models.example", "http://localhost:8000/v1", "http://127.0.0.9", "http://[::1]:80"):
        assert not endpoint(url).sends_key_in_clear


@given(st.text(max_size=30))
def test_only_what_an_http_header_may_hold_is_a_key(key: str) -> None:
    reason = why_no_key("FAR_KEY", {"FAR_KEY": key})
    good = bool(key) and all("!" <= char <= "~" for char in key)
    assert (reason is None) == good
    assert reason is None or len(key) < 4 or key not in reason
