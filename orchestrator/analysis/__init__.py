"""Find out what each step of a plan waits for, and why."""

from orchestrator.analysis.analyze import PlanAnalysis, analyze, analyze_task
from orchestrator.analysis.graph import Edge, Reason, Source, StepGraph

__all__ = ["Edge", "PlanAnalysis", "Reason", "Source", "StepGraph", "analyze", "analyze_task"]
