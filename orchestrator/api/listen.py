"""Open the daemon's sockets, and refuse addresses that others could reach without protection."""

import ipaddress
import os
import resource
import socket
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.errors import JournalError
from orchestrator.service.configuration import ServerSettings

WHERE: Final = "tcp of [server]"
KEPT_BACK: Final = 192  # file descriptors for the journal, the log, engines and sandboxes
MIN_CONNECTIONS: Final = 16  # per listener, however few descriptors there are
MAX_PATH_BYTES: Final = 107  # of a Unix socket, a limit of Linux


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def page_url(self) -> str:
        """The address for a browser on this machine, which cannot open that of all interfaces."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        return replace(self, host=everywhere.get(self.host, self.host)).url


def tcp_address(settings: ServerSettings) -> TcpAddress | None:
    """Return the configured TCP address, or None.

    Raises InputError if it is malformed, if it is beyond loopback without TLS or `insecure`, or if only one of
    certificate and key is given.
    """
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise InputError(Problem("tls_certificate, tls_key of [server]", "only one of them is given", "both, or none"))
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
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allow_descriptors() -> None:
    """Raise this process's limit of open files to the hard limit; the soft one is often 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def max_connections(limit: int) -> int:
    """Return how many connections each of the two listeners may have: `limit`, or fewer if descriptors are scarce."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limit
    # Half for each: clients that fill one listener, as anybody who reaches a port can, leave the other its part.
    return min(limit, max(MIN_CONNECTIONS, (soft - KEPT_BACK) // 2))


def unix_socket(path: Path) -> socket.socket:
    """Return a Unix socket at `path` that only its owner can open. Raises JournalError if it cannot be bound."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise JournalError(path, f"is too long for the path of a socket; accepted: {MAX_PATH_BYTES} bytes")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_symlink() or (path.exists() and stat.S_ISSOCK(path.stat().st_mode)):
            path.unlink()  # it is stale, because this process holds the lock of the state folder
        os.fchmod(sock.fileno(), 0o600)  # the file gets this mode; a umask would hold for the whole process
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise JournalError(path, f"cannot be listened on: {error.strerror}") from error
    return sock


def tcp_socket(address: TcpAddress) -> socket.socket:
    """Return a socket that is bound to an address. Raises InputError if that fails."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
    except OSError as error:
        raise InputError(
            Problem(WHERE, f"{address.host}:{address.port}: {error.strerror}", "a free address")
        ) from error
    return sock
