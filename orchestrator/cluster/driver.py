"""Become a driver of a Ray cluster, or say why that is not possible: Ray tries for minutes, and names no cause.

So the control plane is asked over a connection of our own first, whether it is there and accepts our certificate.
"""

import os
import socket
import ssl
from collections.abc import Mapping
from typing import Final

import ray
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._private.worker import global_worker
from ray._raylet import GcsClient  # type: ignore[attr-defined] # of a compiled module
from ray.exceptions import AuthenticationError, RayError

from orchestrator.cluster.stream import address_of
from orchestrator.cluster.tls import TLS_FILES, NotConnected, tls_context

NAMESPACE: Final = "orchestrator"
SECONDS: Final = 10.0  # for the control plane to answer
TRIES: Final = "5"  # of Ray to connect to a control plane that answers, a second each
TOKEN: Final = "RAY_AUTH_MODE=token with the cluster's in RAY_AUTH_TOKEN or ~/.ray/auth_token"  # noqa: S105
_SETTINGS_TYPE: Final = 4
_FRAME_BYTES: Final = 9  # of the header of a frame of HTTP/2
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_TYPE, 0, 0, 0, 0, 0])


def connect(address: str) -> None:
    """Become a driver of the cluster. Blocks. Raises NotConnected."""
    try:
        check_control_plane(address, os.environ)
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", TRIES)
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        if isinstance(error, AuthenticationError) or AuthenticationError.__name__ in str(error.__cause__):
            raise NotConnected(f"the cluster at {address} does not accept this token; accepted: {TOKEN}") from error
        raise NotConnected(f"{first_line(error)}; accepted: a running cluster of the same Ray and Python") from error


def first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


def control_plane_problem(address: str, seconds: float = SECONDS) -> str:
    """Return why Ray's control plane does not answer this process in this time, or nothing. Blocks."""
    try:
        check_control_plane(address, os.environ, seconds)
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


def check_control_plane(address: str, environ: Mapping[str, str], seconds: float = SECONDS) -> None:
    """Check that Ray's control plane answers at a configured address, with TLS if `environ` asks for it.

    Raises NotConnected.
    """
    context = tls_context(environ)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    try:
        address = canonicalize_bootstrap_address_or_die(address)
    except (ConnectionError, ValueError) as error:  # `auto`, and there is none on this machine
        raise _not_there(str(error)) from error
    host, port = address_of(address)
    place = f"the control plane at {address}"
    try:
        with socket.create_connection((host, port), seconds) as plain:
            connection = plain if context is None else context.wrap_socket(plain, server_hostname=host)
            with connection:
                connection.sendall(_PREFACE)
                answer = connection.recv(_FRAME_BYTES)
    except ssl.SSLCertVerificationError as error:
        accepted = f"one that is signed by RAY_TLS_CA_CERT and names {host} as subjectAltName"
        reason = f"the certificate of {place} is not accepted: {error.verify_message}"
        raise NotConnected(f"{reason}; accepted: {accepted}") from error
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise NotConnected(f"{place} does not use TLS; accepted: no RAY_USE_TLS") from error
        raise NotConnected(_refused(place, str(error.reason))) from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise NotConnected(_refused(place, "") if context else _needs_tls(place)) from error
    except OSError as error:
        why = error.strerror or f"no answer for {seconds:g} s"
        raise _not_there(f"{place} does not answer: {why}") from error
    if answer[3:4] != bytes([_SETTINGS_TYPE]):
        raise NotConnected(_refused(place, "") if context else _needs_tls(place))


def _not_there(reason: str) -> NotConnected:
    return NotConnected(f"{first_line(reason)}; accepted: the address of a running one (`ray start --head`)")


def _refused(place: str, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    return f"{place} refuses the certificate of RAY_TLS_SERVER_CERT{why}; accepted: one of the cluster's authority"


def _needs_tls(place: str) -> str:
    return f"{place} does not answer without TLS; accepted: RAY_USE_TLS=1, {', '.join(TLS_FILES)}"
