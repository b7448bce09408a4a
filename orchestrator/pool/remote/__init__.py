"""Models that other servers run: any OpenAI-compatible endpoint, asked over HTTP with the contract of a local engine.

client    RemoteModel: slots, deadline, retries and circuit breaker around single requests
http      one streamed POST request; the only file that knows the HTTP library and the API key
wire      builds the JSON of a request, and reads the JSON of an answer
breaker   circuit breaker: when a server that keeps failing is not asked for a while; pure
retry     how long to wait before a request is tried again; pure
slots     how many requests run at a time, and which waiting request is next
errors    the errors of remote models, beside those of any engine
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
