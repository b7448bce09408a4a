"""How a browser logs in: links that work once, sessions with the rights of whoever made the link, and their end."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from orchestrator.api.guard import Guard
from orchestrator.api.page.login import cookie_name
from orchestrator.api.page.sessions import LINK_SECONDS, MAX_LINKS, SESSION_SECONDS, Holder, Sessions
from orchestrator.app import attached
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.service.configuration import Configuration, ServerSettings
from tests.orchestrator.api.callers import client_of, daemon_with
from tests.orchestrator.api.daemon_process import Running, executed, summary
from tests.orchestrator.cli.cli_command import make_command

ANN = Holder(uid=1000)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon whose token `reader` may only read."""
    with daemon_with(tmp_path_factory.mktemp("named"), {"reader": "read:own", "nobody": ""}) as running:
        yield running


def code_of(client: httpx2.Client) -> str:
    answer = client.post("/v1/session/links")
    assert answer.status_code == 201, answer.text
    return str(answer.json()["url"]).partition("#login=")[2]


def own_origin(daemon: Running) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{daemon.port}"}


@contextmanager
def logged_in(daemon: Running, maker: httpx2.Client) -> Iterator[httpx2.Client]:
    """Open a client like a browser that has followed a link of `maker`; it sends its cookie."""
    with daemon.tcp() as browser:
        answer = browser.post("/v1/login", json={"code": code_of(maker)}, headers=own_origin(daemon))
        assert answer.status_code == 204, answer.text
        yield browser


def test_a_link_works_once(sessions: Sessions) -> None:
    code = sessions.make_link(ANN)
    key = sessions.follow(code)
    assert key is not None
    session = sessions.find(key)
    assert session is not None
    assert session.holder == ANN
    assert sessions.follow(code) is None
    assert sessions.follow("another") is None


def test_links_and_sessions_expire(sessions: Sessions, clock: Clock) -> None:
    late, code = sessions.make_link(ANN), sessions.make_link(ANN)
    key = sessions.follow(code)
    assert key is not None
    clock.now += LINK_SECONDS
    assert sessions.follow(late) is None
    session = sessions.find(key)
    assert session is not None
    assert sessions.seconds_left(session) == SESSION_SECONDS - LINK_SECONDS
    clock.now += SESSION_SECONDS
    assert sessions.find(key) is None


def test_the_oldest_link_makes_room(sessions: Sessions) -> None:
    first, second = sessions.make_link(ANN), sessions.make_link(ANN)
    for _ in range(MAX_LINKS - 1):
        sessions.make_link(ANN)
    assert sessions.follow(first) is None
    assert sessions.follow(second) is not None


def test_a_browser_gets_a_cookie_for_the_code_of_a_link(daemon: Running, client: httpx2.Client) -> None:
    link = client.post("/v1/session/links").json()
    assert link["url"].startswith(f"http://127.0.0.1:{daemon.port}/#login=")
    with daemon.tcp() as browser:
        assert browser.get("/v1/session").status_code == 401
        answer = browser.post("/v1/login", json={"code": link["url"].partition("=")[2]}, headers=own_origin(daemon))
        name, _, attributes = answer.headers["set-cookie"].partition("=")
        assert name == f"orchestrator_session_{daemon.port}"
        assert {part.strip().lower() for part in attributes.split(";")[1:]} == {
            "httponly",
            "samesite=strict",
            "path=/",
            f"max-age={int(SESSION_SECONDS)}",
        }
        shown = browser.get("/v1/session").json()
        assert shown["key"] == client.get("/v1/session").json()["key"]
        assert 0 < shown["seconds_left"] <= SESSION_SECONDS
        again = browser.post("/v1/login", json={"code": link["url"].partition("=")[2]})
        assert again.status_code == 400
        assert "was used before" in again.json()["error"]["message"]


