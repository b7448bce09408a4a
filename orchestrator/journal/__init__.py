"""The durable record of runs: a state folder with an event table in SQLite and content-addressed objects."""

from orchestrator.journal.artifacts import publish
from orchestrator.journal.chats import ChatAnswered, ChatEvent, ChatFinish, ChatRated, ChatRecord, ChatRouted
from orchestrator.journal.disk import retry_when_disk_full
from orchestrator.journal.errors import (
    DiskFull,
    HomeLocked,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalTooNew,
    ObjectMissing,
    UnknownChat,
    UnknownRun,
)
from orchestrator.journal.home import Home, HomeLock, home_path
from orchestrator.journal.journal import Journal, JournalReader, with_made_personas
from orchestrator.journal.objects import ObjectStore, digest_of
from orchestrator.journal.outcomes import AttemptOutcome, Rating
from orchestrator.journal.presence import Presence
from orchestrator.journal.store import PersonaUse, RunRow
from orchestrator.prediction import MeasuredGeneration

__all__ = [
    "AttemptOutcome",
    "ChatAnswered",
    "ChatEvent",
    "ChatFinish",
    "ChatRated",
    "ChatRecord",
    "ChatRouted",
    "DiskFull",
    "Home",
    "HomeLock",
    "HomeLocked",
    "Journal",
    "JournalClosed",
    "JournalCorrupt",
    "JournalError",
    "JournalReader",
    "JournalTooNew",
    "MeasuredGeneration",
    "ObjectMissing",
    "ObjectStore",
    "PersonaUse",
    "Presence",
    "Rating",
    "RunRow",
    "UnknownChat",
    "UnknownRun",
    "digest_of",
    "home_path",
    "publish",
    "retry_when_disk_full",
    "with_made_personas",
]
