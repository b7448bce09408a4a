"""Learn from the outcomes of runs, and from ratings that come later, while the daemon runs.

The journal is read from a cursor that the memory keeps: every ended run and every rating, in the order of the journal.
What a run teaches, the policy and the cursor are committed together, so each outcome is learned exactly once, even
after a crash. Reading and learning happen in a thread.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, Literal

import numpy as np
import structlog

from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.memrl.choices import action_taken
from orchestrator.memrl.episodes import Episode, Reward
from orchestrator.memrl.errors import MemoryUnavailable, MemrlError
from orchestrator.memrl.lessons import Agreement, Lesson, chat_lesson, lessons_of
from orchestrator.memrl.memory import DATABASE, Memory, MemoryOptions, MemoryStats, Teacher
from orchestrator.memrl.policy import ExplorationSettings, Policy, PolicySettings
from orchestrator.memrl.reward import READY_BY_CALLER, Contribution, judge_weight, readiness, staged, teaches
from orchestrator.memrl.router import Embed, HybridRouter, Learned, Use, Vector, named
from orchestrator.memrl.routers import ROUTERS, LoggedChoice, choices_of, evaluate
from orchestrator.memrl.task_patterns import (
    ALIKE_TASKS,
    NOT_WELL,
    OFTEN,
    PATTERNS,
    proposed_persona,
    room_for_proposals,
)
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.journal.errors import JournalCorrupt, UnknownChat, UnknownRun
from orchestrator.run.journal.home import Home, HomeLock, Presence
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.view import accepted_in
from orchestrator.service.attachments import Learner
from orchestrator.service.callers import Callers, granted
from orchestrator.service.configuration import EVERY_TYPE, MemorySettings
from orchestrator.service.extent import Extent
from orchestrator.service.permissions import Permission
from orchestrator.service.service import Service
from orchestrator.task.events import AttemptFailed, AttemptStarted, AttemptSucceeded, RatingGiven, RouteAdvice
from orchestrator.task.lexical import LEARNING_DIMENSIONS, NAME
from orchestrator.task.lexical import embed as embed_lexically
from orchestrator.task.states import IllegalTransition

EMBEDDER: Final = "embedder"  # the role whose model makes vectors
FOLDER: Final = "memory"  # in the state folder
POLICY: Final = "policy"  # key of the policy in the memory
PROGRESS: Final = "progress"  # key of the reading progress in the memory
# Cosine from which a model's vectors are of the same situation; those of unrelated texts are not far apart.
MODEL_SIMILARITY: Final = 0.9
# Advice is followed from this many outcomes on, if the configuration says "auto". Choices that a user forced do not
# count, and those of one caller count only up to a limit (`memrl.reward`).
READY_OUTCOMES: Final = 200
LEAST_EXPLORED: Final = 0.02  # the falling share of choices that try something else stops here
RUNS_AT_A_TIME: Final = 16
CHAT_EVENTS_AT_A_TIME: Final = 100
EPISODES_AT_A_TIME: Final = 64
REEMBED_SECONDS: Final = 600.0  # for a few texts; then embedding again is given up until the next start
TIDY_SECONDS: Final = 3600.0  # between searches for personas that bring nothing, and for tasks that need one

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """How far the journal was read, and how often the judge agreed with checkers."""

    number: int = 0  # of the last event that was learned from
    agreed: int = 0  # the judge said the same as a checker
    compared: int = 0  # both judged the same attempt
    chat_number: int = 0  # of the last event of a chat that was learned from

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, body: bytes | None) -> "ReadingProgress":
        """Return what `encoded` wrote; the start of the journal for anything else."""
        try:
            return cls(**json.loads(body or b"{}"))
        except (ValueError, TypeError):
            return cls()

    @property
    def judge(self) -> float:
        """The weight of the judge's verdict."""
        return judge_weight(self.agreed, self.compared)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatus:
    """The state of the memory, for commands and the API."""

    configured: Literal["auto", "off", "shadow", "on"]
    use: Use  # of the advice, now
    outcomes: int  # that the policy has learned from
    ready: int  # outcomes that count for the switch from "shadow" to "on"
    ready_outcomes: int  # needed for that switch, if the configuration says "auto"
    ready_by_caller: int  # that count of one caller at most, unless the machine is the caller's
    callers: tuple[Contribution, ...]  # whoever has taught most first
    journal_read: int  # number of the last event that was learned from
    judge_weight: float
    judge_agreed: int
    judge_compared: int
    stats: MemoryStats | None  # None while the memory is not open
    problem: str  # why the memory cannot be used; empty if it can


