import asyncio
from pathlib import Path

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineStopped
from orchestrator.pool.errors import ModelRemote, ModelUnavailable, UnknownModel
from orchestrator.pool.pool import Pool
from orchestrator.pool.remote.breaker import THRESHOLD
from orchestrator.pool.remote.errors import (
    RemoteBusy,
    RemoteFailed,
    RemoteRefused,
    RemoteResting,
)
from orchestrator.pool.remote.http import probe
from orchestrator.pool.status import ModelStatus
from orchestrator.registry.models import Endpoint, ModelEntry
from orchestrator.run.steps.attempt import map_error
from orchestrator.service.doctor import Check, examine
from orchestrator.task.events import EscalationTarget, FailureKind
from orchestrator.task.failures import EscalationChain, FailedAttempt, GiveUp, Retry, decide
from tests.orchestrator.pool.remote.conftest import EntryOf, RemoteRegistry
from tests.orchestrator.pool.remote.server_answers import DONE, VARIABLE, does, error, ok, piece
from tests.orchestrator.pool.remote.server_play import Remote

HELLO = Generation(messages=(Message("user", "Hello?"),))


def endpoint(entry: ModelEntry) -> Endpoint:
    (served,) = entry.servers
    return served


def _status(pool: Pool) -> ModelStatus:
    return next(status for status in pool.snapshot().models if status.model == "far")


async def test_a_remote_model_is_asked_like_any_other(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path
) -> None:
    remote.plays(ok("Hel", "lo"), does(["send", piece("a")], ["stall"]))
    pieces: list[str] = []
    async with Pool(remote_registry(remote.url, slots=1), tmp_path / "logs") as pool:
        answer = await pool.generate("far", HELLO, pieces.append)
        assert (answer.text, answer.usage.nodes) == ("Hello", (endpoint(pool._registry.models["far"]).name,))
        assert pieces == ["Hel", "lo"]
        begun = asyncio.Event()
        running = asyncio.create_task(pool.generate("far", HELLO, lambda _: begun.set()))
        waiting = asyncio.create_task(pool.generate("far", HELLO))
        await begun.wait()
        status = _status(pool)
        assert (status.residency, status.state, status.bytes, status.pid) == ("remote", "ready", 0, None)
        assert (status.requests, status.active, status.waiting) == (2, 1, 1)
        assert pool.snapshot().used == 0
    for task in (running, waiting):
        with pytest.raises(EngineStopped):
            await task
    assert remote.wait_seen(lambda seen: bool(seen[-1]["ended"]))[-1]["ended"] == "closed by the client"


async def test_what_only_a_model_here_can_do_is_refused(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path
) -> None:
    async with Pool(remote_registry(remote.url), tmp_path / "logs") as pool:
        for asked in (pool.count("far", HELLO.messages), pool.load("far"), pool.unload("far")):
            with pytest.raises(ModelRemote, match="model far is run by another server"):
                await asked
        with pytest.raises(ModelRemote):
            pool.pin("far")
        with pytest.raises(UnknownModel, match="accepted: far"):
            await pool.generate("fra", HELLO)


