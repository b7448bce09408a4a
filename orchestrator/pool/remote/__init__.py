"""Models of other servers: any OpenAI-compatible endpoint, with the contract of a local engine.

client    RemoteModel: slots, deadline, retries and circuit breaker around single requests
http      one streamed POST request; the only file that knows the HTTP library and the API key
wire      builds the JSON of requests, and reads the JSON of answers
breaker   circuit breaker for a server that keeps failing; pure
errors    the errors of remote models
"""

from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.remote.errors import (
    RemoteBusy,
    RemoteError,
    RemoteFailed,
    RemotePromptTooLong,
    RemoteRefused,
    RemoteResting,
    ToolsRefused,
)
from orchestrator.pool.remote.http import probe

__all__ = [
    "RemoteBusy",
    "RemoteError",
    "RemoteFailed",
    "RemoteModel",
    "RemotePromptTooLong",
    "RemoteRefused",
    "RemoteResting",
    "ToolsRefused",
    "probe",
]
