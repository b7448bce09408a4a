"""What a service asks of what is attached to it: of what learns from its runs, its procedures and its cluster.

The composition root, `orchestrator.app`, says what these are. The core knows nothing else of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from orchestrator.pool.pool import Pool
from orchestrator.pool.status import MachineStatus
from orchestrator.registry.forms import HEAD as HEAD
from orchestrator.registry.models import Registry
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.planning import Planner
from orchestrator.run.routing import Router
from orchestrator.task.taskir.models import TaskIR


class Learner(Protocol):
    """Routes attempts and chats, and learns from the journal how they turned out."""

    @property
    def router(self) -> Router: ...

    @property
    def misplaced(self) -> str | None:
        """Why nothing could be learned from new runs, so that none is accepted; or None."""

    def running(self, orchestrator: Orchestrator) -> AbstractAsyncContextManager[None]:
        """Return a context manager in which it learns from an orchestrator's journal."""

    def notice(self) -> None:
        """Learn soon from what is new in the journal."""


class Procedures(AbstractAsyncContextManager[Any], Protocol):
    """Maintains the installation of a service. An async context manager; its exit does not wait for an execution."""

    @property
    def planner(self) -> Planner:
        """Plans requests, some by a step that proposes a procedure."""

    def plans_task(self, task: TaskIR, registry: Registry) -> bool:
        """Return whether the planner may replace the steps of a task."""

    def managed_task(self, task: TaskIR, registry: Registry) -> TaskIR:
        """Return a task with one step that proposes a procedure if its objective means one, else the task. Blocks."""

    async def propose(self, run: str, name: str, inputs: Mapping[str, Any]) -> str:
        """Keep the plan of a procedure that a run proposes, for an approval, and return a text about it.

        Raises ToolError, UnknownRun.
        """

    def reconfigured(self) -> None:
        """Use the configuration that the service has now."""

    async def drain(self) -> None:
        """Wait until all started and queued executions have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A machine of the cluster: the daemon's own, which is called "head", or a node."""

    name: str
    address: str = ""
    state: Literal["ready", "rejected", "lost"]
    reason: str | None = None  # why it is not ready
    epoch: int | None = None  # higher each time that the node joins
    library: str = ""  # version of llama.cpp
    processor: str = ""
    machine: MachineStatus | None = None  # None unless engines can run there


class Cluster(AbstractAsyncContextManager[Any], Protocol):
    """Further machines for the engines of a service. An async context manager, which outlives the pool.

    Entering it raises InputError if a cluster is configured that cannot be used.
    """

    @property
    def problem(self) -> str | None:
        """Why the configured cluster cannot be used now, or None."""

    def serve(self, pool: Pool) -> None:
        """Have this pool use the machines."""

    def nodes(self) -> Sequence[NodeStatus]:
        """Return this machine and the others, also those that cannot be used."""
