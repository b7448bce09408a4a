"""Log for people on a terminal and as JSON elsewhere, with the ids of run and step, and to a file that makes room."""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import structlog

from orchestrator.daemon.configuration import LogSettings

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
    file = LogFile(log_path(logs), settings)
    file.setFormatter(_formatter(structlog.processors.JSONRenderer(default=str)))
    terminal = logging.StreamHandler(sys.stderr)
    lively = sys.stderr.isatty()
    terminal.setFormatter(
        _formatter(structlog.dev.ConsoleRenderer() if lively else structlog.processors.JSONRenderer(default=str))
    )
    root = logging.getLogger()
    before, root.handlers = root.handlers, [file, terminal]  # at once: other threads may be logging
    for handler in before:
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

    def doRollover(self) -> None:
        """Make room. The only file is emptied; `logging` would let it grow for ever."""
        if self.backupCount == 0:
            assert self.stream is not None, "its size has just been looked at"
            self.stream.truncate(0)
        else:
            super().doRollover()


def _formatter(renderer: Any) -> structlog.stdlib.ProcessorFormatter:
    """Return what writes a line of either: ours, or of a library that uses `logging`."""
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not isinstance(renderer, structlog.dev.ConsoleRenderer):
        last.append(structlog.processors.format_exc_info)
    return structlog.stdlib.ProcessorFormatter(processors=[*last, renderer], foreign_pre_chain=_SHARED)
