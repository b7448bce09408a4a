"""Define TaskIR, the document that says what a run has to do, and read it without trusting it.

models     the document as pydantic models; fields: their types and limits
parse      from JSON to a TaskIR and back
json_text  reads JSON strictly and writes it compactly
patterns   regular expressions that match in linear time; formats: dates, times, UUIDs and addresses
check      what a valid task needs that this installation lacks
validation checks values against JSON Schemas, also answers of models and arguments of tools
arguments  `$input` in the arguments of a tool
problems   from errors to problems with a JSON pointer
"""

from orchestrator.task.taskir.check import Capabilities, check_hints, check_task
from orchestrator.task.taskir.fields import GATES, MAX_BYTES, MAX_DEPTH, MAX_STEPS, REQUEST_LABEL
from orchestrator.task.taskir.models import (
    Agent,
    Bench,
    Commands,
    Context,
    Escalation,
    Level,
    Parallelism,
    Plan,
    Step,
    TaskInput,
    TaskIR,
)
from orchestrator.task.taskir.parse import dump_task, json_schema, parse_task, task_from
from orchestrator.task.taskir.problems import InvalidTask, nearest, pointer

__all__ = [
    "GATES",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_STEPS",
    "REQUEST_LABEL",
    "Agent",
    "Bench",
    "Capabilities",
    "Commands",
    "Context",
    "Escalation",
    "InvalidTask",
    "Level",
    "Parallelism",
    "Plan",
    "Step",
    "TaskIR",
    "TaskInput",
    "check_hints",
    "check_task",
    "dump_task",
    "json_schema",
    "nearest",
    "parse_task",
    "pointer",
    "task_from",
]
