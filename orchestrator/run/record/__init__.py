"""What the events of a run say: its current state, and the report of how it went."""

from orchestrator.run.record.report import Report, build_report, load_report

__all__ = ["Report", "build_report", "load_report"]
