"""The conversation of a long step: a fixed opening, a summary of what was condensed, later turns. Pure.

Between sweeps and condensations the messages only grow, so the engine finds all but the last turn in its KV cache.
Pruning only marks a document. Sweeping removes the turns of all marked ones, and leaves what is before the first of
them as it was; condensing leaves only the opening.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from orchestrator.engine.contract import Message


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, which the model may drop or hand on by its id."""

    id: str  # D1, D2, …
    name: str  # the file that was read, or the call
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    wrote: str
    result: str = ""  # if it cannot be pruned
    document: CallResult | None = None  # the result, if it can be pruned
    notice: str = ""  # behind the result, such as how full the context is
    rest: str = ""  # the call that shows the rest of a result that is cut; empty for none

    @property
    def answer(self) -> str:
        """The message that answers what the model wrote."""
        shown = self.result
        if self.document is not None:
            shown = f"[{self.document.id} {self.document.name}]\n{self.document.text}"
        return f"{shown}\n{self.notice}" if self.notice else shown

    @property
    def size(self) -> int:
        """Characters of both messages."""
        return len(self.wrote) + len(self.answer)


@dataclass(frozen=True, slots=True)
class Window:
    """The conversation of one step. Every method returns another window."""

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()
    summary: str = ""  # of the last condensation
    condensations: int = 0  # how often the history was condensed
    gathered: tuple[CallResult, ...] = ()  # all documents so far, shown or not
    dropped: frozenset[str] = field(default_factory=frozenset)  # ids of pruned documents
    judged: int = 0  # how many of `gathered` there were when the model could prune last
    listed: tuple[CallResult, ...] = ()  # documents that were kept at the last condensation

    @property
    def messages(self) -> tuple[Message, ...]:
        shown = list(self.opening)
        if self.condensations:
            shown += [Message("assistant", self.summary), Message("user", self.reminder)]
        for turn in self.turns:
            shown += [Message("assistant", turn.wrote), Message("user", turn.answer)]
        return tuple(shown)

    @property
    def shown(self) -> tuple[CallResult, ...]:
        """Documents that can be pruned: shown, and not pruned yet."""
        texts = (turn.document for turn in self.turns if turn.document is not None)
        return tuple(document for document in texts if document.id not in self.dropped)

    @property
    def fresh(self) -> tuple[Turn, ...]:
        """Turns with documents that came since the model could prune last."""
        ids = {document.id for document in self.gathered[self.judged :]}
        return tuple(turn for turn in self.turns if turn.document is not None and turn.document.id in ids)

    @property
    def size(self) -> int:
        """Characters of all messages."""
        return sum(len(message.content) for message in self.messages)

    @property
    def kept(self) -> tuple[CallResult, ...]:
        """Documents that were not pruned, whether they are still shown or not."""
        return tuple(document for document in self.gathered if document.id not in self.dropped)

    @property
    def next_id(self) -> str:
        return f"D{len(self.gathered) + 1}"

    def add(self, turn: Turn) -> "Window":
        new = () if turn.document is None else (turn.document,)
        return replace(self, turns=(*self.turns, turn), gathered=(*self.gathered, *new))

    def remark(self, notice: str) -> "Window":
        """Replace the notice behind the last turn."""
        *before, last = self.turns
        return replace(self, turns=(*before, replace(last, notice=notice)))

    def without_last(self) -> "Window":
        gathered = self.gathered if self.turns[-1].document is None else self.gathered[:-1]
        return replace(self, turns=self.turns[:-1], gathered=gathered)

    def prune(self, ids: Collection[str]) -> "Window":
        """Mark documents as pruned."""
        gathered_ids = {document.id for document in self.gathered}
        return replace(self, dropped=self.dropped | (gathered_ids & set(ids))).as_judged()

    def as_judged(self) -> "Window":
        """Mark all documents as judged: the model could prune them."""
        return replace(self, judged=len(self.gathered))

    def is_due(self, turn: Turn) -> bool:
        """Whether the turn has brought a document that was pruned."""
        return turn.document is not None and turn.document.id in self.dropped

    def sweep(self) -> "Window":
        """Drop the turns of pruned documents; a line that names them stays."""
        return replace(self, turns=tuple(turn for turn in self.turns if not self.is_due(turn)))

    def condense(self, summary: str) -> "Window":
        """Put a summary in the place of all turns. Documents can still be handed on, but are not shown."""
        times = self.condensations + 1
        return replace(self, turns=(), summary=summary, condensations=times, listed=self.kept).as_judged()

    @property
    def reminder(self) -> str:
        """The message behind the summary."""
        # This must not change before the next condensation, so that the engine finds it in its KV cache.
        times = "once" if self.condensations == 1 else f"{self.condensations} times"
        documents = ", ".join(f"{document.id} {document.name}" for document in self.listed)
        line = f"This is your summary of all that went before, condensed {times}. Go on from it."
        return f"{line}\nKept documents: {documents}" if documents else line
