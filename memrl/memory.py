"""Remember how choices turned out, for policy and router.

    observe     an attempt ended: update the episode of a similar situation with the same action, or add one
    retrieve    the episodes whose situations are most similar to a text's vector
    ask         a question to the graph, in Cypher

SQLite (`store`) is the truth. The index (`vectors`) and the graph (`graph`) are made from it.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Episode, Neighbourhood, Outcome, Replaced, Reward, Situation, Value
from orchestrator.memrl.errors import IndexNotReady, StoreError, VectorError
from orchestrator.memrl.graph import Graph, GraphAnswer, Library, RunConfined
from orchestrator.memrl.reward import Contribution, share
from orchestrator.memrl.store import (
    LOG_BYTES,
    EpisodeState,
    EpisodeStore,
    Key,
    LearnedAttempt,
    context_of,
)
from orchestrator.memrl.vectors import IndexSettings, IndexStats, VectorIndex

Vector = NDArray[np.float32]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # returns a vector for each text: shape (texts, dimensions)

DATABASE: Final = "memory.db"
CEILING: Final = 0.99  # a Q from here on counts as the ceiling, if rewards reach 1
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
REEMBEDDED_AT_A_TIME: Final = 64
LOG_BYTES_AT_MOST: Final = 16 * LOG_BYTES  # beyond this, writers wait until the log is moved into the database
DROPPED_AT_A_TIME: Final = 256
FORGOTTEN: Final = 700.0  # minus this stands for log(0): a step size of 1 leaves nothing of the former Q
_LEAST_PART: Final = 1e-6  # least weight of an episode in the Q of a merged one
CHECKED_AT_ONCE: Final = 64 << 20  # larger databases are checked for damage in a thread
_RECORD: Final = np.dtype(  # what is kept of an episode in main memory
    [("context", "i8"), ("q", "f8"), ("weight", "f8"), ("last_seen", "f8"), ("action", "i4"), ("count", "i4")]
)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    alpha: float = 0.3  # step size of Q <- Q + alpha * (R - Q), multiplied by the outcome's weight
    initial: float = 0.5  # Q before the first outcome
    # Cosine from which situations are the same, if they agree in all but the text. The default is for hashed n-grams,
    # as measured by `make bench-routing`: below it, different tasks become one; above it, fewer outcomes meet an
    # episode. A model's vectors are closer together.
    similarity: float = 0.5
    most_alike: int = 64  # similar episodes to search for one with the same action; 0: only the same text
    capacity: int = 1_000_000  # episodes that `compact` leaves
    graph: Library = "ladybug"
    index: IndexSettings = field(default_factory=IndexSettings)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an outcome did to the memory."""

    # revised: replaced what the same attempt taught before; unused: teaches nothing about the action
    how: Literal["added", "updated", "revised", "known", "unused"]
    episode: int | None
    q: float | None  # the episode's Q afterwards
    weight: float = 0.0  # from 0 to 1: evidence times the share of its caller
    replaced: Replaced | None = None  # what the same attempt taught before, if revised


@dataclass(frozen=True, slots=True)
class Teacher:
    """Who teaches an outcome, see `reward`."""

    caller: str = ""  # empty for outcomes recorded before callers were
    trusted: bool = True  # outcomes count in full, however many
    drawn: bool = True  # by the router or the rules, not forced by the user


NOBODY: Final = Teacher()


@dataclass(frozen=True, slots=True)
class MemoryStats:
    episodes: int
    outcomes: int  # that taught something
    unused: int  # that taught nothing about their action, such as failures of the machine
    revised: int  # replaced later, mostly by a rating
    share_updated: float  # of the outcomes, those that updated an episode instead of adding one
    share_seen_again: float  # of the episodes, those that were updated
    q_mean: float
    q_deviation: float  # standard deviation of Q over the episodes
    q_quantiles: dict[float, float]
    share_at_ceiling: float  # of the episodes, those with a Q of CEILING at least
    embedder: str
    lacking: int  # episodes without a vector of this embedder; retrieval finds them only after `reembed`
    index: IndexStats
    database_bytes: int
    problems: tuple[str, ...]  # sentences


@dataclass(frozen=True, slots=True)
class Compacted:
    merged: int  # near-duplicates that went into others
    dropped: int  # episodes beyond the capacity


