"""Become a driver of a Ray cluster, or say why that is not possible."""

import os
from typing import Final

import ray
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._private.worker import global_worker
from ray._raylet import GcsClient  # type: ignore[attr-defined] # of a compiled module
from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import AuthenticationError, RayError

from orchestrator.cluster.control_plane import SECONDS, check_control_plane, not_there
from orchestrator.cluster.environment import lacks_token
from orchestrator.cluster.listening import NoLibrary, listen_at, machine_addresses
from orchestrator.cluster.tls import NotConnected

NAMESPACE: Final = "orchestrator"
TRIES: Final = "5"  # of Ray to connect to a control plane that answers, a second each
TOKEN: Final = "RAY_AUTH_MODE=token with the cluster's in RAY_AUTH_TOKEN or ~/.ray/auth_token"  # noqa: S105


def connect(address: str) -> None:
    """Become a driver of the cluster, which listens where Ray does on this machine. Blocks. Raises NotConnected."""
    try:
        address = _resolved(address)
        check_control_plane(address, os.environ)
        if lacks_token(os.environ):  # a client of Ray would abort this process
            raise NotConnected(f"there is no token for the cluster at {address}; accepted: {TOKEN}")
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", TRIES)
        here = _address_here(address)
        listen_at(here)
        ray.init(
            address=address, _node_ip_address=here, namespace=NAMESPACE, log_to_driver=False, logging_level="error"
        )
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        if isinstance(error, AuthenticationError) or AuthenticationError.__name__ in str(error.__cause__):
            raise NotConnected(f"the cluster at {address} does not accept this token; accepted: {TOKEN}") from error
        raise NotConnected(f"{first_line(error)}; accepted: a running cluster of the same Ray and Python") from error
    except NoLibrary as error:
        raise NotConnected(str(error)) from error


def first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


def control_plane_problem(address: str, seconds: float = SECONDS) -> str:
    """Return why Ray's control plane does not answer this process in this time, or nothing. Blocks."""
    try:
        check_control_plane(_resolved(address), os.environ, seconds)
    except NotConnected as error:
        return str(error)
    return ""


def own_address() -> str:
    """Return the address that Ray has on this machine, for a driver."""
    return str(global_worker.node_ip_address)


def is_same_cluster(address: str) -> bool:
    """Return whether the control plane there is the one that this driver is connected to. Blocks. Raises RayError."""
    client = GcsClient(address=address)
    return bool(client.cluster_id == global_worker.gcs_client.cluster_id)


def _resolved(address: str) -> str:
    # ADDRESS:PORT of a configured address, which may be `auto`. Raises NotConnected.
    try:
        return str(canonicalize_bootstrap_address_or_die(address))
    except (ConnectionError, ValueError) as error:  # `auto`, and there is none on this machine
        raise not_there(first_line(error)) from error


def _address_here(address: str) -> str:
    # The address that Ray has on this machine, where it may run twice. Raises NotConnected and what Ray raises.
    alive = GcsClient(address=address).get_all_node_info(timeout=SECONDS, state_filter=GcsNodeInfo.GcsNodeState.ALIVE)
    own = machine_addresses()
    here = {node.node_manager_address: node.is_head_node for node in alive.values() if node.node_manager_address in own}
    if not here:
        accepted = "Ray that is started here, too (`orchestrator cluster start`)"
        raise NotConnected(f"this machine is no node of the cluster at {address}; accepted: {accepted}")
    return str(max(here, key=here.__getitem__))
