"""Encrypt connections as Ray's settings say. It imports nothing of Ray."""

import os
import ssl
from collections.abc import Mapping
from typing import Final

TLS_FILES: Final = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class NotConnected(Exception):
    """The cluster cannot be used. The message says why, and what would be accepted."""


def tls_context(environ: Mapping[str, str], *, server: bool = False) -> ssl.SSLContext | None:
    """Return how this process connects, or as a `server` is connected to, with Ray's settings; None without TLS.

    Both ends have a certificate of the same authority, and that of a server names its address. Raises NotConnected.
    """
    if environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    for name in TLS_FILES:
        if not os.access(environ.get(name, ""), os.R_OK):
            read = f"{environ[name]} cannot be read" if environ.get(name) else "is not set"
            raise NotConnected(f"{name}: {read}; accepted with RAY_USE_TLS=1: a PEM file")
    certificate, key, authority = (environ[name] for name in TLS_FILES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        files = "a certificate, its key without a password, and the certificate of its authority, as PEM files"
        raise NotConnected(f"{', '.join(TLS_FILES)}: {reason}; accepted: {files}") from error
    return context
