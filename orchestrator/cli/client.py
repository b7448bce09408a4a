"""The client of the daemon: requests over the socket of a state folder. The only file of the cli that uses HTTP."""

import json
import os
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2

from orchestrator.cli.settings import Settings
from orchestrator.errors import InputError, OrchestratorError, Problem, RequestIncomplete
from orchestrator.run.job import Job
from orchestrator.run.journal import ChatRated, Home
from orchestrator.run.journal.codec import decode_event
from orchestrator.run.personas import PersonaProposal
from orchestrator.run.planning import PlannedTask
from orchestrator.run.updates import EventUpdate, Progress, Update
from orchestrator.service.retention import VacuumRequest, VacuumResult
from orchestrator.task.events import RatingGiven, RunFinished
from orchestrator.task.personas import Placed
from orchestrator.task.taskir import dump_task, task_from
from registry.models import Registry

BASE: Final = "http://localhost"
CONNECT_SECONDS: Final = 5.0
ATTEMPTS: Final = 3
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
    transport = httpx2.HTTPTransport(uds=str(Home(home).socket))
    with httpx2.Client(transport=transport, base_url=BASE, timeout=CONNECT_SECONDS) as client:
        try:
            answer = client.get("/health/ready")
        except httpx2.TransportError as error:
            return f"the daemon does not answer: {error}"
    return None if answer.is_success else str(answer.json()["status"])


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
        with _connection_errors(self._home):
            return read_answer(self._client.request(method, path, **more))

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the data of each server-sent event, until the daemon ends the stream."""
        with _connection_errors(self._home), self._client.stream("GET", path) as response:
            if response.status_code != HTTPStatus.OK:
                response.read()
                read_answer(response)
            for message in httpx2.EventSource(response, max_event_size=None):
                yield message.event, json.loads(message.data)

    def check_registry(self, ours: Path) -> None:
        """Raises InputError if the daemon uses another registry file than `ours`."""
        _refuse_other(self.ask("GET", "/v1/registry")["path"], ours, self._home)

    def __enter__(self) -> Self:
        if not answers(self._home):
            raise NoDaemon(self._home)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def registry_of_jobs(options: Settings) -> Registry:
    """Load the registry that jobs run with: the one that --registry names, else the daemon's, if one answers.

    Raises RegistryError, and the errors of `DaemonClient`.
    """
    if options.registry_flag is not None or not answers(options.home):
        return options.registry()
    with DaemonClient(options.home) as daemon:
        return replace(options, registry_flag=Path(daemon.ask("GET", "/v1/registry")["path"])).registry()


class DaemonBackend:
    """A `Backend` whose work a daemon does. Every call raises NoDaemon, DaemonGone, DaemonRefused, InputError."""

    def __init__(self, home: Path, registry: Path | None) -> None:
        self._home = home
        self._registry = registry  # the daemon has to use this file for jobs; None if any will do
        transport = httpx2.AsyncHTTPTransport(uds=str(Home(home).socket))
        self._client = httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=WAIT_FOREVER)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def prepare(self, job: Job | None = None) -> None:
        """Do nothing: a daemon loads models by itself, and checks a job when it is submitted."""

    async def submit(self, job: Job) -> str:
        """Submit a job and return its run. Raises InputError if the daemon uses another registry."""
        await self._check_registry()
        submitted = await self._ask("POST", "/v1/runs", json=job_json(job), headers=key_header(job.key))
        return str(submitted["run_id"])

    async def resume(self, run: str) -> str:
        """Return `run`, which the daemon resumes by itself. Raises InputError if the run has ended."""
        status = (await self._ask("GET", f"/v1/runs/{run}/result"))["status"]
        if status in ("done", "failed", "cancelled"):
            raise InputError(Problem(f"run {run}", f"has ended: {status}", "a run that was interrupted"))
        return run

    async def watch(self, run: str) -> AsyncGenerator[Update, None]:
        """Yield the updates of a run, from its first event until it has ended.

        Connects again after the last event if the connection breaks. Raises DaemonGone if that fails.
        """
        last_event, failures = 0, 0
        while failures < ATTEMPTS:
            try:
                async with aclosing(self._updates(run, last_event)) as updates:
                    async for update in updates:
                        yield update
                        failures = 0
                        if isinstance(update, EventUpdate):
                            last_event = update.number
                            if isinstance(update.event, RunFinished):
                                return
            except httpx2.TransportError:
                pass
            failures += 1
        raise DaemonGone(f"the daemon has ended; it goes on with run {run} when it starts again")

    async def cancel(self, run: str) -> None:
        await self._ask("POST", f"/v1/runs/{run}/cancel", json={})

    async def plan(self, job: Job) -> PlannedTask:
        """Plan a request, without running it. Raises InputError if the daemon uses another registry."""
        await self._check_registry()
        mode = None if job.any_mode else job.mode
        body = {"request": job.request, "directory": _text(job.directory), "mode": mode}
        planned = await self._ask("POST", "/v1/plans", json=body)
        task = task_from(planned["task"])
        return PlannedTask(task, planned["goes_on_after"], planned["mode"], planned["reason"])

    async def rate(self, run: str, rating: RatingGiven) -> RatingGiven:
        body = {"step": rating.step, "score": rating.score, "note": rating.note}
        answer = await self._ask("POST", f"/v1/runs/{run}/ratings", json=body)
        return replace(rating, at=answer["at"], by=answer["by"])

    async def add_persona(self, proposal: PersonaProposal) -> Placed:
        names = ("name", "text", "description", "distinct")  # the daemon says who makes it
        body = {name: getattr(proposal, name) for name in names}
        placed = await self._ask("POST", "/v1/personas", json=body)
        return Placed(placed["name"], placed["new"], placed["similarity"])

    async def retire_persona(self, name: str) -> None:
        await self._ask("DELETE", f"/v1/personas/{path_part('NAME', name)}")

    async def rate_chat(self, rating: ChatRated) -> ChatRated:
        path = f"/v1/chats/{path_part('RUN', rating.chat)}/ratings"
        answer = await self._ask("POST", path, json={"score": rating.score, "note": rating.note})
        return replace(rating, at=answer["at"], by=answer["by"])

    async def vacuum(self, request: VacuumRequest) -> VacuumResult:
        """Remove the runs and chats that the limits do not keep. Other runs continue meanwhile."""
        answer = await self._ask("POST", "/v1/vacuum", json=asdict(request))
        return VacuumResult(**{**answer, "runs": tuple(answer["runs"])})

    async def restore(self, name: str) -> None:
        await self._ask("POST", f"/v1/backups/{path_part('NAME', name)}/restore")

    async def memory(self) -> int:
        return int((await self._ask("GET", "/v1/pool"))["budget"])

    async def _check_registry(self) -> None:
        if self._registry is not None:
            _refuse_other((await self._ask("GET", "/v1/registry"))["path"], self._registry, self._home)

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        with _connection_errors(self._home):
            return read_answer(await self._client.request(method, path, **more))

    async def _updates(self, run: str, last_event: int) -> AsyncGenerator[Update, None]:
        headers = {"Last-Event-ID": str(last_event)}
        async with self._client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            if response.status_code != HTTPStatus.OK:
                await response.aread()
                read_answer(response)
            # A plan, or what a step has written, may be of any length.
            async for message in httpx2.EventSource(response, max_event_size=None):
                yield _update(message)


def path_part(where: str, name: str) -> str:
    """Quote `name` as one segment of a URL path. Raises InputError, about `where`, if that is impossible."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        accepted = "a name without '/' and control characters, and neither '.' nor '..'"
        raise InputError(Problem(where, f"there can be none named {name!r}", accepted))
    return quote(name, safe="")


