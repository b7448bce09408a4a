import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.sandbox.contract import SandboxLimits
from orchestrator.run.sandbox.control_group import ControlGroup, ControlGroups, find_control_groups
from orchestrator.run.sandbox.niceness import IDLE
from orchestrator.run.sandbox.sandbox import Sandbox


def _find(tmp_path: Path, own: str, mounts: str) -> ControlGroups | None:
    (tmp_path / "own").write_text(own)
    (tmp_path / "mounts").write_text(mounts)
    return find_control_groups(tmp_path / "own", tmp_path / "mounts")


def test_version_1_is_found_at_our_own_place(tmp_path: Path) -> None:
    memory, pids, cpu = tmp_path / "memory", tmp_path / "pids", tmp_path / "cpu"
    (memory / "user" / "me").mkdir(parents=True)
    pids.mkdir()
    cpu.mkdir()
    own = "5:pids:/gone\n4:memory:/user/me\n3:cpu,cpuacct:/\n0::/\n"
    mounts = f"cgroup {memory} cgroup rw,memory 0 0\ncgroup {pids} cgroup rw,pids 0 0\ntmpfs / tmpfs rw 0 0\n"
    assert _find(tmp_path, own, mounts) == ControlGroups(1, memory / "user" / "me", pids)
    counted = f"{mounts}cgroup {cpu} cgroup rw,cpu,cpuacct 0 0\n"
    assert _find(tmp_path, own, counted) == ControlGroups(1, memory / "user" / "me", pids, cpu, cpu)


def test_version_2_is_found_above_us_where_children_get_a_memory_limit(tmp_path: Path) -> None:
    root = tmp_path / "unified"
    own = root / "app.slice" / "terminal.scope"
    own.mkdir(parents=True)
    for folder, given in ((root, "cpu"), (own.parent, "memory pids"), (own, "")):
        (folder / "cgroup.subtree_control").write_text(given)
        (folder / "cgroup.procs").touch()
    mounts = f"cgroup2 {root} cgroup2 rw,nsdelegate 0 0\n"
    found = _find(tmp_path, "0::/app.slice/terminal.scope\n", mounts)
    assert found == ControlGroups(2, own.parent, own.parent, own.parent)
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids")
    found = _find(tmp_path, "0::/app.slice/terminal.scope\n", mounts)
    assert found == ControlGroups(2, own.parent, own.parent, own.parent, own.parent)
    (own.parent / "cgroup.subtree_control").write_text("pids")
    assert _find(tmp_path, "0::/app.slice/terminal.scope\n", mounts) is None


def test_no_group_is_found_where_there_is_none(tmp_path: Path) -> None:
    assert find_control_groups(tmp_path / "missing", tmp_path / "missing") is None
    assert _find(tmp_path, "0::/\n", "proc /proc proc rw 0 0\n") is None


def test_version_2_is_limited_by_its_own_files(tmp_path: Path) -> None:
    groups = ControlGroups(2, tmp_path, tmp_path)
    group = groups.create(SandboxLimits(memory=1 << 20, processes=5), 2)
    assert (group.memory / "memory.max").read_text() == str(1 << 20)
    assert (group.memory / "pids.max").read_text() == "7"
    assert group.join_files() == [str(group.memory / "cgroup.procs")]
    assert not group.ran_out_of_memory()
    assert group.cpu_seconds() is None
    counting = replace(group, cpu=group.memory)
    (group.memory / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\n")
    assert counting.cpu_seconds() == 1.5
    (group.memory / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    (group.memory / "pids.events").write_text("max 3\n")
    assert group.ran_out_of_memory()
    assert group.ran_out_of_processes()


def test_controllers_in_one_folder_make_one_group(tmp_path: Path) -> None:
    group = ControlGroups(1, tmp_path, tmp_path).create(SandboxLimits(memory=1 << 20, processes=5), 2)
    assert (group.memory / "memory.limit_in_bytes").read_text() == str(1 << 20)
    assert (group.memory / "pids.max").read_text() == "7"
    assert group.join_files() == [str(group.memory / "cgroup.procs")]


def test_version_1_counts_processor_time_in_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        (tmp_path / name).mkdir()
    group = ControlGroups(1, *(tmp_path / name for name in ("memory", "pids", "cpu"))).create(SandboxLimits(), 2)
    assert group.cpu is not None
    assert group.join_files()[-1] == str(group.cpu / "cgroup.procs")
    assert group.cpu_seconds() is None, "nothing counts here"
    (group.cpu / "cpuacct.usage").write_text("2500000000\n")
    assert group.cpu_seconds() == 2.5


@pytest.mark.parametrize(
    ("version", "file", "weights"), [(1, "cpu.shares", ("1024", "110", "15")), (2, "cpu.weight", ("100", "11", "1"))]
)
def test_a_group_weighs_as_much_as_one_process(
    version: int, file: str, weights: tuple[str, ...], tmp_path: Path
) -> None:
    group = ControlGroup(version, tmp_path, None, None, tmp_path)
    for niceness, weight in zip((0, 10, 19), weights, strict=True):
        group.set_niceness(niceness)
        assert (tmp_path / file).read_text() == weight
    (tmp_path / "cpu.idle").write_text("0")
    group.set_niceness(IDLE)
    assert (tmp_path / "cpu.idle").read_text() == "1"
    group.set_niceness(0)
    assert [(tmp_path / name).read_text() for name in ("cpu.idle", file)] == ["0", weights[0]]


def test_sweeping_spares_what_is_not_in_our_namespace(tmp_path: Path) -> None:
    free = next(pid for pid in range(4_000_000, 4_100_000) if not Path("/proc", str(pid)).exists())
    left = tmp_path / f"orchestrator-{free}-1"
    left.mkdir()
    with subprocess.Popen(["sleep", "60"]) as member:
        (left / "cgroup.procs").write_text(f"0\n{member.pid}\n")
        ControlGroups(2, tmp_path, None).sweep()
        assert member.wait() == -signal.SIGKILL  # and we, whom the 0 would have meant, are still here
    (left / "cgroup.procs").unlink()
    ControlGroups(2, tmp_path, None).sweep()
    assert not left.exists()


def test_groups_of_owners_that_were_killed_are_swept(sandbox: Sandbox) -> None:
    groups = sandbox.groups
    if groups is None:
        pytest.skip("no control group can be created here")
    free = next(pid for pid in range(4_000_000, 4_100_000) if not Path("/proc", str(pid)).exists())
    left, held = groups.memory / f"orchestrator-{free}-1", groups.memory / f"orchestrator-{os.getpid()}-x"
    left.mkdir()
    held.mkdir()
    groups.sweep()
    assert not left.exists()
    held.rmdir()
