"""Read a TaskIR document from bytes, text or parsed JSON, and dump it as it was read."""

from typing import Any

from pydantic import ValidationError

from orchestrator.errors import Problem
from orchestrator.task.taskir.fields import MAX_BYTES, MAX_DEPTH
from orchestrator.task.taskir.json_text import inspect, read_json
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.problems import from_validation, invalid_task


def parse_task(raw: str | bytes) -> TaskIR:
    """Return the task in a JSON text (bytes are UTF-8). Raises InvalidTask, and nothing else."""
    document, problems = read_json(raw)
    return _validated(document, problems)


def task_from(data: object) -> TaskIR:
    """Return the task in parsed JSON. Raises InvalidTask."""
    return _validated(data, inspect(data))


def _validated(document: object, problems: list[Problem]) -> TaskIR:
    if problems:
        raise invalid_task(problems)
    try:
        return TaskIR.model_validate(document)
    except ValidationError as error:
        raise from_validation(error, document) from None


def dump_task(task: TaskIR) -> dict[str, Any]:
    """Return the document as it was read: the same fields and values, without defaults."""
    return task.model_dump(mode="json", exclude_unset=True)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of TaskIR, limits included."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": (
            f"The whole document: UTF-8, at most {MAX_BYTES} bytes, nested at most {MAX_DEPTH} deep, no key twice in "
            "an object. Names that must be unique, known or free of cycles are checked by `orchestrator validate`."
        ),
        **TaskIR.model_json_schema(),
    }
