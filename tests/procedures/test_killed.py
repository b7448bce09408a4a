"""Processes that execute procedures are killed, once and twice, and nothing half-changed is left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory: what is killed is a process, not the machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one, so that each of the many syncs is quick."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="procedures-", dir=where) as name:
        yield Path(name) / "kills"


def kill(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.procedures.kill_points", str(folder), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("arguments", [("--fail",), pytest.param(("--resume",), marks=pytest.mark.slow)])
def test_a_few_kills_leave_nothing_half_changed(folder: Path, arguments: tuple[str, ...]) -> None:
    found = kill(folder, "--step", "17", "--twice", "6", *arguments)
    assert found["kills"] >= 5
    assert found["second_kills"] >= 1


def test_kills_at_random_moments_leave_nothing_half_changed(folder: Path) -> None:
    assert kill(folder, "--random", "6", "--fail")["random"]["kills"] >= 1


@pytest.mark.crash
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("arguments", [(), ("--fail",), ("--resume",), ("--fail", "--resume")])
def test_a_kill_at_every_write_leaves_nothing_half_changed(folder: Path, arguments: tuple[str, ...]) -> None:
    assert kill(folder, "--step", "1", "--twice", "25", *arguments)["kills"] >= 100


@pytest.mark.crash
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("arguments", [("--fail",), ("--resume",)])
def test_200_random_kills_leave_nothing_half_changed(folder: Path, arguments: tuple[str, ...]) -> None:
    found = kill(folder, "--random", "200", "--seed", "7", *arguments)["random"]
    assert found["kills"] >= 100
