"""The endpoint about the machines of the cluster."""

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel, Field

from orchestrator.api.app import Endpoints
from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.service.attachments import NodeStatus, StandbyStatus

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))
ENDPOINTS: Final = Endpoints(router)


class NodesBody(BaseModel):
    """The machines that run engines, and those that cannot."""

    ray: str = Field(description="the configured cluster; empty without one")
    problem: str | None = Field(description="why the cluster cannot be used now")
    standby: StandbyStatus | None = Field(description="the machine that takes over; null without one")
    nodes: tuple[NodeStatus, ...] = Field(description="this machine first, then the nodes by name, then the servers")


@router.get("/nodes")
async def nodes(service: ServiceDep) -> NodesBody:
    """Return the machines of the cluster and the servers: cores, memory, models, and why one cannot be used."""
    cluster = service.cluster
    return NodesBody(
        ray=service.configuration.cluster.ray,
        problem=cluster.problem,
        standby=cluster.standby,
        nodes=tuple(cluster.nodes()),
    )
