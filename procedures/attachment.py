"""The procedures of a service: what the composition root attaches to it.

Every request passes the planner, and few are about procedures. So what executes them is imported and made when it is
first needed: by a daemon when it starts, else by a plan that proposes a procedure, or by an endpoint.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Self

from orchestrator.procedures.library import library_of
from orchestrator.procedures.planner import ProcedurePlanner, asks_for_procedure, may_be_procedure
from orchestrator.registry.models import Registry
from orchestrator.run.job import FRONTDOOR_PLANNER
from orchestrator.service.attachments import Procedures
from orchestrator.service.extent import Extent
from orchestrator.service.service import Service
from orchestrator.task.taskir.models import TaskIR

if TYPE_CHECKING:
    from orchestrator.procedures.service_queue import ServiceQueue

QUEUE: Final = "orchestrator.procedures.service_queue:ServiceQueue"
MANAGED: Final = "orchestrator.procedures.choice:managed_task"


def attach(service: Service) -> Procedures:
    """Return the procedures of a service."""
    return ServiceProcedures(service)


class ServiceProcedures:
    """See `service.attachments.Procedures`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._library = library_of(service.configuration.procedures)
        self.planner = ProcedurePlanner(FRONTDOOR_PLANNER, lambda: self._library)
        self._queue: asyncio.Future[ServiceQueue] | None = None
        self._ending = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(self._ending.set)
        if self._service.extent is Extent.DAEMON:
            await self.queue()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def queue(self) -> "ServiceQueue":
        """Return what executes procedures."""
        if self._queue is None:
            self._queue = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._hold(self._queue))
        return await asyncio.shield(self._queue)

    async def _hold(self, opened: "asyncio.Future[ServiceQueue]") -> None:
        # In a task of its own, because a task group has to be left by the task that has entered it.
        try:
            queue: ServiceQueue = (await asyncio.to_thread(resolve_name, QUEUE))(self._service)
        except Exception as error:  # noqa: BLE001 - whoever needs the queue raises it
            opened.set_exception(error)
            return
        async with queue:
            opened.set_result(queue)
            await self._ending.wait()

    def plans_task(self, task: TaskIR, registry: Registry) -> bool:
        return asks_for_procedure(task, registry)

    def managed_task(self, task: TaskIR, registry: Registry) -> TaskIR:
        if not may_be_procedure(task, registry):
            return task
        managed: TaskIR = resolve_name(MANAGED)(task, self._library, registry)
        return managed

    async def propose(self, run: str, name: str, inputs: Mapping[str, Any]) -> str:
        return await (await self.queue()).propose(run, name, inputs)

    def reconfigured(self) -> None:
        self._library = library_of(self._service.configuration.procedures)
        if self._queue is not None and self._queue.done():
            self._queue.result().reconfigured()

    async def drain(self) -> None:
        if self._queue is not None:
            await (await self.queue()).drain()
