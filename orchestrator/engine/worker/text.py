"""Turn the bytes of tokens into text, in whole characters and without stop strings."""

import codecs


class TextStream:
    """The text of one generation. Bytes that are not UTF-8 become U+FFFD.

    Text is held back while it may be the start of a stop string, and bytes while a character is incomplete.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stopped = False  # no text is returned after a stop string
        self.stopped_by = ""
        self.released = 0  # characters that were returned so far
        self.decoded = ""  # characters that the bytes of the last token have completed
        self._stops = stops
        self._rest = b""
        self._held = ""
        self._parts: list[str] = []

    def push(self, data: bytes, *, may_stop: bool = True) -> str:
        """Add the bytes of a token; return the text that is certain by now. Stop strings count if `may_stop`."""
        self.decoded = text = self._decode(data, final=False)
        if not may_stop:
            held, self._held = self._held, ""
            return self._release(held + text)
        return self._release(self._cut(self._held + text)) if self._stops else self._release(text)

    def finish(self) -> str:
        """Return the text that was held back, since no more tokens follow."""
        if self.stopped:
            return ""
        text = self._cut(self._held + self._decode(b"", final=True))
        held, self._held = self._held, ""
        return self._release(text + held)

    @property
    def characters(self) -> int:
        """How many characters were decoded and not cut off, including those held back."""
        return self.released + len(self._held)

    @property
    def unfinished(self) -> bool:
        """Whether a character is incomplete."""
        return bool(self._rest)

    @property
    def whole(self) -> bytes:
        """All bytes so far, including those held back."""
        return (self.text + self._held).encode() + self._rest

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _decode(self, data: bytes, *, final: bool) -> str:
        data = self._rest + data
        text, used = codecs.utf_8_decode(data, "replace", final)  # codecs' incremental decoder is many times slower
        self._rest = data[used:]
        return text

    def _release(self, text: str) -> str:
        if text:
            self._parts.append(text)
            self.released += len(text)
        return text

    def _cut(self, text: str) -> str:
        matches = [(at, stop) for at, stop in ((text.find(stop), stop) for stop in self._stops) if at >= 0]
        if matches:
            at, self.stopped_by = min(matches)
            self.stopped, self._held = True, ""
            return text[:at]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def utf8_rest(pending: bytes, data: bytes) -> bytes | None:
    """Return the bytes of an unfinished character at the end of `pending + data`; None if they are not UTF-8."""
    if not pending and data.isascii():  # as with most tokens
        return b""
    data = pending + data
    try:
        return data[codecs.utf_8_decode(data, "strict", False)[1] :]
    except UnicodeDecodeError:
        return None


# The length of the longest end of `text` that `stop` starts with.
def _overlap(text: str, stop: str) -> int:
    if stop[0] not in text[1 - len(stop) :]:
        return 0
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
