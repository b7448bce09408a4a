import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.steps.tools.notes import NoSuchNote, Notes, RunNotes
from orchestrator.task.events import NoteChange, NoteChanged, decode_event, encode_event


class Written:
    """Journals changes when it is told to, as a run's loop does a little later."""

    def __init__(self, run: RunNotes) -> None:
        self.run = run
        self.events: list[NoteChanged] = []
        self._applied = 0

    def __call__(self, note: str, change: NoteChange, text: str) -> NoteChanged:
        event = NoteChanged(at=1.0, step="S1", number=1, note=note, change=change, text=text)
        self.events.append(event)
        asyncio.get_running_loop().call_soon(self.commit)
        return event

    def commit(self) -> None:
        for event in self.events[self._applied :]:
            self.run.apply(event)
        self._applied = len(self.events)


async def test_notes_are_shared_by_steps_and_survive_in_the_events() -> None:
    run = RunNotes()
    journal = Written(run)
    first, second = Notes(run, "S1", journal), Notes(run, "S2", journal)
    one = await first.add("Koldin weighs 12 t")
    two = await second.add("Marvon is red")
    assert (one, two) == ("N1", "N2")
    await second.edit(one, "Koldin weighs 13 t")
    await first.drop(two)
    assert [(note.id, note.text, note.step) for note in first.all] == [("N1", "Koldin weighs 13 t", "S1")]
    again = RunNotes()
    for event in journal.events:
        read = decode_event(encode_event(event))
        assert isinstance(read, NoteChanged)
        again.apply(read)
    assert again.notes == run.notes
    assert again.new_id() == "N3", "an id is never given twice"


async def test_a_change_counts_once_it_is_journaled() -> None:
    run = RunNotes()
    written: list[NoteChanged] = []

    def journal(note: str, change: NoteChange, text: str) -> NoteChanged:
        written.append(NoteChanged(at=1.0, step="S1", number=1, note=note, change=change, text=text))
        return written[-1]

    adding = asyncio.create_task(Notes(run, "S1", journal).add("x"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not adding.done()
    assert run.notes == ()
    run.apply(written[0])
    assert await adding == "N1"


async def test_an_attempt_that_runs_again_does_not_note_twice() -> None:
    run = RunNotes()
    notes = Notes(run, "S1", Written(run))
    assert await notes.add("same") == await notes.add("same")
    assert len(run.notes) == 1


async def test_unknown_notes_are_refused() -> None:
    run = RunNotes()
    notes = Notes(run, "S1", Written(run))
    with pytest.raises(NoSuchNote, match="none, there are no notes"):
        await notes.drop("N1")
    await notes.add("x")
    with pytest.raises(NoSuchNote, match="accepted: N1"):
        await notes.edit("N7", "y")


@given(st.lists(st.tuples(st.sampled_from(["added", "edited", "dropped"]), st.integers(1, 5), st.text()), max_size=20))
def test_any_events_fold_into_one_note_an_id(changes: list[tuple[NoteChange, int, str]]) -> None:
    run, expected = RunNotes(), dict[str, str]()
    for change, number, text in changes:
        run.apply(NoteChanged(at=0.0, step="S1", number=1, note=f"N{number}", change=change, text=text))
        expected.pop(f"N{number}", None) if change == "dropped" else expected.update({f"N{number}": text})
    assert {note.id: note.text for note in run.notes} == expected
    assert run.new_id() not in expected
