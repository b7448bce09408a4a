"""The errors of the service.

ServiceError
├── Busy               too many requests or runs wait; has `retry_seconds`
├── NotReady           the service stops, restores a backup or cannot write; has `retry_seconds`
├── FolderFull         no space for more runs in the state folder or on its disk
├── Unavailable        what is attached to the service cannot be used
└── Conflict           the state of the run, the key or the service does not allow the request
"""

from orchestrator.errors import OrchestratorError


class ServiceError(OrchestratorError):
    """The root of the service's errors."""


class Busy(ServiceError):
    """Too many requests or runs wait. Another attempt may succeed after `retry_seconds`."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(f"{message}; try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class NotReady(ServiceError):
    """Nothing is accepted at the moment. Another attempt may succeed after `retry_seconds`."""

    def __init__(self, message: str, retry_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class FolderFull(ServiceError):
    """The state folder or its disk is full: no run is accepted."""


class Unavailable(ServiceError):
    """An attachment of the service cannot be used; the message says why."""


class Conflict(ServiceError):
    """The state of the run, the key or the service does not allow the request."""
