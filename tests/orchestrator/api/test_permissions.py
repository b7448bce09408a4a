"""What each kind of caller may do: every route and every tool, by the table of permissions, at a real daemon."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from starlette.routing import Route

from orchestrator.api import admin
from orchestrator.api.access import Undeclared
from orchestrator.api.app import make_app
from orchestrator.app import attached
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.service.callers import granted
from orchestrator.service.configuration import Configuration
from orchestrator.service.permissions import ANY, OPEN, ROUTES, TOOLS, Need, Permission, by_name
from tests.orchestrator.api.callers import client_of, daemon_with, token_of
from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.test_mcp import over_tcp, text_of

SINGLE = {str(one).replace(":", "-"): str(one) for one in Permission}
"""The tokens that have one permission each, by name."""
CALLERS = {"nothing": "", **SINGLE, "visitor": "visitor"}
PLACEHOLDERS = {"{verb}": "load", "{slot}": "0"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with daemon_with(tmp_path_factory.mktemp("rights"), CALLERS) as running:
        yield running


def sent(client: httpx2.Client, route: str) -> httpx2.Response:
    """Send a request to a route that names nothing which exists, and that says nothing."""
    method, path = route.split(" ")
    path = re.sub(r"\{[^}]*\}", lambda found: PLACEHOLDERS.get(found[0], "nothing"), path)
    return client.request("POST" if method == "*" else method, path)


def is_allowed(answer: httpx2.Response) -> bool:
    """Return whether the table allowed a request, whatever became of it then."""
    return answer.status_code != 401 and not (answer.status_code == 403 and "it lacks" in answer.text)


def may(words: str, need: Need) -> bool:
    return need == OPEN or (need == ANY and bool(words)) or need in granted(words.split())


def test_every_route_is_for_the_callers_of_the_table_and_nobody_else(daemon: Running) -> None:
    with ExitStack() as stack:
        clients = {name: stack.enter_context(client_of(daemon, name)) for name in CALLERS}
        api = stack.enter_context(daemon.tcp(Authorization=f"Bearer {daemon.token}"))
        socket = stack.enter_context(daemon.client())
        strangers = [stack.enter_context(daemon.tcp(**headers)) for headers in ({}, {"Authorization": "Bearer wrong"})]
        wrong = []
        for route, need in by_name(ROUTES).items():
            expected = {
                **{client: may(CALLERS[name], need) for name, client in clients.items()},
                api: may("operator", need),
                socket: True,
                **dict.fromkeys(strangers, need == OPEN),
            }
            for client, allowed in expected.items():
                answer = sent(client, route)
                if is_allowed(answer) != allowed or (client in strangers and not allowed and answer.status_code != 401):
                    wrong.append((route, client.headers.get("authorization"), answer.status_code, answer.text))
    assert not wrong


def test_a_refusal_says_what_is_missing_and_how_the_owner_grants_it(daemon: Running) -> None:
    with client_of(daemon, "nothing") as nothing, client_of(daemon, "read-own") as reader:
        refused = nothing.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert 'callers = {"token:nothing" = "read:own submit"}' in refused.json()["error"]["message"]
        assert nothing.get("/health").is_success
        refused = reader.post("/v1/messages")
        assert refused.json()["error"]["type"] == "permission_error"
        message = refused.json()["error"]["message"]
        assert "the token read-own from 127.0.0.1 may not do this: it lacks the permission submit" in message
        assert 'callers = {"token:read-own" = "read:own submit"}' in message


def test_to_force_a_model_is_to_teach(daemon: Running) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    with client_of(daemon, "submit") as client:
        refused = client.post("/v1/chat/completions", json=body, headers={"X-Force-Model": "tiny-large"})
        assert refused.status_code == 403
        assert "it lacks the permission teach" in refused.text
        assert client.post("/v1/chat/completions", json=body).is_success


@pytest.mark.parametrize("name", [name for name, words in CALLERS.items() if words])
async def test_every_tool_is_for_the_callers_of_the_table_and_nobody_else(daemon: Running, name: str) -> None:
    needs = {tool: need for tool, need in by_name(TOOLS).items() if not tool.startswith("tasks/")}
    allowed = {tool for tool, need in needs.items() if may(CALLERS[name], need)}
    async with over_tcp(daemon, token=token_of(name)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == allowed
        for tool in needs:
            result = await client.call_tool(tool, {} if tool in ("models", "submit") else {"run_id": "nothing"})
            assert (tool in allowed) == ("it lacks" not in text_of(result)), text_of(result)


async def test_to_force_a_model_by_a_tool_is_to_teach(daemon: Running) -> None:
    async with over_tcp(daemon, token=token_of("submit")) as client:
        result = await client.call_tool("submit", {"request": "Hi", "model": "tiny-large"})
    assert result.is_error
    assert "it lacks the permission teach" in text_of(result)


async def test_a_daemon_with_a_route_that_declares_nothing_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = attached().service(tmp_path / "home", load_registry(find_registry(environment={})), Configuration())
    more = APIRouter()
    more.include_router(admin.router)
    more.add_api_route("/v1/secrets", lambda: "all of them")
    async with asyncio.TaskGroup() as tasks:
        make_app(service, tasks, attached().endpoints)
        monkeypatch.setattr(admin, "router", more)
        with pytest.raises(Undeclared, match="GET /v1/secrets declares no permission"):
            make_app(service, tasks, attached().endpoints)


async def test_a_daemon_with_a_route_that_nothing_guards_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = attached().service(tmp_path / "home", load_registry(find_registry(environment={})), Configuration())
    plain = APIRouter(routes=[Route("/v1/secrets", lambda _: PlainTextResponse("all of them"), methods=["POST"])])
    plain.include_router(admin.router)
    monkeypatch.setattr(admin, "router", plain)
    async with asyncio.TaskGroup() as tasks:
        with pytest.raises(Undeclared, match="POST /v1/secrets does not ask for its permission"):
            make_app(service, tasks, attached().endpoints)


async def test_a_daemon_with_a_permission_for_nothing_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = attached().service(tmp_path / "home", load_registry(find_registry(environment={})), Configuration())
    more = {**TOOLS, Permission.OWN: ("destroy",)}
    monkeypatch.setattr("orchestrator.api.access.TOOLS", more)
    async with asyncio.TaskGroup() as tasks:
        with pytest.raises(Undeclared, match="destroy has a permission, but does not exist"):
            make_app(service, tasks, attached().endpoints)
