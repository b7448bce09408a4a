"""The ports of a service's attachments: the learner, the procedures and the cluster.

The composition root, `orchestrator.app`, says what these are. The core knows nothing else of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import Field

from orchestrator.engine.contract import EngineSpec
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.pool import Pool
from orchestrator.pool.status import MachineStatus, ServerStatus
from orchestrator.registry.models import Registry
from orchestrator.run.journal.journal import Journal
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.planning import Planner
from orchestrator.run.routing import Router
from orchestrator.task.taskir.models import TaskIR

_SERVER_STATES: Final = ("ready", "resting", "unavailable")  # a server is as ready as for the model that fares worst


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
    """What computes answers: the daemon's machine, which is called "head", a node of the cluster, or a server."""

    name: str
    address: str = ""
    state: Literal["ready", "rejected", "lost", "resting"]
    reason: str | None = None  # why it is not ready
    epoch: int | None = None  # higher each time that the node joins
    library: str = ""  # version of llama.cpp
    processor: str = ""
    machine: MachineStatus | None = None  # None unless engines can run there
    # Models of the registry that a server runs; empty for a machine.
    models: Annotated[tuple[str, ...], Field(exclude_if=lambda models: not models)] = ()
    # Addresses with a port at which Ray accepts connections next to its own address; None if that is not known.
    exposed: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda places: places is None)] = None


def server_nodes(pool: Pool) -> list[NodeStatus]:
    """Return the servers of all models, by name."""
    served: dict[str, list[tuple[str, ServerStatus]]] = {}
    for model in pool.snapshot().models:
        for server in model.servers:
            served.setdefault(server.name, []).append((model.model, server))
    return [_server_node(name, served[name]) for name in sorted(served)]


def _server_node(name: str, served: Sequence[tuple[str, ServerStatus]]) -> NodeStatus:
    worst = max((server for _, server in served), key=lambda server: _SERVER_STATES.index(server.state))
    return NodeStatus(
        name=name,
        address=worst.url,
        state="rejected" if worst.state == "unavailable" else worst.state,
        reason=None if worst.state == "ready" else worst.reason,
        models=tuple(model for model, _ in served),
    )


StandbyState = Literal["absent", "copying", "in sync"]  # only in the last one it can take over


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyStatus:
    """The machine that takes over from the daemon's, as the daemon sees it."""

    state: StandbyState
    address: str = ""
    epoch: int  # of the daemon as the head
    problem: str | None = None  # why the arbiter of the two has not answered the last time


class Cluster(AbstractAsyncContextManager[Any], Protocol):
    """Further machines for the engines of a service. An async context manager, which outlives the pool.

    Entering it raises InputError if a cluster is configured that cannot be used.
    """

    @property
    def problem(self) -> str | None:
        """Why the configured cluster cannot be used now, or None."""

    @property
    def standby(self) -> StandbyStatus | None:
        """The machine that takes over from this one; None without a standby."""

    @property
    def why_not_acting(self) -> str | None:
        """Return why this machine must not act now, since another one may have taken over; or None."""

    def open_journal(self, home: Path) -> Journal:
        """Open the journal of a state folder, of which a standby gets a copy. Blocks.

        Raises JournalError, and InputError if this process may not write there.
        """

    def serve(self, pool: Pool) -> None:
        """Have this pool use the machines."""

    async def start_engine(self, spec: EngineSpec) -> EngineHandle:
        """Start an engine on this machine. Raises ModelLoadFailed."""

    def nodes(self) -> Sequence[NodeStatus]:
        """Return this machine and the others, also those that cannot be used."""
