"""Find out what each step of a plan waits for, and why.

graph      the result: StepGraph, its edges with their reasons, and the sources of names
analyze    from steps to their StepGraph: dependencies from `depends_on`, data flow and conflicts
names      what each name that a step reads stands for
order      topological order, waves and cycles
"""

from orchestrator.task.analysis.analyze import NO_PATHS, PlanAnalysis, analyze, analyze_task
from orchestrator.task.analysis.graph import Edge, Reason, Source, StepGraph

__all__ = ["NO_PATHS", "Edge", "PlanAnalysis", "Reason", "Source", "StepGraph", "analyze", "analyze_task"]
