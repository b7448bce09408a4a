"""Hold the conversation of a long step: a head that never changes, a summary of what was condensed, the turns since.

Between two prunings or condensations the messages only grow, so the engine finds all but the last turn in its KV cache.
Pruning leaves what is before the first pruned document as it was; condensing leaves the head. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from orchestrator.steps.prompt import Message

ChatMessages = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Something that was gathered. `id` is what it is pruned and kept by, `name` says what it is of."""

    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model wrote, what came of it (a document, or else a `told` line), and a notice behind it."""

    wrote: str
    told: str = ""
    document: Document | None = None
    notice: str = ""
    pruned: bool = False

    @property
    def answer(self) -> str:
        """Return the message that answers what the model wrote."""
        shown = self.told
        if self.document is not None:
            text = "pruned" if self.pruned else f"\n{self.document.text}"
            shown = f"[{self.document.id} {self.document.name}]{' ' if self.pruned else ''}{text}"
        return f"{shown}\n{self.notice}" if self.notice else shown


@dataclass(frozen=True, slots=True)
class Window:
    """The conversation of one step. Every method returns another window.

    `gathered` are all documents so far, those that are no longer shown included; `dropped` are the ids of those that
    were pruned. `summary` is the text of the last condensation, of which there were `condensations`.
    """

    head: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()
    summary: str = ""
    condensations: int = 0
    gathered: tuple[Document, ...] = ()
    dropped: frozenset[str] = field(default_factory=frozenset)

    @property
    def messages(self) -> ChatMessages:
        """Return the messages to send: the head, what the summary says, and each turn as two messages."""
        shown = [(message.role, message.content) for message in self.head]
        if self.condensations:
            shown += [("assistant", self.summary), ("user", self._reminder())]
        for turn in self.turns:
            shown += [("assistant", turn.wrote), ("user", turn.answer)]
        return tuple((str(role), text) for role, text in shown)

    @property
    def shown(self) -> tuple[Document, ...]:
        """Return the documents whose text is in the messages."""
        return tuple(turn.document for turn in self.turns if turn.document is not None and not turn.pruned)

    @property
    def gain(self) -> float:
        """Return which share of the turns' characters pruning could free: that of the documents that are shown."""
        whole = sum(len(turn.wrote) + len(turn.answer) for turn in self.turns)
        return sum(len(document.text) for document in self.shown) / whole if whole else 0.0

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
        """Return the window as it was before its last turn, but that what was gathered stays gathered."""
        return replace(self, turns=self.turns[:-1])

    def prune(self, ids: Collection[str]) -> "Window":
        """Return the window without the texts of these documents, of which one line each stays."""
        turns = tuple(
            replace(turn, pruned=True) if turn.document is not None and turn.document.id in ids else turn
            for turn in self.turns
        )
        known = {document.id for document in self.gathered}
        return replace(self, turns=turns, dropped=self.dropped | (known & set(ids)))

    def condense(self, summary: str) -> "Window":
        """Return the window with a summary in the place of all its turns. Documents stay gathered, unseen."""
        return replace(self, turns=(), summary=summary, condensations=self.condensations + 1)

    def _reminder(self) -> str:
        times = "once" if self.condensations == 1 else f"{self.condensations} times"
        kept = ", ".join(f"{document.id} {document.name}" for document in self.kept)
        told = f"This is your summary of all that went before, condensed {times}. Go on from it."
        return f"{told}\nKept documents: {kept}" if kept else told
