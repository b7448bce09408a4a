"""Keep the latest changes of a head's journal, so that a standby that comes back gets what it has missed. Pure."""

import secrets
from collections import deque

import msgspec

from orchestrator.run.journal.replica import Change

Item = Change | str
"""A change, or the digest of an object."""


class History:
    """The latest items of a stream, `most` bytes of them at most. They are numbered from 1."""

    def __init__(self, most: int) -> None:
        self.stream = secrets.token_hex(16)  # no other history has it
        self.end = 0  # the number of the last item
        self._most = most
        self._bytes = 0
        self._items: deque[tuple[Item, int]] = deque()

    def add(self, item: Item) -> None:
        size = len(msgspec.msgpack.encode(item))
        self._items.append((item, size))
        self._bytes += size
        self.end += 1
        while self._bytes > self._most:
            self._bytes -= self._items.popleft()[1]

    def after(self, stream: str, number: int) -> list[Item] | None:
        """Return all items after the one with this number; None if they are not here, or the stream is another one."""
        missing = self.end - number
        if stream != self.stream or not 0 <= missing <= len(self._items):
            return None
        return [item for item, _ in self._items][len(self._items) - missing :]
