import asyncio
import json
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.journal.errors import (
    HomeLocked,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalTooNew,
    UnknownRun,
)
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.migrations import VERSION
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    GateResult,
    InputSize,
    PlanFinished,
    PlanningStarted,
    ReplanFinished,
    ReplanStarted,
    RouteCandidate,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    Usage,
    decode_event,
    encode_event,
)
from orchestrator.task.prediction import MeasuredGeneration
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.older_journal import WITHOUT_OWNERS

TASK = task_from(
    {
        "objective": "Say hello.",
        "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["hello.txt"]}]},
    }
)
USAGE = Usage(120, 100, 40, queued_seconds=0.5, prefill_seconds=0.25, decode_seconds=2.0)


def accepted(at: float = 1.0) -> RunAccepted:
    return RunAccepted(at=at, run="R", mode="as-planned", request="Say\n hello.", files=("a.txt",))


def story() -> list[Event]:
    step = Step(id="S1", actor="worker", action="Say hello.", outputs=("hello.txt",))
    failed = GateResult("schema", "failed", "at /a: not a number", 0.5)
    return [
        accepted(),
        PlanningStarted(at=2.0, role="frontdoor", model="large"),
        StepsPlanned(at=3.0, steps=(step,), written='{"role":"worker"}'),
        PlanFinished(at=4.0, origin="planned", usage=USAGE, goes_on_after="S1"),
        AttemptStarted(at=5.0, step="S1", number=1, role="worker", persona=None, model="small", reason="actor"),
        AttemptGenerated(at=6.0, step="S1", number=1, usage=USAGE),
        AttemptFailed(at=7.0, step="S1", number=1, failure=Failure(FailureKind.SCHEMA, "no", "why"), gates=(failed,)),
        CancelRequested(at=8.0),
        StepExpanded(at=8.0, step="S2", count=0),
        StepGathered(at=8.5, step="S2", outputs={"all": "0" * 64}),
        AttemptSucceeded(at=9.0, step="S1", number=2, outputs={"hello.txt": "0" * 64}),
        ReplanStarted(at=9.5, after="S1", role="frontdoor", model="large"),
        ReplanFinished(at=9.75, after="S1", outcome="stopped", reason="why", usage=USAGE, asked=2),
        AnswerChecked(at=9.9, doubts=(AnswerDoubt("It is empty.", "S1"),), restored={"S1": {"hello.txt": "0" * 64}}),
        AnswerChecked(
            at=9.9,
            corrected={"S1": {"hello.txt": "1" * 64}},
            corrections=(AnswerDoubt("You asked for lower case; the answer has 'A'.", "S1"),),
        ),
        RunFinished(at=10.0, status="done", doubt="It is empty."),
    ]


