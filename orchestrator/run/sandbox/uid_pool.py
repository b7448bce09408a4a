"""Give every running job an unprivileged uid of its own.

The kernel counts processes by uid, so jobs with the same uid would share the limit on processes, and could signal each
other if they ever met. Only root can give a process another uid. The jobs of any other user run under that user's uid,
and user namespaces keep them apart.
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
    """A range of uids, and which of them are in use."""

    def __init__(self, start: int, count: int = _COUNT) -> None:
        self._start = start
        self._count = count
        self._in_use: set[int] = set()

    @classmethod
    def for_this_machine(cls) -> "UidPool":
        """Return uids that are mapped here and belong to nobody. Raises SandboxUnavailable if there are none."""
        text = _UID_MAP.read_text(encoding="ascii")
        extents = [tuple(map(int, line.split())) for line in text.splitlines()]
        for start in _STARTS:
            if any(first <= start and start + _COUNT <= first + length for first, _, length in extents):
                return cls(start)
        raise SandboxUnavailable(f"no unused uids are mapped here ({text.strip()}); map 65536, or run it as a user")

    @contextmanager
    def acquire(self) -> Iterator[int]:
        """Hold a uid that no other job of this process has. It is random, as other processes may use the same range."""
        free = [uid for uid in range(self._start, self._start + self._count) if uid not in self._in_use]
        uid = secrets.choice(free)
        self._in_use.add(uid)
        try:
            yield uid
        finally:
            self._in_use.discard(uid)
