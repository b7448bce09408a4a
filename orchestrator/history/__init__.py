"""What the events of a run say: its state, and the report of what became of it."""

from orchestrator.history.report import Report, build_report, load_report

__all__ = ["Report", "build_report", "load_report"]
