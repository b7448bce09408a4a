"""Hold the conversation of a long step: an opening that never changes, a summary of what was condensed, later turns.

Between two sweeps or condensations the messages only grow, so the engine finds all but the last turn in its KV cache.
Pruning a document only budget it. Sweeping takes the turns of all marked ones out, and leaves what is before the first
of them as it was; condensing leaves the opening. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from orchestrator.engine.contract import Message


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, which the model may drop or hand on."""

    id: str
    """The id by which the model prunes it or hands it on: D1, D2, …."""
    name: str
    """The file that was read, or the call."""
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the model wrote, and the answer to it."""

    wrote: str
    result: str = ""
    """The result of what the model asked for, if that cannot be pruned."""
    document: CallResult | None = None
    """The result, if it can be pruned."""
    notice: str = ""
    """What stands behind the result, such as how full the context is."""
    rest: str = ""
    """The call by which the model can look at a result that is shown cut; empty where there is none."""

    @property
    def answer(self) -> str:
        """The message that answers what the model wrote."""
        shown = self.result
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
    gathered: tuple[CallResult, ...] = ()
    dropped: frozenset[str] = field(default_factory=frozenset)
    judged: int = 0
    listed: tuple[CallResult, ...] = ()

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
    def shown(self) -> tuple[CallResult, ...]:
        """The documents that can be pruned: their text is in the messages, and they were not pruned yet."""
        texts = (turn.document for turn in self.turns if turn.document is not None)
        return tuple(document for document in texts if document.id not in self.dropped)

    @property
    def fresh(self) -> tuple[Turn, ...]:
        """The turns with documents that came since the model could prune last, so it has not judged them yet."""
        ids = {document.id for document in self.gathered[self.judged :]}
        return tuple(turn for turn in self.turns if turn.document is not None and turn.document.id in ids)

    @property
    def size(self) -> int:
        """The characters of all messages."""
        return sum(len(message.content) for message in self.messages)

    @property
    def kept(self) -> tuple[CallResult, ...]:
        """The documents that were gathered and not pruned, whether they are still shown or not."""
        return tuple(document for document in self.gathered if document.id not in self.dropped)

    @property
    def next_id(self) -> str:
        """The id of the next document: D1, D2, …."""
        return f"D{len(self.gathered) + 1}"

    def add(self, turn: Turn) -> "Window":
        """Return the window with one more turn, and its document among those gathered."""
        new = () if turn.document is None else (turn.document,)
        return replace(self, turns=(*self.turns, turn), gathered=(*self.gathered, *new))

    def remark(self, notice: str) -> "Window":
        """Return the window with a notice behind its last turn, in place of any other one."""
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
        """Return the window with all its documents marked as judged: the model could prune them, and kept these."""
        return replace(self, judged=len(self.gathered))

    def is_due(self, turn: Turn) -> bool:
        """Whether the turn has brought a document that was pruned."""
        return turn.document is not None and turn.document.id in self.dropped

    def sweep(self) -> "Window":
        """Return the window without the turns of pruned documents. A line that names them stays."""
        return replace(self, turns=tuple(turn for turn in self.turns if not self.is_due(turn)))

    def condense(self, summary: str) -> "Window":
        """Return the window with a summary in the place of all its turns. Documents stay known, but are not shown."""
        times = self.condensations + 1
        return replace(self, turns=(), summary=summary, condensations=times, listed=self.kept).as_judged()

    @property
    def reminder(self) -> str:
        """The message behind the summary: how often the history was condensed, and which documents were kept then.

        It does not change before the next condensation, so that the engine finds it in its KV cache.
        """
        times = "once" if self.condensations == 1 else f"{self.condensations} times"
        kept = ", ".join(f"{document.id} {document.name}" for document in self.listed)
        line = f"This is your summary of all that went before, condensed {times}. Go on from it."
        return f"{line}\nKept documents: {kept}" if kept else line
