import os
from pathlib import Path

import psutil

from orchestrator.pool.machine import memory_budget, physical_cores


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    for cpu in allowed:
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text("all one core\n")
    assert physical_cores(tmp_path) == 1
    for cpu in allowed:
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{cpu}\n")
    assert physical_cores(tmp_path) == len(allowed)


def test_without_a_topology_the_affinity_bounds_the_count(tmp_path: Path) -> None:
    assert 1 <= physical_cores(tmp_path) <= len(os.sched_getaffinity(0))
    assert 1 <= physical_cores() <= len(os.sched_getaffinity(0))


def test_a_cgroup_bounds_the_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert memory_budget(tmp_path) == 540_000
    (tmp_path / "memory.max").write_text("max\n")
    assert 0 < memory_budget(tmp_path) <= psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("300000\n")
    assert memory_budget(tmp_path) == 0
