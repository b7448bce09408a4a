"""Log to a file of the state folder, since stdout and stderr are for the output of the command."""

from pathlib import Path

import structlog

MAX_BYTES = 8 << 20


class RunLogFile:
    """A log file, created with its first line. When it exceeds 8 MiB, it is renamed to `NAME.old`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: str) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._path.with_suffix(".old"))
            with open(self._path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            return 0  # a run does not fail because it cannot be logged
        return len(text)

    def flush(self) -> None:
        """Do nothing: each line is written when it is logged."""


def log_to(path: Path) -> None:
    """Log to `path` from now on, one JSON object per line."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=RunLogFile(path)),  # type: ignore[arg-type]
    )