async def test_without_its_key_a_model_is_unavailable(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    async with Pool(remote_registry(remote.url), tmp_path / "logs") as pool:
        with pytest.raises(ModelUnavailable, match=f"{VARIABLE}, which is to hold its API key, is not set"):
            await pool.generate("far", HELLO)
        assert _status(pool).state == "unavailable"
    assert remote.seen() == []


async def test_a_key_that_is_gone_since_is_reported_as_that(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Pool(remote_registry(remote.url), tmp_path / "logs") as pool:
        monkeypatch.setenv(VARIABLE, "two\nlines")
        with pytest.raises(RemoteRefused, match="holds characters that no HTTP header may have"):
            await pool.generate("far", HELLO)
    assert remote.seen() == []


async def test_a_proxy_that_cannot_be_used_is_reported(
    remote_registry: RemoteRegistry, entry_of: EntryOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "key")
    monkeypatch.setenv("ALL_PROXY", "nonsense://proxy.example:1080")
    url = "http://far.example/v1"
    assert "cannot be reached: " in (probe(endpoint(entry_of(url))) or "")
    async with Pool(remote_registry(url), tmp_path / "logs") as pool:
        with pytest.raises(RemoteFailed, match=f"model far at {url}: cannot be reached: .*proxy"):
            await pool.generate("far", HELLO)


async def test_a_server_that_keeps_failing_shows_as_broken(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path
) -> None:
    remote.plays(*[error(400)], *[does(["send", piece("a", "unheard_of")])] * THRESHOLD)
    async with Pool(remote_registry(remote.url), tmp_path / "logs") as pool:
        with pytest.raises(RemoteRefused):
            await pool.generate("far", HELLO)
        for _ in range(THRESHOLD):
            assert _status(pool).state == "ready"
            with pytest.raises(RemoteFailed, match="unheard_of"):
                await pool.generate("far", HELLO)
        assert _status(pool).state == "broken"
        assert "unheard_of" in (_status(pool).reason or "")


async def test_a_changed_registry_lets_requests_end_and_asks_the_new_server(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path
) -> None:
    remote.plays(does(["send", piece("a")], ["gate"], ["send", piece("b", "stop") + DONE]))
    other = Remote(remote.port)
    other.plays(ok("other"))
    async with Pool(remote_registry(remote.url), tmp_path / "logs") as pool:
        begun = asyncio.Event()
        running = asyncio.create_task(pool.generate("far", HELLO, lambda _: begun.set()))
        await begun.wait()
        pool.adopt(remote_registry(other.url))
        assert (await pool.generate("far", HELLO)).text == "other"
        remote.open()
        assert (await running).text == "ab"
        assert _status(pool).requests == 0


@pytest.mark.parametrize(
    ("failed", "kind", "follows"),
    [
        (RemoteBusy("later", retry_after=9.0), FailureKind.RESOURCE, Retry),
        (RemoteResting("later", retry_after=9.0, lasting=False), FailureKind.INFRASTRUCTURE, Retry),
        (RemoteResting("for long", retry_after=9.0, lasting=True), FailureKind.INFRASTRUCTURE, GiveUp),
        (RemoteFailed("broken"), FailureKind.INFRASTRUCTURE, Retry),
        (RemoteRefused("no", 404), FailureKind.INFRASTRUCTURE, GiveUp),
    ],
)
def test_what_a_step_does_about_a_failure(failed: RemoteFailed, kind: FailureKind, follows: type) -> None:
    failure = map_error(failed)
    assert failure.kind is kind
    decision = decide(
        FailedAttempt("worker", failure), [], EscalationChain({"worker": EscalationTarget("coder", "B1")})
    )
    assert isinstance(decision, follows)


def test_a_probe_tells_whether_the_server_is_there_and_takes_the_key(
    remote: Remote, entry_of: EntryOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probe(endpoint(entry_of(remote.url))) is None
    monkeypatch.setenv(VARIABLE, "wrong")
    assert probe(endpoint(entry_of(remote.url))) == f"HTTP 401: refuses the key in {VARIABLE}"
    assert "cannot be reached" in (probe(endpoint(entry_of("http://127.0.0.1:1/v1"))) or "")


def test_the_doctor_looks_at_remote_models(remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path) -> None:
    def check(url: str) -> Check:
        path = remote_registry(url).path
        return next(check for check in examine(path, tmp_path / "home") if check.name == "model far")

    served = check(remote.url)
    assert (served.state, served.found) == ("ok", f"served-name at {remote.url}; worker, frontdoor")
    assert check("http://127.0.0.1:1/v1").state == "broken"


def test_the_doctor_looks_at_each_server(
    remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTHER_KEY", raising=False)
    servers = [
        {"base_url": remote.url, "model": "a", "api_key_env": VARIABLE},
        {"base_url": "http://127.0.0.1:1/v1", "model": "b"},
        {"base_url": "http://127.0.0.1:2/v1", "model": "c", "api_key_env": "OTHER_KEY"},
    ]
    path = remote_registry("", servers=servers).path
    checks = [check for check in examine(path, tmp_path / "home") if check.name.startswith("model far")]
    assert [(check.name, check.state) for check in checks] == [
        ("model far at a server", "ok"),
        ("model far at a server", "broken"),
        ("model far at a server", "note"),
    ]
    assert "OTHER_KEY" in checks[2].found
