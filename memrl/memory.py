"""Remember how choices turned out: the memory that policy and router use.

    observe     an attempt ended: update the episode of a similar situation with the same action, or add one
    retrieve    the episodes whose situations are most similar to a text's vector
    ask         a question to the graph, in Cypher

SQLite (`store`) is the truth. The index (`vectors`) and the graph (`graph`) are made from it.
"""

import math
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from memrl.contribution import Contribution, share
from memrl.episodes import Action, Episode, Neighbourhood, Outcome, Replaced, Reward, Situation, Value
from memrl.errors import IndexNotReady, StoreError, VectorError
from memrl.graph import Graph, GraphAnswer, Library, RunConfined
from memrl.store import LOG_BYTES, EpisodeState, EpisodeStore, Key, LearnedAttempt, Salvaged, context_of, salvage
from memrl.vectors import IndexSettings, IndexStats, VectorIndex

Vector = NDArray[np.float32]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Returns a vector for each text: shape (texts, dimensions)."""

Progress = Callable[[int, int], None]
"""Is told how many of how many are done."""

DATABASE: Final = "memory.db"
CEILING: Final = 0.99
"""From which Q on an episode counts as being at the ceiling, if rewards reach 1."""
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
REEMBEDDED_AT_A_TIME: Final = 64
LOG_BYTES_AT_MOST: Final = 16 * LOG_BYTES
"""How large it may grow before whoever writes waits until it is moved, as after thousands of outcomes at once."""
DROPPED_AT_A_TIME: Final = 256
FORGOTTEN: Final = 700.0
"""Minus this number stands for log(0), where an update with the step size 1 leaves nothing of the former Q-value."""
_LEAST_PART: Final = 1e-6
"""The least part that an episode has in the Q of the one that it is merged with."""
CHECKED_AT_ONCE: Final = 64 << 20
"""Databases up to this many bytes are checked for damage before they are used, larger ones in a thread."""
_PACKED: Final = struct.Struct("=qdddii")
"""What is kept of an episode in the main memory, as `_RECORD` names it."""
_RECORD: Final = np.dtype(
    [("context", "i8"), ("q", "f8"), ("weight", "f8"), ("last_seen", "f8"), ("action", "i4"), ("count", "i4")]
)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How the memory learns, and what it holds."""

    alpha: float = 0.3
    """The step size of Q <- Q + alpha * (R - Q). It is multiplied by how much the outcome's word counts."""
    initial: float = 0.5
    """Q before the first outcome."""
    similarity: float = 0.5
    """From which cosine on two situations are the same one, if they agree in all but the text.

    The default is for vectors of hashed n-grams, by measurement (`make bench-routing`): below it, tasks of different
    kinds become one; above it, fewer outcomes meet an episode, and what similar episodes say gets worse. A model's
    vectors are closer together.
    """
    most_alike: int = 64
    """Among how many of the most similar episodes one with the same action is looked for; 0: only the same text."""
    capacity: int = 1_000_000
    """How many episodes `compact` leaves."""
    graph: Library = "ladybug"
    """The library of the graph."""
    index: IndexSettings = field(default_factory=IndexSettings)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an outcome did to the memory."""

    how: Literal["added", "updated", "revised", "known", "unused"]
    """Added or updated an episode; revised what the same attempt had taught before; was known already; or teaches
    nothing about the action."""
    episode: int | None
    q: float | None
    """The episode's Q after it."""
    weight: float = 0.0
    """How much the outcome counted, from 0 to 1: the weight of its evidence times the share of its caller."""
    replaced: Replaced | None = None
    """What the same attempt had taught before, if this revised it."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """Who teaches an outcome, for the limit on what one caller can teach (`contribution`)."""

    caller: str = ""
    """The key of the caller; empty for outcomes from before callers were recorded."""
    trusted: bool = True
    """Whether the caller's outcomes count in full, however many there are."""
    drawn: bool = True
    """Whether the router or the rules chose the action, and no user forced it."""


