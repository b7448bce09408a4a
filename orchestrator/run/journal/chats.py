"""Define the events of a chat whose model a router has chosen: the choice, the ends of its answers, its ratings.

A chat is one request to the API for answers. Its events have their own stream, from which routers learn. They are
written without waiting for the disk, since nothing is recovered from them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from orchestrator.task.events import FailureKind, PromptDigests, RouteAdvice, RouteCandidate, Usage

# The newest are kept, whatever `vacuum` is told to keep.
MOST_CHATS: Final = 100_000
MAX_OBJECTIVE_LENGTH: Final = 8_000  # characters, from the start

# As the engine's `Finish`, or `failed` with an error. It is `cancelled` if the client has gone away.
ChatFinish = Literal["stop", "length", "deadline", "repetition", "cancelled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRouted:
    """A router has chosen role, persona and model of a chat, and its answers begin."""

    at: float  # seconds since the epoch, as in the other events
    chat: str  # the id of the response, by which the client may rate it
    objective: str  # the user's last message; at most `MAX_OBJECTIVE_LENGTH` characters
    asked_role: str  # the requested role
    asked_persona: str | None  # the requested persona, which a router does not replace; None: the router was free
    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float  # the probability of the choice
    candidates: tuple[RouteCandidate, ...]  # what the router considered
    router: str  # name and version
    resident: tuple[str, ...]  # the models that were loaded
    prompts: PromptDigests = field(default_factory=PromptDigests)
    thinking: str = ""  # empty for what the registry says
    advice: RouteAdvice | None = None  # of the memory; None if it was not asked
    owner: str = ""  # as `RunAccepted.owner`; empty in early versions
    # The probability of the same choice if the user had forced no part of it; None if nothing was forced.
    unforced: float | None = None
    kind: Literal["chat_routed"] = "chat_routed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswered:
    """One answer of a chat has ended."""

    at: float
    chat: str
    answer: int  # its index among the requested answers, from 0
    finish: ChatFinish
    failure: FailureKind | None  # an answer without the required form fails by SCHEMA
    message: str  # what was wrong
    usage: Usage
    seconds: float  # with all waiting
    kind: Literal["chat_answered"] = "chat_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRated:
    """Somebody has rated a chat."""

    at: float
    chat: str
    score: float  # from 0 (bad) to 1 (good)
    by: str  # as `ChatRouted.owner`; a name in early versions
    note: str = ""
    kind: Literal["chat_rated"] = "chat_rated"


ChatEvent = ChatRouted | ChatAnswered | ChatRated


@cache  # built at the first use, which most commands never reach
def _events() -> TypeAdapter[ChatEvent]:
    return TypeAdapter(Annotated[ChatEvent, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """All that is journaled of one chat."""

    routed: ChatRouted
    answers: tuple[ChatAnswered, ...] = ()  # in the order in which they ended
    ratings: tuple[ChatRated, ...] = ()  # oldest first


def encode_chat_event(event: ChatEvent) -> str:
    """Return the event as one JSON object."""
    return _events().dump_json(event).decode()


def decode_chat_event(body: str) -> ChatEvent:
    """Return the event that `encode_chat_event` encoded. Raises `ValueError` for other text."""
    return _events().validate_json(body)


def chat_records(events: Iterable[ChatEvent]) -> list[ChatRecord]:
    """Return the records of the chats of these events, in the order of their choices."""
    records: dict[str, tuple[ChatRouted, list[ChatAnswered], list[ChatRated]]] = {}
    for event in events:
        if isinstance(event, ChatRouted):
            records[event.chat] = event, [], []
        elif (record := records.get(event.chat)) is not None:  # events without the choice of their chat are left out
            if isinstance(event, ChatAnswered):
                record[1].append(event)
            else:
                record[2].append(event)
    return [ChatRecord(routed, tuple(answers), tuple(ratings)) for routed, answers, ratings in records.values()]
