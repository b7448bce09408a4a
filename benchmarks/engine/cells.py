"""Define what is measured: cells, each a model, a number of concurrent requests and what their prompts share."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from benchmarks.engine.names import EXAMPLE, HEADS
from orchestrator.engine.step_cost.attention import LONG_CONTEXT

# With "cold", the prefix of the prompts is new; with "warm", it is in the cache since the load before. What follows the
# prefix is always new. A run of steps is compared with itself instead: on an idle machine, and next to busy loops
# (`Busy`).
State = Literal["cold", "warm", "idle", "one", "each"]
# What else computes on the machine: a busy loop on one of its cores only, or a busy loop on each core.
Busy = Literal["one", "each"]
Task = Literal["copy", "free"]  # what the answers are: a copy of a text in the prompt with some changes, or new text

TASKS: tuple[Task, ...] = ("copy", "free")
WIDTHS = (1, 2, 4, 16, 64)
BETWEEN = 2  # at this width our engine is compared only with answering one request after the other
PREFIXES = (0, 64, 1024)
SPECULATION_WIDTHS = (1, 4, 16)
SERVED_WIDTHS = (1, 4)  # the widths at which speculation is compared with llama-server's
_MANY = 16
# The width and the prefix that take longest by far. They are measured last, and only with the smaller model.
_LARGEST = 64, 1024
# How many of the requests the example server gets, by model, width and prefix, in cells where all of them would take it
# minutes per round, because it computes a new prefix again for each request.
_PARTS = {("150m", 64, 1024): 16, ("500m", 16, 1024): 4}
EMBEDDED = "tiny-large"
# The same with many more layers and a trained head (`benchmarks.heads`), by the method that drafts with it.
HEADED = {method: f"{EMBEDDED}-deep-{method}" for method in HEADS}
TRIAL_HEADED = {method: f"{EMBEDDED}-{method}" for method in HEADS}  # without more layers
KINDS = ("hybrid", "windowed")  # Models that keep something else of a prompt than a cell for each token: `NAME-KIND`
USER_WIDTHS = (1, 4, 16)
USER_SLOTS = 16
# How many sequences, of how many tokens, a server for users is set up for, whatever the number of requests.
USER_CONTEXT = 2048
_PREFIX, _OWN, _ANSWER = 64, 24, 48  # tokens of a user's document, question and answer
BUSY: tuple[Busy, ...] = ("one", "each")


Group = tuple[str, int, Task | None, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Requests that a model gets at the same time."""

    model: str
    width: int  # how many requests
    # How many tokens all prompts share. For an embedded model this is 0, and prompts share what its chats share.
    prefix: int = 0
    own: int  # how many tokens follow in each prompt
    answer: int  # how many tokens to generate for each
    task: Task | None = None  # with a task, kinds of speculation are compared; without, systems are

    @property
    def name(self) -> str:
        """A short name, unique and with slashes."""
        if self.task:
            return f"speculation/{self.task}/{self.width}"
        return f"{self.model}/{self.width}x{self.prefix}"

    @property
    def group(self) -> Group:
        """Cells of one group are measured with the same processes. Cells with a long context have groups of their own,
        because a user with short requests would start a server with a short context."""
        return self.model, 0 if self.task else self.width, self.task, self.context >= LONG_CONTEXT

    @property
    def context(self) -> int:
        """The longest sequence, in tokens."""
        return self.prefix + self.own + self.answer

    def requests(self, system: str, state: State) -> int:
        """Return how many of the requests a system gets; fewer than all only if it is slower by far."""
        part = _PARTS.get((self.model, self.width, self.prefix), self.width)
        return part if system == EXAMPLE and state == "cold" else self.width

    @property
    def states(self) -> tuple[State, ...]:
        """The states to measure."""
        return ("cold", "warm") if self.prefix else ("cold",)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCell(Cell):
    """Chats over HTTP at the same time, each with a question of its own about a document of at least `prefix` tokens.

    Texts are prose, so `prefix` and `own` are approximate.
    """

    shared: bool = False  # whether all chats are about the same document
    beside: Busy | None = None  # the busy loops that run during each round
    steps: int = 0  # Above 0, a run of this many steps in sequence is measured, each of about `answer` tokens
    slots: int = USER_SLOTS  # how many sequences all servers have
    slot_context: int = USER_CONTEXT  # the longest sequence, in tokens

    @property
    def name(self) -> str:
        """A short name, unique and with slashes."""
        if self.steps:
            return "busy/steps"
        if self.beside:
            return f"busy/{self.beside}/{self.width}"
        return f"http/{'shared' if self.shared else 'own'}/{self.width}"

    @property
    def group(self) -> Group:
        """All cells are measured with the same processes, because a user's server has one setup for all requests."""
        return self.model, 0, None, False

    @property
    def context(self) -> int:
        """The longest sequence that the servers are set up for, in tokens."""
        return self.slot_context

    @property
    def states(self) -> tuple[State, ...]:
        """The states to measure."""
        if self.steps:
            return ("idle", *BUSY)
        return ("cold",) if self.beside else ("cold", "warm")

    def busy(self, state: State) -> Busy | None:
        """Return the busy loops that run while a state is measured."""
        return state if state == "one" or state == "each" else self.beside


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderCell(UserCell):
    """Chats with the second model, each about a document of its own."""

    @property
    def name(self) -> str:
        return f"http/own/coder/{self.width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCell(Cell):
    """The second turn of a conversation. Its first turn, of `own` tokens, is answered before each round."""

    question: int  # the tokens of the second question

    @property
    def name(self) -> str:
        return f"{self.model}/turn"

    @property
    def context(self) -> int:
        return self.own + self.question + 2 * self.answer

    @property
    def states(self) -> tuple[State, ...]:
        return ("warm",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCell(Cell):
    """Requests to an embedded model with a head, answered with its drafts and without.

    Prompts are not measured.
    """

    @property
    def method(self) -> str:
        """Return which kind of head drafts: one of `HEADS`."""
        return next(method for method in HEADS if self.model in (HEADED[method], TRIAL_HEADED[method]))

    @property
    def name(self) -> str:
        return f"{self.method}/{self.width}"

    @property
    def context(self) -> int:
        """The longest sequence in tokens: that of the registry, for which the engine chooses the kind of attention."""
        return USER_CONTEXT

    @property
    def states(self) -> tuple[State, ...]:
        return ("warm",)


def keeps_otherwise(model: str) -> bool:
    """Return whether a model is a hybrid, or has sliding windows."""
    return model.endswith(KINDS)


def user_cells(model: str) -> tuple[UserCell, ...]:
    """Return the cells of the user's own path, with the model `model`.

    Answers are shorter next to busy loops, where a step may take ten times as long.
    """
    chat = UserCell(model=model, width=1, prefix=_PREFIX, own=_OWN, answer=_ANSWER)
    own = [replace(chat, width=width) for width in USER_WIDTHS]
    shared = replace(chat, width=_MANY, prefix=800, shared=True)
    busy = [replace(chat, width=width, answer=24, beside=beside) for beside in BUSY for width in USER_WIDTHS]
    return (*own, shared, *busy, replace(chat, prefix=0, answer=60, steps=3))


def coder_cells(model: str) -> tuple[CoderCell, ...]:
    """Return the cells with the second model of the user's own path."""
    chat = CoderCell(model=model, width=1, prefix=_PREFIX, own=_OWN, answer=_ANSWER)
    return tuple(replace(chat, width=width) for width in USER_WIDTHS)


def trial_user_cells() -> tuple[UserCell, ...]:
    """Return one small cell of each kind, on a model of no size: to see that everything runs."""
    chat = UserCell(model="trial", width=2, prefix=8, own=8, answer=4, slots=4, slot_context=1024)
    busy = [replace(chat, beside=beside) for beside in BUSY]
    return (chat, replace(chat, prefix=300, shared=True), *busy, replace(chat, width=1, prefix=0, answer=12, steps=2))


def all_cells() -> tuple[Cell, ...]:
    """Return all cells of the engine by itself, the most important first."""
    sizes = [(width, prefix) for width in WIDTHS for prefix in PREFIXES if (width, prefix) != _LARGEST]
    small, large = ([_plain(model, *size) for size in sizes] for model in ("150m", "500m"))
    speculation = [_speculating(width, task) for task in TASKS for width in SPECULATION_WIDTHS]
    embedded = [Cell(model=EMBEDDED, width=width, own=352, answer=32) for width in WIDTHS if width != BETWEEN]
    headed = [_headed(model, width, 64) for model in HEADED.values() for width in SPECULATION_WIDTHS]
    kinds = [cell for kind in KINDS for cell in _keeping(f"150m-{kind}")]
    return (*small, *speculation, *headed, *large, *kinds, *embedded, _plain("150m", *_LARGEST))


def trial_cells() -> tuple[Cell, ...]:
    """Return one small cell of each kind, on a model of no size: to see that everything runs."""
    plain = [Cell(model="trial", width=width, prefix=prefix, own=8, answer=4) for width in (3, 4) for prefix in (0, 64)]
    speculation = [Cell(model="trial", width=width, own=40, answer=24, task=task) for task in TASKS for width in (1, 2)]
    kinds: list[Cell] = []
    for kind in KINDS:
        model = f"trial-{kind}"
        kinds.append(Cell(model=model, width=3, prefix=64, own=8, answer=4))
        kinds.append(TurnCell(model=model, width=1, own=80, answer=4, question=8))
    headed = [_headed(model, 2, 4) for model in TRIAL_HEADED.values()]
    return (*plain, *speculation, *kinds, *headed, Cell(model=EMBEDDED, width=3, own=352, answer=4))


def chosen(cells: Iterable[Cell], patterns: Iterable[str]) -> tuple[Cell, ...]:
    """Return the cells whose names match one of the patterns, which are those of `fnmatch`; all if there are none."""
    wanted = tuple(patterns)
    return tuple(cell for cell in cells if not wanted or any(fnmatchcase(cell.name, pattern) for pattern in wanted))


def groups(cells: Iterable[Cell]) -> list[tuple[Cell, ...]]:
    """Return the cells by group, in order."""
    by_group: dict[Group, list[Cell]] = {}
    for cell in cells:
        by_group.setdefault(cell.group, []).append(cell)
    return [tuple(group) for group in by_group.values()]


def _speculating(width: int, task: Task) -> Cell:
    """Return a cell that compares speculation. Its prompts hold the whole text that is to be copied.

    With several requests, texts are half as long, because before each round every system computes all prompts, which is
    not measured.
    """
    halved = width > 1
    return Cell(model="500m", width=width, own=128 >> halved, answer=112 >> halved, task=task)


def _headed(model: str, width: int, answer: int) -> HeadCell:
    """Return a cell that compares drafts of a model's head with none."""
    return HeadCell(model=model, width=width, own=352, answer=answer)


def _keeping(model: str) -> list[Cell]:
    """Return the cells of a hybrid or a model with windows."""
    unrelated = [Cell(model=model, width=width, own=64, answer=32) for width in (1, _MANY)]
    turn = TurnCell(model=model, width=1, own=1936, answer=32, question=32)
    return [Cell(model=model, width=_MANY, prefix=1000, own=16, answer=32), turn, *unrelated]


def _plain(model: str, width: int, prefix: int) -> Cell:
    """Return a cell that compares systems. Where there are many requests, prompts and answers are shorter, so that the
    whole benchmark takes no more than a morning."""
    halved = (width >= 4 * _MANY) + (model == "500m" and width >= 4)
    return Cell(model=model, width=width, prefix=prefix, own=(16 if prefix else 64) >> halved, answer=32 >> halved)
