"""The configured MCP servers of tests: the programs in `served/`, in the sandbox or over HTTP."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.tools.servers import ToolServer, ToolServers

PROGRAMS = Path(__file__).parent / "served"
TOKEN = "SESAME_FOR_TESTS"  # noqa: S105 - the name of a variable
STARTING_SECONDS = 60.0


def plain(mode: str = "good", name: str = "plain", **more: Any) -> ToolServer:
    """Return the server without the SDK, which misbehaves as the mode says."""
    command = ("python", str(PROGRAMS / "plain.py"), mode)
    return ToolServer(**_patient(name=name, command=command, folders=(str(PROGRAMS),), **more))


def modern(**more: Any) -> ToolServer:
    """Return the server on the SDK, as a program."""
    command = ("python", str(PROGRAMS / "modern.py"))
    return ToolServer(**_patient(name="modern", command=command, folders=(str(PROGRAMS),), **more))


def _patient(**fields: Any) -> dict[str, Any]:
    """Return fields of a server that may take long to start: programs in the sandbox get only idle cores."""
    return {"start_seconds": 100.0, **fields}


@contextmanager
def modern_over_http() -> Iterator[ToolServer]:
    """Run the server on the SDK at a port while the block lasts, and set the variable with its token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([sys.executable, str(PROGRAMS / "modern.py"), str(port)])
    os.environ[TOKEN] = "sesame"
    try:
        end = time.monotonic() + STARTING_SECONDS
        while not _listens(port):
            assert process.poll() is None, "the server has ended while it started"
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.05)
        yield ToolServer(name="modern", url=f"http://127.0.0.1:{port}/mcp", token_env=TOKEN)
    finally:
        process.terminate()
        process.wait(STARTING_SECONDS)
        os.environ.pop(TOKEN, None)


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def servers_of(sandbox: Sandbox, *servers: ToolServer) -> ToolServers:
    """Return these servers as those of a configuration."""

    async def given() -> Sandbox:
        return sandbox

    known = {server.name: server for server in servers}
    return ToolServers(lambda: known, given)
