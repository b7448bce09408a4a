"""Send server-sent events, with comments in between that keep the connection alive.

`docs/adr/0015-libraries-of-the-http-api.md` says why not with `sse-starlette` or FastAPI's endpoints that yield events.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

KEEP_ALIVE_SECONDS: Final = 15.0
KEEP_ALIVE: Final = format_sse_event(comment="keep-alive")
MEDIA_TYPE: Final = "text/event-stream"
DOCUMENTED_STREAM: Final = {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}  # for the OpenAPI document

Events = AsyncGenerator[bytes, None]


class EventStream(StreamingResponse):
    """Sends the events of a generator, each in wire format. The generator is closed when the client disconnects.

    Comments keep clients and proxies from closing an idle connection. `on_end` is called when the response ends for any
    reason, even if nothing was sent.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, events: Events, on_end: Callable[[], None] = lambda: None, keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    ) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events = events
        self._on_end = on_end
        self._keep_alive_seconds = keep_alive_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()

    async def stream_response(self, send: Send) -> None:
        # Starlette cancels this when the client disconnects.
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # No task group: it would wrap the error of a generator, and the application's handlers go by its type.
        keep_alive_task = asyncio.create_task(self._send_keep_alives(send))
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            keep_alive_task.cancel()
            await asyncio.gather(keep_alive_task, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_keep_alives(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_seconds)
            await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})


def format_event(data: Any, name: str | None = None, number: int | None = None) -> bytes:
    """Return an event in wire format, with the fields `event`, `id` and `data` (JSON, unless it is a string)."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return format_sse_event(data_str=text, event=name, id=None if number is None else str(number))
