"""Define what the memory holds: a situation, the action chosen in it, how that turned out, and its reward."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

Kind = Literal["generate", "repl", "tool", "plan", "chat"]
"""What was to be done: a kind of step, the plan of a request, or the answer to a chat."""

Source = Literal["gate", "checker", "judge", "person", "run"]
"""Who said how it turned out. `run` stands for the end of an attempt that nothing has checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a choice depends on. Two situations are similar if the vectors of their texts are.

    They count as the same one if they also agree in task type, kind, role and earlier failures.
    """

    task_type: str | None
    """The type of the task; None for a request in words, and for a chat."""
    kind: Kind
    role: str
    """The role that was asked for."""
    text: str
    """What is wanted, in words: objective and action. Nothing else is embedded, above all no default of a field."""
    input_bytes: int = 0
    """How much the step reads."""
    failures: tuple[str, ...] = ()
    """The kinds of the step's earlier failures, oldest first."""
    interactive: bool = False
    """Whether somebody waits for it."""


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """What a router chooses for an attempt: role, persona and model, how much is thought, and the mode of a plan."""

    role: str
    persona: str = ""
    """The persona's name; empty for none."""
    model: str = ""
    thinking: str = ""
    """How much the model may think: auto, on, off or a number of tokens; empty for the model's own setting."""
    mode: str = ""
    """How a plan is run: planned, discover or serial; empty for what is no plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt turned out. What happened to the machine (INFRASTRUCTURE, RESOURCE) has no success."""

    success: float | None
    """1 for success, 0 for failure, between them by a person's or a judge's word; None where it teaches nothing."""
    quality: float = 1.0
    """How good the result of the whole task is, from 0 to 1, by who has judged that; 1 where nobody has."""
    source: Source
    by: str = ""
    """Which gate, checker, judge or person said so."""
    weight: float = 1.0
    """How much that word counts, from 0 to 1. A person's outweighs a judge's."""
    failure: str = ""
    """The kind of the failure; empty for success."""
    critical_seconds: float = 0.0
    """Seconds by which the attempt lengthened the measured critical path of its run."""
    tokens: int = 0
    """Tokens read and written."""
    load_seconds: float = 0.0
    """Seconds spent on loading a model for it."""
    lost_prefix_tokens: int = 0
    """Tokens that had to be read again because another model was chosen than the one which held them."""
    saved_seconds: float = 0.0
    """Seconds by which running beside others shortened the measured critical path."""
    used: bool = True
    """Whether a later step, or the user, got what it made."""

    @property
    def worth(self) -> float | None:
        """What the outcome is worth to the user, before costs: success times quality; None where it teaches nothing."""
        return None if self.success is None else self.success * self.quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A reward and its parts by name; `total` is what Q learns from."""

    total: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What an attempt had taught before another outcome of it came, as when a rating comes after the end of a run."""

    reward: float
    """The reward of the earlier outcome."""
    weight: float
    """How much the earlier outcome counted, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What is known of an episode without reading the database."""

    id: int
    action: Action
    q: float
    """The expected reward: Q <- Q + alpha * (R - Q) at each time."""
    count: int
    """How often its situation and action were seen."""
    last_seen: float
    """When they were last seen, in seconds since the epoch."""
    weight: float = 1.0
    """The sum of the weights of its outcomes: how many outcomes it is worth as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(Recalled):
    """A situation and an action that were seen `count` times, and what they are worth."""

    situation: Situation
    created: float
    """When it was first seen, in seconds since the epoch."""
    propensity: float
    """How probable the choice was, at the last time."""
    outcome: Outcome
    """How it turned out, at the last time."""
    reward: Reward
    """The reward of the last time."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An episode whose situation is similar to the one at hand. `Memory.episodes` returns the whole of an episode."""

    episode: Recalled
    similarity: float
    """The cosine of their vectors, from -1 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neighbourhood(Sequence[Neighbour]):
    """Neighbours as columns, which thousands of decisions can be computed from without an object for each of them.

    Each array has the shape (neighbours,). It is a sequence of `Neighbour`, which are made when they are asked for.
    """

    ids: NDArray[np.int64]
    similarities: NDArray[np.float64]
    """The most similar one comes first."""
    q: NDArray[np.float64]
    counts: NDArray[np.float64]
    weights: NDArray[np.float64]
    """How many outcomes each one is worth as evidence."""
    last_seen: NDArray[np.float64]
    actions: NDArray[np.int64]
    """The number of each one's action."""
    named: Mapping[int, Action]
    """The actions by number, which may be more than those that occur."""

    @classmethod
    def of(cls, neighbours: Sequence[Neighbour]) -> Self:
        """Return neighbours as columns."""
        numbers: dict[Action, int] = {}
        episodes = [one.episode for one in neighbours]
        codes = [numbers.setdefault(one.action, len(numbers)) for one in episodes]
        return cls(
            ids=np.array([one.id for one in episodes], dtype=np.int64),
            similarities=np.array([one.similarity for one in neighbours], dtype=np.float64),
            q=np.array([one.q for one in episodes], dtype=np.float64),
            counts=np.array([one.count for one in episodes], dtype=np.float64),
            weights=np.array([one.weight for one in episodes], dtype=np.float64),
            last_seen=np.array([one.last_seen for one in episodes], dtype=np.float64),
            actions=np.array(codes, dtype=np.int64),
            named={number: action for action, number in numbers.items()},
        )

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Neighbour: ...

    @overload
    def __getitem__(self, place: slice) -> list[Neighbour]: ...

    def __getitem__(self, place: int | slice) -> Neighbour | list[Neighbour]:
        """Return one of them, or some. Raises IndexError."""
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        known = Recalled(
            id=int(self.ids[place]),
            action=self.named[int(self.actions[place])],
            q=float(self.q[place]),
            count=int(self.counts[place]),
            weight=float(self.weights[place]),
            last_seen=float(self.last_seen[place]),
        )
        return Neighbour(known, float(self.similarities[place]))

    def __iter__(self) -> Iterator[Neighbour]:
        """Return an iterator over all, the most similar one first."""
        return (self[place] for place in range(len(self)))


@dataclass(frozen=True, slots=True)
class Value:
    """What a role with a persona is worth in tasks of a type, over all episodes."""

    task_type: str | None
    role: str
    persona: str
    q: float
    """The mean of the episodes' Q, weighed by how often each was seen."""
    count: int
    """How many outcomes it stands for."""
    episodes: int
    last_seen: float
