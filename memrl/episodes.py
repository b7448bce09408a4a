"""The data of the memory: situations, actions, outcomes, rewards and episodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Step, TaskIR

# who judged the outcome; `run`: nothing did, the attempt just ended
Source = Literal["gate", "checker", "judge", "person", "run"]

# The memory's names of the modes.
MODES: Final[Mapping[Mode, str]] = {
    "as-planned": "planned",
    "discover": "discover",
    "serial": "serial",
    "direct": "direct",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a choice depends on.

    Situations are the same if their vectors are similar and task type, kind, role and failures are equal.
    """

    task_type: str | None  # None for requests in words and for chats
    kind: str  # what is done: a kind of step, `plan` for that of a request, or `chat` for the answer to one
    role: str
    text: str  # objective and action in words. Nothing else is embedded, not even defaults.
    input_bytes: int = 0
    failures: tuple[str, ...] = ()  # the kinds of the step's earlier failures, oldest first
    interactive: bool = False  # whether somebody waits for it


def situation_of(
    *,
    role: str,
    objective: str,
    task: TaskIR | None,
    step: Step | None,
    plan: bool = False,
    input_bytes: int = 0,
    failures: tuple[str, ...] = (),
    interactive: bool = False,
) -> Situation:
    return Situation(
        # It counts only if the task states it.
        task_type=task.task_type if task is not None and "task_type" in task.model_fields_set else None,
        kind=step.kind if step is not None else "plan" if plan else "chat",
        role=role,
        # What is asked of the task and of the step, without default values.
        text=objective if step is None or step.action in ("", objective) else f"{objective}\n{step.action}",
        input_bytes=input_bytes,
        failures=failures,
        interactive=interactive,
    )


@dataclass(frozen=True, slots=True, order=True)
class Action:
    role: str
    persona: str = ""
    model: str = ""
    thinking: str = ""  # auto, on, off or a number of tokens; empty for the model's own setting
    mode: str = ""  # of a plan: planned, discover or serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt turned out. Failures of the machine (INFRASTRUCTURE, RESOURCE) have no success."""

    success: float | None  # from 0 to 1; None if it teaches nothing
    quality: float = 1.0  # the quality of the whole task's result, from 0 to 1; 1 if nobody judged it
    source: Source
    by: str = ""  # which gate, checker, judge or person judged it
    weight: float = 1.0  # how much that judgement counts, from 0 to 1
    failure: str = ""  # the kind of the failure; empty for success
    critical_seconds: float = 0.0  # seconds that the attempt added to the measured critical path of its run
    tokens: int = 0  # tokens read and written
    load_seconds: float = 0.0
    lost_prefix_tokens: int = 0  # tokens read again because another model had them in its KV cache
    saved_seconds: float = 0.0  # seconds that running in parallel took off the measured critical path
    used: bool = True  # whether a later step or the user got its output

    @property
    def worth(self) -> float | None:
        """Success times quality, before costs; None if it teaches nothing."""
        return None if self.success is None else self.success * self.quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A reward and its parts; Q learns from `total`."""

    total: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What an attempt taught before a later outcome of it arrived, such as a rating."""

    reward: float
    weight: float  # from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What memory keeps of an episode without reading the database."""

    id: int
    action: Action
    q: float  # the expected reward: Q <- Q + alpha * (R - Q)
    count: int
    last_seen: float  # seconds since the epoch
    weight: float = 1.0  # the sum of the weights of its outcomes: how many outcomes it is worth as evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(Recalled):
    situation: Situation
    created: float  # seconds since the epoch
    propensity: float  # of the latest choice; so are outcome and reward
    outcome: Outcome
    reward: Reward


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A similar episode. `Memory.episodes` returns the whole of it."""

    episode: Recalled
    similarity: float  # the cosine of their vectors, from -1 to 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neighbourhood(Sequence[Neighbour]):
    """Neighbours as columns of shape (neighbours,), most similar first, so that thousands need no objects."""

    ids: NDArray[np.int64]
    similarities: NDArray[np.float64]
    q: NDArray[np.float64]
    counts: NDArray[np.float64]
    weights: NDArray[np.float64]
    last_seen: NDArray[np.float64]
    actions: NDArray[np.int64]  # numbers of actions, see `named`
    named: Mapping[int, Action]  # actions by number; others than those that occur too

    @classmethod
    def of(cls, neighbours: Sequence[Neighbour]) -> Self:
        numbers: dict[Action, int] = {}
        episodes = [neighbour.episode for neighbour in neighbours]
        codes = [numbers.setdefault(recalled.action, len(numbers)) for recalled in episodes]
        return cls(
            ids=np.array([recalled.id for recalled in episodes], dtype=np.int64),
            similarities=np.array([neighbour.similarity for neighbour in neighbours], dtype=np.float64),
            q=np.array([recalled.q for recalled in episodes], dtype=np.float64),
            counts=np.array([recalled.count for recalled in episodes], dtype=np.float64),
            weights=np.array([recalled.weight for recalled in episodes], dtype=np.float64),
            last_seen=np.array([recalled.last_seen for recalled in episodes], dtype=np.float64),
            actions=np.array(codes, dtype=np.int64),
            named={number: action for action, number in numbers.items()},
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Neighbour: ...

    @overload
    def __getitem__(self, place: slice) -> list[Neighbour]: ...

    def __getitem__(self, place: int | slice) -> Neighbour | list[Neighbour]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        recalled = Recalled(
            id=int(self.ids[place]),
            action=self.named[int(self.actions[place])],
            q=float(self.q[place]),
            count=int(self.counts[place]),
            weight=float(self.weights[place]),
            last_seen=float(self.last_seen[place]),
        )
        return Neighbour(recalled, float(self.similarities[place]))


@dataclass(frozen=True, slots=True)
class Value:
    """The worth of a role with a persona in tasks of a type, over all episodes."""

    task_type: str | None
    role: str
    persona: str
    q: float  # the mean of the episodes' Q, weighted by count
    count: int  # outcomes
    episodes: int
    last_seen: float
