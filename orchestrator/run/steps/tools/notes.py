"""Keep the notes of a run, which its steps add, edit and drop. A change is in the journal before it takes effect."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.task.events import NoteChange, NoteChanged

MAX_NOTES = 1_000
MAX_TEXT = 10_000

# Journals the change of a note (id, change, text).
JournalNote = Callable[[str, NoteChange, str], NoteChanged]


class NoSuchNote(Exception):
    """A note cannot be changed as asked. The message says which notes there are."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note, and the step that added it."""

    id: str
    text: str
    step: str


class RunNotes:
    """The notes of one run, folded from its events; all steps see the same."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._last = 0
        self._waiting: defaultdict[NoteChanged, list[asyncio.Future[None]]] = defaultdict(list)

    @property
    def notes(self) -> tuple[Note, ...]:
        # Oldest first.
        return tuple(self._notes.values())

    def new_id(self) -> str:
        """Return an id that no other note has or will have."""
        self._last += 1
        return f"N{self._last}"

    def apply(self, event: NoteChanged) -> None:
        """Apply a change that is in the journal."""
        self._last = max(self._last, int(event.note[1:]))
        if event.change == "dropped":
            self._notes.pop(event.note, None)
        else:
            before = self._notes.get(event.note)
            self._notes[event.note] = Note(event.note, event.text, before.step if before else event.step)
        for waiting in self._waiting.pop(event, []):
            if not waiting.done():
                waiting.set_result(None)

    async def applied(self, event: NoteChanged) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[event].append(waiting)
        await waiting


class Notes:
    """The notes of a run, as one step reads and changes them. Calls raise `NoSuchNote`."""

    def __init__(self, run: RunNotes, step: str, journal: JournalNote) -> None:
        self._run = run
        self._step = step
        self._journal = journal

    @property
    def all(self) -> tuple[Note, ...]:
        # Oldest first.
        return self._run.notes

    async def add(self, text: str) -> str:
        """Add a note and return its id."""
        same = next((note.id for note in self.all if (note.step, note.text) == (self._step, text)), None)
        # An attempt that is run again adds nothing twice.
        if same is not None:
            return same
        if len(self.all) >= MAX_NOTES:
            raise NoSuchNote(f"there are {MAX_NOTES} notes already; drop some first")
        note = self._run.new_id()
        await self._change(note, "added", text)
        return note

    async def edit(self, note: str, text: str) -> None:
        await self._change(self._existing(note), "edited", text)

    async def drop(self, note: str) -> None:
        await self._change(self._existing(note), "dropped", "")

    async def _change(self, note: str, change: NoteChange, text: str) -> None:
        await self._run.applied(self._journal(note, change, text))

    def _existing(self, note: str) -> str:
        ids = [entry.id for entry in self.all]
        if note not in ids:
            raise NoSuchNote(f"there is no note {note!r}; accepted: {', '.join(ids) or 'none, there are no notes'}")
        return note
