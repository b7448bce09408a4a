"""Have processes listen at one address of this machine: Ray binds its ports to all of them, and has no setting for it.

The library `bind.c` does it. It is compiled when it is first needed, and loaded by LD_PRELOAD. This module imports
nothing of Ray.
"""

import ctypes
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from orchestrator.errors import OrchestratorError
from orchestrator.files import replace_file, user_folder

ADDRESS: Final = "ORCHESTRATOR_RAY_ADDRESS"  # read by the library when its process starts
COMPILER: Final = "cc"
_SOURCE: Final = Path(__file__).with_name("bind.c")
_OPTIONS: Final = ("-O2", "-shared", "-fPIC")


class NoLibrary(OrchestratorError):
    """Processes cannot be held to one address. The message says why, and what would be accepted."""


def machine_addresses() -> set[str]:
    """Return the IP addresses of this machine, loopback included. Those with a scope have it: `fe80::1%eth0`."""
    entries = (entry for entries in psutil.net_if_addrs().values() for entry in entries)
    return {entry.address for entry in entries if entry.family.name in ("AF_INET", "AF_INET6")}


def listening(environ: Mapping[str, str], address: str = "") -> dict[str, str]:
    """Return an environment whose processes listen at `address` instead of all, or at the one of their `listen_at`.

    Raises NoLibrary and OSError.
    """
    earlier = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    preloaded = dict.fromkeys((str(_library(environ)), *earlier))
    others = {name: value for name, value in environ.items() if name != ADDRESS}
    return {**others, "LD_PRELOAD": ":".join(preloaded), **({ADDRESS: address} if address else {})}


def listen_at(address: str) -> None:
    """Have this process, whose environment is of `listening`, listen at an address. Call it once. Raises NoLibrary."""
    try:
        function = ctypes.CDLL(None).orchestrator_listen_at
    except AttributeError as error:
        raise NoLibrary(f"this process has no {_SOURCE.stem}.so; accepted: LD_PRELOAD with it") from error
    function.argtypes, function.restype = (ctypes.c_char_p,), ctypes.c_bool
    if not function(address.encode()):
        raise NoLibrary(f"this process cannot listen at {address!r}; accepted: the IP address of its first call")


def _library(environ: Mapping[str, str]) -> Path:
    # Its folder is no cache: processes that start without the file would listen at all addresses. Machines with other
    # processors may share the folder. Raises NoLibrary and OSError.
    source = _SOURCE.read_bytes()
    key = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    folder = user_folder(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator" / "ray"
    library = folder / f"{_SOURCE.stem}-{key}.so"
    if any(letter.isspace() or letter == ":" for letter in str(library)):
        raise NoLibrary(f"{folder}: LD_PRELOAD cannot name this folder; accepted: XDG_STATE_HOME without space and ':'")
    if not library.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(library, _compiled(environ))
    try:
        ctypes.CDLL(str(library))
    except OSError as error:  # the loader would only warn, and Ray would listen at all addresses
        library.unlink(missing_ok=True)
        raise NoLibrary(f"{error}; accepted: XDG_STATE_HOME on a disk from which programs may be run") from error
    return library


def _compiled(environ: Mapping[str, str]) -> bytes:
    compiler = shutil.which(COMPILER, path=environ.get("PATH"))
    if compiler is None:
        wrong = f"there is no C compiler `{COMPILER}`, which Ray needs to listen at one address only"
        raise NoLibrary(f"{wrong}; accepted: one in PATH (`apt install gcc libc6-dev`, `dnf install gcc`)")
    with TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        compilation = subprocess.run(  # noqa: S603 - the system's compiler, and our own source
            [compiler, *_OPTIONS, "-o", str(library), str(_SOURCE)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if compilation.returncode:
            reason = " ".join(compilation.stderr.split()) or f"exit code {compilation.returncode}"
            accepted = "a C compiler with the headers of libc (`apt install gcc libc6-dev`, `dnf install gcc`)"
            raise NoLibrary(f"{compiler} cannot compile {_SOURCE}: {reason:.500}; accepted: {accepted}")
        return library.read_bytes()