def test_a_cookie_does_not_count_for_requests_of_other_pages(daemon: Running, client: httpx2.Client) -> None:
    with logged_in(daemon, client) as browser:
        own = own_origin(daemon)
        assert browser.get("/v1/runs").status_code == 200
        assert browser.get("/v1/runs", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
        for site in ("cross-site", "same-site"):
            assert browser.get("/v1/runs", headers={"Sec-Fetch-Site": site}).status_code == 401
        # Another port of the same host is the same site, so that only the origin tells its pages apart.
        assert browser.post("/v1/runs", json=summary(), headers={"Origin": "http://127.0.0.1:1"}).status_code == 403
        assert browser.post("/v1/runs", json=summary()).status_code == 401
        assert browser.delete("/v1/runs/x").status_code == 401
        assert browser.post("/v1/runs/x/cancel", headers=own).status_code == 404


def test_a_page_of_an_accepted_origin_has_no_session(tmp_path: Path) -> None:
    page = "https://page.example"
    with daemon_with(tmp_path, {}, ORCHESTRATOR_SERVER_ORIGINS=page) as daemon, daemon.client() as client:
        with logged_in(daemon, client) as browser:
            assert browser.get("/v1/runs", headers={"Origin": page}).status_code == 401


def test_a_session_names_no_folder_and_makes_no_link(daemon: Running, client: httpx2.Client) -> None:
    with logged_in(daemon, client) as browser:
        own = own_origin(daemon)
        refused = browser.post("/v1/runs", json=summary(), headers=own)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "directory")
        assert browser.post("/v1/session/links", headers=own).status_code == 409


def test_a_session_ends_by_logout(daemon: Running, client: httpx2.Client) -> None:
    with logged_in(daemon, client) as browser:
        cookies = dict(browser.cookies)
        assert browser.delete("/v1/session", headers=own_origin(daemon)).status_code == 204
        assert not browser.cookies
        with daemon.tcp() as thief:
            assert (
                thief.get("/v1/session", headers={"Cookie": "; ".join(map("=".join, cookies.items()))}).status_code
                == 401
            )


def test_a_session_has_the_rights_of_the_token_that_made_its_link(named: Running) -> None:
    with named.client() as local, client_of(named, "reader") as reader:
        foreign = executed(local, summary())["run_id"]
        with logged_in(named, reader) as browser:
            shown = browser.get("/v1/session").json()
            assert (shown["key"], shown["permissions"]) == ("token:reader", ["read:own"])
            assert browser.get("/v1/runs").json()["runs"] == []
            for path in ("", "/picture", "/steps/S1"):
                assert browser.get(f"/v1/runs/{foreign}{path}").status_code == 404
            refused = browser.post("/v1/runs", json={"request": "Do it."}, headers=own_origin(named))
            assert refused.status_code == 403
            assert "the token reader" in refused.json()["error"]["message"]
    with client_of(named, "nobody") as nobody:
        assert nobody.post("/v1/session/links").status_code == 403


async def asked(guard: Guard, headers: Mapping[str, str]) -> tuple[int, str]:
    """Return the status of a request to a guard, and the key of the caller that the application saw."""
    raw = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers}.items()]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/runs", "headers": raw, "scheme": "http"}
    scope |= {"server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "query_string": b"", "state": {}}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return sent[0]["status"], scope["state"]["access"].key if "access" in scope["state"] else ""


async def test_a_session_ends_with_its_token(tmp_path: Path, sessions: Sessions) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    settings = Configuration(server=ServerSettings(callers={"token:ann": "read:own"}))
    registry = load_registry(find_registry(environment={}))
    service = attached().service(tmp_path, registry, settings)
    tokens = {"": "the API's own token", "ann": "the first token of ann"}
    guard = Guard(application, service, tokens, sessions)
    key = sessions.follow(sessions.make_link(Holder.of_token("ann", tokens["ann"])))
    cookie = {"Cookie": f"{cookie_name({'server': ('127.0.0.1', 80)})}={key}"}
    assert await asked(guard, cookie) == (200, "token:ann")
    assert (await asked(guard, {"Cookie": cookie["Cookie"] + "x"}))[0] == 401
    tokens["ann"] = "the second token of ann"
    assert (await asked(guard, cookie))[0] == 401
    tokens["ann"] = "the first token of ann"
    assert (await asked(guard, cookie))[0] == 200
    del tokens["ann"]
    assert (await asked(guard, cookie))[0] == 401


def test_the_command_prints_a_link(daemon: Running) -> None:
    link = make_command(daemon.home)("ui", "--json").json
    with daemon.tcp() as browser:
        assert browser.post("/v1/login", json={"code": link["url"].partition("#login=")[2]}).status_code == 204


def test_a_daemon_on_its_socket_alone_says_how_a_browser_reaches_it(tmp_path: Path) -> None:
    with daemon_with(tmp_path, {}, ORCHESTRATOR_SERVER_TCP="") as daemon:
        done = make_command(daemon.home)("ui")
        assert done.code != 0
        assert "serve --tcp 127.0.0.1:8484" in done.err
        with daemon.client() as client:
            assert client.get("/").status_code == 200
            assert client.get("/v1/session").json()["seconds_left"] is None
