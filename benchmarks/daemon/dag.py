"""Run one task of many steps."""

import time
from pathlib import Path
from typing import Final

from benchmarks.daemon.bodies import layered
from benchmarks.daemon.figures import PartResult
from benchmarks.daemon.process import running_daemon, submit, wait_ended
from orchestrator.bench.goals import exactly
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import AttemptGenerated, AttemptSucceeded

WIDTH: Final = 100


async def measure(folder: Path, steps: int) -> PartResult:
    """Run layers of WIDTH steps, each of which reads the outputs of two steps in the layer before."""
    with running_daemon(folder / "home") as daemon:
        async with daemon.client() as client:
            begun = time.perf_counter()
            run = await submit(client, layered(steps, WIDTH))
            accepted = time.perf_counter()
            await wait_ended(client, run)
            done = time.perf_counter()
            answer = await client.get(f"/v1/runs/{run}")
            fetched = time.perf_counter()
            resident = daemon.resident_bytes
    with JournalReader.open_to_read(folder / "home") as journal:
        events = [event for _, event in journal.events(run)]
    usages = [event.usage for event in events if isinstance(event, AttemptGenerated)]
    succeeded = len({event.step for event in events if isinstance(event, AttemptSucceeded)})
    figures = {
        "steps": steps,
        "width": WIDTH,
        "accept_seconds": round(accepted - begun, 3),
        "run_seconds": round(done - accepted, 3),
        "steps_per_second": round(steps / (done - accepted), 1),
        "decode_seconds_of_all_steps": round(sum(usage.decode_seconds for usage in usages), 1),
        "report_seconds": round(fetched - done, 3),
        "report_status": answer.json()["status"],
        "daemon_resident_mib": round(resident / (1 << 20), 1),
    }
    return PartResult(figures, [exactly(f"steps of a DAG of {steps} that are done", succeeded, steps)])
