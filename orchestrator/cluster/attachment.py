"""Attach a cluster to a service: nothing else of this package is imported unless the configuration names one."""

import importlib.util
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import Final, Self

from orchestrator.engine.client.engine import Engine
from orchestrator.errors import InputError, Problem
from orchestrator.pool.pool import Pool
from orchestrator.registry.forms import HEAD
from orchestrator.run.journal.journal import Journal
from orchestrator.service.attachments import Cluster, NodeStatus, server_nodes
from orchestrator.service.configuration import ClusterSettings
from orchestrator.service.extent import Extent
from orchestrator.service.service import Service

CLUSTER: Final = "orchestrator.cluster.nodes:RayCluster"
WITH_STANDBY: Final = "orchestrator.cluster.head:ReplicatedCluster"


def attach(service: Service) -> Cluster:
    """Return the cluster of a daemon, which it has if that is configured.

    Raises InputError if Ray is not installed, and for a standby without a cluster.
    """
    settings = service.configuration.cluster
    if settings.standby:
        check_standby(settings)
    if service.extent is not Extent.DAEMON or not settings.ray:
        return OneMachine(has_standby=bool(settings.standby))
    check_ray()
    cluster: Cluster = resolve_name(WITH_STANDBY if settings.standby else CLUSTER)(service)
    return cluster


def check_ray() -> None:
    """Raises InputError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        accepted = "the extra `ray` (`pip install 'orchestrator[ray]'`), or no such key"
        raise InputError(Problem("cluster.ray", "needs Ray, which is not installed", accepted))


def check_standby(settings: ClusterSettings) -> None:
    """Raises InputError if a standby is configured without a cluster."""
    if not settings.ray:
        accepted = "ray of [cluster], whose control plane decides which machine is the head; or no such key"
        raise InputError(Problem("cluster.standby", "needs a Ray cluster", accepted))


class OneMachine:
    """No cluster: engines run on this machine.

    If it `has_standby`, this is no daemon's: a command may not write what the standby does not get.
    """

    problem = None
    start_engine = staticmethod(Engine.start)
    standby = None
    why_not_acting = None

    def __init__(self, *, has_standby: bool = False) -> None:
        self._pool: Pool | None = None
        self._has_standby = has_standby

    def open_journal(self, home: Path) -> Journal:
        if self._has_standby:
            accepted = "a daemon that runs: `orchestrator serve`, or `orchestrator standby` on the other machine"
            raise InputError(Problem("cluster.standby", "a command alone may not change the state folder", accepted))
        return Journal.open(home)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool = None

    def serve(self, pool: Pool) -> None:
        self._pool = pool

    def nodes(self) -> list[NodeStatus]:
        if self._pool is None:
            return []
        head = NodeStatus(name=HEAD, state="ready", machine=self._pool.machines()[HEAD])
        return [head, *server_nodes(self._pool)]