class _Columns:
    """Main-memory records of all episodes by number, with count 0 if there is none.

    One record holds all of an episode: one memory access. The array grows by remapping pages, so appending never
    stalls. Growing moves it: outside of the lock nobody may hold a view.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._records: NDArray[Any] = np.zeros(1, dtype=_RECORD)
            self.episodes = 0

    def extend(self, rows: list[tuple[Any, ...]]) -> None:
        # rows: id, action, context, q, count, weight, last seen; of new episodes
        ids, *columns = zip(*rows, strict=True)
        with self._lock:
            self._reach(ids[-1])
            for name, column in zip(("action", "context", "q", "count", "weight", "last_seen"), columns, strict=True):
                self._records[name][list(ids)] = column
            self.episodes += len(ids)

    def set(self, number: int, action: int, context: int, state: EpisodeState) -> None:
        with self._lock:
            self._reach(number)
            self.episodes += not self.has(number)
            self._records[number] = (context, state.q, state.weight, state.last_seen, action, state.count)

    def remove(self, number: int) -> None:
        with self._lock:
            self.episodes -= self.has(number)
            self._records["count"][number] = 0

    def has(self, number: int) -> bool:
        return 0 < number < len(self._records) and self._at(number)[-1] > 0

    def neighbours(
        self, ids: NDArray[np.int64], similarities: NDArray[np.float32], limit: int, named: Mapping[int, Action]
    ) -> Neighbourhood:
        # leaves out numbers that are no episode
        with self._lock:
            place = np.flatnonzero((ids > 0) & (ids < len(self._records)))
            records = self._records.take(ids[place])
        present = np.flatnonzero(records["count"] > 0)[:limit]
        place, records = place[present], records[present]
        return Neighbourhood(
            ids=ids[place],
            similarities=similarities[place].astype(np.float64),
            q=records["q"].copy(),
            counts=records["count"].astype(np.float64),
            weights=records["weight"].copy(),
            last_seen=records["last_seen"].copy(),
            actions=records["action"].astype(np.int64),
            named=named,
        )

    def key(self, number: int) -> tuple[int, int]:
        context, _, _, _, action, _ = self._at(number)
        return action, context

    def table(self) -> NDArray[Any]:
        # a copy, including numbers that are no episode
        with self._lock:
            return self._records.copy()

    def _reach(self, number: int) -> None:
        # `refcheck` would also count a view that was just dropped
        if number >= len(self._records):
            self._records.resize(number + 1 + number // 8, refcheck=False)

    def _at(self, number: int) -> tuple[int, float, float, float, int, int]:
        # the fields of `_RECORD`, read in one go: no view
        record: tuple[int, float, float, float, int, int] = self._records.item(number)
        return record


class Memory:
    """What was learned from the attempts of all runs. Thread-safe; writers take turns.

    Methods raise `StoreError` if the database cannot be used, and `StoreCorrupt` if it is damaged.
    """

    def __init__(
        self, folder: Path, store: EpisodeStore, embedder: str, dimensions: int, settings: MemoryOptions
    ) -> None:
        """Use `open` instead."""
        self.folder = folder
        self.embedder = embedder
        self.dimensions = dimensions
        self.settings = settings
        self._store = store
        self._writing = threading.RLock()
        self._batches = 0
        self._columns = _Columns()
        self._problem = ""
        self._background: threading.Thread | None = None
        with store.transaction():
            self._embedder_id = store.embedder_id(embedder, dimensions)
        self._index = self._new_index()
        self._graph = Graph(folder, settings.graph, folder / DATABASE, self._observations)

    @classmethod
    def open(cls, folder: Path, embedder: str, dimensions: int, settings: MemoryOptions | None = None) -> Self:
        """Open or create the memory in a folder, which no other process may have open for writing.

        `embedder` names what makes the vectors. Those of other embedders are never compared; `reembed` replaces them. A
        missing, stale or damaged index is rebuilt; if it is large, in a thread, and `retrieve` raises `IndexNotReady`
        meanwhile. Raises `StoreError`, `StoreCorrupt` and `StoreTooNew`.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(folder, f"the folder of the memory cannot be made: {error.strerror}") from error
        path = folder / DATABASE
        store = EpisodeStore.open(path)
        try:
            if store.disk_bytes <= CHECKED_AT_ONCE:
                store.check()
            memory = cls(folder, store, embedder, dimensions, settings or MemoryOptions())
            memory._load()
        except BaseException:
            store.close()
            raise
        if store.disk_bytes > CHECKED_AT_ONCE:
            memory._in_background(memory._check)
        return memory

    def close(self) -> None:
        with self._writing:
            if self._background is not None:
                self._background.join()
            self._index.close()
            self._store.close()

    # Learning

    def observe(
        self,
        situation: Situation,
        vector: Vector,
        action: Action,
        *,
        outcome: Outcome,
        reward: Reward,
        propensity: float,
        at: float,
        key: Key,
        after: Sequence[str] = (),
        teacher: Teacher = NOBODY,
    ) -> Observed:
        """Learn from an attempt, only once, and commit.

        `vector` is that of `situation.text`, of any length, shape (dimensions,). `propensity` is the probability of the
        choice, `at` is in seconds since the epoch. A known `key` with another reward, such as a later rating, replaces
        what it taught. Without success or weight an outcome is only noted. `after` names the steps whose output it
        read, for the graph. Raises `VectorError` for a vector of the wrong width or with values that are not finite.
        """
        if not math.isfinite(reward.total):
            raise VectorError(f"the reward of attempt {key} is {reward.total}; it has to be a finite number")
        lesson = _Lesson(
            key, _clean(situation), self._direction(vector), action, outcome, reward, propensity, at, after, teacher
        )
        with self._writing:
            with self._store.transaction():
                earlier = self._store.noted(key)
                observed, change = self._learn(lesson) if earlier is None else self._revise(earlier, lesson)
            if change is not None:
                self._apply(change)
            self._settle()
        return observed

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Commit all observations within the block at its end, or none if it fails. Other writers wait."""
        with self._writing:
            self._batches += 1
            try:
                with self._store.transaction():
                    yield
            except BaseException:
                if self._batches == 1:
                    self._reload()
                raise
            finally:
                self._batches -= 1
            self._settle()

    def _learn(self, lesson: "_Lesson") -> tuple[Observed, "_Change | None"]:
        evidence = _evidence(lesson.outcome)
        if not evidence:
            self._store.note(self._note(lesson, None, 0.0, 0.0, 0.0, 1.0))
            self._store.count_up("unused")
            return Observed("unused", None, None), None
        action = self._store.action_id(lesson.action)
        context = context_of(lesson.situation)
        share = self._share(lesson.teacher, action, context)
        weight = evidence * share
        episode = self._store.find(lesson.situation, action) or self._alike(lesson.direction, action, context)
        earlier = None if episode is None else self._store.numbers(episode)
        before, count, last_seen, decay, former_weight = earlier or (self.settings.initial, 0, lesson.at, 0.0, 0.0)
        size = weight * self._step(lesson.teacher, former_weight + weight)
        state = EpisodeState(
            q=before + size * (lesson.reward.total - before),
            count=count + 1,
            last_seen=max(last_seen, lesson.at),
            decay=decay + (math.log1p(-size) if size < 1 else -FORGOTTEN),
            weight=former_weight + weight,
            propensity=lesson.propensity,
            outcome=replace(lesson.outcome, weight=weight),
            reward=lesson.reward,
        )
        added = episode is None or earlier is None
        if episode is None or earlier is None:
            episode = self._store.add(lesson.situation, action, state)
            self._store.keep_vectors(self._embedder_id, [episode], lesson.direction.reshape(1, -1))
        else:
            self._store.change(episode, state)
        self._store.count_up("added" if added else "updated")
        self._store.note(self._note(lesson, episode, before, size, state.decay, share))
        self._contribute(lesson.teacher, action, context, evidence, weight)
        weighted = state.q * state.count - before * count
        self._store.add_to_total(lesson.situation.task_type, lesson.action, weighted, 1, int(added), state.last_seen)
        change = _Change(episode, action, context, state, lesson.direction if added else None)
        return Observed("added" if added else "updated", episode, state.q, weight), change

    def _revise(self, earlier: LearnedAttempt, lesson: "_Lesson") -> tuple[Observed, "_Change | None"]:
        # replaces the step that the attempt made, faded by the steps after it
        evidence = _evidence(lesson.outcome)
        if earlier.episode is None and not earlier.weight and evidence:
            self._store.count_up("unused", -1)
            return self._learn(lesson)
        numbers = None if earlier.episode is None else self._store.numbers(earlier.episode)
        if earlier.episode is None or numbers is None or lesson.outcome.success is None:
            return Observed("known", earlier.episode, None), None
        q, count, last_seen, decay, heard = numbers
        action, context = self._store.action_id(earlier.action), context_of(lesson.situation)
        same = lesson.teacher.caller == earlier.caller
        share = self._share_again(earlier, lesson.teacher, context, evidence)
        weight, before = evidence * share, earlier.weight
        step = earlier.size / before if before else self._step(lesson.teacher, heard + weight)
        size = earlier.size if weight == before else weight * step
        weaker = not same and not lesson.teacher.trusted and weight < before
        if weaker or (earlier.reward, earlier.size) == (lesson.reward.total, size):
            return Observed("known", earlier.episode, q), None
        difference = size * (lesson.reward.total - earlier.before) - earlier.size * (earlier.reward - earlier.before)
        state = EpisodeState(
            q=q + math.exp(decay - earlier.decay) * difference,
            count=count,
            last_seen=max(last_seen, lesson.at),
            decay=decay,
            weight=max(0.0, heard + weight - before),
            propensity=lesson.propensity,
            outcome=replace(lesson.outcome, weight=weight),
            reward=lesson.reward,
        )
        self._store.change(earlier.episode, state)
        self._store.note(self._note(lesson, earlier.episode, earlier.before, size, earlier.decay, share))
        self._store.count_up("revised")
        self._take_back(earlier, action, context)
        self._contribute(lesson.teacher, action, context, evidence, weight)
        weighted = (state.q - q) * count
        self._store.add_to_total(earlier.task_type, earlier.action, weighted, 0, 0, state.last_seen)
        change = _Change(earlier.episode, action, context, state, None)
        replaced = Replaced(reward=earlier.reward, weight=before)
        return Observed("revised", earlier.episode, state.q, weight, replaced), change

    def _share(self, teacher: Teacher, action: int, context: int) -> float:
        return 1.0 if teacher.trusted else share(*self._store.evidence_of(teacher.caller, action, context))

    def _share_again(self, earlier: LearnedAttempt, teacher: Teacher, context: int, evidence: float) -> float:
        # Evidence that comes later counts as the caller's outcomes do by then, so that holding it back gains nothing.
        share = self._share(teacher, self._store.action_id(earlier.action), context)
        if teacher.caller != earlier.caller:
            return share
        return earlier.share if evidence * earlier.share <= earlier.weight else min(earlier.share, share)

    def _step(self, teacher: Teacher, weight: float) -> float:
        # A trusted caller's step follows the latest few outcomes; others only move the mean of all.
        return self.settings.alpha if teacher.trusted else min(self.settings.alpha, 1.0 / max(1.0, weight))

    def _contribute(self, teacher: Teacher, action: int, context: int, evidence: float, weight: float) -> None:
        drawn = int(teacher.drawn)
        contribution = Contribution(caller=teacher.caller, outcomes=1, drawn=drawn, told=evidence, counted=weight)
        self._store.contribute(contribution, action, context)

    def _take_back(self, earlier: LearnedAttempt, action: int, context: int) -> None:
        # what the caller has told stays: it cannot be told again
        drawn, counted = -int(earlier.drawn), -earlier.weight
        less = Contribution(caller=earlier.caller, outcomes=-1, drawn=drawn, told=0.0, counted=counted)
        self._store.contribute(less, action, context)

    def _note(
        self, lesson: "_Lesson", episode: int | None, before: float, size: float, decay: float, share: float
    ) -> LearnedAttempt:
        return LearnedAttempt(
            key=lesson.key,
            episode=episode,
            action=lesson.action,
            task_type=lesson.situation.task_type,
            failure=lesson.outcome.failure,
            success=lesson.outcome.worth,
            reward=lesson.reward.total,
            before=before,
            size=size,
            decay=decay,
            at=lesson.at,
            after=tuple(lesson.after),
            caller=lesson.teacher.caller,
            drawn=lesson.teacher.drawn,
            share=share,
            weight=_evidence(lesson.outcome) * share,
        )

    def _alike(self, direction: Vector, action: int, context: int) -> int | None:
        if self.settings.most_alike == 0:
            return None
        try:
            ids, similarities = self._index.search(direction, self.settings.most_alike)
        except IndexNotReady:
            return None  # `compact` merges the copy that may come of it
        for episode, similarity in zip(ids.tolist(), similarities.tolist(), strict=True):
            if similarity < self.settings.similarity:
                return None
            if self._columns.has(episode) and self._columns.key(episode) == (action, context):
                return int(episode)
        return None

    def _apply(self, change: "_Change") -> None:
        self._columns.set(change.episode, change.action, change.context, change.state)
        if change.direction is not None:
            self._index.add([change.episode], change.direction.reshape(1, -1))

    def _settle(self) -> None:
        if self._batches == 0:
            self._index.maintain()
            if (log := self._store.log_bytes) > LOG_BYTES_AT_MOST:
                self._store.checkpoint()
            elif log > LOG_BYTES:
                self._in_background(self._store.checkpoint)

    # Asking

    def retrieve(self, vector: Vector, k: int, at_least: float = -1.0) -> Neighbourhood:
        """Return up to `k` most similar episodes with a cosine of `at_least`, most similar first.

        Raises `VectorError`, and `IndexNotReady` while the index is rebuilt.
        """
        direction = self._direction(vector)
        ids, similarities = self._index.search(direction, k + min(8 * k, self._index.dropped))
        near = int(np.searchsorted(-similarities, -at_least, side="right"))
        return self._columns.neighbours(ids[:near], similarities[:near], k, self._store.actions)

    def episodes(self, ids: Iterable[int]) -> list[Episode]:
        """Return whole episodes in the order of `ids`, without those that were dropped or merged."""
        return self._store.episodes(ids)

    def episodes_after(self, episode: int, limit: int) -> list[Episode]:
        """Return up to `limit` whole episodes with numbers above `episode`, in order."""
        return self._store.episodes(self._store.numbers_after(episode, limit))

    def lossy(self, at_least: int, at_most: float, limit: int) -> list[Episode]:
        """Return episodes with a count of `at_least` and a Q of `at_most`, by falling count * (1 - Q).

        Chats, plans and steps with a persona are left out.
        """
        records = self._columns.table()
        plain = [number for number, action in self._store.actions.items() if not action.persona and not action.mode]
        able = (records["count"] >= at_least) & (records["q"] <= at_most) & np.isin(records["action"], plain)
        records, numbers = records[able], np.flatnonzero(able)
        order = np.argsort(-records["count"] * (1.0 - records["q"]), kind="stable")
        candidates = self._store.episodes(numbers[order[: 4 * limit]].tolist())  # chats may be among them
        return [episode for episode in candidates if episode.situation.kind not in ("plan", "chat")][:limit]

    def values(
        self,
        task_type: str | EllipsisType | None = ...,
        role: str | EllipsisType = ...,
        persona: str | EllipsisType = ...,
    ) -> list[Value]:
        """Return the worth of roles with personas by task type, best first. `...` matches any, None requests and chats.

        Dropped episodes still count.
        """
        values = [
            value
            for value in self._store.values()
            if task_type in (..., value.task_type) and role in (..., value.role) and persona in (..., value.persona)
        ]
        return sorted(values, key=lambda value: value.q, reverse=True)

    def learned_from(self, keys: Iterable[Key]) -> dict[Key, LearnedAttempt]:
        """Return what these attempts taught, without those that nothing was learned from yet."""
        return self._store.notes_of(keys)

    def contributions(self) -> list[Contribution]:
        """Return what each caller has taught, largest first."""
        return self._store.contributions()

    def ask(self, cypher: str, confined: RunConfined, seconds: float = 10.0, rows: int = 1000) -> GraphAnswer:
        """Ask the graph, for at most `rows` rows; it is rewritten first if missing, damaged, or out of date and small.

        `confined` runs the process that answers. Raises `CypherRefused` for what does more than read, `CypherFailed`,
        `CypherTimeout` after `seconds`, and `GraphError`.
        """
        return self._graph.ask(cypher, confined, seconds, rows)

    def stats(self) -> MemoryStats:
        """Return what the memory holds and what is wrong with it. Reads all vectors' owners."""
        with self._writing:
            counters = self._store.counters()
            records = self._columns.table()
            count, q = records["count"], records["q"][records["count"] > 0]
            again = int((count > 1).sum())
        added, updated = counters.get("added", 0), counters.get("updated", 0)
        index = self._index.stats()
        problems = (self._problem, index.problem)
        return MemoryStats(
            episodes=len(q),
            outcomes=added + updated,
            unused=counters.get("unused", 0),
            revised=counters.get("revised", 0),
            share_updated=updated / max(1, added + updated),
            share_seen_again=again / max(1, len(q)),
            q_mean=float(q.mean()) if len(q) else self.settings.initial,
            q_deviation=float(q.std()) if len(q) else 0.0,
            q_quantiles={part: float(np.quantile(q, part)) for part in QUANTILES} if len(q) else {},
            share_at_ceiling=float((q >= CEILING).mean()) if len(q) else 0.0,
            embedder=self.embedder,
            lacking=self._store.count_lacking(self._embedder_id),
            index=index,
            database_bytes=self._store.disk_bytes,
            problems=tuple(problem for problem in problems if problem),
        )

    # What others keep here

    def keep_blob(self, name: str, body: bytes) -> None:
        """Keep bytes under a name, such as the weights of the head, in place of earlier ones."""
        with self._writing, self._store.transaction():
            self._store.keep_blob(name, body)

    def blob(self, name: str) -> bytes | None:
        """Return the bytes kept under a name, or None. Raises `StoreCorrupt` if they are damaged."""
        return self._store.blob(name)

    # Housekeeping; all of it may take long, and be done in a thread while others learn and ask

    def reembed(self, embed: Embed, stop: threading.Event | None = None) -> int:
        """Give every episode without a vector of this embedder one made by `embed`; return how many.

        Commits every few episodes, and can be stopped and continued. Raises `VectorError` for vectors of another width.
        """
        self._index.wait()
        count = after = 0
        while not (stop is not None and stop.is_set()):
            lacking = self._store.lacking(self._embedder_id, after, REEMBEDDED_AT_A_TIME)
            if not lacking:
                break
            after = lacking[-1][0]
            directions = [self._direction(row) for row in embed([text for _, text in lacking])]
            with self._writing:
                present = [place for place, (episode, _) in enumerate(lacking) if self._columns.has(episode)]
                ids = [lacking[place][0] for place in present]
                vectors = np.array([directions[place] for place in present], dtype=np.float32).reshape(
                    -1, self.dimensions
                )
                with self._store.transaction():
                    self._store.keep_vectors(self._embedder_id, ids, vectors)
                    self._store.count_up("revision")
                self._index.add(ids, vectors)
                self._settle()
            count += len(lacking)
        return count

    def rebuild(self) -> None:
        """Rebuild index and graph from the database. Raises `GraphError` if the graph cannot be written."""
        with self._writing:
            broken = self._store.broken_vectors(self._embedder_id, self.dimensions)
            with self._store.transaction():
                self._store.drop_vectors(broken)
            self._index.build()
        self._index.wait()
        self._graph.write()

    def compact(self) -> Compacted:
        """Merge near-duplicates among new episodes, and drop those beyond the capacity: first seen once, then oldest.

        What dropped episodes taught stays in `values`, and their attempts stay known.
        """
        merged = self._merge_alike()
        dropped = 0
        while (excess := self._columns.episodes - self.settings.capacity) > 0:
            dropped += self._drop(self._store.useless(min(excess, DROPPED_AT_A_TIME)))
        return Compacted(merged, dropped)

    def _merge_alike(self) -> int:
        merged = 0
        start = self._store.counters().get("compacted", 0)
        for ids, vectors in self._store.vectors(self._embedder_id, self.dimensions, start):
            for episode, vector in zip(ids, vectors, strict=True):
                with self._writing:
                    older = self._older_copy(episode, vector)
                    if older is not None:
                        with self._store.transaction():
                            whole = self._merge(episode, older)
                        self._columns.remove(episode)
                        self._columns.set(older, *self._columns.key(older), whole)
                        self._index.drop(1)
                        merged += 1
            with self._writing, self._store.transaction():
                now = self._store.counters().get("compacted", 0)
                self._store.count_up("compacted", max(0, ids[-1] - now) if ids else 0)
        with self._writing:
            self._settle()
        return merged

    def _older_copy(self, episode: int, vector: Vector) -> int | None:
        if not self._columns.has(episode):
            return None
        key = self._columns.key(episode)
        for older, similarity in zip(*self._index.search(vector, self.settings.most_alike), strict=True):
            if similarity < self.settings.similarity:
                return None
            if older < episode and self._columns.has(int(older)) and self._columns.key(int(older)) == key:
                return int(older)
        return None

    def _merge(self, episode: int, into: int) -> EpisodeState:
        # Q is the mean by weight. `decay` makes the notes of both say how much their attempts count for Q now.
        first, second = self._store.state(into), self._store.state(episode)
        assert first is not None
        assert second is not None
        weight = first.weight + second.weight
        part = min(1.0 - _LEAST_PART, max(_LEAST_PART, first.weight / weight if weight else 0.5))
        decay = first.decay + math.log(part)
        newer = max(first, second, key=lambda state: state.last_seen)
        q = part * first.q + (1.0 - part) * second.q
        self._store.move_notes(episode, into, decay - second.decay - math.log(1.0 - part))
        whole = replace(newer, q=q, count=first.count + second.count, decay=decay, weight=weight)
        self._store.change(into, whole)
        dropped = self._store.episodes([episode])[0]
        self._store.add_to_total(dropped.situation.task_type, dropped.action, 0.0, 0, -1, newer.last_seen)
        self._store.drop([episode])
        return whole

    def _drop(self, ids: list[int]) -> int:
        with self._writing:
            with self._store.transaction():
                for dropped in self._store.episodes(ids):
                    self._store.add_to_total(dropped.situation.task_type, dropped.action, 0.0, 0, -1, dropped.last_seen)
                self._store.drop(ids)
            for episode in ids:
                self._columns.remove(episode)
            self._index.drop(len(ids))
            self._settle()
        return len(ids)

    # Opening

    def _load(self) -> None:
        self._columns.clear()
        for rows in self._store.columns():
            self._columns.extend(rows)
        self._index.load(self._store.last_id())

    def _reload(self) -> None:
        # since numbers of episodes may be given again after a batch was undone
        self._index.abandon()
        self._index = self._new_index()
        self._load()

    def _new_index(self) -> VectorIndex:
        def source(after: int) -> Iterator[tuple[list[int], Vector]]:
            return self._store.vectors(self._embedder_id, self.dimensions, after)

        def stamp(last: int) -> tuple[int | None, int]:
            return self._store.fingerprint(last), self._store.counters().get("revision", 0)

        database = (self.folder / DATABASE, self._embedder_id)
        return VectorIndex(self.folder, self.embedder, self.dimensions, source, stamp, self.settings.index, database)

    def _direction(self, vector: Vector) -> Vector:
        # of length 1
        direction = np.asarray(vector, dtype=np.float32)
        if direction.shape != (self.dimensions,):
            expected = f"those of the embedder {self.embedder!r} have the shape ({self.dimensions},)"
            raise VectorError(f"the vector has the shape {direction.shape}; {expected}")
        length = float(np.linalg.norm(direction))
        if not math.isfinite(length):
            raise VectorError("the vector has values that are no finite numbers")
        return direction / length if length > 0 else direction

    def _observations(self) -> int:
        # changes with every outcome
        counters = self._store.counters()
        return sum(counters.get(name, 0) for name in ("added", "updated", "revised", "unused"))

    def _check(self) -> None:
        try:
            self._store.check()
        except StoreError as error:
            self._problem = str(error)

    def _in_background(self, work: Callable[[], None]) -> None:
        if self._background is None or not self._background.is_alive():
            self._background = threading.Thread(target=work, name="memory-store", daemon=True)
            self._background.start()


@dataclass(frozen=True, slots=True)
class _Lesson:
    key: Key
    situation: Situation
    direction: Vector  # the vector of the situation's text, of length 1
    action: Action
    outcome: Outcome
    reward: Reward
    propensity: float
    at: float
    after: Sequence[str]
    teacher: Teacher


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of an episode, for columns and index once it is committed."""

    episode: int
    action: int
    context: int
    state: EpisodeState
    direction: Vector | None  # its vector if it is new


def _evidence(outcome: Outcome) -> float:
    # from 0 to 1; 0 if it teaches nothing
    return 0.0 if outcome.success is None else min(1.0, max(0.0, outcome.weight))


def _clean(situation: Situation) -> Situation:
    # without halves of surrogate pairs: JSON may hold them, SQLite refuses them
    kind = situation.task_type
    return replace(
        situation,
        text=situation.text.encode(errors="replace").decode(),
        task_type=None if kind is None else kind.encode(errors="replace").decode(),
    )