NOBODY: Final = Teacher()


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What the memory holds and how it has learned."""

    episodes: int
    outcomes: int
    """Outcomes that taught something."""
    unused: int
    """Outcomes that taught nothing about their action, such as failures of the machine."""
    revised: int
    """Outcomes that were replaced later, mostly by a rating."""
    share_updated: float
    """Which share of the outcomes updated an episode instead of adding one."""
    share_seen_again: float
    """Which share of the episodes has been updated."""
    q_mean: float
    q_deviation: float
    """The standard deviation of Q over the episodes."""
    q_quantiles: dict[float, float]
    share_at_ceiling: float
    """Which share of the episodes has a Q of at least 0.99."""
    embedder: str
    lacking: int
    """Episodes without a vector of this embedder, which retrieval cannot find until `reembed` has been there."""
    index: IndexStats
    database_bytes: int
    problems: tuple[str, ...]
    """What is wrong, in sentences; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What `compact` did."""

    merged: int
    """Episodes that were near-duplicates of others, and went into them."""
    dropped: int
    """Episodes beyond the capacity."""


class _Columns:
    """What is known of every episode without reading the database, by its number. `count` is 0 where there is none.

    All of one episode lies together, so that looking an episode up costs one access to the main memory. The records
    grow by being moved as pages of memory, so appending to them does not stall.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while records are appended, and while an array looks at them: they cannot grow then."""
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._records = bytearray(_RECORD.itemsize)
            self._size = 1
            self.episodes = 0

    def extend(self, rows: list[tuple[Any, ...]]) -> None:
        """Append rows of id, action, context, q, count, weight and last seen, whose ids follow those that are there."""
        ids, *columns = zip(*rows, strict=True)
        if ids[-1] - self._size + 1 != len(ids):  # numbers are missing
            for row in rows:
                self.set(*row)
            return
        records = np.empty(len(ids), dtype=_RECORD)
        for name, column in zip(("action", "context", "q", "count", "weight", "last_seen"), columns, strict=True):
            records[name] = column
        with self._lock:
            self._records += records.tobytes()
            self._size += len(ids)
            self.episodes += len(ids)

    def set(
        self, number: int, action: int, context: int, q: float, count: int, weight: float, last_seen: float
    ) -> None:
        with self._lock:
            if (missing := number + 1 - self._size) > 0:
                self._records += bytes(missing * _RECORD.itemsize)
                self._size += missing
            self.episodes += self._at(number)[-1] == 0
            _PACKED.pack_into(self._records, number * _RECORD.itemsize, context, q, weight, last_seen, action, count)

    def remove(self, number: int) -> None:
        with self._lock:
            *known, count = self._at(number)
            self.episodes -= count > 0
            _PACKED.pack_into(self._records, number * _RECORD.itemsize, *known, 0)

    def has(self, number: int) -> bool:
        return 0 < number < self._size and self._at(number)[-1] > 0

    def neighbours(
        self, ids: NDArray[np.int64], similarities: NDArray[np.float32], limit: int, named: Mapping[int, Action]
    ) -> Neighbourhood:
        """Return the first `limit` of these episodes that are there, with what is known of them."""
        with self._lock:
            place = np.flatnonzero((ids > 0) & (ids < self._size))
            found = np.frombuffer(self._records, dtype=_RECORD).take(ids[place])
        there = np.flatnonzero(found["count"] > 0)[:limit]
        place, found = place[there], found[there]
        return Neighbourhood(
            ids=ids[place],
            similarities=similarities[place].astype(np.float64),
            q=found["q"].copy(),
            counts=found["count"].astype(np.float64),
            weights=found["weight"].copy(),
            last_seen=found["last_seen"].copy(),
            actions=found["action"].astype(np.int64),
            named=named,
        )

    def key(self, number: int) -> tuple[int, int]:
        """Return the numbers of an episode's action and context."""
        context, _, _, _, action, _ = self._at(number)
        return action, context

    def table(self) -> NDArray[Any]:
        """Return a copy of all records, of numbers that are no episode's too."""
        with self._lock:
            return np.frombuffer(bytes(self._records), dtype=_RECORD)

    def _at(self, number: int) -> tuple[int, float, float, float, int, int]:
        """Return context, Q, weight, last seen, action and count of an episode."""
        found: tuple[int, float, float, float, int, int] = _PACKED.unpack_from(self._records, number * _RECORD.itemsize)
        return found


