"""The memory learns: it updates what it knows instead of adding copies, and each attempt teaches once."""

import gzip
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Replaced
from orchestrator.memrl.errors import StoreCorrupt, StoreError, VectorError
from orchestrator.memrl.memory import DATABASE, Memory, MemoryOptions, Teacher
from orchestrator.memrl.reward import FULL_BY_ACTION
from orchestrator.memrl.vectors import IndexSettings
from tests.memrl.observations import CODER, DIMENSIONS, WRITER, opened, outcome, situation, told, vector_of, vectors_of

TEXTS = [
    "sort a list of names by the second letter",
    "translate the harbour's history into plain English",
    "compare two contracts and list what differs",
    "write a shell script that renames photos by date",
]
EARLIER = Path(__file__).parents[1] / "data" / "memory-without-quality.db.gz"
"""A database of version 1: three episodes of five outcomes."""
APART = MemoryOptions(similarity=0.98)
"""With these, texts that differ in a number are different situations."""


def test_a_similar_situation_with_the_same_action_updates_its_episode(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    first = told(memory, "sort the list of names by the second letter", 1.0)
    again = told(memory, "sort the list of names by the second letter.", 0.0, at=2000.0)
    assert (first.how, again.how, again.episode) == ("added", "updated", first.episode)
    (episode,) = memory.episodes([first.episode or 0])
    assert episode.q == pytest.approx(0.65 + 0.3 * (0.0 - 0.65))
    assert (episode.count, episode.created, episode.last_seen) == (2, 1000.0, 2000.0)
    assert episode.outcome.success == 0.0


@pytest.mark.parametrize(
    ("text", "action", "fields"),
    [
        (TEXTS[1], CODER, {}),
        (TEXTS[0], WRITER, {}),
        (TEXTS[0], CODER, {"task_type": "prose"}),
        (TEXTS[0], CODER, {"kind": "repl"}),
        (TEXTS[0], CODER, {"failures": ("syntax",)}),
    ],
)
def test_another_situation_or_action_is_another_episode(
    tmp_path: Path, text: str, action: Action, fields: dict[str, object]
) -> None:
    memory = opened(tmp_path)
    told(memory, TEXTS[0])
    assert told(memory, text, action=action, about=situation(text, **fields)).how == "added"


def test_most_outcomes_of_recurring_tasks_update_an_episode(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    rng = np.random.default_rng(7)
    for number in range(400):
        text = TEXTS[number % 4] + " please" * (number % 3)
        told(memory, text, float(rng.random() < 0.6), [CODER, WRITER][number % 2], key=("run", "step", number))
    stats = memory.stats()
    assert stats.share_updated > 0.9
    assert stats.share_seen_again == 1.0
    assert stats.q_deviation > 0.05
    assert stats.share_at_ceiling < 0.1


def test_the_steps_come_first_whose_tasks_have_lost_most(tmp_path: Path) -> None:
    memory, plain = opened(tmp_path), replace(CODER, persona="")
    cases = ((0, 4, 0.0, plain, "generate"), (1, 9, 0.0, plain, "generate"), (2, 9, 1.0, plain, "generate"))
    others = ((3, 9, 0.0, replace(plain, persona="terse"), "generate"), (3, 9, 0.0, plain, "chat"))
    for number, (place, times, success, action, kind) in enumerate((*cases, *others)):
        for time in range(times):
            text = TEXTS[place]
            told(memory, text, success, action, key=(f"R{number}", "S1", time), about=situation(text, kind=kind))
    assert [one.situation.text for one in memory.lossy(4, 0.8, 10)] == [TEXTS[1], TEXTS[0]]
    assert [one.count for one in memory.lossy(5, 0.8, 10)] == [9]
    assert [one.situation.text for one in memory.lossy(4, 0.8, 1)] == [TEXTS[1]]
    assert not memory.lossy(10, 0.8, 10)


def test_q_does_not_start_at_the_ceiling(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for text in TEXTS:
        told(memory, text, 1.0)
    stats = memory.stats()
    assert stats.share_at_ceiling == 0.0
    assert stats.q_mean == pytest.approx(0.65)


def test_a_failure_of_the_machine_teaches_nothing_about_the_action(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    told(memory, TEXTS[0], 1.0)
    before = memory.stats()
    key = ("run", "S1", 1)
    assert told(memory, TEXTS[0], None, key=key, failure="infrastructure").how == "unused"
    after = memory.stats()
    assert (after.episodes, after.q_mean, after.outcomes) == (before.episodes, before.q_mean, before.outcomes)
    assert after.unused == 1
    assert told(memory, TEXTS[0], None, key=key, failure="infrastructure").how == "known"


def test_an_attempt_teaches_once(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    key = ("run", "S1", 1)
    first = told(memory, TEXTS[0], 1.0, key=key)
    assert told(memory, TEXTS[0], 1.0, key=key).how == "known"
    memory.close()
    memory = opened(tmp_path)
    assert told(memory, TEXTS[0], 1.0, key=key).how == "known"
    (episode,) = memory.episodes([first.episode or 0])
    assert (episode.count, memory.stats().outcomes) == (1, 1)


@given(
    rewards=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    place=st.integers(0, 7),
    other=st.floats(0, 1),
)
def test_a_rating_replaces_what_the_attempt_taught(
    tmp_path_factory: pytest.TempPathFactory, rewards: list[float], place: int, other: float
) -> None:
    place %= len(rewards)
    memory = opened(tmp_path_factory.mktemp("memory"))
    for number, reward in enumerate(rewards):
        told(memory, TEXTS[0], reward, key=("run", "S1", number))
    revised = told(memory, TEXTS[0], other, key=("run", "S1", place), source="person")
    q = 0.5
    for reward in [*rewards[:place], other, *rewards[place + 1 :]]:
        q += 0.3 * (reward - q)
    assert revised.q == pytest.approx(q)
    if revised.how == "revised":
        assert revised.replaced == Replaced(reward=rewards[place], weight=1.0)
    (value,) = memory.values()
    assert (value.q, value.count) == (pytest.approx(q), len(rewards))
    memory.close()


def test_a_rating_of_an_attempt_that_taught_nothing_teaches(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    key = ("run", "S1", 1)
    told(memory, TEXTS[0], None, key=key)
    assert told(memory, TEXTS[0], 1.0, key=key, source="person").how == "added"
    assert (memory.stats().unused, memory.stats().outcomes) == (0, 1)


def test_a_word_that_counts_less_moves_q_less(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    assert told(memory, TEXTS[0], 1.0, source="judge", weight=0.5).q == pytest.approx(0.5 + 0.15 * 0.5)


def test_retrieval_returns_the_most_similar_first_and_knows_their_q(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for text in TEXTS:
        told(memory, text, 1.0)
    found = memory.retrieve(vector_of(TEXTS[2] + " now"), 3)
    assert len(found) == 3
    (episode,) = memory.episodes([found[0].episode.id])
    assert episode.situation.text == TEXTS[2]
    assert found[0].episode.q == episode.q
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)
    assert memory.retrieve(vector_of(TEXTS[2]), 4, at_least=0.99)[0].similarity == pytest.approx(1, abs=1e-3)
    assert len(memory.retrieve(vector_of(TEXTS[2]), 4, at_least=0.99)) == 1


def test_an_empty_memory_finds_nothing(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    assert len(memory.retrieve(vector_of("anything"), 5)) == 0
    assert memory.values() == []
    assert memory.stats().episodes == 0


@pytest.mark.parametrize("vector", [np.zeros(3), np.full(DIMENSIONS, np.nan), np.zeros((1, DIMENSIONS))])
def test_a_vector_of_another_shape_or_without_numbers_is_refused(tmp_path: Path, vector: NDArray[np.float32]) -> None:
    memory = opened(tmp_path)
    told(memory, TEXTS[0])
    with pytest.raises(VectorError, match=r"lexical|finite"):
        memory.retrieve(vector, 5)
    assert memory.retrieve(vector_of(TEXTS[0]), 1)


def test_any_text_can_be_remembered(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for text in ("", "\ud800 half of a pair", "\0", "x" * 1_000_000):
        done = told(memory, text)
        assert memory.episodes([done.episode or 0])
    memory.close()
    assert opened(tmp_path).stats().episodes == 4


def test_values_aggregate_by_task_type_role_and_persona(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for number, text in enumerate(TEXTS):
        told(memory, text, 1.0, CODER, key=("run", "coder", number))
        told(memory, text, 0.0, WRITER, key=("run", "writer", number))
        told(memory, text, 1.0, WRITER, key=("chat", "writer", number), about=situation(text, task_type=None))
    best, worst = memory.values("code")
    assert (best.role, best.persona, best.q, best.count, best.episodes) == ("coder", "terse", pytest.approx(0.65), 4, 4)
    assert (worst.role, worst.q) == ("writer", pytest.approx(0.35))
    (chat,) = memory.values(None)
    assert chat.q == pytest.approx(0.65)
    assert len(memory.values(role="writer")) == 2


def test_a_batch_is_committed_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    told(memory, TEXTS[0])

    def fail() -> None:
        with memory.batch():
            told(memory, TEXTS[1], key=("run", "S2", 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert memory.stats().episodes == 1
    assert [one.episode.id for one in memory.retrieve(vector_of(TEXTS[1]), 5)] == [1]
    with memory.batch():
        for number, text in enumerate(TEXTS[1:]):
            told(memory, text, key=("run", "S2", number))
    assert memory.stats().episodes == 4
    (found,) = memory.retrieve(vector_of(TEXTS[3]), 1)
    assert memory.episodes([found.episode.id])[0].situation.text == TEXTS[3]


def test_the_log_stays_small_however_many_outcomes_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.memrl.store.LOG_BYTES", 1 << 16)
    monkeypatch.setattr("orchestrator.memrl.memory.LOG_BYTES", 1 << 16)
    monkeypatch.setattr("orchestrator.memrl.memory.LOG_BYTES_AT_MOST", 1 << 18)
    memory = opened(tmp_path, MemoryOptions(most_alike=0))
    for start in range(0, 1500, 50):
        with memory.batch():
            for number in range(start, start + 50):
                told(memory, f"Do {number} things.", key=("run", "S1", number))
    written = (tmp_path / DATABASE).stat().st_size
    assert memory._store.log_bytes < 3 << 18
    memory.close()
    assert (tmp_path / DATABASE).stat().st_size >= written > 1 << 20


def test_what_was_learned_is_there_after_opening_it_again(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for text in TEXTS:
        told(memory, text)
    memory.keep_blob("head", b"weights")
    before = memory.stats()
    memory.close()
    memory = opened(tmp_path)
    after = memory.stats()
    assert (after.episodes, after.q_mean, after.share_updated) == (before.episodes, before.q_mean, before.share_updated)
    assert memory.blob("head") == b"weights"
    assert memory.blob("nothing") is None
    assert len(memory.retrieve(vector_of(TEXTS[0]), 10)) == 4


def test_other_threads_read_while_one_writes(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    ended = Event()
    problems: list[BaseException] = []

    def read() -> None:
        try:
            while not ended.is_set():
                for one in memory.retrieve(vector_of(TEXTS[0]), 10):
                    assert memory.episodes([one.episode.id])
                memory.stats()
        except BaseException as error:  # noqa: BLE001 -- the test raises it
            problems.append(error)

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(200):
        told(memory, f"{TEXTS[number % 4]} number {number * 7919}", key=("run", "S1", number))
    ended.set()
    for reader in readers:
        reader.join()
    assert not problems
    memory.close()


def test_a_closed_memory_says_so(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    memory.close()
    with pytest.raises(StoreError, match="closed"):
        memory.episodes([1])


def test_near_duplicates_are_merged_and_the_oldest_useless_dropped(tmp_path: Path) -> None:
    careful = opened(tmp_path, MemoryOptions(similarity=0.9999))
    kept = told(careful, TEXTS[0], 1.0, key=("run", "S1", 1)).episode or 0
    copy = told(careful, TEXTS[0] + ".", 0.0, key=("run", "S1", 2)).episode or 0
    for number, text in enumerate(TEXTS[1:]):
        told(careful, text, 1.0, key=("run", "S2", number), at=2000.0 + number)
    assert kept != copy
    before = careful.values()
    careful.close()

    memory = opened(tmp_path, MemoryOptions(capacity=3))
    done = memory.compact()
    assert (done.merged, done.dropped) == (1, 1)
    assert memory.episodes([copy]) == []
    (merged,) = memory.episodes([kept])
    assert (merged.count, merged.q) == (2, pytest.approx((0.65 + 0.35) / 2))
    assert {one.episode.id for one in memory.retrieve(vector_of(TEXTS[0]), 10)} == {1, 4, 5}
    after = memory.values()
    assert [(one.q, one.count) for one in after] == [(pytest.approx(one.q), one.count) for one in before]
    assert memory.stats().episodes == 3
    # Both attempts still count, each for its part: what one of them taught can be replaced.
    assert told(memory, TEXTS[0], 1.0, key=("run", "S1", 2)).q == pytest.approx(0.65)
    notes = [memory._store.noted(("run", "S1", number)) for number in (1, 2)]
    assert [note and note.episode for note in notes] == [kept, kept]
    assert told(memory, TEXTS[1], 1.0, key=("run", "S2", 0)).how == "known"


def test_another_embedder_never_meets_the_vectors_of_the_first(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    for text in TEXTS:
        told(memory, text)
    memory.close()

    memory = Memory.open(tmp_path, "reversed", 64)
    assert len(memory.retrieve(np.ones(64, dtype=np.float32), 10)) == 0
    assert memory.stats().lacking == 4

    stop = Event()

    def some(texts: Sequence[str]) -> NDArray[np.float32]:
        stop.set()
        return reversed_vectors(texts)

    assert memory.reembed(some, stop) == 4  # what was begun is ended
    assert memory.stats().lacking == 0
    found = memory.retrieve(reversed_vectors([TEXTS[1]])[0], 1)
    assert memory.episodes([found[0].episode.id])[0].situation.text == TEXTS[1]
    memory.close()
    memory = opened(tmp_path)
    assert memory.stats().lacking == 4
    assert memory.reembed(vectors_of) == 4
    assert told(memory, TEXTS[0], key=("later", "S1", 1)).how == "updated"


def reversed_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.asarray([vector_of(text)[63::-1] for text in texts], dtype=np.float32)


def test_reembedding_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    memory = opened(tmp_path, APART)
    with memory.batch():
        for number in range(150):
            told(memory, f"task {number * 7919} of many", key=("run", "S1", number))
    count = memory.stats().episodes
    memory.close()
    memory = Memory.open(tmp_path, "reversed", 64)
    stop = Event()
    asked: list[str] = []

    def counted(texts: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(texts)
        stop.set()
        return reversed_vectors(texts)

    first = memory.reembed(counted, stop)
    assert 0 < first < count
    memory.close()
    memory = Memory.open(tmp_path, "reversed", 64)
    assert memory.stats().lacking == count - first
    stop.clear()
    while memory.reembed(counted, stop):
        stop.clear()
    assert len(asked) == len(set(asked)) == count
    assert memory.stats().lacking == 0


def test_a_damaged_database_is_refused_and_a_new_one_can_be_taught_again(tmp_path: Path) -> None:
    memory = opened(tmp_path, APART)
    with memory.batch():
        for number in range(300):
            told(memory, f"{number * 7919} {TEXTS[number % 4]}", key=("run", "S1", number))
    total = memory.stats().episodes
    memory.close()
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    for page in range(12, len(data) // 4096, 9):
        data[page * 4096 : page * 4096 + 512] = bytes(512)
    path.write_bytes(data)

    with pytest.raises(StoreCorrupt, match="move it away"):
        opened(tmp_path)
    assert path.read_bytes() == data, "a damaged database stays as it is"
    path.rename(tmp_path / "damaged.db")
    memory = opened(tmp_path, APART)
    for number in range(300):  # the journal has all outcomes
        told(memory, f"{number * 7919} {TEXTS[number % 4]}", key=("run", "S1", number))
    assert memory.stats().episodes == total
    memory.close()


def test_an_early_database_is_migrated_with_what_its_single_user_taught(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(gzip.decompress(EARLIER.read_bytes()))
    memory = opened(tmp_path)
    (taught,) = memory.contributions()
    assert (taught.caller, taught.outcomes, taught.drawn, taught.counted) == ("", 5, 5, 5.0)
    assert [(one.count, one.weight) for one in memory.episodes([1, 2, 3])] == [(3, 3.0), (1, 1.0), (1, 1.0)]
    memory.close()


def test_an_outcome_without_weight_teaches_nothing_until_it_has_one(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    first = told(memory, TEXTS[0], 1.0, key=("r", "S1", 1), weight=0.0)
    assert (first.how, memory.stats().episodes, memory.contributions()) == ("unused", 0, [])
    again = told(memory, TEXTS[0], 1.0, key=("r", "S1", 1), weight=0.5)
    assert (again.how, again.weight, again.q) == ("added", 0.5, pytest.approx(0.575))
    assert (memory.stats().unused, memory.stats().outcomes) == (0, 1)


def test_outcomes_of_one_caller_count_less_and_only_move_the_mean(tmp_path: Path) -> None:
    memory, eve = opened(tmp_path), Teacher("token:eve", trusted=False)
    for number in range(30):
        told(memory, TEXTS[0], 1.0, key=("owner", "S1", number))
    for number in range(200):
        last = told(memory, TEXTS[0], 0.0, key=("eve", "S1", number), teacher=eve)
    assert last.weight == pytest.approx(0.01, rel=0.1)
    assert last.q is not None
    assert last.q > 0.65, "what the owner has taught outweighs it"
    (episode,) = memory.episodes([last.episode or 0])
    assert episode.count == 230
    assert episode.weight == pytest.approx(30 + sum(one.counted for one in memory.contributions()[1:]))
    (near,) = memory.retrieve(vector_of(TEXTS[0]), 1)
    assert near.episode.weight == episode.weight


def test_it_is_no_use_to_hold_ratings_back(tmp_path: Path) -> None:
    memory, eve = opened(tmp_path), Teacher("token:eve", trusted=False)
    for weight in (0.1, 0.7):
        for number in range(100):
            last = told(memory, TEXTS[0], 1.0, key=("eve", "S1", number), teacher=eve, weight=weight)
    again = told(memory, TEXTS[0], 1.0, key=("eve", "S1", 99), teacher=eve, weight=0.7)
    assert (last.how, again.how) == ("revised", "known"), "a run is read again for each rating of it"
    (only,) = memory.contributions()
    assert (only.outcomes, only.told) == (100, pytest.approx(80))
    assert only.counted < FULL_BY_ACTION * (1 + math.log(80 / FULL_BY_ACTION)) + 1


def test_the_word_of_a_caller_that_counts_little_does_not_replace_another_s(tmp_path: Path) -> None:
    memory, eve = opened(tmp_path), Teacher("token:eve", trusted=False)
    for number in range(50):
        told(memory, TEXTS[1], 0.0, key=("eve", "S1", number), teacher=eve)
    ann = told(memory, TEXTS[0], 1.0, key=("ann", "S1", 1), teacher=Teacher("user:ann"), weight=0.7)
    again = told(memory, TEXTS[0], 0.0, key=("ann", "S1", 1), teacher=eve)
    assert (again.how, again.q) == ("known", ann.q)
    bob = told(memory, TEXTS[0], 0.0, key=("ann", "S1", 1), teacher=Teacher("token:bob", trusted=False))
    assert (bob.how, bob.q, bob.weight) == ("revised", pytest.approx(0.35), 1.0)
    assert {one.caller: one.outcomes for one in memory.contributions()}["token:bob"] == 1


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    text = b"not a database, but much text" * 1000
    (tmp_path / DATABASE).write_bytes(text)
    with pytest.raises(StoreCorrupt):
        opened(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == text


def test_a_reward_that_is_no_number_is_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    with pytest.raises(VectorError, match="finite"):
        told(memory, TEXTS[0], float("nan"))
    assert memory.stats().outcomes == 0
    assert outcome(1.0).success == 1.0


LARGE = MemoryOptions(index=IndexSettings(flat_numbers=200 * DIMENSIONS), similarity=0.98)
"""With these, more than 200 episodes get lists, which another process trains."""


def filled(folder: Path, count: int = 600) -> Memory:
    memory = opened(folder, LARGE)
    with memory.batch():
        for number in range(count):
            told(memory, f"{number * 7919} {TEXTS[number % 4]} {number * 104729}", key=("run", "S1", number))
    return memory


@pytest.mark.slow
def test_many_episodes_are_found_by_lists_that_another_process_trains(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    told(memory, "what comes meanwhile", key=("run", "S2", 1))
    memory._index.wait()
    stats = memory.stats()
    assert (stats.index.kind, stats.index.vectors, stats.problems) == ("ivf", stats.episodes, ())
    for text in ("what comes meanwhile", f"{500 * 7919} {TEXTS[0]} {500 * 104729}"):
        (found,) = memory.retrieve(vector_of(text), 1)
        assert memory.episodes([found.episode.id])[0].situation.text == text
        assert found.similarity == pytest.approx(1, abs=0.01)
    memory.close()
    memory = opened(tmp_path, LARGE)
    assert (memory.stats().index.kind, memory.stats().index.building) == ("ivf", False)
    memory.rebuild()
    assert memory.stats().index.vectors == stats.episodes
    memory.close()


def test_a_killed_process_leaves_the_earlier_index_and_says_so(tmp_path: Path) -> None:
    memory = filled(tmp_path, 150)
    with memory.batch():
        for number in range(100):
            told(memory, f"{number * 7907} more of {TEXTS[number % 4]}", key=("run", "S2", number))
    while (process := memory._index._process) is None and memory._index.stats().building:
        pass
    assert process is not None
    process.kill()
    memory._index.wait()
    stats = memory.stats()
    assert (stats.index.kind, stats.index.vectors) == ("flat", stats.episodes)
    assert "could not be made" in stats.problems[0]
    assert memory.retrieve(vector_of(TEXTS[0]), 5)
    memory.rebuild()
    assert (memory.stats().index.kind, memory.stats().problems) == ("ivf", ())
    memory.close()


def test_closing_ends_the_process_that_trains(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    memory.close()
    again = opened(tmp_path, LARGE)
    again._index.wait()
    assert again.stats().index.vectors == again.stats().episodes
    again.close()
