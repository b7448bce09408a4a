"""Set the system clock back and forth under a daemon: times in the journal rise all the same, durations stay true."""

import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import load_report
from tests.crash.crash_daemon import Place, running, submit, wait_ended
from tests.crash.crash_runs import DIAMOND, FAN, Outcome, outcome_of, reruns_in

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

DAY = 86_400.0


def test_clock_that_jumps(place: Place, reference: Mapping[str, Outcome], figures: Callable[[str], None]) -> None:
    began, runs = time.monotonic(), dict[str, str]()
    for start, jumps in ((0.0, (-DAY, DAY)), (-DAY, (DAY,)), (-2 * DAY, ())):
        place.set_clock(start)
        with running(place) as daemon, daemon.client() as client:
            for number, jump in enumerate((start, *jumps)):
                runs[submit(client, FAN, f"fan {start} {number}")] = "fan"
                place.set_clock(jump)
                runs[submit(client, DIAMOND, f"diamond {start} {number}")] = "diamond"
            for run in runs:
                wait_ended(client, run)
    elapsed = time.monotonic() - began
    with JournalReader.open_to_read(place.home) as journal:
        for run, kind in runs.items():
            assert reruns_in(journal, run) == 0
            assert outcome_of(journal, run) == reference[kind]
            assert 0.0 < load_report(journal, run).wall_seconds < elapsed
        accepted = [journal.run(run).accepted for run in runs]
        assert all(earlier < later for earlier, later in pairwise(accepted)), "runs are listed in another order"
        assert [row.run for row in journal.runs()] == list(reversed(runs))
        assert accepted[-1] - accepted[0] < elapsed, "a jump has come into the journal"
    figures(f"jumps 5, starts 3, runs {len(runs)}, times out of order 0")
