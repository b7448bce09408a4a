"""Find at which addresses of this machine Ray accepts connections, next to the one that it was given.

Ray that was started by `ray start` binds its ports to all interfaces, whatever `--node-ip-address` says. A firewall may
close the others, so what counts is whether a connection is accepted. It imports nothing of Ray.
"""

import asyncio
import contextlib
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from orchestrator.cluster.listening import machine_addresses

CONNECT_SECONDS: Final = 1.0  # a connection within a machine takes less than a millisecond


async def exposed(address: str) -> tuple[str, ...]:
    """Return where Ray accepts connections on this machine though it was given `address`: addresses with a port.

    Only processes of this user and Ray of this Python count.
    """
    hosts, ports = await asyncio.to_thread(lambda: (_other_addresses(address), _ray_ports()))
    places = [(host, port) for host in hosts for port in ports]
    accepted = await asyncio.gather(*(_accepts(host, port) for host, port in places))
    return tuple(_shown(*place) for place, accepts in zip(places, accepted, strict=True) if accepts)


def _other_addresses(address: str) -> list[str]:
    others = machine_addresses() - {address}
    return sorted(host for host in others if not host.startswith("127.") and host != "::1")


def _ray_ports() -> list[int]:
    spec = find_spec("ray")
    folders = () if spec is None else tuple(spec.submodule_search_locations or ())
    listening = [
        (connection.laddr.port, connection.pid)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.pid is not None
    ]
    ray_processes = {pid for pid in {pid for _, pid in listening} if _runs_code_of(pid, folders)}
    return sorted({port for port, pid in listening if pid in ray_processes})


def _runs_code_of(pid: int, folders: Collection[str]) -> bool:
    # Ray's servers are programs of its package, or have loaded its library; workers change their command line.
    with contextlib.suppress(OSError):
        mapped = Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape")
        return any(f"{folder}/" in mapped for folder in folders)
    return False


async def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
