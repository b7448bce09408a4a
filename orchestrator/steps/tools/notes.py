"""Keep a run's memory: short notes that its steps add, edit and drop. A change is in the journal before it counts."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.events import NoteChange, NoteChanged

MAX_NOTES = 1_000
MAX_TEXT = 10_000

Journal = Callable[[str, NoteChange, str], NoteChanged]
"""Has a change of a note (its id, what, its text) journaled, and returns the event."""


class NoSuchNote(Exception):
    """A change that cannot be made; says which notes there are."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note, and the step that added it."""

    id: str
    text: str
    step: str


class RunNotes:
    """The notes of one run, folded from its events. All steps see the same, at any time."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._last = 0
        self._waiting: defaultdict[NoteChanged, list[asyncio.Future[None]]] = defaultdict(list)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the notes, the oldest first."""
        return tuple(self._notes.values())

    def new_id(self) -> str:
        """Return an id that no other note has or will have."""
        self._last += 1
        return f"N{self._last}"

    def apply(self, event: NoteChanged) -> None:
        """Take in a change that is in the journal."""
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
        """Wait until an event has been taken in."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[event].append(waiting)
        await waiting


class Notes:
    """The run's notes as one step may change them. Raises `NoSuchNote`."""

    def __init__(self, run: RunNotes, step: str, journal: Journal) -> None:
        self._run = run
        self._step = step
        self._journal = journal

    @property
    def all(self) -> tuple[Note, ...]:
        """Return the run's notes, the oldest first."""
        return self._run.notes

    async def add(self, text: str) -> str:
        """Add a note and return its id. What this step has noted before stays one note: an attempt may be run again."""
        same = next((note.id for note in self.all if (note.step, note.text) == (self._step, text)), None)
        if same is not None:
            return same
        if len(self.all) >= MAX_NOTES:
            raise NoSuchNote(f"there are {MAX_NOTES} notes already; drop some first")
        note = self._run.new_id()
        await self._change(note, "added", text)
        return note

    async def edit(self, note: str, text: str) -> None:
        """Replace the text of a note."""
        await self._change(self._known(note), "edited", text)

    async def drop(self, note: str) -> None:
        """Drop a note."""
        await self._change(self._known(note), "dropped", "")

    async def _change(self, note: str, change: NoteChange, text: str) -> None:
        await self._run.applied(self._journal(note, change, text))

    def _known(self, note: str) -> str:
        ids = [known.id for known in self.all]
        if note not in ids:
            raise NoSuchNote(f"there is no note {note!r}; accepted: {', '.join(ids) or 'none, there are no notes'}")
        return note
