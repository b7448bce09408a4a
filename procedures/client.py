"""Requests about procedures, to the daemon of the state folder or to this process if there is none."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any, Final, TypeVar

from orchestrator.cli.client import Client
from orchestrator.cli.daemon import DaemonRefused, path_part
from orchestrator.cli.settings import Settings
from orchestrator.cli.terminal import write
from orchestrator.procedures.audit import AuditHead
from orchestrator.service.extent import Extent

T = TypeVar("T")

Body = dict[str, Any]
Tell = Callable[[str, str], None]  # called with the id of a step, and what happens in it
# The kinds of audit entries that are shown while a procedure is executed.
SHOWN_KINDS: Final = ("acting", "step_done", "step_failed", "undone", "not_undone")
RECOVERED: Final = "it was interrupted; `orchestrator procedures recover` brings it to its end"
STOPPING: Final = "\nit stops before its next action, and is undone then; ctrl-C once more leaves that for later\n"


class ProcedureClient:
    """Sends requests about procedures, and returns the API's answers. Raises what `Client` raises.

    Calls with `tell` return the execution when it is over.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def listing(self) -> Body:
        return await self._client.ask("GET", "/v1/procedures")

    async def procedure(self, name: str) -> Body:
        return await self._client.ask("GET", f"/v1/procedures/{path_part('NAME', name)}")

    async def plan(self, name: str, inputs: Mapping[str, Any]) -> Body:
        path = f"/v1/procedures/{path_part('NAME', name)}/plan"
        return await self._client.ask("POST", path, json={"inputs": dict(inputs)})

    async def begin(self, name: str, inputs: Mapping[str, Any], digest: str | None, tell: Tell) -> Body:
        """Plan a procedure and execute it, or keep a plan that needs an approval; `digest` is the one approved."""
        path = f"/v1/procedures/{path_part('NAME', name)}/executions"
        execution = await self._client.ask("POST", path, json={"inputs": dict(inputs), "digest": digest})
        return execution if execution["state"] == "planned" else await self._follow(execution["id"], tell)

    async def approve(self, execution: str, digest: str, tell: Tell) -> Body:
        await self._client.ask("POST", _path(execution, "/approve"), json={"digest": digest})
        return await self._follow(execution, tell)

    async def withdraw(self, execution: str) -> Body:
        return await self._client.ask("POST", _path(execution, "/withdraw"))

    async def execution(self, execution: str) -> Body:
        return await self._client.ask("GET", _path(execution))

    async def executions(self, limit: int) -> list[Body]:
        answer = await self._client.ask("GET", "/v1/procedures/executions", params={"limit": limit})
        rows: list[Body] = answer["executions"]
        return rows

    async def rollback(self, execution: str, *, force: bool, tell: Tell) -> Body:
        number = await self._last_number()
        with self._recoverable():
            undone = await self._client.ask("POST", _path(execution, "/rollback"), json={"force": force})
        await self._tell_events(execution, tell, after=number, follow=False)
        return undone

    async def recover(self, tell: Tell) -> list[Body]:
        number = await self._last_number()
        with self._recoverable():
            recovered: list[Body] = (await self._client.ask("POST", "/v1/procedures/recover"))["recovered"]
        for execution in recovered:
            await self._tell_events(execution["id"], tell, after=number, follow=False)
        return recovered

    async def audit(self, limit: int) -> Body:
        return await self._client.ask("GET", "/v1/procedures/audit", params={"limit": limit})

    async def verify(self, head: AuditHead | None) -> Body:
        query = {} if head is None else {"head": str(head)}
        return await self._client.ask("GET", "/v1/procedures/audit/verify", params=query)

    async def new_log(self) -> Body:
        return await self._client.ask("POST", "/v1/procedures/audit/new")

    async def _follow(self, execution: str, tell: Tell) -> Body:
        if self._client.has_daemon:
            cancel = f"`orchestrator procedures cancel {execution}` has it stopped and undone"
            with _when_interrupted(f"the daemon continues it; {cancel}"):
                await self._tell_events(execution, tell)
        else:
            with _when_interrupted(RECOVERED):
                async with self._stopped_by_ctrl_c(execution):
                    await self._tell_events(execution, tell)
        return await self.execution(execution)

    async def _last_number(self) -> int:
        return int((await self.audit(1))["head"].partition(":")[0])

    async def _tell_events(self, execution: str, tell: Tell, *, after: int = 0, follow: bool = True) -> None:
        query = {"after": after, "follow": follow}
        async for name, data in self._client.events(_path(execution, "/events"), query):
            if name == "progress":
                tell(data["step"], data["text"])
            elif data["kind"] in SHOWN_KINDS:
                tell(data["step"], shown_kind(data["kind"]))

    @asynccontextmanager
    async def _stopped_by_ctrl_c(self, execution: str) -> AsyncGenerator[None, None]:
        loop, pressed = asyncio.get_running_loop(), asyncio.Event()

        async def stop() -> None:
            await pressed.wait()
            with suppress(DaemonRefused):  # it has just ended
                await self._client.ask("POST", _path(execution, "/cancel"))

        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop())
            with _first_ctrl_c(lambda: loop.call_soon_threadsafe(pressed.set)):
                yield
            stopping.cancel()

    def _recoverable(self) -> AbstractContextManager[None]:
        return _when_interrupted("" if self._client.has_daemon else RECOVERED)


@asynccontextmanager
async def procedure_client(options: Settings) -> AsyncGenerator[ProcedureClient, None]:
    """Return a client to enter. Raises InputError if a daemon uses another registry than the one of the options."""
    async with Client(options, Extent.NOTHING, with_registry=False) as client:
        await client.check_registry()
        yield ProcedureClient(client)


def with_procedures(options: Settings, work: Callable[[ProcedureClient], Awaitable[T]]) -> T:
    """Return what `work` returns."""

    async def done() -> T:
        async with procedure_client(options) as client:
            return await work(client)

    return asyncio.run(done())


def shown_kind(kind: str) -> str:
    """Return the text for an audit entry of one of the `SHOWN_KINDS`."""
    return kind.replace("_", " ").removeprefix("step ")


@contextmanager
def _first_ctrl_c(act: Callable[[], object]) -> Iterator[None]:
    earlier = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(earlier):
        yield
        return

    # Not by the event loop, which would leave another handler behind than the one that it has found.
    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, earlier)
        os.write(2, STOPPING.encode())  # unlike print, this may interrupt another one
        act()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


@contextmanager
def _when_interrupted(consequence: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        if consequence:
            write(lambda: print(f"\n{consequence}", file=sys.stderr, flush=True))
        raise


def _path(execution: str, rest: str = "") -> str:
    return f"/v1/procedures/executions/{path_part('EXECUTION', execution)}{rest}"
