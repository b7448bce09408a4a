"""Models that other servers run: any OpenAI-compatible endpoint, asked over HTTP with the contract of a local engine.

client    RemoteModel: slots, deadline, retries, circuit breaker, around one try after another
http      the connection: one streamed POST a try; the only file that knows the HTTP library and the API key
wire      what is sent and what comes back, as JSON
breaker   when a server that keeps failing is left alone; pure
retry     how long to wait before asking again; pure
slots     who may ask next
errors    what can go wrong beside what can go wrong with any engine
"""

from orchestrator.remote.client import RemoteModel
from orchestrator.remote.errors import RemoteBusy, RemoteError, RemoteFailed, RemotePromptTooLong, RemoteRefused
from orchestrator.remote.http import probe

__all__ = [
    "RemoteBusy",
    "RemoteError",
    "RemoteFailed",
    "RemoteModel",
    "RemotePromptTooLong",
    "RemoteRefused",
    "probe",
]
