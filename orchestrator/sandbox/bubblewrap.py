"""Write the command line of bubblewrap. Nothing else here knows its options.

Run by root it needs no user namespace: it keeps the two capabilities that the launcher then uses to take on an
unprivileged identity. Run by anyone else it makes one, in which the user is `NOBODY`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.sandbox.view import WORK, View

NOBODY = 65534
MINIMUM_VERSION = (0, 8)
_LAUNCHER = "/run/launcher.py"


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What bubblewrap reads from: the filter, and by path in the sandbox the files to make; and where it writes to."""

    seccomp: int
    files: Mapping[str, int]
    info: int

    def all(self) -> tuple[int, ...]:
        """Return those that have to be inherited."""
        return (self.seccomp, self.info, *self.files.values())


def command_line(program: str, view: View, launcher: str, disk: int, given: Descriptors) -> list[str]:
    """Return the command that sets a sandbox up and runs the launcher in it. `disk` is the size of each file system
    that can be written to, in bytes."""
    return [
        program,
        *_namespaces(),
        *_file_system(view, launcher, disk, given.files),
        *("--seccomp", str(given.seccomp), "--info-fd", str(given.info)),
        *("--die-with-parent", "--clearenv", "--chdir", WORK, "--hostname", "sandbox"),
        *("--", view.interpreter, "-I", "-S", "-B", _LAUNCHER),
    ]


def _namespaces() -> list[str]:
    shared = [f"--unshare-{name}" for name in ("pid", "net", "ipc", "uts", "cgroup-try")]
    if os.geteuid() == 0:
        return [*shared, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*shared, "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL"]


def _file_system(view: View, launcher: str, disk: int, files: Mapping[str, int]) -> list[str]:
    """Return the mounts. The root itself is made read-only last: only `/tmp` and the work folder can be written to."""
    arguments = ["--proc", "/proc"]
    for folder in ("/tmp", WORK):  # noqa: S108 - the sandbox's own; first, as an installation may lie in /tmp
        arguments += ["--perms", "0777", "--size", str(disk), "--tmpfs", folder]
    for folder in _parents([*view.readable, *view.devices, *view.links, *files, _LAUNCHER]):
        arguments += ["--perms", "0755", "--dir", folder]
    for folder in view.readable:
        arguments += ["--ro-bind", folder, folder]
    for device in view.devices:
        arguments += ["--dev-bind", device, device]
    for place, target in view.links.items():
        arguments += ["--symlink", target, place]
    for path, descriptor in files.items():
        arguments += ["--perms", "0444", "--file", str(descriptor), path]
    return [*arguments, "--ro-bind", launcher, _LAUNCHER, "--remount-ro", "/"]


def _parents(paths: Iterable[str]) -> list[str]:
    """Return the folders above these, outermost first; bubblewrap alone would make them for its own user only."""
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return sorted(folders - {"/"})
