"""Write the daemon's log to a rotated file and to stderr, with the ids of run and step in each line.

Lines are JSON, except on a terminal.
"""

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import structlog

from orchestrator.service.configuration import LogSettings

FILE_NAME: Final = "daemon.log"
MAX_LINES: Final = 1000  # that are kept in memory
REPEATED_SECONDS: Final = 60.0  # for this long, repetitions of an error are only counted
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _drop_color_message(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.pop("color_message", None)  # uvicorn writes its messages twice, the second time with escapes of terminals
    return event


_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    _drop_color_message,
    structlog.processors.TimeStamper(fmt="iso"),
]


log = structlog.get_logger(__name__)


def log_path(logs: Path) -> Path:
    return logs / FILE_NAME


def log_to(logs: Path, settings: LogSettings) -> None:
    """Log to the folder `logs` and to stderr. Call it again to reopen the file or to change settings."""
    logs.mkdir(parents=True, exist_ok=True)
    root = logging.getLogger()
    file = _log_file(root, log_path(logs), settings)
    file.setFormatter(_formatter(structlog.processors.JSONRenderer(default=str)))
    terminal = logging.StreamHandler(sys.stderr)
    is_terminal = sys.stderr.isatty()
    terminal.setFormatter(
        _formatter(structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer(default=str))
    )
    latest = _latest_lines(root)
    latest.setFormatter(_formatter(structlog.processors.JSONRenderer(default=str)))
    # In one assignment, because other threads may be logging.
    before, root.handlers = root.handlers, [file, terminal, latest]
    for handler in before:
        if handler not in (file, latest):
            handler.close()
    root.setLevel(LEVELS[settings.level])
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.level]),
    )


class LogFile(RotatingFileHandler):
    """The log file. A full one is renamed, and the oldest renamed one is removed."""

    def __init__(self, path: Path, settings: LogSettings) -> None:
        super().__init__(path, maxBytes=settings.max_bytes, backupCount=settings.keep - 1, encoding="utf-8")

    def reopen(self, settings: LogSettings) -> None:
        assert self.lock is not None, "`logging.Handler` makes one"
        with self.lock:
            self.maxBytes, self.backupCount = settings.max_bytes, settings.keep - 1
            if self.stream is not None:
                self.stream.close()
            self.stream = self._open()

    def doRollover(self) -> None:
        if self.backupCount == 0:  # `RotatingFileHandler` would let the file grow without limit
            assert self.stream is not None, "`shouldRollover` has just opened it"
            self.stream.truncate(0)
        else:
            super().doRollover()


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log. Numbers are from 1, in the order of the lines."""

    number: int
    level: int  # as of `logging`
    text: str  # a JSON object


class LatestLines(logging.Handler):
    """The latest lines of the log, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; `logging` calls this by one thread at a time."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 (boundary: what cannot be formatted must not stop whoever logs it)
            self.handleError(record)
            return
        self._count += 1
        self._lines.append(LogLine(self._count, record.levelno, text))

    def after(self, number: int, level: int, limit: int) -> list[LogLine]:
        """Return the latest `limit` lines of at least a level after number `number`, the oldest first."""
        assert self.lock is not None, "`logging.Handler` makes one"
        with self.lock:
            return [line for line in self._lines if line.number > number and line.level >= level][-limit:]


def latest_lines() -> LatestLines:
    """Return the lines of this process."""
    return _latest_lines(logging.getLogger())


class LoopErrors:
    """Handles errors of the event loop: each is logged once, then every minute with its number of repetitions.

    One cause, such as a connection that cannot be accepted, can raise the same error thousands of times.
    """

    def __init__(self) -> None:
        self._repeated: dict[tuple[str, str], int] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        key = (str(context.get("message", "")), repr(error))
        if key in self._repeated:
            self._repeated[key] += 1
            return
        self._repeated[key] = 0
        log.error("an error in the event loop", message=key[0], error=key[1], exc_info=error)
        loop.call_later(REPEATED_SECONDS, self._report, loop, key)

    def _report(self, loop: asyncio.AbstractEventLoop, key: tuple[str, str]) -> None:
        times = self._repeated.pop(key)
        if times:
            log.error("an error in the event loop came again", message=key[0], error=key[1], times=times)
            self._repeated[key] = 0
            loop.call_later(REPEATED_SECONDS, self._report, loop, key)


def _log_file(root: logging.Logger, path: Path, settings: LogSettings) -> LogFile:
    for handler in root.handlers:
        if isinstance(handler, LogFile) and handler.baseFilename == os.path.abspath(path):
            handler.reopen(settings)  # two handlers would rename each other's files
            return handler
    return LogFile(path, settings)


def _latest_lines(root: logging.Logger) -> LatestLines:
    return next((handler for handler in root.handlers if isinstance(handler, LatestLines)), None) or LatestLines()


def _formatter(renderer: Any) -> structlog.stdlib.ProcessorFormatter:
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not isinstance(renderer, structlog.dev.ConsoleRenderer):
        last.append(structlog.processors.format_exc_info)
    # Records of libraries, which use `logging`, are the foreign ones.
    return structlog.stdlib.ProcessorFormatter(processors=[*last, renderer], foreign_pre_chain=_SHARED)