def key_header(key: str | None) -> dict[str, str]:
    """Return the header that makes repeated requests submit one run only. Raises InputError for a bad key."""
    if key is None:
        return {}
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or key != key.strip():
        accepted = f"1 to {LONGEST_KEY} printable ASCII characters, with no space at either end"
        raise InputError(Problem("--key", f"{key!r} cannot be one", accepted))
    return {"Idempotency-Key": key}


def job_json(job: Job) -> dict[str, Any]:
    limits = {"tokens": job.limits.tokens, "seconds": job.limits.seconds, "bytes": job.limits.bytes}
    body: dict[str, Any] = {
        "mode": None if job.any_mode else job.mode,
        "priority": job.priority,
        "directory": _text(job.directory),
        "limits": limits,
        "prior_task_ids": list(job.follows),
    }
    return body | ({"request": job.request} if job.task is None else {"task": dump_task(job.task)})


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


def _update(message: httpx2.ServerSentEvent) -> Update:
    if message.event == "progress":
        data = json.loads(message.data)
        return Progress(**data | {"gates": tuple(data.get("gates", ()))})
    return EventUpdate(decode_event(message.data), int(message.id))


def _refuse_other(theirs: str, ours: Path, home: Path) -> None:
    if os.path.realpath(theirs) != os.path.realpath(ours):
        problem = f"the daemon that owns {home} uses {theirs}"
        raise InputError(Problem(f"--registry {ours}", problem, "the same registry, or another --home"))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


@contextmanager
def _connection_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NoDaemon(home) from error
    except httpx2.TransportError as error:
        raise DaemonGone(f"the daemon of {home} has gone away: {error}") from error
