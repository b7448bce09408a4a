"""Install clients, each for Python in a virtual environment of its own, and pin the versions that were installed."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.clients.suite import Client

HERE: Final = Path(__file__).parent
NODE: Final = HERE / "node"
LOCKS: Final = HERE / "locks"


class NotInstalled(Exception):
    """A client cannot be run here; the text says why."""


def lock_file(client: Client) -> Path:
    """Return the file with the exact versions of all packages of a client for Python, in the form of pip."""
    return LOCKS / f"{client.program}.txt"


def interpreter(client: Client, folder: Path) -> Path:
    """Return the Python of a client's environment under `folder`."""
    return folder / client.program / "bin" / "python"


def command(client: Client, folder: Path) -> list[str]:
    """Return the command that drives the program of a client. Raises NotInstalled."""
    if client.language == "Node":
        node = shutil.which("node")
        if node is None:
            raise NotInstalled("node is not on the PATH")
        if not (NODE / "node_modules").is_dir():
            raise NotInstalled(f"{NODE / 'node_modules'} is missing; `python -m tests.clients install` makes it")
        return [node, str(NODE / "drive.mjs"), client.program]
    python = interpreter(client, folder)
    if not python.exists():
        raise NotInstalled(f"{python} is missing; `python -m tests.clients install` makes it")
    return [str(python), "-m", "programs.drive", client.program]


def install(client: Client, folder: Path) -> None:
    """Install a client with the versions of its lock file, unless that is done. Raises NotInstalled."""
    if client.language == "Node":
        _install_for_node()
        return
    lock = lock_file(client)
    done = folder / client.program / "installed.txt"
    if done.exists() and done.read_text(encoding="utf-8") == lock.read_text(encoding="utf-8"):
        return
    _make_environment(client, folder)
    # The lock has every package, so that pip has nothing to choose.
    _run(_pip(client, folder, "install", "--no-deps", "-r", str(lock)))
    shutil.copyfile(lock, done)


def pin(client: Client, folder: Path) -> Path:
    """Install the newest versions of a client for Python that `suite` accepts, and return the lock file that has them.

    Raises NotInstalled.
    """
    _make_environment(client, folder)
    _run(_pip(client, folder, "install", "--upgrade", *client.packages))
    return write_lock(client, folder)


def write_lock(client: Client, folder: Path) -> Path:
    """Write the versions that a client's environment has into its lock file, and return that. Raises NotInstalled."""
    lock = lock_file(client)
    frozen = _run(_pip(client, folder, "freeze")).splitlines()
    lock.write_text("".join(f"{line}\n" for line in sorted(frozen, key=str.lower)), encoding="utf-8")
    return lock


def _make_environment(client: Client, folder: Path) -> None:
    shutil.rmtree(folder / client.program, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / client.program)])


def _pip(client: Client, folder: Path, *arguments: str) -> list[str]:
    """Return a command of this environment's own pip that works on a client's environment, which has none."""
    quiet = ("-q",) if arguments[0] == "install" else ()
    return [sys.executable, "-m", "pip", "--python", str(interpreter(client, folder)), *arguments, *quiet]


def _install_for_node() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not on the PATH")
    done, lock = NODE / "node_modules" / "installed.json", NODE / "package-lock.json"
    if done.exists() and done.read_bytes() == lock.read_bytes():
        return
    _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(NODE)])
    shutil.copyfile(lock, done)


def _run(told: list[str]) -> str:
    done = subprocess.run(told, check=False, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        raise NotInstalled(f"{Path(told[0]).name} failed: {lines[-1] if lines else done.returncode}")
    return done.stdout
