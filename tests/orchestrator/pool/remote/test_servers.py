"""Servers as replicas of a model, next to each other and to an engine here: where requests go, and who fails."""

import asyncio
import json
import signal
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message, OfferedTool
from orchestrator.pool.errors import ModelBroken
from orchestrator.pool.pool import Pool
from orchestrator.pool.remote.breaker import CLOSED, Breaker
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.remote.errors import RemoteFailed, RemoteRefused
from orchestrator.pool.status import ServerStatus
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from tests.orchestrator.api.daemon_process import running_daemon
from tests.orchestrator.pool.pool_use import SHORT, status_of, until, writes
from tests.orchestrator.pool.remote.server_answers import calls, does, error, ok, piece, stream
from tests.orchestrator.pool.remote.server_play import Remote

HELLO = Generation(messages=(Message("user", "Hello?"),), max_tokens=9)
SMALL = Path(__file__).parents[4] / "registry" / "tiny" / "small.gguf"
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 100}
Registered = Callable[..., Registry]


@pytest.fixture
def registered(tmp_path: Path) -> Registered:
    """Load a registry with one model, `m`, that these servers run, and an engine here if there is a `file`."""

    def load(*servers: str | dict[str, Any], **options: Any) -> Registry:
        entries = [{"base_url": server} if isinstance(server, str) else server for server in servers]
        listed = [{"model": "served", **entry} for entry in entries]
        kind = {"threads": 1} if "file" in options else {"backend": "openai"}
        path = tmp_path / "model_registry.yaml"
        models = {"m": {**kind, "context": 256, "slots": 4, "servers": listed, **options}}
        path.write_text(json.dumps({"models": models, "roles": {"worker": {"model": "m"}}}))
        return load_registry(path)

    return load


@pytest.fixture
def remotes(remote: Remote) -> tuple[Remote, Remote]:
    return remote, Remote(remote.port)


def name_of(remote: Remote) -> str:
    return remote.url.removeprefix("http://").removesuffix("/v1")


def servers_of(pool: Pool) -> tuple[ServerStatus, ...]:
    return status_of(pool, "m").servers


def has_breaker(pool: Pool, number: int, breaker: Breaker) -> RemoteModel:
    server = pool._managed["m"].places.servers[number]
    server._breaker = breaker
    return server


async def answered_by(pool: Pool, requests: int = 1) -> list[str]:
    """Have requests answered one after the other, and return the names of what has answered."""
    return [(*(await pool.generate("m", HELLO)).usage.nodes, "here")[0] for _ in range(requests)]


LONG = 1e6  # seconds for which a server is left out
NO_ANSWERS = {
    "failed": (error(500, "down"), "resting"),
    "reset": (does(["reset"]), "resting"),
    "broken off": (does(["send", piece("some")], ["reset"]), "resting"),
    "wrong key": (error(401), "resting"),
    "no such model": (error(404), "resting"),
    "busy with others": (error(429), "resting"),
    "too long": (error(400, "maximum context length is 8 tokens"), "ready"),
}


