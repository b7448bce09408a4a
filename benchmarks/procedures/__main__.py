"""Measure procedures: `python -m benchmarks.procedures [--only PART] [--kills N] [--entries N] [--gib N] [--again]`.

Part `actions`: the time of one action of the engine (a small file that is written), on the disk and where syncs cost
nothing. Part `kills`: processes killed at random moments, after each of which everything is as before or as after.
Part `rollback`: a large file that a step removed is put back (`--gib`). Part `audit`: the whole log is checked.

What was measured is kept, part by part, and of the kills a hundred at a time. So the same command continues where it
was stopped. When nothing is missing, the results are written, and the next command measures all of it again.
"""

import argparse
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from orchestrator.bench import environment
from orchestrator.bench.goals import Goal, at_most, exactly
from orchestrator.procedures.audit import HEAD_FILE, START, Audit, AuditHead, body_of, hash_of
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.library import Library
from orchestrator.procedures.ports import ProcedurePorts
from orchestrator.service.callers import Caller

RESULT: Final = results.FOLDER / "procedures.json"
ROOT: Final = results.FOLDER.parents[1]
CALLER: Final = Caller("the benchmark", frozenset({"owner"}), person=True)
PARTS: Final = ("actions", "rollback", "audit", "kills")
KEPT: Final = ROOT / "build" / "bench" / "procedures"
ACTIONS: Final = 200
KILLS_AT_ONCE: Final = 100
say = partial(print, flush=True)
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


