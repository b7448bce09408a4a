"""What can go wrong with a model that another server runs.

    EngineError                       orchestrator.engine
    ├── RemoteError                   no answer, and the request is not to blame
    │   ├── RemoteFailed              unreachable, silent, broken off, HTTP 5xx, or an invalid answer
    │   ├── RemoteResting             the circuit is open, because the server failed too often
    │   └── RemoteBusy                HTTP 429
    ├── Unanswered                    the caller has got no text yet, and another replica can answer instead
    └── BadRequest
        ├── RemoteRefused             the server refuses the request or the key; trying again is useless
        │   ├── ParameterRefused      the server does not know one parameter, and there is another way to ask
        │   └── ToolsRefused          the server takes no tools, so the prompt must describe them
        └── PromptTooLong
            └── RemotePromptTooLong   the server says that prompt and answer do not fit its context

A schema that the server cannot enforce is the engine's BadGrammar. No message holds an API key.
"""

from orchestrator.engine.errors import BadRequest, EngineError, PromptTooLong


class RemoteError(EngineError):
    """The server gave no answer. If `passing`, a retry may help, after `retry_after` seconds if that is known."""

    def __init__(self, message: str, *, passing: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.passing = passing
        self.retry_after = retry_after


class RemoteFailed(RemoteError):
    """The server, or the connection to it, failed."""


class RemoteBusy(RemoteError):
    """The server takes no request now, but may later."""


class RemoteResting(RemoteError):
    """The circuit is open. If `lasting`, the server has failed for minutes."""

    def __init__(self, message: str, *, retry_after: float, lasting: bool) -> None:
        super().__init__(message, retry_after=retry_after)
        self.lasting = lasting


class Unanswered(EngineError):
    """The caller has got nothing of an answer, for the reason `cause`, and another replica can be asked."""

    def __init__(self, cause: EngineError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RemoteRefused(BadRequest):
    """The server rejects the request. `status` is HTTP's, or None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ParameterRefused(RemoteRefused):
    """The server does not accept the `parameter` of the request."""

    def __init__(self, message: str, status: int, parameter: str) -> None:
        super().__init__(message, status)
        self.parameter = parameter


class ToolsRefused(RemoteRefused):
    """The server does not take tools, or not for this model."""


class RemotePromptTooLong(PromptTooLong):
    """Prompt and answer do not fit the server's context. Unknown numbers are 0."""

    def __init__(self, message: str, *, tokens: int = 0, limit: int = 0) -> None:
        super().__init__(tokens, limit)
        self.args = (message,)
