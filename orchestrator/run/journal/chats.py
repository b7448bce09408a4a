"""Define what is journaled of a chat whose model a router has chosen: the choice, how its answers ended, its ratings.

A chat is one request to the API for answers. It belongs to no run, so its events have a stream of their own, from which
routers learn. Events of chats are written without waiting for the disk, since nothing is recovered from them. At most
`MOST_CHATS` chats are kept, the newest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from orchestrator.task.events import FailureKind, PromptDigests, RouteAdvice, RouteCandidate, Usage

MOST_CHATS: Final = 100_000
"""How many chats the journal keeps at most, the newest, whatever `vacuum` is told to keep."""
MAX_OBJECTIVE_LENGTH: Final = 8_000
"""How many characters of a chat's objective are kept, from its beginning."""

ChatFinish = Literal["stop", "length", "deadline", "repetition", "cancelled", "failed"]
"""How an answer ended: as the engine's `Finish` says, or `failed` with an error. It is `cancelled` if its client has
gone away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRouted:
    """A router has chosen role, persona and model of a chat, and its answers begin."""

    at: float
    """In seconds since the epoch, as in the other events."""
    chat: str
    """The id of the response, by which the client may rate it."""
    objective: str
    """What the user said last, which the router went by; at most `MAX_OBJECTIVE_LENGTH` characters."""
    asked_role: str
    """The role that was asked for."""
    asked_persona: str | None
    """The persona that was asked for, which a router does not replace; None where the router was free."""
    role: str
    persona: str | None
    model: str
    reason: str
    """Why the router chose them, in words."""
    propensity: float
    """The probability of the choice."""
    candidates: tuple[RouteCandidate, ...]
    """What the router considered."""
    router: str
    """The router's name and version."""
    resident: tuple[str, ...]
    """The models that were loaded."""
    prompts: PromptDigests = field(default_factory=PromptDigests)
    """The versions of the prompts that the answers begin with."""
    thinking: str = ""
    """How much the model may think; empty for what the registry says."""
    advice: RouteAdvice | None = None
    """What the memory advised; None where it was not asked."""
    owner: str = ""
    """Who asked, as `RunAccepted.owner`. Empty for chats from before owners were recorded."""
    unforced: float | None = None
    """How probable the same choice would have been if the user had forced no part of it; None if nothing was forced."""
    kind: Literal["chat_routed"] = "chat_routed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswered:
    """One answer of a chat has ended."""

    at: float
    chat: str
    answer: int
    """The index of the answer among those that were asked for, from 0."""
    finish: ChatFinish
    failure: FailureKind | None
    """The kind of failure. An answer whose form is not the one it had to have has failed by SCHEMA. Else None."""
    message: str
    """What was wrong; empty where nothing was."""
    usage: Usage
    seconds: float
    """How long the answer took, with all waiting."""
    kind: Literal["chat_answered"] = "chat_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRated:
    """Somebody has rated a chat."""

    at: float
    chat: str
    score: float
    """From 0 (bad) to 1 (good)."""
    by: str
    """Who gave the rating, as `ChatRouted.owner`; a name in ratings of early versions."""
    note: str = ""
    """A comment on the rating; may be empty."""
    kind: Literal["chat_rated"] = "chat_rated"


ChatEvent = ChatRouted | ChatAnswered | ChatRated

_EVENTS: TypeAdapter[ChatEvent] = TypeAdapter(Annotated[ChatEvent, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """All that is journaled of one chat."""

    routed: ChatRouted
    answers: tuple[ChatAnswered, ...] = ()
    """The answers that have ended, in the order in which they did."""
    ratings: tuple[ChatRated, ...] = ()
    """The ratings, oldest first."""


def encode_chat_event(event: ChatEvent) -> str:
    """Return the event as one JSON object."""
    return _EVENTS.dump_json(event).decode()


def decode_chat_event(body: str) -> ChatEvent:
    """Return the event that `encode_chat_event` encoded. Raises `ValueError` for other text."""
    return _EVENTS.validate_json(body)


def chat_records(events: Iterable[ChatEvent]) -> list[ChatRecord]:
    """Return the records of the chats that these events are of, in the order of their choices.

    Events of a chat whose choice is not among them are left out.
    """
    found: dict[str, tuple[ChatRouted, list[ChatAnswered], list[ChatRated]]] = {}
    for event in events:
        if isinstance(event, ChatRouted):
            found[event.chat] = event, [], []
        elif (record := found.get(event.chat)) is not None:
            if isinstance(event, ChatAnswered):
                record[1].append(event)
            else:
                record[2].append(event)
    return [ChatRecord(routed, tuple(answers), tuple(ratings)) for routed, answers, ratings in found.values()]
