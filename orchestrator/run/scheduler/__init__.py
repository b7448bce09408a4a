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
from orchestrator.run.scheduler.run import RunState, fresh_state
from orchestrator.run.scheduler.step import StepView
from orchestrator.task.states import FINAL, TRANSITIONS, Cause, IllegalTransition, State

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
    "fresh_state",
]
