"""Decide what a run does next: `RunState.handle(*events) -> commands`, pure, without I/O or a clock."""

from orchestrator.run.scheduler.commands import (
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
from orchestrator.run.scheduler.run import RunState
from orchestrator.run.scheduler.states import FINAL, TRANSITIONS, IllegalTransition, State
from orchestrator.run.scheduler.step import Cause, StepView

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