def only_events(journal: JournalReader, run: str) -> list[Event]:
    return [event for _, event in journal.events(run)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def test_what_is_appended_is_read_back_in_order(home: Path) -> None:
    with Journal.open(home) as journal:
        for event in story():
            await journal.append("R", [event])
        assert only_events(journal, "R") == story()
        numbers = [number for number, _ in journal.events("R")]
        assert numbers == sorted(set(numbers))
        assert [number for number, _ in journal.events("R", after=numbers[4])] == numbers[5:]
    with JournalReader.open_to_read(home) as reader:
        assert only_events(reader, "R") == story()


def test_events_of_earlier_versions_can_be_read() -> None:
    planned = decode_event('{"at":3.0,"steps":[],"kind":"steps_planned"}')
    finished = decode_event('{"at":4.0,"origin":"planned","reason":"","kind":"plan_finished"}')
    assert (planned, finished) == (StepsPlanned(at=3.0, steps=()), PlanFinished(at=4.0, origin="planned"))
    generated = decode_event('{"at":5.0,"step":"S1","number":1,"usage":{"output_tokens":3},"kind":"attempt_generated"}')
    assert generated == AttemptGenerated(at=5.0, step="S1", number=1, usage=Usage(output_tokens=3))
    done = decode_event('{"at":6.0,"step":"S1","number":1,"outputs":{},"gates":[],"kind":"attempt_succeeded"}')
    assert done == AttemptSucceeded(at=6.0, step="S1", number=1, outputs={})


def test_drafts_are_written_only_if_there_were_any() -> None:
    plain = AttemptGenerated(at=5.0, step="S1", number=1, usage=USAGE)
    drafted = replace(plain, usage=replace(USAGE, drafted_tokens=60))
    assert "drafted_tokens" not in encode_event(plain)
    assert [decode_event(encode_event(event)) for event in (plain, drafted)] == [plain, drafted]


def test_an_attempt_of_an_earlier_version_has_nothing_to_tell_of_how_it_was_routed() -> None:
    started = decode_event(
        '{"at":5.0,"step":"S1","number":1,"role":"worker","persona":null,"model":"small","reason":"actor",'
        '"propensity":1.0,"kind":"attempt_started"}'
    )
    assert isinstance(started, AttemptStarted)
    assert (started.candidates, started.router, started.problem) == ((), "", "")


def test_how_an_attempt_was_routed_survives_the_journal() -> None:
    candidates = (RouteCandidate("worker", None, "small", 0.25), RouteCandidate("coder", "terse", "large", -1.5))
    event = AttemptStarted(
        at=5.0,
        step="S1",
        number=1,
        role="coder",
        persona="terse",
        model="large",
        reason="learned",
        propensity=0.125,
        candidates=candidates,
        router="memory-3",
        problem="there is none",
        inputs=(InputSize("a.txt", 12), InputSize("b", None)),
        slack=3.5,
        resident=("large", "small"),
    )
    assert decode_event(encode_event(event)) == event


def test_a_task_keeps_only_what_its_author_wrote() -> None:
    event = RunAccepted(at=1.0, run="R", mode="serial", task=TASK)
    assert decode_event(encode_event(event)) == event
    assert "created_at" not in json.loads(encode_event(event))["task"]


@given(text=st.text(max_size=50), seconds=st.floats(0, 1e12))
def test_any_text_and_time_survives_the_journal(text: str, seconds: float) -> None:
    event = AttemptFailed(at=seconds, step="S1", number=3, failure=Failure(FailureKind.LOGIC, text, text))
    assert decode_event(encode_event(event)) == event


async def test_appends_of_many_coroutines_keep_each_runs_order(home: Path) -> None:
    async def write(run: str) -> None:
        await journal.append(run, [RunAccepted(at=0.0, run=run, mode="serial", request=run)])
        for number in range(20):
            await journal.append(run, [StepExpanded(at=1.0, step="S1", count=number)])

    with Journal.open(home) as journal:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(write(f"R{number}"))
        for number in range(20):
            counts = [event.count for event in only_events(journal, f"R{number}") if isinstance(event, StepExpanded)]
            assert counts == list(range(20))


async def test_run_rows_follow_the_events(home: Path) -> None:
    with Journal.open(home) as journal:
        seen = []
        for event in story():
            await journal.append("R", [event])
            seen.append(journal.run("R").status)
        assert seen == ["queued", *["planning"] * 3, *["running"] * 11, "done"]
        await journal.append("T", [RunAccepted(at=20.0, run="T", mode="serial", task=TASK)])
        newest, oldest = journal.runs()
        assert (newest.run, newest.title, newest.mode, newest.finished) == ("T", "Say hello.", "serial", None)
        assert (oldest.run, oldest.title, oldest.accepted, oldest.finished) == ("R", "Say hello.", 1.0, 10.0)
        assert (oldest.doubt, newest.doubt) == ("It is empty.", "")
        assert [row.run for row in journal.unfinished()] == ["T"]
        assert [row.run for row in journal.runs(limit=1)] == ["T"]


async def test_measured_joins_each_generation_with_its_role(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", story())
        own = MeasuredGeneration("worker", "small", 120, 100, 40, 0.25, 2.0, run="R", input_bytes=0)
        assert [row.generation for row in journal.generations_after(0)] == [own]


async def test_measured_tells_the_kind_of_step_its_inputs_and_what_it_took_besides(home: Path) -> None:
    def started(number: int, *inputs: InputSize) -> AttemptStarted:
        return AttemptStarted(
            at=10.0 * number, step="S1", number=number, role="worker", persona=None, model="small", reason="actor",
            inputs=inputs, step_kind="text",
        )  # fmt: skip

    with Journal.open(home) as journal:
        await journal.append("R", [RunAccepted(at=1.0, run="R", mode="serial", request="Say hello.")])
        for number, inputs in enumerate(([InputSize("a", 12), InputSize("b", 30)], [InputSize("a", None)]), start=1):
            generated = AttemptGenerated(at=10.0 * number + 3, step="S1", number=number, usage=USAGE)
            done = AttemptSucceeded(at=10.0 * number + 4, step="S1", number=number, outputs={})
            await journal.append("R", [started(number, *inputs), generated, done])
        found = [row.generation for row in journal.generations_after(0)]
    told = [(one.kind, one.input_bytes, one.other_seconds) for one in found]
    assert told == [
        ("text", None, 1.25),
        ("text", 42, 1.25),
    ]


async def test_run_that_was_never_accepted_is_refused_and_leaves_nothing(home: Path) -> None:
    with Journal.open(home) as journal:
        with pytest.raises(JournalError, match="refuses events of run R"):
            await journal.append("R", [RunFinished(at=1.0, status="done")])
        await journal.append("R", [accepted()])  # the journal still works
        with pytest.raises(JournalError, match="refuses events of run R"):
            await journal.append("R", [StepExpanded(at=1.0, step="S1", count=1), accepted()])
        assert only_events(journal, "R") == [accepted()]


async def test_refused_events_do_not_harm_those_committed_with_them(home: Path) -> None:
    with Journal.open(home) as journal:
        results = await asyncio.gather(
            journal.append("R", [accepted()]),
            journal.append("X", [RunFinished(at=1.0, status="done")]),
            journal.append("R", [RunFinished(at=2.0, status="done")]),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), JournalError, type(None)]
        assert len(journal.events("R")) == 2


async def test_unknown_run(home: Path) -> None:
    with Journal.open(home) as journal, pytest.raises(UnknownRun, match="no run 'R'"):
        journal.events("R")


async def test_cancelled_caller_does_not_unwrite_its_events(home: Path) -> None:
    with Journal.open(home) as journal:
        task = asyncio.ensure_future(journal.append("R", [accepted()]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with JournalReader.open_to_read(home) as reader:
        assert only_events(reader, "R") == [accepted()]


async def test_closed_journal_refuses_to_write(home: Path) -> None:
    journal = Journal.open(home)
    journal.close()
    journal.close()
    with pytest.raises(JournalClosed):
        await journal.append("R", [accepted()])


async def test_a_journal_can_be_closed_while_others_read(home: Path) -> None:
    def read_on(journal: Journal) -> JournalError:
        while True:
            try:
                journal.events("R")
            except JournalError as error:
                return error

    with Journal.open(home) as journal:
        await journal.append("R", [accepted(), *[CancelRequested(at=2.0)] * 3000])
    for _ in range(8):
        with Journal.open(home) as journal:
            reading = [asyncio.create_task(asyncio.to_thread(read_on, journal)) for _ in range(3)]
            await asyncio.sleep(0.01)
        assert {type(error) for error in await asyncio.gather(*reading)} == {JournalClosed}


def test_second_owner_is_refused_while_readers_are_not(home: Path) -> None:
    with Journal.open(home):
        with pytest.raises(HomeLocked):
            Journal.open(home)
        with JournalReader.open_to_read(home) as reader:
            assert reader.runs() == []
    Journal.open(home).close()


def test_reading_where_nothing_was_ever_written(home: Path) -> None:
    with JournalReader.open_to_read(home) as reader:
        assert reader.runs() == []
    assert not home.exists()


def test_commits_wait_for_the_disk(home: Path) -> None:
    with Journal.open(home) as journal:
        written = journal._writer._store._connection
        assert written.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert written.execute("PRAGMA synchronous").fetchone() == (2,)


def test_objects_are_read_by_readers(home: Path) -> None:
    with Journal.open(home) as journal:
        digest = journal.put(b"text")
    with JournalReader.open_to_read(home) as reader:
        assert reader.get(digest) == b"text"


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_file_that_is_no_database(home: Path, content: bytes) -> None:
    home.mkdir()
    (home / "journal.db").write_bytes(content)
    for opener in (Journal.open, JournalReader.open_to_read):
        with pytest.raises(JournalCorrupt, match=r"journal\.db: damaged: .*restore it from a backup"):
            opener(home)


async def test_torn_database(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [accepted()])
        await journal.append("R", [StepExpanded(at=1.0, step="S" * 900, count=1)] * 200)
    database = home / "journal.db"
    whole = database.read_bytes()
    database.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JournalCorrupt), Journal.open(home) as journal:
        only_events(journal, "R")


async def test_damage_is_found_by_looking_for_it(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [accepted()])
        await journal.append("R", [StepExpanded(at=1.0, step="S" * 900, count=1)] * 200)
        assert journal.damage() == []
    database = home / "journal.db"
    torn = bytearray(database.read_bytes())
    torn[-8192:] = bytes(8192)
    database.write_bytes(torn)
    with JournalReader.open_to_read(home) as reader:
        assert reader.damage()


async def test_event_that_cannot_be_read_is_named(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [accepted()])
    with sqlite3.connect(home / "journal.db") as raw:
        raw.execute("""UPDATE events SET body = '{"kind": "run_accepted", "at": "soon"}'""")
    with JournalReader.open_to_read(home) as reader, pytest.raises(JournalCorrupt, match="event 1 of run R"):
        reader.events("R")


def test_journal_of_a_later_version_is_left_alone(home: Path) -> None:
    Journal.open(home).close()
    with sqlite3.connect(home / "journal.db") as raw:
        raw.execute("INSERT INTO schema_version VALUES (99)")
    for opener in (Journal.open, JournalReader.open_to_read):
        with pytest.raises(JournalTooNew, match=f"has schema version 99, but this program knows {VERSION}"):
            opener(home)


async def test_plans_of_an_earlier_version_are_read_on(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", story()[:3])
    with sqlite3.connect(home / "journal.db") as raw:
        raw.execute("UPDATE events SET body = json_replace(body, '$.written', json_array(body ->> '$.written'))")
        raw.executescript(WITHOUT_OWNERS)
        raw.execute("DROP TABLE personas")
        raw.executescript("DROP TABLE chat_events; DROP TABLE outcomes")
        raw.executescript("DROP INDEX events_by_task; DROP INDEX events_by_shape")
        raw.execute("ALTER TABLE events DROP COLUMN checksum")
        raw.execute("DELETE FROM schema_version WHERE version >= 3")
    with Journal.open(home) as journal:
        (planned,) = (event for _, event in journal.events("R") if isinstance(event, StepsPlanned))
    assert planned.written == '{"role":"worker"}'


async def test_what_is_committed_is_seen_whatever_else_is_being_read(home: Path) -> None:
    with Journal.open(home) as journal:
        for number in range(100):
            await journal.append(f"R{number}", [RunAccepted(at=0.0, run=f"R{number}", mode="serial", request="x")])
        over = threading.Event()

        def read_on() -> None:
            while not over.is_set():
                journal.runs()

        readers = [asyncio.create_task(asyncio.to_thread(read_on)) for _ in range(2)]
        try:
            for number in range(100, 200):
                accepted = RunAccepted(at=0.0, run=f"R{number}", mode="serial", request="x")
                await journal.append(accepted.run, [accepted])
                assert (await asyncio.to_thread(journal.run, accepted.run)).status == "queued"
        finally:
            over.set()
            await asyncio.gather(*readers)


def test_database_of_another_program_is_left_alone(home: Path) -> None:
    home.mkdir()
    with sqlite3.connect(home / "journal.db") as raw:
        raw.execute("CREATE TABLE theirs (x)")
    with pytest.raises(JournalError, match="not a journal"):
        Journal.open(home)


def test_a_journal_that_does_not_wait_for_the_disk_is_read_like_any_other(tmp_path: Path) -> None:
    with Journal.open(tmp_path, durable=False) as journal:
        asyncio.run(journal.append("R", [accepted()]))
        digest = journal.put(b"hello")
    with Journal.open(tmp_path) as journal:
        assert [event for _, event in journal.events("R")] == [accepted()]
        assert journal.objects.get(digest) == b"hello"
