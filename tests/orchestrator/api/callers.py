"""Daemons whose callers have different rights, and clients of these callers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.orchestrator.api.daemon_process import Running, running_daemon

SIGNED_BY = "more-than-twenty-characters-of-"


@contextmanager
def daemon_with(folder: Path, callers: Mapping[str, str], **settings: str) -> Iterator[Running]:
    """Start a daemon with a token of each name, which has these permissions; none are given for an empty text."""
    for name in callers:
        file = folder / f"{name}.token"
        file.write_text(f"{SIGNED_BY}{name}\n")
        file.chmod(0o600)
    named = {
        "ORCHESTRATOR_SERVER_TOKENS": ", ".join(f"{name}={folder}/{name}.token" for name in callers),
        "ORCHESTRATOR_SERVER_CALLERS": ", ".join(f"token:{name}={words}" for name, words in callers.items() if words),
    }
    with running_daemon(folder / "home", **named, **settings) as running:
        yield running


def token_of(name: str) -> str:
    """Return the token of a name."""
    return f"{SIGNED_BY}{name}"


def client_of(daemon: Running, name: str) -> httpx2.Client:
    """Return a client on the TCP port with the token of a name."""
    return daemon.tcp(Authorization=f"Bearer {token_of(name)}")
