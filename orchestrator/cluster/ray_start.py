"""Start Ray on this machine by `ray start`, so that it listens at one address. It imports nothing of Ray."""

import ipaddress
import os
import re
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from orchestrator.cluster.control_plane import check_control_plane
from orchestrator.cluster.environment import lacks_token, ray_environment
from orchestrator.cluster.listening import machine_addresses
from orchestrator.cluster.tls import NotConnected
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.registry.forms import HEAD, NodeName

USUAL_PORT: Final = 6379  # of the control plane, as Ray has it
OBJECT_BYTES: Final = 200_000_000  # of shared memory, through which chunks of model files pass
_RAY: Final = (sys.executable, "-m", "ray.scripts.scripts")


class RayStart(NamedTuple):
    """The options of one start of Ray."""

    address: str  # of this machine
    control_plane: str  # ADDRESS:PORT
    joins: bool  # the control plane is there already
    name: str = ""  # of the node; empty: that of the host

    def command(self) -> tuple[str, ...]:
        """Return the program and its arguments."""
        port = self.control_plane.rpartition(":")[2]
        return (
            *(*_RAY, "start", f"--node-ip-address={self.address}", "--num-cpus=0"),
            f"--object-store-memory={OBJECT_BYTES}",
            *([f"--node-name={self.name}"] if self.name else []),
            *(
                [f"--address={self.control_plane}"]
                if self.joins
                else ["--head", f"--port={port}", "--include-dashboard=false"]
            ),
        )

    def execute(self) -> None:
        """Start Ray. It has started when this returns. Raises OrchestratorError and OSError."""
        environ = ray_environment(self.address)
        with tempfile.TemporaryFile() as output:  # no pipe: Ray's processes inherit it
            code = subprocess.call(  # noqa: S603 - our own interpreter, and a module of Ray
                self.command(), env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        if code:
            reasons = re.findall(r"^\S*(?:Error|Exception): .+", text, re.MULTILINE) or text.strip().splitlines()
            raise OrchestratorError(f"Ray has not started at {self.address}: {reasons[-1] if reasons else code}")

    def become(self) -> None:
        """Replace this process by Ray's, which ends with all of Ray here. Raises NoLibrary and OSError."""
        command = (*self.command(), "--block")
        os.execve(command[0], command, ray_environment(self.address))  # noqa: S606 - see above


def checked_start(address: str, join: str | None, port: int | None, name: str | None) -> RayStart:
    """Return how Ray is started by these arguments of the command. Raises InputError."""
    here = _own(address)
    if name is not None:
        _check_name(name)
    if join is not None:
        _check_joined(join, port)
    if find_spec("ray") is None:
        raise InputError(Problem("cluster start", "needs the extra `ray`", "pip install 'orchestrator[ray]'"))
    if lacks_token(os.environ):
        tokens = "`ray get-auth-token --generate` on one machine, whose ~/.ray/auth_token all others get"
        wrong = "there is no token, which Ray requires of all machines"
        raise InputError(Problem("cluster start", wrong, f"{tokens}, or RAY_AUTH_MODE=disabled"))
    if join is None:
        port = port or USUAL_PORT
        _check_free(here, port)
        return RayStart(here, f"[{here}]:{port}" if ":" in here else f"{here}:{port}", False, name or "")
    try:
        check_control_plane(join, os.environ)
    except NotConnected as error:  # `ray start` would try for minutes
        raise InputError(Problem("--join", str(error))) from error
    return RayStart(here, join, True, name or "")


def _own(address: str) -> str:
    # As Ray writes it.
    own = {ipaddress.ip_address(text) for text in machine_addresses() if "%" not in text}
    reached = {entry for entry in own if not entry.is_loopback}
    try:
        named = ipaddress.ip_address(address)
    except ValueError:
        named = None
    if named not in reached:
        accepted = ", ".join(sorted(map(str, reached))) or "none, since this machine has none"
        raise InputError(Problem("ADDRESS", f"{address!r} is no address at which others reach this machine", accepted))
    return str(named)


def _check_joined(join: str, port: int | None) -> None:
    if port is not None:
        raise InputError(Problem("--port", "is the control plane's, which --join names", "one of the two options"))
    match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", join)
    if match is None or int(match[1]) > 65535:
        accepted = f"ADDRESS:PORT of the control plane, such as 10.0.0.1:{USUAL_PORT}"
        raise InputError(Problem("--join", f"{join!r} is no address", accepted))


def _check_free(address: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        socket.create_server((address, port), family=family).close()
    except OSError as error:  # `ray start` would try for most of a minute
        wrong = f"port {port} of {address} cannot be listened at: {error.strerror}"
        raise InputError(Problem("--port", wrong, "one that neither Ray nor another program has")) from error


def _check_name(name: str) -> None:
    try:
        TypeAdapter(NodeName).validate_python(name)
    except ValidationError as error:
        accepted = "letters, digits, '_', '.' and '-', the first one a letter or digit"
        raise InputError(Problem("--name", f"{name!r} is no name of a node", accepted)) from error
    if name == HEAD:
        raise InputError(Problem("--name", f"{HEAD!r} is the daemon's machine", "another name"))
