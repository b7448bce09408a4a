"""Hold the conversation of a long step: an opening that never changes, a summary of what was condensed, later turns.

Between two sweeps or condensations the messages only grow, so the engine finds all but the last turn in its KV cache.
Pruning a document only marks it. Sweeping takes the turns of all marked ones out, and leaves what is before the first
of them as it was; condensing leaves the opening. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from orchestrator.engine.contract import Message


@dataclass(frozen=True, slots=True)
class Document:
    """Something that was gathered. `id` is what it is pruned and kept by, `name` says what it is of."""

    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model wrote, what came of it (a document, or else a `told` text), and a notice behind it.

    `rest` is the call by which all of what is told can be looked at, where there is one.
    """

    wrote: str
    told: str = ""
    document: Document | None = None
    notice: str = ""
    rest: str = ""

    @property
    def answer(self) -> str:
        """Return the message that answers what the model wrote."""
        shown = self.told
        if self.document is not None:
            shown = f"[{self.document.id} {self.document.name}]\n{self.document.text}"
        return f"{shown}\n{self.notice}" if self.notice else shown

    @property
    def size(self) -> int:
        """The characters of its two messages."""
        return len(self.wrote) + len(self.answer)


@dataclass(frozen=True, slots=True)
class Window:
    """The conversation of one step. Every method returns another window.

    `gathered` are all documents so far, those that are no longer shown included; `dropped` are the ids of those that
    were pruned, and the first `judged` were there when pruning could be done last. `summary` is the text of the last
    condensation, of which there were `condensations`; `listed` are the documents that were kept then.
    """

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()
    summary: str = ""
    condensations: int = 0
    gathered: tuple[Document, ...] = ()
    dropped: frozenset[str] = field(default_factory=frozenset)
    judged: int = 0
    listed: tuple[Document, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the messages to send: the opening, what the summary says, and each turn as two messages."""
        shown = list(self.opening)
        if self.condensations:
            shown += [Message("assistant", self.summary), Message("user", self.reminder)]
        for turn in self.turns:
            shown += [Message("assistant", turn.wrote), Message("user", turn.answer)]
        return tuple(shown)

    @property
    def shown(self) -> tuple[Document, ...]:
        """Return the documents that could be pruned: their text is in the messages, and they were not pruned yet."""
        texts = (turn.document for turn in self.turns if turn.document is not None)
        return tuple(document for document in texts if document.id not in self.dropped)

    @property
    def fresh(self) -> tuple[Turn, ...]:
        """Return the turns of the documents that came since pruning could be done last: nobody has judged them yet."""
        ids = {document.id for document in self.gathered[self.judged :]}
        return tuple(turn for turn in self.turns if turn.document is not None and turn.document.id in ids)

    @property
    def size(self) -> int:
        """The characters of all messages."""
        return sum(len(text) for _, text in self.messages)

    @property
    def kept(self) -> tuple[Document, ...]:
        """Return the documents that were gathered and not pruned, whether they are still shown or not."""
        return tuple(document for document in self.gathered if document.id not in self.dropped)

    @property
    def next_id(self) -> str:
        """Return the id of the next document: D1, D2, …."""
        return f"D{len(self.gathered) + 1}"

    def add(self, turn: Turn) -> "Window":
        """Return the window with one more turn, and its document among those gathered."""
        new = () if turn.document is None else (turn.document,)
        return replace(self, turns=(*self.turns, turn), gathered=(*self.gathered, *new))

    def remark(self, notice: str) -> "Window":
        """Return the window with a notice behind its last turn, which has none yet."""
        *before, last = self.turns
        return replace(self, turns=(*before, replace(last, notice=notice)))

    def without_last(self) -> "Window":
        """Return the window as it was before its last turn."""
        gathered = self.gathered if self.turns[-1].document is None else self.gathered[:-1]
        return replace(self, turns=self.turns[:-1], gathered=gathered)

    def prune(self, ids: Collection[str]) -> "Window":
        """Return the window with these documents marked."""
        known = {document.id for document in self.gathered}
        return replace(self, dropped=self.dropped | (known & set(ids))).as_judged()

    def as_judged(self) -> "Window":
        """Return the window with all that was gathered called judged: it could be pruned, and what was not is kept."""
        return replace(self, judged=len(self.gathered))

    def is_due(self, turn: Turn) -> bool:
        """Whether the turn has brought a document that was pruned."""
        return turn.document is not None and turn.document.id in self.dropped

    def sweep(self) -> "Window":
        """Return the window without the turns of pruned documents. The line that told of the pruning names them."""
        return replace(self, turns=tuple(turn for turn in self.turns if not self.is_due(turn)))

    def condense(self, summary: str) -> "Window":
        """Return the window with a summary in the place of all its turns. Documents stay gathered, unseen."""
        times = self.condensations + 1
        return replace(self, turns=(), summary=summary, condensations=times, listed=self.kept).as_judged()

    @property
    def reminder(self) -> str:
        """What follows the summary: how often was condensed, and which documents were kept then. It stays as it is."""
        times = "once" if self.condensations == 1 else f"{self.condensations} times"
        kept = ", ".join(f"{document.id} {document.name}" for document in self.listed)
        told = f"This is your summary of all that went before, condensed {times}. Go on from it."
        return f"{told}\nKept documents: {kept}" if kept else told
