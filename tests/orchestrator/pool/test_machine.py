import os
from pathlib import Path

import psutil
import pytest

from orchestrator.pool.machine import cpu_list, memory_budget, memory_limits, read_topology

ALLOWED = sorted(os.sched_getaffinity(0))


def _describe(system: Path, siblings: dict[int, str], nodes: dict[int, str]) -> None:
    """Write what Linux says of CPUs (their siblings) and of nodes (their CPUs; 1 GiB each)."""
    for cpu, listed in siblings.items():
        (system / f"cpu/cpu{cpu}/topology").mkdir(parents=True)
        (system / f"cpu/cpu{cpu}/topology/thread_siblings_list").write_text(f"{listed}\n")
    for node, cpus in nodes.items():
        (system / f"node/node{node}").mkdir(parents=True)
        (system / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
        (system / f"node/node{node}/meminfo").write_text(
            f"Node {node} MemTotal:        1048576 kB\nNode {node} MemFree: 1 kB\n"
        )


def _pretend_cpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))


def test_two_nodes_of_two_cores_of_two_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_cpus(monkeypatch, 8)
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    _describe(tmp_path, siblings, {0: "0-1,4-5", 1: "2-3,6-7"})
    topology = read_topology(tmp_path, 8)
    assert [(node.id, node.cores, node.memory) for node in topology.nodes] == [
        (0, ((0, 4), (1, 5)), 1 << 30),
        (1, ((2, 6), (3, 7)), 1 << 30),
    ]
    assert (topology.cores, topology.cores_of(1), topology.cores_of(None)) == (4, 2, 4)
    assert topology.node(1).cpus == (2, 3, 6, 7)


def test_only_what_this_process_may_use_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _describe(tmp_path, {cpu: str(cpu) for cpu in range(6)}, {0: "0-1", 1: "2-3", 2: "4-5", 3: ""})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 5})
    nodes = read_topology(tmp_path, 8).nodes
    assert [(node.id, node.cores) for node in nodes] == [(0, ((1,),)), (2, ((4,), (5,)))]


def test_without_nodes_there_is_one_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_cpus(monkeypatch, 4)
    _describe(tmp_path, {cpu: str(cpu // 2) for cpu in range(4)}, {})
    (node,) = read_topology(tmp_path, 8).nodes
    assert (node.id, node.cores, node.memory) == (0, ((0, 1), (2, 3)), psutil.virtual_memory().total)


def test_nodes_that_leave_a_core_out_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_cpus(monkeypatch, 4)
    _describe(tmp_path, {cpu: str(cpu) for cpu in range(4)}, {0: "0", 1: "1-2"})
    (node,) = read_topology(tmp_path, 8).nodes
    assert len(node.cores) == 4


def test_without_anything_psutil_bounds_the_cores(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, 8)
    assert 1 <= topology.cores <= len(ALLOWED)
    assert topology.nodes[0].cpus == tuple(ALLOWED)
    assert 1 <= read_topology().cores <= len(ALLOWED)


def test_with_the_time_of_fewer_cores_there_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_cpus(monkeypatch, 8)
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    _describe(tmp_path, siblings, {0: "0-1,4-5", 1: "2-3,6-7"})
    assert [len(node.cores) for node in read_topology(tmp_path, 4).nodes] == [2, 2]
    (node,) = read_topology(tmp_path, 3).nodes
    assert (len(node.cores), node.memory) == (3, psutil.virtual_memory().total)


def test_lists_of_cpus() -> None:
    assert cpu_list("0-3,8\n") == {0, 1, 2, 3, 8}
    assert cpu_list("\n") == frozenset()
    with pytest.raises(ValueError, match="x"):
        cpu_list("x")


def _limit(group: Path, most: str, taken: int, cached: int = 0) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text(f"{taken}\n")
    (group / "memory.stat").write_text(f"anon 1\nactive_file {cached // 2}\ninactive_file {cached - cached // 2}\n")


def test_a_control_group_bounds_the_memory_and_cached_files_count_as_free(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n0::/\n")
    groups = tmp_path / "groups"
    _limit(groups, "1000000", 400_000)
    assert memory_budget(memory_limits(groups, own)) == 540_000
    _limit(groups, "1000000", 400_000, cached=300_000)
    assert memory_budget(memory_limits(groups, own)) == 810_000
    _limit(groups, "300000", 400_000)
    assert memory_budget(memory_limits(groups, own)) == 0
    _limit(groups, "max", 400_000)
    assert memory_limits(groups, own) == []
    assert 0 < memory_budget([]) <= psutil.virtual_memory().total
    assert memory_limits(groups, tmp_path / "no such file") == []


def test_groups_around_ones_own_bound_it_too(tmp_path: Path) -> None:
    own, groups = tmp_path / "own", tmp_path / "groups"
    own.write_text("0::/system.slice/orchestrator.service\n")
    _limit(groups / "system.slice", "500000", 100_000)
    _limit(groups / "system.slice" / "orchestrator.service", "900000", 100_000)
    _limit(tmp_path, "1", 1)  # not ours
    assert [limit.most for limit in memory_limits(groups, own)] == [900_000, 500_000]
    assert memory_budget(memory_limits(groups, own)) == 360_000
