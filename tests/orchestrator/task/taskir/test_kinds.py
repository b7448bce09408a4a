from typing import get_args

from orchestrator.task.taskir.kinds import KINDS, StepKind


def test_every_kind_has_a_row() -> None:
    assert get_args(StepKind) == tuple(KINDS)
