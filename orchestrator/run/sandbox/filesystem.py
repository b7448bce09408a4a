"""The files that a program in the sandbox sees: this system's programs, this Python installation, little else."""

import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run.sandbox.errors import SandboxUnavailable

WORK = "/sandbox"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
# A folder at the end of PATH with a `python`, since some systems have only a `python3`.
_LAST = "/run/bin"

_ETC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": "/tmp",  # noqa: S108 - the sandbox's own, which has a size limit
}


@dataclass(frozen=True, slots=True)
class FilesystemView:
    """What a program in the sandbox sees of this machine, as absolute paths."""

    readable: tuple[str, ...]  # folders and files, read-only
    links: dict[str, str]  # symbolic links in the sandbox, and where they lead
    devices: tuple[str, ...]
    path: str  # the value of PATH
    interpreter: str  # this process's Python


def host_filesystem() -> FilesystemView:
    """Return the view for this machine and this Python.

    Raises SandboxUnavailable if Python is installed in a folder that must not be shown.
    """
    usr = [folder for folder in ("/usr", *(f"/{name}" for name in _SYSTEM)) if _is_folder(folder)]
    links = {f"/{name}": str(Path(f"/{name}").readlink()) for name in _SYSTEM if Path(f"/{name}").is_symlink()}
    etc = [name for name in _ETC if Path(name).exists()]
    python = _python_folders()
    scripts = sysconfig.get_path("scripts")
    base = str(Path(sys.base_prefix) / "bin")
    path = ":".join(dict.fromkeys((scripts, str(Path(sys.executable).parent), base, *_SYSTEM_PATH, _LAST)))
    links = {**links, **_DEVICE_LINKS, f"{_LAST}/python": sys.executable}
    return FilesystemView((*usr, *etc, *python), links, _DEVICES, path, sys.executable)


def environment(view: FilesystemView) -> dict[str, str]:
    """Return all environment variables of a program. None are our own."""
    return {
        "PATH": view.path,
        "HOME": "/tmp",  # noqa: S108 - the sandbox's own
        "TMPDIR": "/tmp",  # noqa: S108
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RAYON_NUM_THREADS": "1",  # one thread each, since threads count in the limit on processes
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def etc_files(uid: int) -> dict[str, bytes]:
    """Return the files of `/etc` that exist only in the sandbox, by path. They name one user, with this uid."""
    return {
        "/etc/passwd": f"sandbox:x:{uid}:{uid}::/tmp:/bin/sh\n".encode(),
        "/etc/group": f"sandbox:x:{uid}:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    }


def _is_folder(folder: str) -> bool:
    return Path(folder).is_dir() and not Path(folder).is_symlink()


def _python_folders() -> list[str]:
    # Outermost ones only, without those in `/usr`. Raises SandboxUnavailable for a folder that would show more than
    # an installation: the root, or one above a home.
    folders = [sys.prefix, sys.base_prefix, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    resolved = {Path(os.path.realpath(folder)) for folder in folders if os.path.isdir(folder)}
    # A virtual environment is reached by the path that its scripts name, even where that leads through a link.
    needed = resolved | {Path(folder) for folder in (sys.prefix, sys.base_prefix)}
    covered = {Path("/usr"), *needed}
    outer = [folder for folder in needed - {Path("/usr")} if not any(parent in covered for parent in folder.parents)]
    for folder in outer:
        if _shows_too_much(folder):
            raise SandboxUnavailable(f"this Python is installed in {folder}; it needs a folder of its own (a venv)")
    return sorted(map(str, outer))


def _shows_too_much(folder: Path) -> bool:
    return folder == Path("/") or Path.home().resolve().is_relative_to(folder)
