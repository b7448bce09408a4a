"""Split a model's output into thoughts and answer. Pure.

    start ──the mark of a thought──▶ thinking ──the mark of its end──▶ gap ──no more white space──▶ answering
      │                                 ▲ └──▶ start again, where thoughts are messages with headers     ▲
      └──anything else, or a message to a tool───────────────────────────────────────────────────────────┘

The answer is not searched for marks, so it may spell them.
"""

import re
from typing import Final, Literal

from orchestrator.registry.thinking import ThoughtMarkers

SplitterState = Literal["start", "thinking", "gap", "answering"]
# The start of a tool call in the answer, if thoughts and answers are messages with headers (harmony). Models write the
# parts of that header in several orders; this is the normal form.
TO_FUNCTION: Final = b"<|channel|>commentary to=functions."
_RECIPIENT: Final = re.compile(rb"to=functions\.([\w.-]+)")
MAX_BLANKS = 4  # consecutive white-space pieces before a thought, or between thought and answer


class ThoughtSplitter:
    """Splits the bytes of one text. Holds bytes back while they may be the start of a mark.

    White space at both ends of a thought, and between thought and answer, belongs to neither. With `calls`, a message
    to a tool is part of the answer, with its header.
    """

    def __init__(self, markers: ThoughtMarkers, state: SplitterState = "start", *, calls: bool = False) -> None:
        self.state = state
        self._calls = calls
        self.thought_begun = state == "thinking"
        self._opens, self._closes = markers.opens.encode(), markers.closes.encode()
        self._header = markers.header.encode()
        self._held = b""
        self._blanks = 0
        self._written = False

    @classmethod
    def after_prompt(cls, markers: ThoughtMarkers, prompt_end: str, *, calls: bool = False) -> "ThoughtSplitter":
        """Return a splitter for the text after a prompt that ends with `prompt_end`.

        Some templates open a thought there, or close an empty one.
        """
        end = prompt_end.rstrip()
        if end.endswith(markers.opens):
            return cls(markers, "thinking", calls=calls)
        end_mark = markers.skips or markers.closes
        return cls(markers, "answering" if end.endswith(end_mark) else "start", calls=calls)

    def expects(self, data: bytes) -> bool:
        """Return whether these bytes before an answer may become a mark or be white space before it."""
        if not data or (not data.strip() and self._blanks >= MAX_BLANKS):
            return False
        return not data.strip() if self.state == "gap" else self._may_open((self._held + data).lstrip())

    def push(self, data: bytes) -> tuple[bytes, bytes]:
        """Add bytes of the text; return the bytes that now certainly belong to the thought and to the answer."""
        match self.state:
            case "start":
                return self._start(self._held + data)
            case "thinking":
                return self._think(self._held + data)
            case "gap":
                return b"", self._gap(data)
        return b"", data

    def answer(self) -> bytes:
        """Start the answer; return the bytes that were held back for it."""
        held, self._held = self._held, b""
        before, self.state = self.state, "answering"
        return held if before == "start" else b""

    def finish(self) -> tuple[bytes, bytes]:
        """End the text; return the bytes that were held back for the thought and for the answer."""
        if self.state == "thinking":
            held, self._held = self._held, b""
            return held.rstrip(), b""
        return b"", self.answer()

    def _may_open(self, text: bytes) -> bool:
        if not self._header:
            return self._opens.startswith(text) or text.startswith(self._opens)
        begins = (b"<|channel|>", b"<|start|>", *((b"to=",) if self._calls else ()))
        return any(begin.startswith(text) or text.startswith(begin) for begin in begins)

    def _start(self, text: bytes) -> tuple[bytes, bytes]:
        self._held = text
        begun, more = text.lstrip(), self._written
        if not begun:
            self._blanks += 1
            return b"", (self.answer() if self._blanks > MAX_BLANKS else b"")
        if not self._may_open(begun):
            return b"", self.answer()
        if self._header:
            header, separator, rest = begun.partition(self._header)
            if not separator:
                return b"", b""
            self._held = b""
            if self._calls and (called := _RECIPIENT.search(header)) is not None:
                self.state = "answering"
                return b"", TO_FUNCTION + called[1] + b" json" + self._header + rest
            if b"final" in header:
                self.state = "answering"
                return b"", rest
        elif begun.startswith(self._opens):
            rest = begun[len(self._opens) :]
        else:
            return b"", b""
        self.state, self.thought_begun, self._held = "thinking", True, b""
        thought, answer = self._think(rest)
        return (b"\n" if more else b"") + thought, answer

    def _think(self, text: bytes) -> tuple[bytes, bytes]:
        text = text if self._written else text.lstrip()
        thought, closed, rest = text.partition(self._closes)
        if closed:
            self._held, self._blanks = b"", 0
            self.state = "start" if self._header else "gap"
            thought = thought.rstrip()
            self._written = self._written or bool(thought)
            more, answer = self.push(rest) if rest else (b"", b"")
            return thought + more, answer
        certain = text[: len(text) - overlap(text, self._closes)].rstrip()
        self._held = text[len(certain) :]
        self._written = self._written or bool(certain)
        return certain, b""

    def _gap(self, text: bytes) -> bytes:
        self._blanks += 1
        if text := text.lstrip():
            self.state = "answering"
        return text


def overlap(text: bytes, mark: bytes) -> int:
    """Return the length of the longest proper prefix of `mark` with which `text` ends."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-size:])), 0)
