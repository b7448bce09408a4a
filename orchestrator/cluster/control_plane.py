"""Ask over a connection of our own whether Ray's control plane is there: Ray tries for minutes, and names no cause.

It imports nothing of Ray.
"""

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from orchestrator.cluster.stream import address_of
from orchestrator.cluster.tls import TLS_FILES, NotConnected, tls_context

SECONDS: Final = 10.0  # for the control plane to answer
_SETTINGS_TYPE: Final = 4
_FRAME_BYTES: Final = 9  # of the header of a frame of HTTP/2
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_TYPE, 0, 0, 0, 0, 0])


def check_control_plane(address: str, environ: Mapping[str, str], seconds: float = SECONDS) -> None:
    """Check that Ray's control plane answers at ADDRESS:PORT, with TLS if `environ` asks for it.

    Raises NotConnected.
    """
    context = tls_context(environ)
    if context is not None:
        context.set_alpn_protocols(["h2"])
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
        raise not_there(f"{place} does not answer: {why}") from error
    if answer[3:4] != bytes([_SETTINGS_TYPE]):
        raise NotConnected(_refused(place, "") if context else _needs_tls(place))


def not_there(reason: str) -> NotConnected:
    return NotConnected(f"{reason}; accepted: the address of a running one (`orchestrator cluster start`)")


def _refused(place: str, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    return f"{place} refuses the certificate of RAY_TLS_SERVER_CERT{why}; accepted: one of the cluster's authority"


def _needs_tls(place: str) -> str:
    return f"{place} does not answer without TLS; accepted: RAY_USE_TLS=1, {', '.join(TLS_FILES)}"
