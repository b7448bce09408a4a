"""Parse the TaskIR document of a command-line argument."""

from orchestrator.cli.source import Document, read_document, read_source
from orchestrator.errors import InputError
from orchestrator.task.taskir.json_text import read_json
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import parse_task


def read_task(argument: str) -> TaskIR:
    """Return the task in a file or in stdin. Raises `InputError`."""
    return task_in(read_document(argument))


def read_request_or_task(argument: str) -> str | TaskIR:
    """Return the request or the task of a command-line argument, as `read_source` tells them apart.

    Raises `InputError`.
    """
    source = read_source(argument)
    return source if isinstance(source, str) else task_in(source)


def json_in(document: Document) -> object:
    """Return the JSON of a document, whose fields are not checked. Raises `InputError`."""
    value, problems = read_json(document.raw)
    if problems:
        raise InputError(*map(document.problem, problems))
    return value


def task_in(document: Document) -> TaskIR:
    """Return the task in a document. Raises `InputError`."""
    try:
        return parse_task(document.raw)
    except InputError as error:
        raise InputError(*map(document.problem, error.problems)) from error
