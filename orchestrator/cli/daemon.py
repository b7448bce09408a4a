"""Ask the daemon of a state folder, over its socket, and read the API's answers."""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2

from orchestrator.errors import InputError, OrchestratorError, Problem, RequestIncomplete
from orchestrator.run.journal.home import Home

BASE: Final = "http://localhost"
CONNECT_SECONDS: Final = 5.0
WAIT_FOREVER: Final = httpx2.Timeout(None, connect=CONNECT_SECONDS)
LONGEST_KEY: Final = 200
INCOMPLETE: Final = "request_incomplete"  # the API's code for a `RequestIncomplete`


class NoDaemon(OrchestratorError):
    """No daemon answers on the socket of the state folder."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"no daemon owns {home}: start one with `orchestrator serve`")


class DaemonRefused(OrchestratorError):
    """The daemon answered with an error."""


class DaemonGone(OrchestratorError):
    """The connection to the daemon broke during a request."""


def answers(home: Path) -> bool:
    """Return whether a daemon listens on the socket of a state folder."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(CONNECT_SECONDS)
        try:
            caller.connect(os.fspath(Home(home).socket))
        except OSError:  # there is none, a stale one, or its name is too long to be one
            return False
    return True


def why_not_ready(home: Path) -> str | None:
    """Return why the daemon of a state folder accepts no runs; None if it does, or if there is no daemon."""
    if not answers(home):
        return None
    with _impatient_client(home) as client:
        try:
            answer = client.get("/health/ready")
        except httpx2.TransportError as error:
            return f"the daemon does not answer: {error}"
    return None if answer.is_success else str(answer.json()["status"])


def step_progress(home: Path, run: str, step: str) -> dict[str, Any] | None:
    """Return how far the running attempt at a step has come; None if none runs, or if no daemon answers soon."""
    if not answers(home):
        return None
    with _impatient_client(home) as client:
        try:
            answer = client.get(f"/v1/runs/{run}/steps/{path_part('STEP', step)}")
        except httpx2.TransportError:
            return None
    progress: dict[str, Any] | None = answer.json().get("progress") if answer.is_success else None
    return progress


def _impatient_client(home: Path) -> httpx2.Client:
    transport = httpx2.HTTPTransport(uds=str(Home(home).socket))
    return httpx2.Client(transport=transport, base_url=BASE, timeout=CONNECT_SECONDS)


class DaemonClient:
    """Sends requests that only a daemon can carry out. A context manager.

    Every call raises NoDaemon, DaemonGone, DaemonRefused, InputError.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        transport = httpx2.HTTPTransport(uds=str(Home(home).socket))
        self._client = httpx2.Client(transport=transport, base_url=BASE, timeout=WAIT_FOREVER)

    def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Send a request, and return the JSON object of the answer: {} if it has no content."""
        with connection_errors(self._home):
            return read_answer(self._client.request(method, path, **encoded(more)))

    def check_registry(self, ours: Path) -> None:
        """Raises InputError if the daemon uses another registry file than `ours`."""
        refuse_other(self.ask("GET", "/v1/registry")["path"], ours, self._home)

    def __enter__(self) -> Self:
        if not answers(self._home):
            raise NoDaemon(self._home)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def path_part(where: str, name: str) -> str:
    """Quote `name` as one segment of a URL path. Raises InputError, about `where`, if that is impossible."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        accepted = "a name without '/' and control characters, and neither '.' nor '..'"
        raise InputError(Problem(where, f"{name!r} is not a valid name", accepted))
    return quote(name, safe="")


def key_header(key: str | None) -> dict[str, str]:
    """Return the header that makes repeated requests submit one run only. Raises InputError for a bad key."""
    if key is None:
        return {}
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or key != key.strip():
        accepted = f"1 to {LONGEST_KEY} printable ASCII characters, with no space at either end"
        raise InputError(Problem("--key", f"{key!r} is not a valid key", accepted))
    return {"Idempotency-Key": key}


def encoded(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request with `json` as ASCII, so the API answers invalid Unicode with its own error."""
    if "json" not in request:
        return dict(request)
    more = {name: value for name, value in request.items() if name not in ("json", "headers")}
    headers = {**request.get("headers", {}), "Content-Type": "application/json"}
    return {**more, "content": json.dumps(request["json"]).encode(), "headers": headers}


def read_answer(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises InputError if the request had problems, else DaemonRefused."""
    if response.status_code == HTTPStatus.NO_CONTENT:
        return {}
    try:
        answer = response.json()
    except ValueError as error:
        raise DaemonRefused(f"the daemon answered {response.status_code} without JSON") from error
    if response.is_success and isinstance(answer, dict):
        return answer
    detail = answer.get("error", {}) if isinstance(answer, dict) else {}
    problems = [Problem(**problem) for problem in detail.get("problems", ())]
    if problems and detail.get("code") == INCOMPLETE:
        raise RequestIncomplete(*(problem.what for problem in problems))
    if problems:
        raise InputError(*problems)
    raise DaemonRefused(str(detail.get("message", f"the daemon answered {response.status_code}")))


def refuse_other(theirs: str, ours: Path, home: Path) -> None:
    if os.path.realpath(theirs) != os.path.realpath(ours):
        problem = f"the daemon that owns {home} uses {theirs}"
        raise InputError(Problem(f"--registry {ours}", problem, "the same registry, or another --home"))


@contextmanager
def connection_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NoDaemon(home) from error
    except httpx2.TransportError as error:
        raise DaemonGone(f"the daemon of {home} has gone away: {error}") from error
