"""Measure procedures: `python -m benchmarks.procedures [--kills N] [--entries N] [--gib N]`.

Part `actions`: the time of one action of the engine (a small file that is written) beside the syncs of the disk that it
waits for. Part `kills`: processes killed at random moments, after each of which everything is as before or as after.
Part `rollback`: a file of so many GiB that a step removed is put back. Part `audit`: the whole log is checked.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.goals import Goal, at_most, exactly
from procedures.audit import HEAD_FILE, START, Audit, Head, body_of, hash_of
from procedures.engine import Engine
from procedures.library import Library
from procedures.ports import Caller, Ports

RESULT: Final = results.FOLDER / "procedures.json"
ROOT: Final = results.FOLDER.parents[1]
CALLER: Final = Caller("the benchmark", frozenset({"owner"}), person=True)
ACTIONS: Final = 200
WRITES: Final = """\
id: writes
version: 1.0.0
category: benchmark
description: Writes a small file many times.
permissions: {roles: [owner], requires_approval: false}
inputs: {folder: {type: path, description: The folder.}}
steps:
"""
REMOVES: Final = """\
id: removes
version: 1.0.0
category: benchmark
description: Removes a large file, and fails afterwards if that is asked for.
permissions: {roles: [owner], requires_approval: false}
inputs: {file: {type: path, description: The file.}}
steps:
  - id: remove
    file_write: {path: "{{ inputs.file }}", remove: true}
"""


def main() -> None:
    """Measure every part, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--write", type=Path, default=RESULT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="procedures-", dir=ROOT) as name:
        folder = Path(name)
        actions, actions_goal = measure_actions(folder / "actions")
        rollback = measure_rollback(folder / "rollback", int(given.gib * (1 << 30)))
        audit, audit_goal = measure_audit(folder / "audit", given.entries)
    kills, kills_goal = measure_kills(given.kills)
    results.write(
        given.write,
        {
            "command": "make bench-procedures",
            "machine": results.machine(),
            "versions": results.versions("simpleeval"),
            "rows": [actions, rollback, audit, kills],
            "goals": [
                {"name": one.name, "value": one.value, "goal": one.goal, "met": one.met}
                for one in (actions_goal, audit_goal, kills_goal)
            ],
        },
    )
    print(given.write.read_text(), end="")


def measure_actions(folder: Path) -> tuple[dict[str, Any], Goal]:
    """Return the milliseconds of an action, of the syncs in it, and of the rest."""
    steps = (
        f'  - id: s{number}\n    file_write: {{path: "{{{{ inputs.folder }}}}/file{number}", content: x}}\n'
        for number in range(ACTIONS)
    )
    target = folder / "target"
    target.mkdir(parents=True)
    engine = make_engine(folder, WRITES + "".join(steps))
    identity = engine.submit(engine.plan("writes", {"folder": str(target)}, CALLER), CALLER)
    real, spent = os.fsync, [0.0]

    def counted(fd: Any) -> None:
        begun = time.perf_counter()
        real(fd)
        spent[0] += time.perf_counter() - begun

    os.fsync = counted
    cpu, begun = time.process_time(), time.perf_counter()
    try:
        execution = engine.execute(identity, CALLER)
    finally:
        os.fsync = real
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert execution.state == "done", execution.error
    commits = 3 * ACTIONS * commit_seconds(folder / "commits.db")
    beside = max(0.0, wall - spent[0] - commits) / ACTIONS * 1000
    engine.close()
    row = {
        "part": "actions",
        "actions": ACTIONS,
        "ms_per_action": round(wall / ACTIONS * 1000, 3),
        "ms_of_syncs": round((spent[0] + commits) / ACTIONS * 1000, 3),
        "ms_beside_syncs": round(beside, 3),
        "cpu_ms_per_action": round(cpu / ACTIONS * 1000, 3),
    }
    return row, at_most("milliseconds per action beside its syncs", beside, 5)


def commit_seconds(path: Path) -> float:
    """Return the median seconds of one small commit of SQLite as the audit log makes it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE t (a TEXT)")
        return statistics.median(timed(lambda: connection.execute("INSERT INTO t VALUES ('x')")) for _ in range(200))


def measure_rollback(folder: Path, size: int) -> dict[str, Any]:
    """Return the seconds to remove a large file, with its checkpoint, and to put it back."""
    folder.mkdir(parents=True)
    file = folder / "large"
    with file.open("wb") as target:
        for _ in range(size >> 20):
            target.write(os.urandom(1 << 20))
    inode = file.stat().st_ino
    engine = make_engine(folder, REMOVES)
    identity = engine.submit(engine.plan("removes", {"file": str(file)}, CALLER), CALLER)
    removed = timed(lambda: engine.execute(identity, CALLER))
    assert not file.exists()
    restored = timed(lambda: engine.rollback(identity, CALLER))
    status = file.stat()
    assert status.st_size == size
    engine.close()
    return {
        "part": "rollback",
        "bytes": size,
        "seconds_to_remove": round(removed, 4),
        "seconds_to_put_back": round(restored, 4),
        "copied": status.st_ino != inode,
    }


def measure_audit(folder: Path, entries: int) -> tuple[dict[str, Any], Goal]:
    """Return the seconds to check a log with so many entries, which is filled without the engine."""
    folder.mkdir(parents=True)
    audit = Audit(folder)
    audit.append("planned", "x", {})
    head = audit.head()
    audit.close()
    rows, last = [], head.hash
    for number in range(2, entries + 1):
        body = body_of(
            number, 1.8e9 + number, "step_done", f"e{number // 50}", {"step": "s", "outputs": {}, "after": {}}
        )
        last = hash_of(last, body)
        rows.append((number, body, last))
    with closing(sqlite3.connect(audit.path)) as connection:
        connection.executemany("INSERT INTO entries (number, body, hash) VALUES (?, ?, ?)", rows)
        connection.commit()
    (folder / HEAD_FILE).write_text(f"{Head(entries, last)}\n")
    assert last != START
    seconds = timed(audit.verify)
    return {"part": "audit", "entries": entries, "seconds": round(seconds, 3)}, at_most(
        "seconds to check the log", seconds, 30
    )


def measure_kills(count: int) -> tuple[dict[str, Any], Goal]:
    """Kill processes at random moments, half of them while all is rolled back, and return how many were killed."""
    killed = 0
    rounds = {"--fail": 0, "--resume": 0}
    while killed < count:
        for way in rounds:
            if killed >= count:
                break
            rounds[way] += 1
            with tempfile.TemporaryDirectory(prefix="procedures-", dir="/dev/shm") as name:
                command = [sys.executable, "-m", "tests.procedures.kill_points", f"{name}/kills"]
                options = ["--random", str(min(200, count)), "--seed", str(rounds[way]), way]
                ended = subprocess.run(  # noqa: S603 - our own program
                    [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False
                )
            if ended.returncode:
                print(ended.stderr, file=sys.stderr)
                return {"part": "kills", "kills": killed}, exactly("half-changed after a kill", 1, 0)
            told = json.loads(ended.stdout)["random"]
            killed += told["kills"] + told["second_kills"]
    return {"part": "kills", "kills": killed}, exactly("half-changed after a kill", 0, 0)


def make_engine(folder: Path, text: str) -> Engine:
    """Return an engine with one procedure."""
    library = folder / "library"
    library.mkdir(parents=True, exist_ok=True)
    name = text.split("\n", 1)[0].removeprefix("id: ")
    (library / f"{name}.yaml").write_text(text)
    return Engine(folder / "home", Ports(registry=folder / "registry.yaml"), Library([library]))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
