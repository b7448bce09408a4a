"""Build the command line of bubblewrap. Only this file knows bubblewrap's options.

If root runs bubblewrap, no user namespace is needed: it keeps the two capabilities with which the launcher takes on an
unprivileged identity. For other users it creates a user namespace with the uid `NOBODY`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.run.sandbox.filesystem import WORK, FilesystemView

NOBODY = 65534
MINIMUM_VERSION = (0, 8)
_LAUNCHER = "/run/launcher.py"


@dataclass(frozen=True, slots=True)
class Descriptors:
    seccomp: int  # to read the system call filter from
    files: Mapping[str, int]  # to read file contents from, by path in the sandbox
    info: int  # to write facts about the new namespaces to, as JSON

    def all(self) -> tuple[int, ...]:
        return (self.seccomp, self.info, *self.files.values())


def command_line(program: str, view: FilesystemView, launcher: str, disk: int, descriptors: Descriptors) -> list[str]:
    """Return the command that sets up a sandbox and runs the launcher in it.

    `program` and `launcher` are the paths of bubblewrap and of `inside.py`; `disk` is the size in bytes of each
    writable file system.
    """
    return [
        program,
        *_namespaces(),
        *_file_system(view, launcher, disk, descriptors.files),
        *("--seccomp", str(descriptors.seccomp), "--info-fd", str(descriptors.info)),
        *("--die-with-parent", "--clearenv", "--chdir", WORK, "--hostname", "sandbox"),
        *("--", view.interpreter, "-I", "-S", "-B", _LAUNCHER),
    ]


def _namespaces() -> list[str]:
    shared = [f"--unshare-{name}" for name in ("pid", "net", "ipc", "uts", "cgroup-try")]
    if os.geteuid() == 0:
        return [*shared, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*shared, "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL"]


def _file_system(view: FilesystemView, launcher: str, disk: int, files: Mapping[str, int]) -> list[str]:
    # The root becomes read-only last, so that only `/tmp` and the work folder are writable.
    arguments = ["--proc", "/proc", "--remount-ro", "/proc"]  # which has files that raise a priority (autogroup)
    parents = _parents([*view.readable, *view.devices, *view.links, *files, _LAUNCHER])
    memory = [place for place in view.links if place in parents]  # /dev/shm, if something that is shown lies in it
    for folder in ("/tmp", WORK, *memory):  # noqa: S108 - the sandbox's own; first, as an installation may lie in /tmp
        arguments += ["--perms", "0777", "--size", str(disk), "--tmpfs", folder]
    for folder in parents:
        arguments += ["--perms", "0755", "--dir", folder]
    for folder in view.readable:
        arguments += ["--ro-bind", folder, folder]
    for device in view.devices:
        arguments += ["--dev-bind", device, device]
    for place, target in view.links.items():
        if place not in memory:
            arguments += ["--symlink", target, place]
    for path, descriptor in files.items():
        arguments += ["--perms", "0444", "--file", str(descriptor), path]
    return [*arguments, "--ro-bind", launcher, _LAUNCHER, "--remount-ro", "/"]


def _parents(paths: Iterable[str]) -> list[str]:
    # Outermost first. Bubblewrap would create them for its own user only.
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return sorted(folders - {"/"})