class Learning:
    """The memory of one state folder, the router that asks it, and the task that teaches it.

    `settings` returns the section [memory] of the configuration in force, `callers` what it gives callers. A process
    that ends `after_a_run` opens no memory that is empty: there is no advice yet, and the next process learns its run.
    """

    def __init__(
        self,
        home: Path,
        settings: Callable[[], MemorySettings],
        callers: Callable[[], Mapping[str, str]] = dict,
        *,
        after_a_run: bool = False,
    ) -> None:
        self.folder = home / FOLDER
        # Nobody is the caller of outcomes from before callers were recorded.
        self._machine_owners = frozenset(("", "user:root", Callers(home, {}).folder_owner()))
        self._callers = callers
        self.router = HybridRouter(
            lambda: self.learned,
            lambda: self.use,
            explores_interactive=lambda: self._settings().explore_interactive,
        )
        self.problem = ""  # why the memory cannot be used; empty if it can, or is not to be
        self._ends_after_a_run = after_a_run
        self._settings = settings
        self.learned: Learned | None = None  # None while the memory is not open
        self.progress = ReadingProgress()
        self._ready = 0  # outcomes that count for the switch from "shadow" to "on"
        self._due = asyncio.Event()
        self._idle = asyncio.Event()
        self._opening = asyncio.Lock()  # held while the memory is opened or closed, and inside `closed`
        # Whose journal is read, and the group of the learner's task; None while nothing is to be learned.
        self._source: tuple[Orchestrator, asyncio.TaskGroup] | None = None
        self._learner: asyncio.Task[None] | None = None
        self._presence = Presence(())

    @property
    def misplaced(self) -> str | None:
        """Why nothing could be learned from new runs: the memory was moved, deleted or replaced; or None."""
        missing = self._presence.missing()
        return None if missing is None else f"{missing}; accepted: the original put back, or a restart of the daemon"

    @property
    def use(self) -> Use:
        configured = self._settings().use
        if configured != "auto":
            return configured
        return "on" if self.learned is not None and self._ready >= READY_OUTCOMES else "shadow"

    @property
    def trusted(self) -> frozenset[str]:
        """The callers whose outcomes count in full, however many: owners can purge all of them anyway."""
        owners = (key for key, words in self._callers().items() if Permission.OWN in granted(words.split()))
        return self._machine_owners.union(owners)

    @property
    def memory(self) -> Memory:
        """Raises MemoryUnavailable with the reason if it is not open."""
        if self.learned is None:
            why = self.problem or 'the configuration has [memory] use = "off"'
            raise MemoryUnavailable(f"the memory is not open: {why}")
        return self.learned.memory

    def notice(self) -> None:
        """Learn soon from what is new in the journal; at the next start, if the memory is not open."""
        if self.learned is None:
            return
        self._idle.clear()
        self._due.set()

    async def caught_up(self) -> None:
        """Wait until everything that was noticed has been learned, or cannot be."""
        await self._idle.wait()

    def status(self) -> MemoryStatus:
        """Return the state of the memory. Blocks on the disk."""
        learned, progress = self.learned, self.progress
        problem, stats = self.problem, None
        callers: tuple[Contribution, ...] = ()
        try:
            if learned is not None:
                stats, callers = learned.memory.stats(), tuple(learned.memory.contributions())
        except MemrlError as error:
            problem = str(error)
        return MemoryStatus(
            configured=self._settings().use,
            use=self.use,
            outcomes=learned.policy.observed if learned is not None else 0,
            ready=self._ready,
            ready_outcomes=READY_OUTCOMES,
            ready_by_caller=READY_BY_CALLER,
            callers=callers,
            journal_read=progress.number,
            judge_weight=progress.judge,
            judge_agreed=progress.agreed,
            judge_compared=progress.compared,
            stats=stats,
            problem=problem,
        )

    def open_lexical(self) -> None:
        """Open the memory with the lexical embedder, and learn nothing. Blocks. Raises MemrlError."""
        memory = Memory.open(self.folder, NAME, LEARNING_DIMENSIONS, self._memory_settings())
        policy = _policy(memory, LEARNING_DIMENSIONS, PolicySettings())
        self.learned = Learned(memory, policy, _embed_lexically, Lock())
        self.progress = ReadingProgress.decoded(memory.blob(PROGRESS))
        self._ready = readiness(memory.contributions(), self.trusted)

    def _memory_settings(self, embedder: str = NAME) -> MemoryOptions:
        settings = MemoryOptions(capacity=self._settings().capacity, graph=self._settings().graph)
        return settings if embedder == NAME else replace(settings, similarity=MODEL_SIMILARITY)

    @asynccontextmanager
    async def running(self, orchestrator: Orchestrator) -> AsyncIterator[None]:
        """Return a context manager in which the memory is open and learns from an orchestrator's journal.

        A memory that cannot be opened stops nothing else: `problem` says why.
        """
        if self._settings().use == "off":
            self._idle.set()
            yield
            return
        async with asyncio.TaskGroup() as tasks:
            self._source = orchestrator, tasks
            async with self._opening:
                await self._begin(orchestrator, tasks)
            try:
                yield
            finally:
                self._source = None
                async with self._opening:
                    await self._end()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Return a context manager in which the memory's database is closed, and the rules route.

        Afterwards the memory is opened again, and learning continues from the cursor in its database.
        """
        async with self._opening:
            self.problem = "it is closed for a moment, to be put back to what it was"
            await self._end()
            try:
                yield
            finally:
                if self._source is not None:
                    await self._begin(*self._source)

    async def _begin(self, orchestrator: Orchestrator, tasks: asyncio.TaskGroup) -> None:
        if await asyncio.to_thread(self._is_not_needed, orchestrator.journal):
            self._idle.set()
            return
        try:
            self.learned = await self._open(orchestrator)
        except (MemrlError, OrchestratorError, OSError) as error:
            self.problem = f"the memory cannot be opened: {error}"
            log.error("the memory cannot be opened; routing continues by the rules", error=str(error))
            self._idle.set()
            return
        self.problem = ""
        self._presence = Presence((self.folder, self.folder / DATABASE))
        self.notice()
        self._learner = tasks.create_task(self._learn_on(orchestrator, self.learned))

    def _is_not_needed(self, journal: Journal) -> bool:
        empty = not (self.folder / DATABASE).exists() and not journal.ended_after(0, 1)
        # With "on", an empty memory would still explore.
        return self._ends_after_a_run and self._settings().use == "auto" and empty

    async def _end(self) -> None:
        self._presence.close()
        learner, learned = self._learner, self.learned
        self._learner = self.learned = None
        if learner is not None:
            learner.cancel()
            await asyncio.wait({learner})
        if learned is not None:
            await asyncio.to_thread(learned.memory.close)

    async def _open(self, orchestrator: Orchestrator) -> Learned:
        name, dimensions, embed = await _embedder(orchestrator)
        memory = await asyncio.to_thread(Memory.open, self.folder, name, dimensions, self._memory_settings(name))
        settings = PolicySettings(exploration=_exploration(self._settings()))
        policy = await asyncio.to_thread(_policy, memory, dimensions, settings)
        progress = ReadingProgress.decoded(await asyncio.to_thread(memory.blob, PROGRESS))
        last = await asyncio.to_thread(orchestrator.journal.last_number)
        # The journal of a backup that was restored is read from its beginning: what is known is not learned twice.
        self.progress = progress if progress.number <= last else replace(progress, number=0, chat_number=0)
        self._ready = readiness(await asyncio.to_thread(memory.contributions), self.trusted)
        return Learned(memory, policy, embed, Lock())

    async def _learn_on(self, orchestrator: Orchestrator, learned: Learned) -> None:
        loop = asyncio.get_running_loop()
        tidied = loop.time()
        await self._embed_anew(learned)
        await self._learn_again(learned)
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                while await self._learn_some(orchestrator.journal, learned):
                    pass
                while await self._learn_chats(orchestrator.journal, learned):
                    pass
                if loop.time() - tidied >= TIDY_SECONDS:
                    tidied = loop.time()
                    await self._tidy(orchestrator, learned)
                self.problem = ""
            except (MemrlError, OrchestratorError, OSError) as error:
                self.problem = f"nothing can be learned at the moment: {error}"
                log.error("nothing can be learned at the moment; routing goes on", error=str(error))
            if not self._due.is_set():
                self._idle.set()

    async def _learn_some(self, journal: Journal, learned: Learned) -> bool:
        ended = await asyncio.to_thread(journal.ended_after, self.progress.number, RUNS_AT_A_TIME)
        for number, run, _ in ended:
            lessons, agreement = await asyncio.to_thread(read_lessons, journal, run, self.progress.judge, number)
            texts = [lesson.situation.text for lesson in lessons]
            vectors = await learned.embed(texts) if texts else np.zeros((0, 1), dtype=np.float32)
            progress = replace(
                self.progress,
                number=number,
                agreed=self.progress.agreed + agreement.agreed,
                compared=self.progress.compared + agreement.compared,
            )
            await self._teach(learned, lessons, vectors, progress)
        return len(ended) == RUNS_AT_A_TIME  # there may be more

    async def _learn_chats(self, journal: Journal, learned: Learned) -> bool:
        events = await asyncio.to_thread(journal.chat_events, self.progress.chat_number, CHAT_EVENTS_AT_A_TIME)
        if not events:
            return False
        chats = dict.fromkeys(event.chat for _, event in events)
        lessons = await asyncio.to_thread(read_chats, journal, list(chats))
        texts = [lesson.situation.text for lesson in lessons]
        vectors = await learned.embed(texts) if texts else np.zeros((0, 1), dtype=np.float32)
        progress = replace(self.progress, chat_number=events[-1][0])
        await self._teach(learned, lessons, vectors, progress)
        return len(events) == CHAT_EVENTS_AT_A_TIME  # there may be more

    async def _teach(
        self, learned: Learned, lessons: Sequence[Lesson], vectors: Vector, progress: ReadingProgress
    ) -> None:
        await asyncio.to_thread(teach, learned, lessons, vectors, progress, self.trusted)
        self.progress = progress
        self._ready = readiness(await asyncio.to_thread(learned.memory.contributions), self.trusted)

    async def _embed_anew(self, learned: Learned) -> None:
        # Vectors are lacking after a change of the registry's embedder.
        if not await asyncio.to_thread(lambda: learned.memory.stats().lacking):
            return
        loop, stop = asyncio.get_running_loop(), Event()

        def embed(texts: Sequence[str]) -> Vector:
            return asyncio.run_coroutine_threadsafe(_awaited(learned.embed, texts), loop).result(REEMBED_SECONDS)

        try:
            count = await asyncio.to_thread(learned.memory.reembed, embed, stop)
            log.info("episodes were embedded anew", episodes=count, embedder=learned.memory.embedder)
        except (MemrlError, OrchestratorError, TimeoutError) as error:
            self.problem = f"episodes of another embedder could not be embedded anew: {error}"
            log.error("episodes could not be embedded anew", error=str(error))
        finally:
            stop.set()

    async def _learn_again(self, learned: Learned) -> None:
        if learned.policy.observed:  # else it is a fresh one, as after a change of the embedder or its width
            return
        last = 0
        try:
            while episodes := await asyncio.to_thread(learned.memory.episodes_after, last, EPISODES_AT_A_TIME):
                vectors = await learned.embed([episode.situation.text for episode in episodes])
                await asyncio.to_thread(teach_again, learned, episodes, vectors)
                last = episodes[-1].id
            if last:
                await asyncio.to_thread(learned.memory.keep_blob, POLICY, learned.policy.to_bytes())
                log.info("the policy has learned again from the episodes", outcomes=learned.policy.observed)
        except (MemrlError, OrchestratorError) as error:
            self.problem = f"the policy could not learn again from all episodes: {error}"
            log.error("the policy could not learn again from all episodes", error=str(error))

    async def _tidy(self, orchestrator: Orchestrator, learned: Learned) -> None:
        values = await asyncio.to_thread(learned.memory.values, persona="")
        shares = {value.role: value.q for value in values}
        await orchestrator.personas.retire_useless(lambda role: shares.get(role, 0.5))
        await self.propose_persona(orchestrator, learned)
        await asyncio.to_thread(learned.memory.compact)

    async def propose_persona(self, orchestrator: Orchestrator, learned: Learned) -> str | None:
        """Add a persona for tasks that come often, are not done well and have none. Return its name.

        None is added beyond the configured number. Raises MemrlError, JournalError and what the embedder raises.
        """
        memory, made_personas = learned.memory, orchestrator.personas.made
        # Without advice that is followed, it would not be tried.
        if self.use != "on" or not room_for_proposals(made_personas, self._settings().personas):
            return None
        for pattern in await asyncio.to_thread(memory.lossy, OFTEN, NOT_WELL, PATTERNS):
            vector = (await learned.embed([pattern.situation.text]))[0]
            near = await asyncio.to_thread(memory.retrieve, vector, ALIKE_TASKS, memory.settings.similarity)
            alike = await asyncio.to_thread(memory.episodes, near.ids.tolist())
            personas = orchestrator.registry.personas_in_use.values()
            if (proposal := proposed_persona(pattern, alike, personas, made_personas)) is None:
                continue
            try:
                placed = await orchestrator.personas.add(proposal)
            except InputError as error:
                log.info("a persona cannot be proposed", persona=proposal.name, why=str(error))
                continue
            if placed.new:
                log.info("a persona is proposed", persona=placed.name, why=proposal.description)
                return placed.name
        return None


async def _awaited(embed: Embed, texts: Sequence[str]) -> Vector:
    return await embed(texts)


def read_lessons(journal: JournalReader, run: str, judge: float, number: int) -> tuple[list[Lesson], Agreement]:
    """Return what can be learned from a run whose end or rating has this number in the journal.

    Nothing is learned from a run that is gone or cannot be read. Blocks on the disk.
    """
    try:
        events = journal.events(run)
        rating = next((event for at, event in events if at == number and isinstance(event, RatingGiven)), None)
        return lessons_of([event for _, event in events], judge, rating=rating)
    except UnknownRun:
        return [], Agreement()
    except (JournalCorrupt, IllegalTransition) as error:
        log.warning("nothing is learned from a run that cannot be read", run=run, error=str(error))
        return [], Agreement()


def read_chats(journal: JournalReader, chats: Sequence[str]) -> list[Lesson]:
    """Return what can be learned from chats, except those that are gone or unreadable. Blocks on the disk."""
    lessons = []
    for chat in chats:
        try:
            lesson = chat_lesson(journal.chat(chat))
        except (UnknownChat, JournalCorrupt) as error:
            log.warning("nothing is learned from a chat that cannot be read", chat=chat, error=str(error))
            continue
        if lesson is not None:
            lessons.append(lesson)
    return lessons


def teach(
    learned: Learned, lessons: Sequence[Lesson], vectors: Vector, progress: ReadingProgress, trusted: Container[str]
) -> None:
    """Teach memory and policy, and store the progress, in one commit. Blocks on the disk.

    Known attempts are not learned again. Many outcomes of a caller who is not `trusted` count less. If anything fails,
    nothing is learned. Raises MemrlError.
    """
    memory, before = learned.memory, learned.policy.to_bytes()
    try:
        with memory.batch():
            for lesson, vector in zip(lessons, vectors, strict=True):
                _teach_one(learned, lesson, vector, trusted)
            memory.keep_blob(POLICY, learned.policy.to_bytes())
            memory.keep_blob(PROGRESS, progress.encoded())
    except BaseException:
        with learned.lock:
            # Nothing was committed.
            learned.policy = Policy.from_bytes(before, learned.policy.dimensions, learned.policy.settings)
        raise


def _teach_one(learned: Learned, lesson: Lesson, vector: Vector, trusted: Container[str]) -> None:
    memory, policy, outcome = learned.memory, learned.policy, lesson.outcome
    neighbours = memory.retrieve(vector, policy.settings.retrieval.candidates, policy.settings.retrieval.threshold)
    settings = policy.settings
    reward = (
        staged(outcome, policy.observed, settings.stage, settings.prices) if teaches(outcome) else Reward(total=0.0)
    )
    observed = memory.observe(
        lesson.situation,
        vector,
        lesson.action,
        outcome=outcome,
        reward=reward,
        propensity=lesson.propensity,
        at=lesson.at,
        key=lesson.key,
        after=lesson.after,
        teacher=Teacher(lesson.caller, lesson.caller in trusted, lesson.drawn),
    )
    if observed.how in ("added", "updated", "revised"):
        with learned.lock:
            policy.observe(
                lesson.situation,
                vector,
                lesson.action,
                replace(outcome, weight=observed.weight),
                neighbours=neighbours,
                replaced=observed.replaced,
            )


def teach_again(learned: Learned, episodes: Sequence[Episode], vectors: Vector) -> None:
    """Teach the policy from episodes, once each: the Q of an episode stands for all outcomes in it.

    The memory does not change.
    """
    with learned.lock:
        for episode, vector in zip(episodes, vectors, strict=True):
            outcome = replace(episode.outcome, success=min(1.0, max(0.0, episode.q)), quality=1.0)
            learned.policy.observe(episode.situation, vector, episode.action, outcome)


def _policy(memory: Memory, dimensions: int, settings: PolicySettings) -> Policy:
    body = memory.blob(POLICY)
    if body is None:
        return Policy(dimensions, settings)
    try:
        return Policy.from_bytes(body, dimensions, settings)
    except MemrlError as error:
        log.warning("what the policy had learned cannot be used; it learns again from the episodes", error=str(error))
        return Policy(dimensions, settings)


def _exploration(settings: MemorySettings) -> ExplorationSettings:
    by_type = {**settings.explore}
    usual = by_type.pop(EVERY_TYPE)
    if isinstance(usual, str):
        return ExplorationSettings(method=usual, least=LEAST_EXPLORED, by_type=by_type)
    return ExplorationSettings(first=usual, least=LEAST_EXPLORED, by_type=by_type)


async def _embedder(orchestrator: Orchestrator) -> tuple[str, int, Embed]:
    registry = orchestrator.registry
    entry = registry.models[registry.roles[EMBEDDER].model] if EMBEDDER in registry.usable_roles else None
    if entry is None or entry.file is None:
        return NAME, LEARNING_DIMENSIONS, _embed_lexically  # the lexical embedder, if the registry has none
    pool, model = orchestrator.pool, entry.id

    async def embed(texts: Sequence[str]) -> Vector:
        return np.asarray((await pool.embed(model, texts)).vectors, dtype=np.float32)

    width = (await embed(["."])).shape[1]
    return f"{model}/{entry.file.name}", int(width), embed


async def _embed_lexically(texts: Sequence[str]) -> Vector:
    return embed_lexically(texts, LEARNING_DIMENSIONS)


def explained_choices(journal: JournalReader, run: str) -> dict[str, Any]:
    """Return what the memory advised for each choice of a run, and what followed. Raises UnknownRun."""
    events = [event for _, event in journal.events(run)]
    accepted = accepted_in(events)
    ends = {
        (event.step, event.number): "done" if isinstance(event, AttemptSucceeded) else event.failure.kind.value
        for event in events
        if isinstance(event, AttemptSucceeded | AttemptFailed)
    }
    choices: list[dict[str, Any]] = []
    if (choice := accepted.mode_choice) is not None:
        choices.append(
            {
                "step": None,
                "attempt": 0,
                "taken": f"mode {accepted.mode}",
                "outcome": None,
                "reason": choice.reason,
                "propensity": choice.propensity,
                "unforced": None,
                "advice": _advice_fields(choice.advice),
            }
        )
    for event in events:
        if isinstance(event, AttemptStarted):
            action = action_taken(event)
            choices.append(
                {
                    "step": event.step,
                    "attempt": event.number,
                    "taken": named(action),
                    "outcome": ends.get((event.step, event.number)),
                    "reason": event.reason,
                    "propensity": event.propensity,
                    "unforced": event.unforced,
                    "advice": _advice_fields(event.advice),
                }
            )
    return {"run_id": accepted.run, "choices": choices}


def _advice_fields(advice: RouteAdvice | None) -> dict[str, Any] | None:
    return None if advice is None else asdict(advice)


def evaluate_router(journal: JournalReader, router: str, since: float = -math.inf) -> dict[str, Any]:
    """Return what a router would have earned on the choices of all runs that are kept.

    Only runs that ended after `since`, in seconds since the epoch, count. Blocks. Raises InputError.
    """
    if router not in ROUTERS:
        evaluate(router, [])  # raises InputError
    choices: list[LoggedChoice] = []
    for row in journal.runs():
        if row.finished is not None and row.finished > since:
            try:
                choices += choices_of([event for _, event in journal.events(row.run)])
            except (UnknownRun, JournalCorrupt, IllegalTransition) as error:
                log.warning("a run is left out of the evaluation", run=row.run, error=str(error))
    return asdict(evaluate(router, choices))


@contextmanager
def _offline(home: Path, registry: Registry, settings: MemorySettings) -> Iterator[Learning]:
    if EMBEDDER in registry.usable_roles:
        model = registry.roles[EMBEDDER].model
        problem = f"the registry's embedder is the model {model}, which only the daemon has loaded"
        raise InputError(Problem("memory", problem, "the same command beside `orchestrator serve`"))
    with Journal.open(home):
        learning = Learning(home, lambda: settings)
        learning.open_lexical()
        with closing(learning.memory):
            yield learning


def attach(service: Service) -> Learner:
    """Return what learns from the runs of a service."""
    return Learning(
        service.home,
        lambda: service.configuration.memory,
        lambda: service.configuration.server.callers,
        after_a_run=service.extent is Extent.RUNS,
    )


@contextmanager
def memory_of(service: Service) -> Iterator[Learning]:
    """Return a context manager with the memory of a service: a daemon's, or one that learns nothing meanwhile. Blocks.

    Raises MemoryUnavailable for errors of the memory, also inside of the context. Without a daemon raises HomeLocked,
    RegistryError, and InputError if it needs a model.
    """
    try:
        if service.extent is not Extent.NOTHING:
            yield learning_of(service)
            return
        with _offline(service.home, load_registry(service.registry_file), service.configuration.memory) as learning:
            yield learning
    except MemrlError as error:
        raise MemoryUnavailable(str(error)) from error


def learning_of(service: Service) -> Learning:
    learning = service.learning
    assert isinstance(learning, Learning), "the composition root attaches it"
    return learning


@asynccontextmanager
async def memory_closed(service: Service) -> AsyncIterator[None]:
    """Return a context manager in which nobody has the memory's database open. Raises HomeLocked."""
    if service.extent is Extent.NOTHING:
        with HomeLock(Home(service.home)):
            yield
    else:
        async with learning_of(service).closed():
            yield


def plain(status: MemoryStatus) -> dict[str, Any]:
    """Return the state of the memory as JSON."""
    fields = asdict(status)
    if fields["stats"] is not None:
        fields["stats"]["q_quantiles"] = {str(key): value for key, value in fields["stats"]["q_quantiles"].items()}
    return fields
