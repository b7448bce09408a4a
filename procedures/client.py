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
from orchestrator.service.extent import Extent

T = TypeVar("T")

Body = dict[str, Any]
Tell = Callable[[str, str], None]  # called with the id of a step, and what happens in it
# The kinds of audit entries that are shown while a procedure is executed.
SHOWN_KINDS: Final = ("acting", "step_done", "step_failed", "undone", "not_undone")
AUDIT: Final = "/v1/procedures/audit"
RECOVERED: Final = "it was interrupted; `orchestrator procedures recover` brings it to its end"
STOPPING: Final = "\nit stops before its next action, and is undone then; ctrl-C once more leaves that for later\n"


class ProcedureClient(Client):
    """Sends requests about procedures, and returns the API's answers.

    Calls with `tell` return the execution when it is over.
    """

    async def begin(self, name: str, inputs: Mapping[str, Any], digest: str | None, tell: Tell) -> Body:
        """Plan a procedure and execute it, or keep a plan that needs an approval; `digest` is the one approved."""
        path = procedure_path(name, "/executions")
        execution = await self.ask("POST", path, json={"inputs": dict(inputs), "digest": digest})
        return execution if execution["state"] == "planned" else await self._follow(execution["id"], tell)

    async def approve(self, execution: str, digest: str, tell: Tell) -> Body:
        await self.ask("POST", execution_path(execution, "/approve"), json={"digest": digest})
        return await self._follow(execution, tell)

    async def rollback(self, execution: str, *, force: bool, tell: Tell) -> Body:
        number = await self._last_number()
        with self._recoverable():
            undone = await self.ask("POST", execution_path(execution, "/rollback"), json={"force": force})
        await self._tell_events(execution, tell, after=number, follow=False)
        return undone

    async def recover(self, tell: Tell) -> list[Body]:
        number = await self._last_number()
        with self._recoverable():
            recovered: list[Body] = (await self.ask("POST", "/v1/procedures/recover"))["recovered"]
        for execution in recovered:
            await self._tell_events(execution["id"], tell, after=number, follow=False)
        return recovered

    async def _follow(self, execution: str, tell: Tell) -> Body:
        if self.has_daemon:
            cancel = f"`orchestrator procedures cancel {execution}` has it stopped and undone"
            with _when_interrupted(f"the daemon continues it; {cancel}"):
                await self._tell_events(execution, tell)
        else:
            with _when_interrupted(RECOVERED):
                async with self._stopped_by_ctrl_c(execution):
                    await self._tell_events(execution, tell)
        return await self.ask("GET", execution_path(execution))

    async def _last_number(self) -> int:
        return int((await self.ask("GET", AUDIT, params={"limit": 1}))["head"].partition(":")[0])

    async def _tell_events(self, execution: str, tell: Tell, *, after: int = 0, follow: bool = True) -> None:
        query = {"after": after, "follow": follow}
        async for name, data in self.events(execution_path(execution, "/events"), query):
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
                await self.ask("POST", execution_path(execution, "/cancel"))

        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop())
            with _first_ctrl_c(lambda: loop.call_soon_threadsafe(pressed.set)):
                yield
            stopping.cancel()

    def _recoverable(self) -> AbstractContextManager[None]:
        return _when_interrupted("" if self.has_daemon else RECOVERED)


def with_procedures(options: Settings, work: Callable[[ProcedureClient], Awaitable[T]]) -> T:
    """Return what `work` returns. Raises InputError if a daemon uses another registry than the one of the options."""

    async def done() -> T:
        async with ProcedureClient(options, Extent.NOTHING, with_registry=False) as client:
            await client.check_registry()
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


def procedure_path(name: str, rest: str = "") -> str:
    return f"/v1/procedures/{path_part('NAME', name)}{rest}"


def execution_path(execution: str, rest: str = "") -> str:
    return f"/v1/procedures/executions/{path_part('EXECUTION', execution)}{rest}"
