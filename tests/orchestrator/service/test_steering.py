"""Which steps of a run may be tried again or put first, and which go first with one."""

import pytest

from orchestrator.errors import InputError
from orchestrator.run.record.view import RunView
from orchestrator.service.errors import Conflict
from orchestrator.service.steering import check_restart, steps_put_first
from orchestrator.task.events import AttemptStarted, RunFinished
from tests.orchestrator.service.test_cancelling import done, planned, step

CHAIN = planned(step("S1"), step("S2", "oS1"), step("S3"), step("S4", "oS2", "oS3"))
STARTED = AttemptStarted(at=2.0, step="S3", number=1, role="worker", persona=None, model="m", reason="r")


def test_what_a_step_waits_for_goes_first_with_it_unless_it_has_ended() -> None:
    assert steps_put_first(RunView.of(CHAIN), "S4") == ["S4", "S2", "S3", "S1"]
    assert steps_put_first(RunView.of([*CHAIN, *done("S1")]), "S4") == ["S4", "S2", "S3"]


def test_what_has_ended_goes_nowhere() -> None:
    with pytest.raises(Conflict, match="S1 of run R has ended: done"):
        steps_put_first(RunView.of([*CHAIN, *done("S1")]), "S1")
    with pytest.raises(Conflict, match="S4 of run R has ended: cancelled"):
        steps_put_first(RunView.of([*CHAIN, RunFinished(at=3.0, status="cancelled")]), "S4")
    with pytest.raises(InputError, match="no step 'S9'"):
        steps_put_first(RunView.of(CHAIN), "S9")


def test_only_a_step_whose_attempt_runs_is_tried_again() -> None:
    view = RunView.of([*CHAIN, *done("S1"), STARTED])
    check_restart(view, "S3")
    for name, state in (("S1", "done"), ("S2", "running"), ("S4", "waiting")):
        with pytest.raises(Conflict, match=f"{name} of run R is {state}, and no attempt of it runs"):
            check_restart(view, name)
    with pytest.raises(InputError, match="no step 'S9'"):
        check_restart(view, "S9")
