"""Log for people on a terminal and as JSON elsewhere, with the ids of run and step, and to a file that makes room."""

import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import structlog

from orchestrator.service.configuration import LogSettings

FILE_NAME: Final = "daemon.log"
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso"),
]


def log_path(logs: Path) -> Path:
    """Return the file that the daemon logs to."""
    return logs / FILE_NAME


def log_to(logs: Path, settings: LogSettings) -> None:
    """Log to the folder `logs` and to stderr from now on; may be called again, as when the file was moved away."""
    logs.mkdir(parents=True, exist_ok=True)
    root = logging.getLogger()
    file = _log_file(root, log_path(logs), settings)
    file.setFormatter(_formatter(structlog.processors.JSONRenderer(default=str)))
    terminal = logging.StreamHandler(sys.stderr)
    lively = sys.stderr.isatty()
    terminal.setFormatter(
        _formatter(structlog.dev.ConsoleRenderer() if lively else structlog.processors.JSONRenderer(default=str))
    )
    before, root.handlers = root.handlers, [file, terminal]  # at once: other threads may be logging
    for handler in before:
        if handler is not file:
            handler.close()
    root.setLevel(_LEVELS[settings.level])
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.level]),
    )


class LogFile(RotatingFileHandler):
    """The newest of the log's files. When it is full it is put aside, and the oldest one is removed."""

    def __init__(self, path: Path, settings: LogSettings) -> None:
        super().__init__(path, maxBytes=settings.max_bytes, backupCount=settings.keep - 1, encoding="utf-8")

    def open_anew(self, settings: LogSettings) -> None:
        """Go on with whatever file is at the path now, or with a new one."""
        assert self.lock is not None, "every handler has one"
        with self.lock:
            self.maxBytes, self.backupCount = settings.max_bytes, settings.keep - 1
            if self.stream is not None:
                self.stream.close()
            self.stream = self._open()

    def doRollover(self) -> None:
        """Make room. The only file is emptied; `logging` would let it grow for ever."""
        if self.backupCount == 0:
            assert self.stream is not None, "its size has just been looked at"
            self.stream.truncate(0)
        else:
            super().doRollover()


def _log_file(root: logging.Logger, path: Path, settings: LogSettings) -> LogFile:
    """Return what writes to `path`, opened anew where it does so already: two would put each other's files aside."""
    for handler in root.handlers:
        if isinstance(handler, LogFile) and handler.baseFilename == os.path.abspath(path):
            handler.open_anew(settings)
            return handler
    return LogFile(path, settings)


def _formatter(renderer: Any) -> structlog.stdlib.ProcessorFormatter:
    """Return what writes a line of either: ours, or of a library that uses `logging`."""
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not isinstance(renderer, structlog.dev.ConsoleRenderer):
        last.append(structlog.processors.format_exc_info)
    return structlog.stdlib.ProcessorFormatter(processors=[*last, renderer], foreign_pre_chain=_SHARED)
