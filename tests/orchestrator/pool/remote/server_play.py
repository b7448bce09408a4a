"""Tell the test server what to answer, and ask it what it has been asked."""

import http.client
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

_NAMES = itertools.count(1)


class Remote:
    """One folder of the test server: what it shall answer, and what it has been asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.name = f"play{next(_NAMES)}"
        self.url = f"http://127.0.0.1:{port}/{self.name}/v1"

    def plays(self, *answers: dict[str, Any]) -> None:
        """Have it give these answers to the next requests."""
        self._ask("POST", "script", json.dumps(answers))

    def refuses(self, **answers: dict[str, Any]) -> None:
        """Have it give these answers to all requests with one of these parameters."""
        self._ask("POST", "refuse", json.dumps(answers))

    def seen(self) -> list[dict[str, Any]]:
        """Return the requests so far: `headers`, `body`, `connection`, and how it `ended` (None: it has not)."""
        seen: list[dict[str, Any]] = self._ask("GET", "seen")
        return seen

    def open(self) -> None:
        """Let go on what waits at a gate."""
        self._ask("POST", "open")

    def wait_seen(self, test: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until what was asked is as it should be, and return it."""
        for _ in range(3000):
            if test(seen := self.seen()):
                return seen
            time.sleep(0.01)
        raise AssertionError(f"nothing more happens: {seen}")

    def _ask(self, method: str, what: str, body: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, f"/{self.name}/{what}", body)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()