def main() -> int:
    """Measure what is missing, and write the results. Return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.procedures", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be given several times")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2, help="how many processes kill at a time")
    parser.add_argument("--again", action="store_true", help="forget what was measured by a command that was stopped")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where what was measured is kept until all is")
    parser.add_argument("--write", type=Path, default=RESULT)
    options = parser.parse_args()
    store = Kept(options.kept, {"kills": options.kills, "entries": options.entries, "gib": options.gib})
    if options.again:
        store.forget()
    wanted = tuple(options.only or PARTS)
    for part in wanted:
        if store.has(part):
            say(f"{part}: was measured already")
            continue
        begun = time.perf_counter()
        row, goal = _measured(part, options, store)
        seconds = round(time.perf_counter() - begun, 1)
        store.keep(part, {"row": {**row, "measuring_seconds": seconds}, "goal": None if goal is None else asdict(goal)})
        say(f"{part}: {json.dumps(row)}, in {seconds:g} s")
    if missing := [part for part in PARTS if not store.has(part)]:
        say(f"not measured yet: {', '.join(missing)}; what was measured is kept in {options.kept}")
        return 0
    parts = [store.read(part) for part in PARTS]
    goals = [part["goal"] for part in parts if part["goal"] is not None]
    results.write(
        options.write,
        {
            "command": "make bench-procedures",
            "machine": environment.machine(),
            "versions": environment.versions("simpleeval"),
            "rows": [part["row"] for part in parts],
            "goals": goals,
        },
    )
    store.forget()
    for goal in goals:
        say(f"{'met   ' if goal['met'] else 'MISSED'} {goal['name']}: {goal['value']} (goal: {goal['goal']})")
    say(f"written to {options.write}")
    return 0 if all(goal["met"] for goal in goals) else 1


class Kept:
    """What was measured by commands that were stopped, or of single parts: a file for each."""

    def __init__(self, folder: Path, sizes: dict[str, float]) -> None:
        """`sizes` says how much is measured; what was measured with other sizes is not used."""
        self._folder = folder / "-".join(f"{name}{size:g}" for name, size in sizes.items())

    def has(self, name: str) -> bool:
        """Return whether there is something with this name."""
        return (self._folder / f"{name}.json").exists()

    def read(self, name: str) -> dict[str, Any]:
        """Return what was kept with this name."""
        document: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text())
        return document

    def keep(self, name: str, what: dict[str, Any]) -> None:
        """Keep something, as a whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._folder / f"{name}.new"
        fresh.write_text(json.dumps(what))
        fresh.replace(self._folder / f"{name}.json")

    def forget(self) -> None:
        """Remove everything that was measured with these sizes."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _measured(part: str, options: argparse.Namespace, store: Kept) -> tuple[dict[str, Any], Goal | None]:
    if part == "kills":
        return measure_kills(options.kills, options.workers, store)
    KEPT.mkdir(parents=True, exist_ok=True)  # on a disk, unlike most folders for temporary files
    with tempfile.TemporaryDirectory(prefix="measuring-", dir=KEPT) as name:
        folder = Path(name) / part
        match part:
            case "actions":
                return measure_actions(folder)
            case "rollback":
                return measure_rollback(folder, int(options.gib * (1 << 30))), None
            case _:
                return measure_audit(folder, options.entries)


def measure_actions(folder: Path) -> tuple[dict[str, Any], Goal]:
    """Return the milliseconds of an action on the disk, and without its syncs.

    Without syncs means: with everything on a file system in memory, where syncs cost nothing. This leaves out those of
    SQLite too, which this process cannot time.
    """
    on_disk, _ = act(folder)
    with tempfile.TemporaryDirectory(prefix="procedures-", dir="/dev/shm") as name:
        without_syncs, cpu = act(Path(name) / "actions")
    row = {
        "part": "actions",
        "actions": ACTIONS,
        "ms_per_action": round(on_disk, 3),
        "ms_beside_syncs": round(without_syncs, 3),
        "cpu_ms_per_action": round(cpu, 3),
    }
    return row, at_most("milliseconds per action besides its syncs", without_syncs, 5)


def act(folder: Path) -> tuple[float, float]:
    """Return the milliseconds, and those of the CPU, of an action that writes a small file, as one of many."""
    steps = (
        f'  - id: s{number}\n    file_write: {{path: "{{{{ inputs.folder }}}}/file{number}", content: x}}\n'
        for number in range(ACTIONS)
    )
    target = folder / "target"
    target.mkdir(parents=True)
    engine = make_engine(folder, WRITES + "".join(steps))
    identity = engine.submit(engine.plan("writes", {"folder": str(target)}, CALLER), CALLER)
    cpu, begun = time.process_time(), time.perf_counter()
    execution = engine.execute(identity, CALLER)
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert execution.state == "done", execution.error
    engine.close()
    return wall / ACTIONS * 1000, cpu / ACTIONS * 1000


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
    """Return the seconds to check a log with `entries` entries, which are written without the engine."""
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
    (folder / HEAD_FILE).write_text(f"{AuditHead(entries, last)}\n")
    assert last != START
    seconds = timed(audit.verify)
    return {"part": "audit", "entries": entries, "seconds": round(seconds, 3)}, at_most(
        "seconds to check the log", seconds, 30
    )


def measure_kills(count: int, workers: int, store: Kept) -> tuple[dict[str, Any], Goal]:
    """Kill processes at random moments, half of them while all is rolled back, and return how many were killed.

    Every `KILLS_AT_ONCE` kills are done by a process of its own, with a seed of its own, and what they have found is
    kept. One that finds something half-changed ends with an error, whose story is printed and counted.
    """
    totals = {"kills": 0, "second_kills": 0, "half_changed": 0}
    rounds = itertools.count(1)
    with ThreadPoolExecutor(workers) as pool:
        while totals["kills"] + totals["second_kills"] < count:
            seeds = [next(rounds) for _ in range(workers)]
            for counts in pool.map(lambda seed: _killed(seed, min(KILLS_AT_ONCE, count), store), seeds):
                for name, value in counts.items():
                    totals[name] += value
            say(f"kills: {totals['kills'] + totals['second_kills']} of {count}")
            if totals["half_changed"]:
                break
    row = {"part": "kills", **totals}
    return row, exactly("half-changed after a kill", totals["half_changed"], 0)


def _killed(seed: int, count: int, store: Kept) -> dict[str, int]:
    """Return what some kills have found, from what was kept if they were done before."""
    name, way = f"kills-{seed}", ("--fail", "--resume")[seed % 2]
    if store.has(name):
        return store.read(name)
    with tempfile.TemporaryDirectory(prefix="procedures-", dir="/dev/shm") as folder:
        command = [sys.executable, "-m", "tests.procedures.kill_points", f"{folder}/kills"]
        options = ["--random", str(count), "--seed", str(seed), way]
        ended = subprocess.run(  # noqa: S603 - our own program
            [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
        return {"half_changed": 1}
    counts: dict[str, int] = json.loads(ended.stdout)["random"]
    store.keep(name, counts)
    return counts


def make_engine(folder: Path, text: str) -> ProcedureEngine:
    """Return an engine with one procedure."""
    library = folder / "library"
    library.mkdir(parents=True, exist_ok=True)
    name = text.split("\n", 1)[0].removeprefix("id: ")
    (library / f"{name}.yaml").write_text(text)
    return ProcedureEngine(folder / "home", ProcedurePorts(registry=folder / "registry.yaml"), Library([library]))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
