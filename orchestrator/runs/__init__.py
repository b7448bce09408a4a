"""The composition root and the main loop: accept jobs, run them, and publish what happens to them."""

from orchestrator.planning import PlannedTask
from orchestrator.runs.job import Job, capabilities, known_rates, list_files
from orchestrator.runs.orchestrator import Orchestrator, Ports
from orchestrator.runs.updates import EventUpdate, Progress, Update

__all__ = [
    "EventUpdate",
    "Job",
    "Orchestrator",
    "PlannedTask",
    "Ports",
    "Progress",
    "Update",
    "capabilities",
    "known_rates",
    "list_files",
]
