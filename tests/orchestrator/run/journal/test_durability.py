"""What was acknowledged is there after a kill, and after a full disk nothing follows what is missing."""

import subprocess
import sys
from pathlib import Path

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import Event, StepExpanded, StepGathered

APPEND_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from orchestrator.task.events import RunAccepted, StepExpanded, StepGathered
from orchestrator.run.journal.journal import Journal

async def write(journal, run):
    await journal.append(run, [RunAccepted(at=0.0, run=run, mode="serial", request=run)])
    for number in range(1_000_000):
        digest = await asyncio.to_thread(journal.put, f"{run} {number}".encode())
        pair = [StepExpanded(at=1.0, step="S1", count=number), StepGathered(at=1.0, step="S1", outputs={"o": digest})]
        await journal.append(run, pair)
        print(run, number, flush=True)

async def main():
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(journal, f"R{number}"))

journal = Journal.open(Path(sys.argv[1]))
asyncio.run(main())
"""


def events_of(journal: Journal, run: str) -> list[Event]:
    return [event for _, event in journal.events(run)]


def test_everything_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    for lines in (1, 150):
        with subprocess.Popen(
            [sys.executable, "-c", APPEND_UNTIL_KILLED, tmp_path / str(lines)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(lines)]
            child.kill()
            said += [line for line in child.stdout if line.endswith("\n")]
        acknowledged = {run: int(number) for run, number in (line.split() for line in said)}
        with Journal.open(tmp_path / str(lines)) as journal:
            for run, last in acknowledged.items():
                _, *pairs = events_of(journal, run)
                assert [event.count for event in pairs[::2] if isinstance(event, StepExpanded)] == [
                    *range(len(pairs) // 2)
                ]
                assert len(pairs) % 2 == 0  # a group of events is there as a whole or not at all
                assert len(pairs) // 2 > last
                for number, event in enumerate(pairs[1::2]):
                    assert isinstance(event, StepGathered)
                    assert journal.get(event.outputs["o"]) == f"{run} {number}".encode()
            assert journal.damage() == []


FILL_THE_DISK = """
import asyncio, resource, sys
from pathlib import Path
from orchestrator.task.events import RunAccepted, StepExpanded
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal

async def main():
    with Journal.open(Path(sys.argv[1])) as journal:
        await journal.append("R", [RunAccepted(at=0.0, run="R", mode="serial", request="fill")])
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        number = 0
        try:
            while True:
                await journal.append("R", [StepExpanded(at=1.0, step="S" * 1000, count=number)])
                number += 1
        except JournalError as error:
            print(number, type(error).__name__)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        try:
            await journal.append("R", [StepExpanded(at=1.0, step="S", count=-1)])
        except JournalError as error:
            print("still", type(error).__name__)

asyncio.run(main())
"""


def test_after_a_full_disk_no_later_event_is_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILL_THE_DISK, tmp_path], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    written = int(first.split()[0])
    assert second.startswith("still ")
    with Journal.open(tmp_path) as journal:
        counts = [event.count for event in events_of(journal, "R") if isinstance(event, StepExpanded)]
    assert counts == list(range(written))
    assert written > 3