class Memory:
    """What was learned from the attempts of all runs. Any thread may call any method; those that write take turns.

    Methods raise `StoreError` if the database cannot be used, and `StoreCorrupt` if it is damaged.
    """

    def __init__(
        self, folder: Path, store: EpisodeStore, embedder: str, dimensions: int, settings: MemoryOptions
    ) -> None:
        """Use `open` instead, which also loads what there is."""
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
        """Open the memory in a folder, or begin one there. Another process must not have it open to write.

        `embedder` names what makes the vectors, which have `dimensions` numbers; vectors of other embedders are never
        compared with them, and `reembed` replaces them. An index that is missing, stale or damaged is made anew; if it
        is large, a thread does that, and `retrieve` raises `IndexNotReady` until it is done. Raises `StoreError`,
        `StoreCorrupt` and `StoreTooNew`.
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

    @staticmethod
    def salvage(folder: Path) -> Salvaged:
        """Replace a damaged database by one of all that can be read of it. The damaged one is kept beside it.

        Attempts whose episodes are lost become unknown, so that observing them again restores what they taught.
        """
        return salvage(folder / DATABASE)

    def close(self) -> None:
        """Save the index and close everything."""
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
        """Learn from an attempt, each only once, and return what that did. Commits before it returns.

        `vector` is that of `situation.text`, of any length, shape (dimensions,). `propensity` is how probable the
        choice was, `at` is in seconds since the epoch. `key` names the attempt: run, step, number. If it was observed
        before with another reward, as when a rating comes later, that replaces what it taught then. An outcome without
        success or weight teaches nothing about the action and is only noted. `after` names the steps whose output it
        read, for the graph. Many outcomes of one `teacher` count less. Raises `VectorError` for a vector of the wrong
        width or with values that are no finite numbers.
        """
        if not math.isfinite(reward.total):
            raise VectorError(f"the reward of attempt {key} is {reward.total}; it has to be a finite number")
        told = _Told(
            key, _clean(situation), self._direction(vector), action, outcome, reward, propensity, at, after, teacher
        )
        with self._writing:
            with self._store.transaction():
                known = self._store.noted(key)
                done, change = self._learn(told) if known is None else self._revise(known, told)
            if change is not None:
                self._apply(change)
            self._settle()
        return done

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Return a context manager that commits all observations within it at its end, or none if it fails.

        Other threads that write wait until then.
        """
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

    def _learn(self, told: "_Told", q: float | None = None) -> tuple[Observed, "_Change | None"]:
        """Learn from an attempt that was not learned from before."""
        evidence = _evidence(told.outcome)
        if not evidence:
            self._store.note(self._note(told, None, 0.0, 0.0, 0.0, 1.0))
            self._store.count_up("unused")
            return Observed("unused", None, None), None
        action = self._store.action_id(told.action)
        context = context_of(told.situation)
        share = self._share(told.teacher, action, context)
        weight = evidence * share
        episode = self._store.find(told.situation, action) or self._alike(told.direction, action, context)
        earlier = None if episode is None else self._store.numbers(episode)
        before, count, last_seen, decay, known = earlier or (self.settings.initial, 0, told.at, 0.0, 0.0)
        size = weight * self._step(told.teacher, known + weight)
        state = EpisodeState(
            q=before + size * (told.reward.total - before),
            count=count + 1,
            last_seen=max(last_seen, told.at),
            decay=decay + (math.log1p(-size) if size < 1 else -FORGOTTEN),
            weight=known + weight,
            propensity=told.propensity,
            outcome=replace(told.outcome, weight=weight),
            reward=told.reward,
        )
        added = episode is None or earlier is None
        if episode is None or earlier is None:
            episode = self._store.add(told.situation, action, state)
            self._store.keep_vectors(self._embedder_id, [episode], told.direction.reshape(1, -1))
        else:
            self._store.change(episode, state)
        self._store.count_up("added" if added else "updated")
        self._store.note(self._note(told, episode, before, size, state.decay, share))
        self._contribute(told.teacher, action, context, evidence, weight)
        weighted = state.q * state.count - before * count
        self._store.add_to_total(told.situation.task_type, told.action, weighted, 1, int(added), state.last_seen)
        change = _Change(episode, action, context, state, told.direction if added else None)
        return Observed("added" if added else "updated", episode, state.q, weight), change

    def _revise(self, known: LearnedAttempt, told: "_Told") -> tuple[Observed, "_Change | None"]:
        """Replace what an attempt taught: the step it made, faded by the steps that came after it."""
        evidence = _evidence(told.outcome)
        if known.episode is None and not known.weight and evidence:
            self._store.count_up("unused", -1)
            return self._learn(told)
        numbers = None if known.episode is None else self._store.numbers(known.episode)
        if known.episode is None or numbers is None or told.outcome.success is None:
            return Observed("known", known.episode, None), None
        q, count, last_seen, decay, heard = numbers
        action, context = self._store.action_id(known.action), context_of(told.situation)
        same = told.teacher.caller == known.caller
        share = self._share_again(known, told.teacher, context, evidence)
        weight, before = evidence * share, known.weight
        step = known.size / before if before else self._step(told.teacher, heard + weight)
        size = known.size if weight == before else weight * step
        weaker = not same and not told.teacher.trusted and weight < before
        if weaker or (known.reward, known.size) == (told.reward.total, size):
            return Observed("known", known.episode, q), None
        difference = size * (told.reward.total - known.before) - known.size * (known.reward - known.before)
        state = EpisodeState(
            q=q + math.exp(decay - known.decay) * difference,
            count=count,
            last_seen=max(last_seen, told.at),
            decay=decay,
            weight=max(0.0, heard + weight - before),
            propensity=told.propensity,
            outcome=replace(told.outcome, weight=weight),
            reward=told.reward,
        )
        self._store.change(known.episode, state)
        self._store.note(self._note(told, known.episode, known.before, size, known.decay, share))
        self._store.count_up("revised")
        self._take_back(known, action, context)
        self._contribute(told.teacher, action, context, evidence, weight)
        weighted = (state.q - q) * count
        self._store.add_to_total(known.task_type, known.action, weighted, 0, 0, state.last_seen)
        change = _Change(known.episode, action, context, state, None)
        replaced = Replaced(reward=known.reward, weight=before)
        return Observed("revised", known.episode, state.q, weight, replaced), change

    def _share(self, teacher: Teacher, action: int, context: int) -> float:
        return 1.0 if teacher.trusted else share(*self._store.told_by(teacher.caller, action, context))

    def _share_again(self, known: LearnedAttempt, teacher: Teacher, context: int, evidence: float) -> float:
        """Return the share of an outcome that replaces what was known: the same one, unless somebody adds to it.

        Evidence that comes later counts as the caller's outcomes do by then, so that it is no use to hold it back.
        """
        share = self._share(teacher, self._store.action_id(known.action), context)
        if teacher.caller != known.caller:
            return share
        return known.share if evidence * known.share <= known.weight else min(known.share, share)

    def _step(self, teacher: Teacher, weight: float) -> float:
        """Return the step size for an outcome of weight 1, after which the episode's outcomes have this weight.

        The usual step follows the latest few outcomes. Those of a caller who is not trusted only move the mean of all.
        """
        return self.settings.alpha if teacher.trusted else min(self.settings.alpha, 1.0 / max(1.0, weight))

    def _contribute(self, teacher: Teacher, action: int, context: int, evidence: float, weight: float) -> None:
        self._store.contribute(
            teacher.caller, action, context, outcomes=1, drawn=int(teacher.drawn), told=evidence, counted=weight
        )

    def _take_back(self, known: LearnedAttempt, action: int, context: int) -> None:
        """Take an outcome off what its caller has taught. What the caller has told stays: it cannot be told again."""
        self._store.contribute(
            known.caller, action, context, outcomes=-1, drawn=-int(known.drawn), told=0.0, counted=-known.weight
        )

    def _note(
        self, told: "_Told", episode: int | None, before: float, size: float, decay: float, share: float
    ) -> LearnedAttempt:
        return LearnedAttempt(
            key=told.key,
            episode=episode,
            action=told.action,
            task_type=told.situation.task_type,
            failure=told.outcome.failure,
            success=told.outcome.worth,
            reward=told.reward.total,
            before=before,
            size=size,
            decay=decay,
            at=told.at,
            after=tuple(told.after),
            caller=told.teacher.caller,
            drawn=told.teacher.drawn,
            share=share,
            weight=_evidence(told.outcome) * share,
        )

    def _alike(self, direction: Vector, action: int, context: int) -> int | None:
        """Return the episode of the most similar situation that counts as the same one, with the same action."""
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
        state = change.state
        self._columns.set(
            change.episode, change.action, change.context, state.q, state.count, state.weight, state.last_seen
        )
        if change.direction is not None:
            self._index.add([change.episode], change.direction.reshape(1, -1))

    def _settle(self) -> None:
        """Do what is due after a commit, in threads."""
        if self._batches == 0:
            self._index.maintain()
            if (log := self._store.log_bytes) > LOG_BYTES_AT_MOST:
                self._store.checkpoint()
            elif log > LOG_BYTES:
                self._in_background(self._store.checkpoint)

    # Asking

    def retrieve(self, vector: Vector, k: int, at_least: float = -1.0) -> Neighbourhood:
        """Return the up to `k` episodes whose situations are most similar, most similar first.

        Those with a cosine below `at_least` are left out. Raises `VectorError`, and `IndexNotReady` while the index is
        made anew from the database.
        """
        direction = self._direction(vector)
        ids, similarities = self._index.search(direction, k + min(8 * k, self._index.dropped))
        near = int(np.searchsorted(-similarities, -at_least, side="right"))
        return self._columns.neighbours(ids[:near], similarities[:near], k, self._store.actions)

    def episodes(self, ids: Iterable[int]) -> list[Episode]:
        """Return the whole of episodes, in the order of `ids`; those that were dropped or merged are left out."""
        return self._store.episodes(ids)

    def episodes_after(self, episode: int, limit: int) -> list[Episode]:
        """Return up to `limit` whole episodes whose numbers come after that of an episode; 0 begins with the first."""
        return self._store.episodes(self._store.numbers_after(episode, limit))

    def lossy(self, at_least: int, at_most: float, limit: int) -> list[Episode]:
        """Return up to `limit` episodes that were seen `at_least` so often with a Q of `at_most` so much.

        Those come first that have lost most: their count times what their Q lacks to 1. Only steps count that were done
        without a persona.
        """
        known = self._columns.table()
        plain = [number for number, action in self._store.actions.items() if not action.persona and not action.mode]
        able = (known["count"] >= at_least) & (known["q"] <= at_most) & np.isin(known["action"], plain)
        known, numbers = known[able], np.flatnonzero(able)
        order = np.argsort(-known["count"] * (1.0 - known["q"]), kind="stable")
        found = self._store.episodes(numbers[order[: 4 * limit]].tolist())  # chats may be among them
        return [one for one in found if one.situation.kind not in ("plan", "chat")][:limit]

    def learned_from(self, episode: int, limit: int = 20) -> list[Key]:
        """Return the latest attempts that an episode was learned from: run, step and number."""
        return self._store.taught(episode, limit)

    def knows(self, key: Key) -> bool:
        """Return whether an attempt was observed."""
        return self._store.knows(key)

    def values(
        self,
        task_type: str | EllipsisType | None = ...,
        role: str | EllipsisType = ...,
        persona: str | EllipsisType = ...,
    ) -> list[Value]:
        """Return what roles with personas are worth in task types, best first; only those that are given, if any is.

        A task type of None is that of requests in words and of chats. Dropped episodes still count.
        """
        values = [
            value
            for value in self._store.values()
            if task_type in (..., value.task_type) and role in (..., value.role) and persona in (..., value.persona)
        ]
        return sorted(values, key=lambda value: value.q, reverse=True)

    def contributions(self) -> list[Contribution]:
        """Return what each caller has taught, whoever has taught most first."""
        return self._store.contributions()

    def ask(self, cypher: str, confined: RunConfined, seconds: float = 10.0, rows: int = 1000) -> GraphAnswer:
        """Ask the graph, which is written first if there is none or it is damaged, or out of date and small.

        `confined` runs the program that answers, and at most `rows` rows are returned. Raises `CypherRefused` for
        what does more than read, `CypherFailed`, `CypherTimeout` after `seconds`, and `GraphError`.
        """
        return self._graph.ask(cypher, confined, seconds, rows)

    def stats(self) -> MemoryStats:
        """Return what the memory holds, how it has learned, and what is wrong with it. Reads all vectors' owners."""
        with self._writing:
            counters = self._store.counters()
            known = self._columns.table()
            count, q = known["count"], known["q"][known["count"] > 0]
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
            q_quantiles={one: float(np.quantile(q, one)) for one in QUANTILES} if len(q) else {},
            share_at_ceiling=float((q >= CEILING).mean()) if len(q) else 0.0,
            embedder=self.embedder,
            lacking=self._store.count_lacking(self._embedder_id),
            index=index,
            database_bytes=self._store.disk_bytes,
            problems=tuple(problem for problem in problems if problem),
        )

    # What others keep here

    def keep_blob(self, name: str, body: bytes) -> None:
        """Keep some bytes under a name, such as the weights of the head, in place of earlier ones."""
        with self._writing, self._store.transaction():
            self._store.keep_blob(name, body)

    def blob(self, name: str) -> bytes | None:
        """Return the bytes that are kept under a name, or None. Raises `StoreCorrupt` if they are damaged."""
        return self._store.blob(name)

    # Housekeeping; all of it may take long, and be done in a thread while others learn and ask

    def reembed(self, embed: Embed, stop: threading.Event | None = None, progress: Progress | None = None) -> int:
        """Give every episode that lacks one a vector of this memory's embedder, which is `embed`; return how many.

        It commits every few episodes, and can be ended by `stop` and gone on with at any time. Raises `VectorError` if
        `embed` returns vectors of another width.
        """
        self._index.wait()
        total, done, after = self._store.count_lacking(self._embedder_id), 0, 0
        while not (stop is not None and stop.is_set()):
            lacking = self._store.lacking(self._embedder_id, after, REEMBEDDED_AT_A_TIME)
            if not lacking:
                break
            after = lacking[-1][0]
            made = [self._direction(row) for row in embed([text for _, text in lacking])]
            with self._writing:
                there = [place for place, (episode, _) in enumerate(lacking) if self._columns.has(episode)]
                ids = [lacking[place][0] for place in there]
                vectors = np.array([made[place] for place in there], dtype=np.float32).reshape(-1, self.dimensions)
                with self._store.transaction():
                    self._store.keep_vectors(self._embedder_id, ids, vectors)
                    self._store.count_up("revision")
                self._index.add(ids, vectors)
                self._settle()
            done += len(lacking)
            if progress is not None:
                progress(done, max(total, done))
        return done

    def rebuild(self) -> None:
        """Make index and graph anew from the database. Raises `GraphError` if the graph cannot be written."""
        with self._writing:
            broken = self._store.broken_vectors(self._embedder_id, self.dimensions)
            with self._store.transaction():
                self._store.drop_vectors(broken)
            self._index.build()
        self._index.wait()
        self._graph.write()

    def write_graph(self) -> None:
        """Write the graph anew from the database. Raises `GraphError`."""
        self._graph.write()

    def compact(self) -> Compacted:
        """Merge near-duplicates, and drop what is beyond the capacity, first the oldest that were seen once.

        Only episodes that came since the last time are looked at for near-duplicates. What dropped episodes taught
        stays in `values`, and their attempts stay known.
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
                    other = self._older_copy(episode, vector)
                    if other is not None:
                        with self._store.transaction():
                            whole = self._merge(episode, other)
                        self._columns.remove(episode)
                        key = self._columns.key(other)
                        self._columns.set(other, *key, whole.q, whole.count, whole.weight, whole.last_seen)
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
        for other, similarity in zip(*self._index.search(vector, self.settings.most_alike), strict=True):
            if similarity < self.settings.similarity:
                return None
            if other < episode and self._columns.has(int(other)) and self._columns.key(int(other)) == key:
                return int(other)
        return None

    def _merge(self, episode: int, into: int) -> EpisodeState:
        """Merge an episode into another one, and return what that one is afterwards.

        Q is the mean, weighed by their weights. The notes of both keep saying how much their attempts count for Q now.
        """
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
        kept = self._store.episodes([episode])[0]
        self._store.add_to_total(kept.situation.task_type, kept.action, 0.0, 0, -1, newer.last_seen)
        self._store.drop([episode])
        return whole

    def _drop(self, ids: list[int]) -> int:
        with self._writing:
            with self._store.transaction():
                for kept in self._store.episodes(ids):
                    self._store.add_to_total(kept.situation.task_type, kept.action, 0.0, 0, -1, kept.last_seen)
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
        """Read everything again after a batch was undone, since numbers of episodes may be given once more."""
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
        """Return a vector divided by its length."""
        given = np.asarray(vector, dtype=np.float32)
        if given.shape != (self.dimensions,):
            wanted = f"those of the embedder {self.embedder!r} have the shape ({self.dimensions},)"
            raise VectorError(f"the vector has the shape {given.shape}; {wanted}")
        length = float(np.linalg.norm(given))
        if not math.isfinite(length):
            raise VectorError("the vector has values that are no finite numbers")
        return given / length if length > 0 else given

    def _observations(self) -> int:
        """Return a number that changes with every outcome."""
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
class _Told:
    """An attempt and how it turned out."""

    key: Key
    situation: Situation
    direction: Vector
    """The vector of the situation's text, of length 1."""
    action: Action
    outcome: Outcome
    reward: Reward
    propensity: float
    at: float
    after: Sequence[str]
    teacher: Teacher


@dataclass(frozen=True, slots=True)
class _Change:
    """What changed of an episode, to be applied to columns and index once it is committed."""

    episode: int
    action: int
    context: int
    state: EpisodeState
    direction: Vector | None
    """Its vector if it is new."""


def _evidence(outcome: Outcome) -> float:
    """Return how much an outcome counts by its evidence, from 0 to 1; 0 if it teaches nothing."""
    return 0.0 if outcome.success is None else min(1.0, max(0.0, outcome.weight))


def _clean(situation: Situation) -> Situation:
    """Return a situation without halves of surrogate pairs, which JSON may hold and SQLite does not take."""
    kind = situation.task_type
    return replace(
        situation,
        text=situation.text.encode(errors="replace").decode(),
        task_type=None if kind is None else kind.encode(errors="replace").decode(),
    )
