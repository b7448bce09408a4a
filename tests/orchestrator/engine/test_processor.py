import os
import platform
from pathlib import Path

import pytest

from orchestrator.engine.processor import cpu_model, cpu_quota, usable_cores, usable_cpus


def test_the_processor_is_named(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast 9000: turbo\nmodel name\t: other\n")
    assert cpu_model(info) == "Fast 9000: turbo"
    assert cpu_model(tmp_path / "absent")


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: EPYC\n\ncpu family\t: 9\n", "EPYC (family 25, model 1)"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", f"{platform.machine()} (implementer 0x41, part 0xd0c)"),
    ],
)
def test_a_processor_is_known_by_more_than_its_name(tmp_path: Path, told: str, named: str) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(told)
    assert cpu_model(info) == named


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000", "cpu.max": "800000 100000"}, 2.0),
        ("0::/seen/outside", {"cpu.max": "50000 100000"}, 0.5),
        ("4:cpu,cpuacct:/box", {"cpu,cpuacct/box/cpu.cfs_quota_us": "300000"}, 3.0),
        ("4:cpu:/docker/1", {"cpu/cpu.cfs_quota_us": "300000"}, 3.0),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1"}, None),
        ("5:cpuset:/", {"cpuset/cpu.max": "100000 100000"}, None),
        ("4:memory:/\n0::/../..", {"cpu.max": "100000 100000"}, 1.0),
    ],
)
def test_the_quota_of_control_groups_is_read(
    tmp_path: Path, own: str, files: dict[str, str], quota: float | None
) -> None:
    groups, listed = tmp_path / "groups", tmp_path / "own"
    listed.write_text(f"{own}\n")
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(f"{text}\n")
        if name.endswith("quota_us"):
            (groups / name).with_name("cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(groups, listed) == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "absent") is None


def test_a_process_may_keep_busy_what_it_is_allowed_to_use() -> None:
    assert 1 <= usable_cores() <= usable_cpus() <= len(os.sched_getaffinity(0))
