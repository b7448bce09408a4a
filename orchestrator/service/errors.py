"""Why the service does not do what it is asked.

ServiceError
├── Busy            too much is asked at once; try again after `retry_seconds`
├── NotReady        it is about to stop, puts a backup back, or cannot write; try again after `retry_seconds`
├── FolderFull      the state folder or its disk has no room for more runs
└── Conflict        what is asked does not go with what there is
"""

from orchestrator.errors import OrchestratorError


class ServiceError(OrchestratorError):
    """The root of what the service raises."""


class Busy(ServiceError):
    """There is too much to do already."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(f"{message}; try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class NotReady(ServiceError):
    """The service takes nothing on at the moment."""

    def __init__(self, message: str, retry_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class FolderFull(ServiceError):
    """No run is accepted until there is room."""


class Conflict(ServiceError):
    """The run, or the key, is in a state that does not allow this."""
