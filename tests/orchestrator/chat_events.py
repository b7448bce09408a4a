"""The events of one chat whose model a router has chosen."""

from orchestrator.run.journal.chats import ChatAnswered, ChatRated, ChatRouted
from orchestrator.task.events import FailureKind, RouteCandidate, Usage

ROUTED = ChatRouted(
    at=10.0,
    chat="chatcmpl-1",
    objective="translate what was said",
    asked_role="worker",
    asked_persona=None,
    role="coder",
    persona="terse",
    model="m",
    reason="it did so before",
    propensity=0.75,
    candidates=(RouteCandidate("coder", "terse", "m", 0.9), RouteCandidate("worker", None, "n", 0.2)),
    router="hybrid-1",
    resident=("m",),
)
ANSWERED = ChatAnswered(
    at=11.0,
    chat="chatcmpl-1",
    answer=0,
    finish="stop",
    failure=FailureKind.SCHEMA,
    message="no object",
    usage=Usage(prompt_tokens=7, output_tokens=3),
    seconds=1.5,
)
RATED = ChatRated(at=12.0, chat="chatcmpl-1", score=0.5, by="ann", note="so so")
