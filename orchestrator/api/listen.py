"""Say where the daemon listens, open the sockets, and refuse what would let others in."""

import ipaddress
import os
import resource
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.journal import JournalError
from orchestrator.service.configuration import ServerSettings

WHERE: Final = "tcp of [server]"
LONGEST_PATH: Final = 107
"""Bytes that the name of a Unix socket may have."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where TCP listens. `tls`: both files of the certificate are given."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        """The address as a client names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def tcp_address(settings: ServerSettings) -> TcpAddress | None:
    """Return where TCP is to listen, or None. Raises InputError for what is no address, or is not safe."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise InputError(
            Problem("tls_certificate, tls_key of [server]", "one is given, the other not", "both, or none")
        )
    if not settings.tcp:
        return None
    host, separator, port = settings.tcp.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise InputError(Problem(WHERE, f"{settings.tcp!r} is no address", "ADDRESS:PORT, such as 127.0.0.1:8484"))
    address = TcpAddress(host or "0.0.0.0", int(port), bool(settings.tls_certificate))  # noqa: S104 - checked below
    if not (is_loopback(address.host) or address.tls or settings.insecure):
        accepted = "127.0.0.1, TLS (tls_certificate and tls_key), or insecure = true"
        raise InputError(Problem(WHERE, f"{settings.tcp} can be reached by others, who could read the token", accepted))
    return address


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allow_descriptors() -> None:
    """Let this process have as many connections and files open as it may: what it begins with is often 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def unix_socket(path: Path) -> socket.socket:
    """Return a socket at `path` that its owner alone can reach. A stale one is replaced: we have the folder's lock.

    Raises JournalError.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise JournalError(path, f"is too long a name for a socket; accepted: {LONGEST_PATH} bytes")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_symlink() or (path.exists() and stat.S_ISSOCK(path.stat().st_mode)):
            path.unlink()
        os.fchmod(made.fileno(), 0o600)  # which the file gets, and nobody else's as with a mask of the process
        made.bind(os.fspath(path))
    except OSError as error:
        made.close()
        raise JournalError(path, f"cannot be listened on: {error.strerror}") from error
    return made


def tcp_socket(address: TcpAddress) -> socket.socket:
    """Return a socket at an address. Raises InputError where there can be none."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address.host, address.port))
    except OSError as error:
        raise InputError(
            Problem(WHERE, f"{address.host}:{address.port}: {error.strerror}", "a free address")
        ) from error
    return made
