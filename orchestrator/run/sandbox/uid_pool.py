"""Give every running job an unprivileged uid of its own.

The kernel counts processes by uid: jobs of one uid would share that limit, and could signal each other. Only root can
change the uid of a process; otherwise user namespaces keep the jobs apart.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.run.sandbox.errors import SandboxUnavailable

_COUNT = 4096
# The first range is "unused" in systemd's table of uids; the second is for containers, which often map only 65536.
_STARTS = (2_000_000_000, 60_000)
_UID_MAP = Path("/proc/self/uid_map")


class UidPool:
    def __init__(self, start: int, count: int = _COUNT) -> None:
        self._start = start
        self._count = count
        self._in_use: set[int] = set()

    @classmethod
    def for_this_machine(cls) -> "UidPool":
        """Return unused uids that are mapped here. Raises SandboxUnavailable if there are none."""
        text = _UID_MAP.read_text(encoding="ascii")
        extents = [tuple(map(int, line.split())) for line in text.splitlines()]
        for start in _STARTS:
            if any(first <= start and start + _COUNT <= first + length for first, _, length in extents):
                return cls(start)
        raise SandboxUnavailable(f"no unused uids are mapped here ({text.strip()}); map 65536, or run it as a user")

    @contextmanager
    def acquire(self) -> Iterator[int]:
        """Hold a uid that no other job of this process has."""
        free = [uid for uid in range(self._start, self._start + self._count) if uid not in self._in_use]
        # Random, as other processes may use the same range.
        uid = secrets.choice(free)
        self._in_use.add(uid)
        try:
            yield uid
        finally:
            self._in_use.discard(uid)
