"""Decide what a run does next: `RunState.handle(*events) -> commands`, pure, without I/O or a clock."""

from orchestrator.scheduler.commands import (
    AnswerDirectly,
    CancelAttempt,
    CheckAnswer,
    CheckOutputs,
    Command,
    ExpandStep,
    ExtendPlan,
    FinishRun,
    GatherStep,
    StartAttempt,
)
from orchestrator.scheduler.run import RunState
from orchestrator.scheduler.states import FINAL, TRANSITIONS, IllegalTransition, State
from orchestrator.scheduler.step import Cause, StepView

__all__ = [
    "FINAL",
    "TRANSITIONS",
    "AnswerDirectly",
    "CancelAttempt",
    "Cause",
    "CheckAnswer",
    "CheckOutputs",
    "Command",
    "ExpandStep",
    "ExtendPlan",
    "FinishRun",
    "GatherStep",
    "IllegalTransition",
    "RunState",
    "StartAttempt",
    "State",
    "StepView",
]
