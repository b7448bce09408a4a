"""The durable record of runs: a state folder with an event table in SQLite and content-addressed objects."""

from orchestrator.run.journal.artifacts import publish
from orchestrator.run.journal.chats import ChatAnswered, ChatEvent, ChatFinish, ChatRated, ChatRecord, ChatRouted
from orchestrator.run.journal.disk import retry_when_disk_full
from orchestrator.run.journal.errors import (
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
from orchestrator.run.journal.home import Home, HomeLock, home_path
from orchestrator.run.journal.journal import Journal, JournalReader, with_made_personas
from orchestrator.run.journal.objects import ObjectStore, digest_of
from orchestrator.run.journal.outcomes import AttemptOutcome, Rating
from orchestrator.run.journal.presence import Presence
from orchestrator.run.journal.store import PersonaUse, RunRow
from orchestrator.task.prediction import MeasuredGeneration

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