@pytest.mark.parametrize(("answer", "state"), NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_what_one_server_does_not_answer_another_does(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path, answer: dict[str, Any], state: str
) -> None:
    first, second = remotes
    first.plays(answer)
    second.plays(*[ok("second")] * 4)
    async with Pool(registered(first.url, second.url), tmp_path / "logs") as pool:
        has_breaker(pool, 0, replace(CLOSED, pause=LONG))
        assert (await pool.generate("m", HELLO)).text == "second"
        assert servers_of(pool)[0].state == state
        if state == "resting":
            assert await answered_by(pool, 3) == [name_of(second)] * 3
            assert status_of(pool, "m").state == "ready"
    assert len(first.seen()) == 1


async def test_a_server_that_has_failed_rests_until_it_answers(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    async with Pool(registered(*(remote.url for remote in remotes)), tmp_path / "logs") as pool:
        has_breaker(pool, 0, replace(CLOSED, state="open"))  # its pause is over
        first, second = servers_of(pool)
        assert (first.state, second.state) == ("resting", "ready")
        assert "is left out after failures; the next request tries it" in (first.reason or "")


async def test_a_server_that_nobody_can_reach_is_left_out(
    remote: Remote, registered: Registered, tmp_path: Path
) -> None:
    remote.plays(*[ok("a")] * 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with Pool(registered(nowhere, remote.url), tmp_path / "logs") as pool:
            assert await answered_by(pool, 3) == [name_of(remote)] * 3
            assert "cannot be reached" in (servers_of(pool)[0].reason or "")


async def test_who_has_got_a_part_of_an_answer_gets_the_error(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    first.plays(does(["send", piece("some")], ["reset"]))
    second.plays(ok("again"))
    pieces: list[str] = []
    async with Pool(registered(first.url, second.url), tmp_path / "logs") as pool:
        with pytest.raises(RemoteFailed, match=f"model m at {first.url}"):
            await pool.generate("m", HELLO, pieces.append)
        assert pieces == ["some"]
        assert (await pool.generate("m", HELLO)).text == "again"


async def test_a_server_that_was_left_out_gets_requests_again(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    first.plays(error(500), ok("recovered"))
    async with Pool(registered(first.url, second.url), tmp_path / "logs") as pool:
        has_breaker(pool, 0, replace(CLOSED, pause=0.0))
        assert (await pool.generate("m", HELLO)).text == "recovered"
        assert servers_of(pool)[0].state == "ready"
    assert second.seen() == []


async def test_requests_wait_for_servers_that_all_rest(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    second.plays(ok("back"))
    async with Pool(registered(first.url, second.url), tmp_path / "logs") as pool:
        for number in range(2):
            has_breaker(pool, number, Breaker(state="open", until=1e12))
        with pytest.raises(ModelBroken, match=r"model m: none of its servers answers: .* is left out after failures"):
            await pool.generate("m", HELLO)
        assert status_of(pool, "m").state == "broken"
        has_breaker(pool, 1, Breaker(state="open", until=asyncio.get_running_loop().time() + 0.1))
        assert (await pool.generate("m", HELLO)).text == "back"


async def test_the_error_of_the_last_server_is_told(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    for remote in remotes:
        remote.plays(error(400, f"not by {remote.name}"))
    async with Pool(registered(*(remote.url for remote in remotes)), tmp_path / "logs") as pool:
        with pytest.raises(RemoteRefused, match=f"not by {remotes[1].name}"):
            await pool.generate("m", HELLO)


async def test_tools_go_to_the_server_that_takes_them(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    first.refuses(tools=error(400, "tools are not supported"))
    second.plays(*[calls()] * 2)
    with_tools = replace(HELLO, tools=(OfferedTool("clock", "Tells the time.", "{}"),))
    async with Pool(registered(first.url, second.url), tmp_path / "logs") as pool:
        for _ in range(2):
            assert (await pool.generate("m", with_tools)).usage.nodes == (name_of(second),)
        assert servers_of(pool)[0].state == "ready"
    assert len(first.seen()) == 1


async def test_the_slower_server_gets_fewer_requests(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    slow, fast = remotes
    slow.plays(does(["gate"], ["send", stream("slow")]))
    fast.plays(*[ok("fast")] * 20)
    async with Pool(registered(slow.url, fast.url), tmp_path / "logs") as pool:
        first = asyncio.create_task(pool.generate("m", HELLO))
        await until(lambda: servers_of(pool)[0].active == 1)
        assert await answered_by(pool, 5) == [name_of(fast)] * 5
        slow.open()
        assert (await first).text == "slow"
        assert await answered_by(pool, 10) == [name_of(fast)] * 10
        slower, faster = (server.first_seconds or 0.0 for server in servers_of(pool))
        assert slower > faster > 0


async def test_servers_share_more_requests_than_they_take_at_a_time(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    for remote in remotes:
        remote.plays(*[does(["gate"], ["send", stream(remote.name)])] * 3)
    limited = ({"base_url": remote.url, "slots": 1} for remote in remotes)
    async with Pool(registered(*limited), tmp_path / "logs") as pool:
        waiting = [asyncio.create_task(pool.generate("m", HELLO)) for _ in range(4)]
        await until(lambda: [server.active for server in servers_of(pool)] == [1, 1])
        status = status_of(pool, "m")
        assert (status.requests, status.active, status.waiting) == (4, 2, 2)
        first.open()
        await until(lambda: len(first.seen()) > 1)  # what waits goes to the server that has answered
        second.open()
        texts = Counter([(await task).text for task in waiting])
    assert texts == {remote.name: len(remote.seen()) for remote in remotes}
    assert texts.total() == 4


async def test_the_most_urgent_of_those_who_wait_goes_first(
    remotes: tuple[Remote, Remote], registered: Registered, tmp_path: Path
) -> None:
    first, second = remotes
    first.plays(does(["gate"], ["send", stream("x")]), *[ok("x")] * 4)
    limited = ({"base_url": remote.url, "slots": 1} for remote in remotes)
    async with Pool(registered(*limited), tmp_path / "logs") as pool:
        has_breaker(pool, 1, Breaker(state="open", until=1e12))
        batch = replace(HELLO, messages=(Message("user", "batch"),), priority="batch", slack=-9.0)
        slacks = {"first": 0.0, "patient": 90.0, "urgent": -5.0, "early": 10.0}
        requests = [replace(HELLO, messages=(Message("user", name),), slack=slack) for name, slack in slacks.items()]
        waiting = []
        for request in (requests[0], batch, *requests[1:]):
            waiting.append(asyncio.create_task(pool.generate("m", request)))
            await asyncio.sleep(0)
        await until(lambda: status_of(pool, "m").waiting == 4)
        first.open()
        await asyncio.gather(*waiting)
    order = [request["body"]["messages"][0]["content"] for request in first.seen()]
    assert order == ["first", "urgent", "early", "patient", "batch"]
    assert second.seen() == []


async def test_an_engine_here_is_loaded_when_more_wait_than_the_server_takes(
    remote: Remote, registered: Registered, model_file: Path, tmp_path: Path
) -> None:
    remote.plays(does(["gate"], ["send", stream("far")]))
    registry = registered({"base_url": remote.url, "slots": 1}, file=str(model_file), slots=1)
    async with Pool(registry, tmp_path / "logs") as pool:
        far = asyncio.create_task(pool.generate("m", HELLO))
        await until(lambda: servers_of(pool)[0].active == 1)
        assert status_of(pool, "m").state == "unloaded"
        assert pool.resident == {"m"}
        assert await answered_by(pool, 2) == ["here"] * 2
        assert status_of(pool, "m").state == "ready"
        remote.open()
        assert (await far).text == "far"


async def test_what_only_an_engine_can_do_is_done_here(
    remote: Remote, registered: Registered, model_file: Path, tmp_path: Path
) -> None:
    async with Pool(registered(remote.url, file=str(model_file)), tmp_path / "logs") as pool:
        assert (await pool.generate("m", writes(4))).text == "aaaa"
        assert (await pool.generate("m", replace(HELLO, messages=(), prompt="Once"))).usage.nodes == ()
        assert await pool.count("m", HELLO.messages) > 0
    assert remote.seen() == []


async def test_a_server_does_for_an_engine_that_does_not_fit(
    remote: Remote, registered: Registered, model_file: Path, tmp_path: Path
) -> None:
    remote.plays(error(500), ok("after all"))
    async with Pool(registered(remote.url, file=str(model_file)), tmp_path / "logs", budget=1 << 20) as pool:
        has_breaker(pool, 0, replace(CLOSED, pause=0.1))
        assert (await pool.generate("m", HELLO)).text == "after all"


async def test_a_server_that_fails_is_replaced_by_an_engine(
    remote: Remote, registered: Registered, model_file: Path, tmp_path: Path
) -> None:
    remote.plays(error(500))
    async with Pool(registered(remote.url, file=str(model_file)), tmp_path / "logs") as pool:
        assert await answered_by(pool, 2) == ["here"] * 2
    assert len(remote.seen()) == 1


async def test_other_servers_leave_the_engine_and_running_requests_alone(
    remotes: tuple[Remote, Remote], registered: Registered, model_file: Path, tmp_path: Path
) -> None:
    first, second = remotes
    first.plays(does(["gate"], ["send", stream("first")]))
    second.plays(ok("second"))
    file = {"file": str(model_file), "residency": "hot"}
    async with Pool(registered(first.url, **file), tmp_path / "logs") as pool:
        await pool.load("m")
        await until(lambda: pool._managed["m"].places.replicas[0].pace is not None)
        pid = status_of(pool, "m").pid
        running = asyncio.create_task(pool.generate("m", HELLO))
        await until(lambda: servers_of(pool)[0].active == 1)
        pool.adopt(registered(second.url, **file))
        assert [server.url for server in servers_of(pool)] == [second.url]
        assert await answered_by(pool) == [name_of(second)]
        first.open()
        assert (await running).text == "first"
        assert status_of(pool, "m").pid == pid


async def test_a_daemon_and_an_engine_share_the_work_and_a_dead_daemon_loses_none(
    registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [replace(SHORT, messages=(Message("user", f"Number {at}"),), max_tokens=150) for at in range(20)]
    requests = [replace(request, schema=NUMBERS) for request in numbers]
    with running_daemon(tmp_path / "home", ORCHESTRATOR_MEMORY_USE="shadow") as daemon:
        monkeypatch.setenv("FAR_KEY", daemon.token)
        far = {"base_url": f"http://127.0.0.1:{daemon.port}/v1", "model": "tiny-small", "api_key_env": "FAR_KEY"}
        own = {"file": str(SMALL), "slots": 1, "context": 2048, "batch_invariant": True}
        async with Pool(registered({**far, "slots": 2}, **own), tmp_path / "logs") as pool:
            answers = await asyncio.gather(*(pool.generate("m", request) for request in requests))
            computed = Counter(node for answer in answers for node in answer.usage.nodes or ("here",))
            assert computed.keys() == {"here", f"127.0.0.1:{daemon.port}"}
            await pool.unload("m")  # so that the daemon is asked first
            has_breaker(pool, 0, replace(CLOSED, pause=LONG))
            again = [asyncio.create_task(pool.generate("m", request)) for request in requests]
            await until(lambda: servers_of(pool)[0].active > 0)
            daemon.process.send_signal(signal.SIGKILL)
            repeated = await asyncio.gather(*again)
            assert [answer.text for answer in repeated] == [answer.text for answer in answers]
            assert servers_of(pool)[0].state == "resting"
