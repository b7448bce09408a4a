"""Run what a model wrote where it can do no harm: `await Sandbox.probe()`, then `run(job)` or `open(job)`."""

from orchestrator.sandbox.contract import MIB, Job, LimitName, Limits, Outcome
from orchestrator.sandbox.errors import ChannelBroken, InvalidJob, ProgramMissing, SandboxError, SandboxUnavailable
from orchestrator.sandbox.sandbox import Sandbox
from orchestrator.sandbox.session import CHANNEL, MESSAGE_LIMIT, Session

__all__ = [
    "CHANNEL",
    "MESSAGE_LIMIT",
    "MIB",
    "ChannelBroken",
    "InvalidJob",
    "Job",
    "LimitName",
    "Limits",
    "Outcome",
    "ProgramMissing",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Session",
]
