"""Which runs are kept no longer, and that what they alone had a use for goes with them, and nothing else."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.journal.errors import HomeLocked, ObjectMissing
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import publish
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.configuration import RetentionSettings
from orchestrator.service.retention import (
    DAY_SECONDS,
    Retention,
    RunObjects,
    VacuumRequest,
    expired,
    vacuum,
)
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.service.alone import vacuum_alone

TASK = task_from(
    {"objective": "x", "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}]}}
)
NOW = 1000 * DAY_SECONDS

digests = st.frozensets(st.sampled_from("abcdefgh"), max_size=4)
finished = st.one_of(st.none(), st.floats(0, NOW))
holdings = st.lists(st.tuples(finished, digests), max_size=8).map(
    lambda found: [RunObjects(f"R{number}", at, names) for number, (at, names) in enumerate(found)]
)
sizes = st.fixed_dictionaries({name: st.integers(0, 100) for name in "abcdefgh"})


async def journaled(
    journal: Journal, run: str, content: bytes, *, prior: dict[str, str] | None = None, ended: float | None = None
) -> str:
    """Journal a run that has made one artifact, which is all that it did, and return its digest."""
    before = [RunAccepted(at=1.0, run=run, mode="as-planned", task=TASK, prior=prior or {})]
    planned: list[Event] = [StepsPlanned(at=1.0, steps=TASK.plan.steps), PlanFinished(at=1.0, origin="taskir")]
    begun = AttemptStarted(at=2.0, step="S1", number=1, role="worker", persona=None, model="m", reason="a test")
    digest = journal.put(content)
    publish(journal.home, journal.objects, run, {"o": digest})
    await journal.append(
        run, [*before, *planned, begun, AttemptSucceeded(at=3.0, step="S1", number=1, outputs={"o": digest})]
    )
    if ended is not None:
        await journal.append(run, [RunFinished(at=ended, status="done")])
    return digest


@given(holdings, sizes, st.integers(1, 6))
def test_the_newest_runs_are_kept_and_those_that_have_not_ended(
    found: list[RunObjects], known: dict[str, int], most: int
) -> None:
    gone = set(expired(found, known, Retention(runs=most), NOW))
    ended = [one for one in found if one.finished is not None]
    left = [one for one in ended if one.run not in gone]
    assert len(left) == min(most, len(ended))
    assert gone <= {one.run for one in ended}
    oldest_left = min((one.finished or 0.0 for one in left), default=0.0)
    assert all((one.finished or 0.0) <= oldest_left for one in ended if one.run in gone)


@given(holdings, sizes, st.integers(1, 400))
def test_what_is_left_takes_no_more_than_it_may(found: list[RunObjects], known: dict[str, int], most: int) -> None:
    gone = set(expired(found, known, Retention(bytes=most), NOW))
    left = [one for one in found if one.run not in gone]
    taken = sum(known[digest] for digest in {digest for one in left for digest in one.digests})
    assert taken <= most or all(one.finished is None for one in left)


@given(holdings, sizes, st.floats(0.001, 2000))
def test_old_runs_go(found: list[RunObjects], known: dict[str, int], days: float) -> None:
    gone = set(expired(found, known, Retention(days=days), NOW))
    for one in found:
        assert (one.run in gone) == (one.finished is not None and NOW - one.finished > days * DAY_SECONDS)


def test_without_a_limit_everything_is_kept() -> None:
    assert expired([RunObjects("R", 0.0, frozenset("a"))], {"a": 1 << 40}, Retention(), NOW) == []
    settings = RetentionSettings(max_days=2.0, max_runs=3)
    assert Retention.of(settings, VacuumRequest()) == Retention(days=2.0, runs=3)
    assert Retention.of(settings, VacuumRequest(days=0, bytes=5)) == Retention(runs=3, bytes=5)


async def test_what_a_follow_up_run_reads_outlives_the_run_it_came_from(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        first = await journaled(journal, "A", b"first", ended=10.0)
        second = await journaled(journal, "B", b"second", prior={"A/o": first}, ended=20.0)
        third = await journaled(journal, "C", b"third")
        foreseen = vacuum(journal, Retention(runs=1), NOW, dry_run=True)
        assert (foreseen.runs, foreseen.objects) == (("A",), 0)
        assert journal.get(first) == b"first"
        done = vacuum(journal, Retention(runs=1), NOW)
        assert (done.runs, done.objects, done.runs_left) == (("A",), 0, 2)
        assert not (tmp_path / "runs" / "A").exists()
        assert journal.get(first) == b"first"
        assert journal.home.artifacts("B").joinpath("o").read_bytes() == b"second"

        journal.delete("B")
        foreseen = vacuum(journal, Retention(), NOW, dry_run=True)
        done = vacuum(journal, Retention(), NOW)
        assert (done.objects, done.object_bytes, done.object_bytes_left) == (2, 11, 5)
        assert (foreseen.objects, foreseen.object_bytes) == (done.objects, done.object_bytes)
        for digest in (first, second):
            with pytest.raises(ObjectMissing):
                journal.get(digest)
        assert journal.get(third) == b"third"
        assert [row.run for row in journal.runs()] == ["C"]


async def test_what_is_about_to_be_named_is_not_removed(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        digest = journal.put(b"on its way")
        assert vacuum(journal, Retention(), NOW).objects == 0
        assert await journaled(journal, "A", b"on its way", ended=10.0) == digest
        journal.delete("A")
        assert vacuum(journal, Retention(), NOW).objects == 0, "the first one who stored it has not named it yet"
        journal.objects.release([digest])
        assert vacuum(journal, Retention(), NOW).objects == 1


async def test_what_was_named_while_the_sweep_looked_elsewhere_is_not_removed(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        digest = await journaled(journal, "A", b"content", ended=10.0)
        journal.delete("A")

        def named() -> set[str]:
            # Another run stores the same, names it and lets go of it, all after the names were read.
            journal.put(b"content")
            journal.objects.release([digest])
            return set()

        assert journal.objects.sweep(named, lambda: True) == []
        assert journal.get(digest) == b"content"
        assert journal.sweep() == [digest]


async def test_an_artifact_of_a_run_that_was_deleted_meanwhile_cannot_be_built_on(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        digest = await journaled(journal, "A", b"content", ended=10.0)
        journal.delete("A")
        with journal.objects.holding([digest]):
            assert journal.sweep() == []
        assert journal.sweep() == [digest]
        with pytest.raises(ObjectMissing), journal.objects.holding([digest]):
            pass


async def test_folders_of_runs_that_nobody_knows_are_removed(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journaled(journal, "A", b"content", ended=10.0)
        stray = tmp_path / "runs" / "Z" / "artifacts"
        stray.mkdir(parents=True)
        (tmp_path / "runs" / ".hidden").mkdir()
        assert vacuum(journal, Retention(), NOW, dry_run=True).folders == 1
        assert vacuum(journal, Retention(), NOW).folders == 1
        assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [".hidden", "A"]


async def test_the_database_gives_room_back_while_it_is_in_use(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        for number in range(40):
            await journal.append(
                f"R{number}",
                [
                    RunAccepted(at=1.0, run=f"R{number}", mode="serial", request=os.urandom(20_000).hex()),
                    RunFinished(at=2.0, status="cancelled"),
                ],
            )
        done = vacuum(journal, Retention(runs=1), NOW)
        assert len(done.runs) == 39
        assert done.database_bytes < done.database_bytes_before / 4
        await journal.append("S", [RunAccepted(at=3.0, run="S", mode="serial", request="x")])
        assert journal.damage() == []


async def test_without_a_daemon_the_database_is_written_anew(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await journaled(journal, "A", b"content", ended=10.0)
        with pytest.RaisesGroup(HomeLocked):
            await vacuum_alone(tmp_path, Retention(days=1))
    done = await vacuum_alone(tmp_path, Retention(days=1))
    assert (done.runs, done.objects) == (("A",), 1)
    with JournalReader.open_to_read(tmp_path) as journal:
        assert (journal.runs(), journal.damage()) == ([], [])


async def test_a_run_is_as_old_as_the_events_after_it_say_should_the_clock_have_been_set_back(tmp_path: Path) -> None:
    now = time.time()
    with Journal.open(tmp_path) as journal:
        await journaled(journal, "old", b"old", ended=now + 10 * DAY_SECONDS)
        await journaled(journal, "new", b"new", ended=now + 20 * DAY_SECONDS)
    assert (await vacuum_alone(tmp_path, Retention(days=5))).runs == ("old",)


async def test_a_vacuum_that_is_stopped_leaves_everything_in_order(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        digest = await journaled(journal, "A", b"content", ended=10.0)
        done = vacuum(journal, Retention(days=1), NOW, keep_going=lambda: False)
        assert (done.runs, done.objects, done.runs_left) == ((), 0, 1)
        assert journal.get(digest) == b"content"
