"""Limit memory and number of all processes of a job with a control group, version 1 or 2, if possible.

The group also counts and weighs their processor time. No process can change that weight, nor gain another by a new
session: the kernel does not group its members by session (autogroup, sched(7)).
"""

import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run.sandbox.contract import SandboxLimits
from orchestrator.run.sandbox.niceness import IDLE, weight

_OWN = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mounts")
_PREFIX = "orchestrator-"
# The weight of a process of niceness 0 in version 1, and the least weight of a group.
_SHARES, _LEAST_SHARES = 1024, 2
_WEIGHT = 100  # the weight of a process of niceness 0 in version 2
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one job. In version 2 all its folders are the same."""

    version: int  # of the kernel's control groups, 1 or 2
    memory: Path  # limits memory
    pids: Path | None  # limits the number of processes; None if it cannot be limited
    cpu: Path | None = None  # counts processor time; None if it is not counted
    weight: Path | None = None  # weighs processor time; None if it cannot be weighed

    @property
    def folders(self) -> list[Path]:
        return [*dict.fromkeys(filter(None, (self.memory, self.pids, self.cpu, self.weight)))]

    def join_files(self) -> list[str]:
        """Return the files to which a process writes its id to join the group."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def cpu_seconds(self) -> float | None:
        """Return the processor time of all processes of the group; None if it is not counted."""
        if self.cpu is None:
            return None
        try:
            if self.version == 2:
                return _counter(self.cpu / "cpu.stat", "usage_usec") / 1e6
            return int((self.cpu / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
        except (OSError, ValueError):
            return None

    def set_niceness(self, niceness: int) -> None:
        """Give the whole group the weight of one process of this niceness. Raises OSError."""
        if self.weight is None:
            return
        _write(self.weight / "cpu.idle", int(niceness == IDLE), missing_ok=True)  # Linux 5.15
        if niceness == IDLE and (self.weight / "cpu.idle").exists():
            return  # its weight is fixed
        if self.version == 2:
            _write(self.weight / "cpu.weight", max(1, round(_WEIGHT * weight(niceness))))
        else:
            _write(self.weight / "cpu.shares", max(_LEAST_SHARES, round(_SHARES * weight(niceness))))

    def ran_out_of_memory(self) -> bool:
        return _counter(self.memory / ("memory.events" if self.version == 2 else "memory.oom_control"), "oom_kill") > 0

    def ran_out_of_processes(self) -> bool:
        return self.pids is not None and _counter(self.pids / "pids.events", "max") > 0


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The folders in which control groups can be created, as in ControlGroup."""

    version: int
    memory: Path
    pids: Path | None
    cpu: Path | None = None
    weight: Path | None = None

    def create(self, limits: SandboxLimits, own_processes: int) -> ControlGroup:
        """Create a group with a job's limits and `own_processes` more processes for the sandbox. Raises OSError."""
        name = f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        pids, cpu, weight = (folder / name if folder else None for folder in (self.pids, self.cpu, self.weight))
        group = ControlGroup(self.version, self.memory / name, pids, cpu, weight)
        try:
            _limit(group, limits.memory, limits.processes + own_processes)
        except OSError:
            remove_quietly(group)
            raise
        return group

    def sweep(self) -> None:
        """Remove the groups of owners that were killed, and kill the processes in them."""
        for parent in filter(None, (self.memory, self.pids, self.cpu, self.weight)):
            for folder in parent.glob(f"{_PREFIX}*-*"):
                owner = folder.name.removeprefix(_PREFIX).split("-")[0]
                if owner.isdigit() and not Path("/proc", owner).exists():
                    _kill_members(folder)
                    remove_quietly(ControlGroup(self.version, folder, None))


def find_control_groups(own: Path = _OWN, mounts: Path = _MOUNTS) -> ControlGroups | None:
    """Return where groups that limit memory can be created, or None. Creating one may still fail."""
    try:
        paths = dict(_own_paths(own.read_text(encoding="utf-8")))
        roots = dict(_hierarchies(mounts.read_text(encoding="utf-8")))
    except OSError:
        return None  # the kernel was built without control groups
    if "memory" in roots:
        memory = _version_1(roots, paths, "memory")
        pids, cpu, weight = (_version_1(roots, paths, controller) for controller in ("pids", "cpuacct", "cpu"))
        return ControlGroups(1, memory, pids, cpu, weight) if memory else None
    return _version_2(roots[""], paths.get("", "/")) if "" in roots else None


def remove_quietly(group: ControlGroup) -> None:
    """Remove the group's folders if they are empty. Raises nothing."""
    for folder in group.folders:
        if folder.exists():
            try:
                folder.rmdir()
            except OSError:
                continue  # still in use, or already removed: the next start sweeps again


def _kill_members(folder: Path) -> None:
    try:
        members = [int(pid) for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return  # another process has removed it
    for pid in filter(None, members):  # 0: a process outside our namespace; kill would take it for us
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _own_paths(text: str) -> Iterator[tuple[str, str]]:
    # (controller, our own group's path) from /proc/self/cgroup; in version 2 the controller is "".
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _hierarchies(text: str) -> Iterator[tuple[str, Path]]:
    # (controller, mount point) from /proc/self/mounts; in version 2 the controller is "".
    for line in text.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            yield "", Path(place)
        elif kind == "cgroup":
            for option in options.split(","):
                yield option, Path(place)


def _version_1(roots: dict[str, Path], paths: dict[str, str], controller: str) -> Path | None:
    # Our own group's folder if it is writable, else the hierarchy's root, else None.
    root = roots.get(controller)
    if root is None:
        return None
    places = (root / paths.get(controller, "/").lstrip("/"), root)
    return next((place for place in places if os.access(place, os.W_OK)), None)


def _version_2(root: Path, own: str) -> ControlGroups | None:
    # The nearest folder upwards that can limit its children.
    place = root / own.lstrip("/")
    for folder in (place, *place.parents):
        if not folder.is_relative_to(root):
            return None
        try:
            enabled = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
        except OSError:
            continue
        if "memory" in enabled and all(os.access(path, os.W_OK) for path in (folder, folder / "cgroup.procs")):
            pids, weight = (folder if controller in enabled else None for controller in ("pids", "cpu"))
            return ControlGroups(2, folder, pids, folder, weight)
    return None


def _limit(group: ControlGroup, memory: int, processes: int) -> None:
    group.memory.mkdir()
    if group.version == 2:
        _write(group.memory / "memory.max", memory)
        _write(group.memory / "memory.swap.max", 0, missing_ok=True)
    else:
        _write(group.memory / "memory.limit_in_bytes", memory)
        _write(group.memory / "memory.memsw.limit_in_bytes", memory, missing_ok=True)
    if group.pids is not None:
        group.pids.mkdir(exist_ok=group.pids == group.memory)
        _write(group.pids / "pids.max", processes)
    if group.cpu is not None:
        group.cpu.mkdir(exist_ok=group.cpu in (group.memory, group.pids))
    if group.weight is not None:
        group.weight.mkdir(exist_ok=group.weight in (group.memory, group.pids, group.cpu))


def _write(file: Path, value: int, *, missing_ok: bool = False) -> None:
    if missing_ok and not file.exists():
        return
    file.write_text(str(value), encoding="ascii")


def _counter(file: Path, name: str) -> int:
    # The number after `name` in a file of lines `name number`; 0 if there is none.
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)
