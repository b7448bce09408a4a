"""The API in the command's own process: answers are streamed, and a command that is interrupted ends in order."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.app import ROOT
from orchestrator.cli.client import Client, ask
from orchestrator.cli.in_process import InProcessTransport
from orchestrator.cli.settings import Settings
from orchestrator.run.journal.errors import HomeLocked
from orchestrator.run.journal.journal import Journal
from orchestrator.service import service
from orchestrator.service.callers import NOBODY
from orchestrator.service.extent import Extent

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


def client(app: ASGIApp, tasks: asyncio.TaskGroup) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=InProcessTransport(app, NOBODY, tasks), base_url="http://localhost")


async def test_an_answer_is_read_while_it_is_written() -> None:
    continued, disconnected = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/a b", b"n=1")
        assert await receive() == {"type": "http.request", "body": b"sent", "more_body": False}
        await send(START)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await continued.wait()
        await send({"type": "http.response.body", "body": b"second", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        disconnected.set()

    async with asyncio.TaskGroup() as tasks, client(app, tasks) as caller:
        async with caller.stream("POST", "/a%20b?n=1", content=b"sent") as answer:
            parts = answer.aiter_raw()
            assert await anext(parts) == b"first"
            continued.set()
            assert await anext(parts) == b"second"
        await disconnected.wait()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_defect_of_the_application_is_raised_in_the_command(begun: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send(START)
        raise ZeroDivisionError

    async with asyncio.TaskGroup() as tasks, client(app, tasks) as caller:
        with pytest.raises(ZeroDivisionError):
            await caller.get("/")


async def test_a_vacuum_that_is_interrupted_ends_before_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def vacuum(journal: Journal, *_: Any, keep_going: Callable[[], bool], **__: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        while keep_going():
            time.sleep(0.01)
        journal.runs()  # raises if it is closed
        ended.append("in order")

    monkeypatch.setattr(service, "vacuum", vacuum)

    async def send() -> None:
        async with Client(Settings(None, tmp_path, ROOT), Extent.JOURNAL, with_registry=False) as caller:
            await caller.ask("POST", "/v1/vacuum", json={})

    command = asyncio.create_task(send())
    await begun.wait()
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    assert ended == ["in order"]


def test_a_folder_that_another_process_owns_is_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path), pytest.raises(HomeLocked):
        ask(Settings(None, tmp_path, ROOT), "GET", "/v1/runs")
