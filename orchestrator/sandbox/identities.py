"""Lend every running job an unprivileged uid of its own.

The kernel counts processes by uid, so jobs that shared one would also share their limit, and could signal each other if
they ever met. Only root can lend uids; anyone else's jobs run under their own, which a user namespace keeps apart.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.sandbox.errors import SandboxUnavailable

_COUNT = 4096
# The first lies where systemd's table of uids says "unused"; the second is for containers, which often map only 65536.
_STARTS = (2_000_000_000, 60_000)
_UID_MAP = Path("/proc/self/uid_map")


class Identities:
    """A range of uids, and which of them are lent."""

    def __init__(self, start: int, count: int = _COUNT) -> None:
        self._start = start
        self._count = count
        self._lent: set[int] = set()

    @classmethod
    def of_this_machine(cls) -> "Identities":
        """Return uids that are mapped here and belong to nobody. Raises SandboxUnavailable."""
        text = _UID_MAP.read_text(encoding="ascii")
        extents = [tuple(map(int, line.split())) for line in text.splitlines()]
        for start in _STARTS:
            if any(first <= start and start + _COUNT <= first + length for first, _, length in extents):
                return cls(start)
        raise SandboxUnavailable(f"no unused uids are mapped here ({text.strip()}); map 65536, or run it as a user")

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Lend one that no other job of this process has; which one is left to chance, as other processes lend too."""
        free = [uid for uid in range(self._start, self._start + self._count) if uid not in self._lent]
        uid = secrets.choice(free)
        self._lent.add(uid)
        try:
            yield uid
        finally:
            self._lent.discard(uid)
