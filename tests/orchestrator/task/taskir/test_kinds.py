from typing import get_args

from orchestrator.run.attempt_context import RUNNERS
from orchestrator.task.taskir.models import KINDS, StepKind


def test_every_kind_has_a_row_and_a_runner() -> None:
    assert get_args(StepKind) == tuple(KINDS) == tuple(RUNNERS)
