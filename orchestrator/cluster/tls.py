"""TLS between the machines of a cluster, with the files that Ray's variables name: both ends have a certificate."""

import os
import ssl
from collections.abc import Mapping
from typing import Final

TLS_FILES: Final = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class TlsUnusable(Exception):
    """The files cannot be used. The message says why, and what would be accepted."""


def tls_context(environ: Mapping[str, str], *, serves: bool = False) -> ssl.SSLContext | None:
    """Return how this process connects to another machine, or serves one, None without TLS. Raises TlsUnusable."""
    if environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    for name in TLS_FILES:
        if not os.access(environ.get(name, ""), os.R_OK):
            read = f"{environ[name]} cannot be read" if environ.get(name) else "is not set"
            raise TlsUnusable(f"{name}: {read}; accepted with RAY_USE_TLS=1: a PEM file")
    certificate, key, authority = (environ[name] for name in TLS_FILES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        files = "a certificate, its key without a password, and the certificate of its authority, as PEM files"
        raise TlsUnusable(f"{', '.join(TLS_FILES)}: {reason}; accepted: {files}") from error
    return context
