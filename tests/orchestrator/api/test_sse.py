"""Streams of server-sent events: their wire format, comments that keep the connection alive, and how they end."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from orchestrator.api.sse import KEEP_ALIVE, Events, EventStream, format_event

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SCOPE = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}


async def sent(stream: EventStream, receive: Receive) -> list[bytes]:
    """Return the body of a stream in the pieces in which it is sent, without the last, empty one."""
    pieces: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            pieces.append(message["body"])

    await stream(SCOPE, receive, send)
    return pieces[:-1] if pieces[-1:] == [b""] else pieces


async def connected() -> MutableMapping[str, Any]:
    """Receive from a client that stays."""
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


@pytest.mark.parametrize(
    ("data", "name", "number", "expected"),
    [
        ("[DONE]", None, None, b"data: [DONE]\n\n"),
        ({"text": "é\r\n"}, None, None, 'data: {"text": "é\\r\\n"}\n\n'.encode()),
        ("{}", "event", 7, b"event: event\ndata: {}\nid: 7\n\n"),
    ],
)
def test_an_event_has_the_wire_format_that_clients_expect(
    data: object, name: str | None, number: int | None, expected: bytes
) -> None:
    assert format_event(data, name, number) == expected


async def test_comments_are_sent_while_nothing_happens() -> None:
    go_on = asyncio.Event()

    async def events() -> Events:
        yield b"first"
        await go_on.wait()
        yield b"last"

    ends: list[bool] = []
    stream = EventStream(events(), lambda: ends.append(True), keep_alive_seconds=0.01)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(sent(stream, connected))
        await asyncio.sleep(0.2)
        go_on.set()
    first, *comments, last = task.result()
    assert (first, last) == (b"first", b"last")
    assert set(comments) == {KEEP_ALIVE}
    assert ends == [True]


async def test_the_generator_is_closed_when_the_client_disconnects() -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def events() -> Events:
        try:
            yield b"first"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def disconnecting() -> MutableMapping[str, Any]:
        await begun.wait()
        return {"type": "http.disconnect"}

    ends: list[bool] = []
    assert await sent(EventStream(events(), lambda: ends.append(True)), disconnecting) == [b"first"]
    assert closed.is_set()
    assert ends == [True]


async def test_an_error_ends_the_stream_and_is_raised() -> None:
    async def events() -> Events:
        yield b"first"
        raise ValueError("broken")

    ends: list[bool] = []
    with pytest.raises(ValueError, match="broken"):
        await sent(EventStream(events(), lambda: ends.append(True)), connected)
    assert ends == [True]
