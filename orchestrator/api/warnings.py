"""Tell clients which parts of a request are not obeyed, in a header of the answer and in the log."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import structlog
from starlette.responses import Response

from orchestrator.task.taskir.problems import pointer
from orchestrator.task.taskir.validation import unenforced

WARNINGS_HEADER: Final = "X-Warnings"  # a JSON list of texts, in ASCII
MAX_BYTES: Final = 2000  # of the header; clients limit one header, or all of them together, to 8 KiB or more
_LONGEST: Final = 400  # characters of a warning

log = structlog.get_logger(__name__)


def schema_warnings(where: str, schema: Any) -> list[str]:
    """Return what nothing enforces in the JSON Schema that a request has at `where`."""
    return [f"{where}{pointer(path)}: {message}" for path, message in unenforced(schema)]


def log_warnings(request: str, warnings: Sequence[str]) -> None:
    """Log the warnings of a request. `request` is the id of its answer."""
    log.warning("a part of a request is not obeyed", answer=request, warnings=list(warnings[:10]))


def put_warnings(response: Response, warnings: Iterable[str]) -> None:
    """Put the warnings, or the first ones if they are too many, into the header of a response."""
    shown: list[str] = []
    for text in dict.fromkeys(warnings):
        if len(json.dumps([*shown, text[:_LONGEST]])) > MAX_BYTES:
            break
        shown.append(text[:_LONGEST])
    if shown:
        response.headers[WARNINGS_HEADER] = json.dumps(shown)
