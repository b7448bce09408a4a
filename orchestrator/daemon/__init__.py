"""The composition root: accept jobs, run them, tell what became of them."""

from orchestrator.daemon.checks import gates_of
from orchestrator.daemon.job import Job, capabilities, known_rates, list_files
from orchestrator.daemon.orchestrator import Orchestrator
from orchestrator.daemon.planning import PlannedTask
from orchestrator.daemon.report import Report, build_report, load_report
from orchestrator.daemon.updates import EventUpdate, Progress, Update

__all__ = [
    "EventUpdate",
    "Job",
    "Orchestrator",
    "PlannedTask",
    "Progress",
    "Report",
    "Update",
    "build_report",
    "capabilities",
    "gates_of",
    "known_rates",
    "list_files",
    "load_report",
]
