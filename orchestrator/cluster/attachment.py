"""Attach a cluster to a service: nothing else of this package is imported unless the configuration names one."""

import importlib.util
from pkgutil import resolve_name
from types import TracebackType
from typing import Final, Self

from orchestrator.engine.client.engine import Engine
from orchestrator.errors import InputError, Problem
from orchestrator.pool.pool import Pool
from orchestrator.service.attachments import HEAD, Cluster, NodeStatus, server_nodes
from orchestrator.service.extent import Extent
from orchestrator.service.service import Service

CLUSTER: Final = "orchestrator.cluster.nodes:RayCluster"


def attach(service: Service) -> Cluster:
    """Return the cluster of a daemon, which it has if that is configured. Raises InputError if Ray is not installed."""
    if service.extent is not Extent.DAEMON or not service.configuration.cluster.ray:
        return OneMachine()
    if importlib.util.find_spec("ray") is None:
        accepted = "the extra `ray` (`pip install 'orchestrator[ray]'`), or no such key"
        raise InputError(Problem("cluster.ray", "needs Ray, which is not installed", accepted))
    cluster: Cluster = resolve_name(CLUSTER)(service)
    return cluster


class OneMachine:
    """No cluster: engines run on this machine."""

    problem = None
    start_engine = staticmethod(Engine.start)

    def __init__(self) -> None:
        self._pool: Pool | None = None

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
