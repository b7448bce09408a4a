"""The errors of the service.

ServiceError
├── Busy            too many requests or runs wait already; try again after `retry_seconds`
├── NotReady        the service is stopping, restoring a backup, or cannot write; try again after `retry_seconds`
├── FolderFull      the state folder or its disk has no space for more runs
├── MemoryUnavailable  the memory of the router is not open, or cannot be asked
└── Conflict        the state of the run, the key or the service does not allow the request
"""

from orchestrator.errors import OrchestratorError


class ServiceError(OrchestratorError):
    """The root of the service's errors."""


class Busy(ServiceError):
    """Too many requests or runs wait already. `retry_seconds` says when another attempt may succeed."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(f"{message}; try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class NotReady(ServiceError):
    """The service accepts nothing at the moment. `retry_seconds` says when another attempt may succeed."""

    def __init__(self, message: str, retry_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class FolderFull(ServiceError):
    """The state folder or its disk is full, so that no run is accepted."""


class MemoryUnavailable(ServiceError):
    """The memory of the router is not open, or cannot be asked; the message says why."""


class Conflict(ServiceError):
    """The state of the run, the key or the service does not allow the request."""
