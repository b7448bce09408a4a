"""Start a daemon where there is one: it is told who is there, and goes."""

from collections.abc import Callable, Mapping

import pytest

from orchestrator.run.journal.reader import JournalReader
from tests.crash.crash_daemon import Daemon, Place, running, submit, wait_ended
from tests.crash.crash_runs import FAN, Outcome, outcome_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]


def test_second_daemon_on_one_state_folder(
    place: Place, reference: Mapping[str, Outcome], figures: Callable[[str], None]
) -> None:
    with running(place) as first, first.client() as client:
        run = submit(client, FAN, "before")
        second = Daemon(place)
        assert second.gone() == 1
        wait_ended(client, run)
    assert f"process {first.process.pid} owns this state folder" in second.said
    with JournalReader.open_to_read(place.home) as journal:
        assert outcome_of(journal, run) == reference["fan"]
    figures(f"exit status 1: {second.said.splitlines()[-1]}")
