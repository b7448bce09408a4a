"""What a state folder is to the lease: its identity, and what it remembers of epochs. In `cluster/member.json`."""

import secrets
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from orchestrator.files import replace_file
from orchestrator.run.journal.home import Home

_DATABASE: Final = ("journal.db", "journal.db-wal", "journal.db-shm")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A state folder that can have the lease."""

    id: str
    epoch: int = 0  # the highest that it has been a part of
    is_copy: bool = False  # its journal is the copy of a standby, which has never been a head since
    handed: str = ""  # the token of the standby that got the lease for the daemon that starts now

    @classmethod
    def load(cls, home: Home) -> Self:
        """Return what the folder remembers; a new identity if it is none of a cluster yet. Raises OSError."""
        path = _path(home)
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=cls)
        member = cls(id=secrets.token_hex(8))
        member.save(home)
        return member

    def changed(self, **values: int | str | bool) -> Self:
        return msgspec.structs.replace(self, **values)

    def save(self, home: Home) -> None:
        """Raises OSError."""
        _path(home).parent.mkdir(parents=True, exist_ok=True)
        replace_file(_path(home), msgspec.json.encode(self), durable=True)


def put_journal_aside(home: Home) -> Path | None:
    """Move a journal that is no copy into `backups/replaced-...`, and return that. None without a journal."""
    if not home.database.exists():
        return None
    aside = home.path / "backups" / f"replaced-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}"
    aside.mkdir(parents=True)
    for name in _DATABASE:
        if (home.path / name).exists():
            (home.path / name).rename(aside / name)
    return aside


def _path(home: Home) -> Path:
    return home.path / "cluster" / "member.json"
