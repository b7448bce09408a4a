"""Fold the events of a run into its current state and its report."""

from orchestrator.run.record.report import Report, build_report, load_report

__all__ = ["Report", "build_report", "load_report"]
