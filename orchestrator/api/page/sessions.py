"""One-time links to the web page, and the sessions of browsers that followed one. Both are in memory only."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LINK_SECONDS: Final = 300.0
SESSION_SECONDS: Final = 12 * 3600.0
MAX_LINKS: Final = 64  # that nobody has followed yet; the oldest goes first
MAX_SESSIONS: Final = 256


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose rights a link or a session has: a user of the Unix socket, or the holder of a token."""

    uid: int | None = None
    token: str | None = None  # its name, which is empty for the API's own one
    digest: str = ""  # of that token: with another token of the same name, the session has ended

    @classmethod
    def of_token(cls, name: str, token: str) -> "Holder":
        return cls(token=name, digest=_digest(token))


@dataclass(frozen=True, slots=True)
class Session:
    holder: Holder
    ends: float  # by the clock of `Sessions`


class Sessions:
    """The open links and sessions of one daemon, by digests: what is in memory lets nobody in.

    `clock` returns seconds and never runs backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: OrderedDict[str, Session] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def make_link(self, holder: Holder) -> str:
        """Return a code that logs one browser in, once, within `LINK_SECONDS`."""
        return self._add(self._links, holder, LINK_SECONDS, MAX_LINKS)

    def follow(self, code: str) -> str | None:
        """Return the key of a new session, or None if the code is unknown, used or too old. The code is then used."""
        link = self._links.pop(_digest(code), None)
        if link is None or self._clock() >= link.ends:
            return None
        return self._add(self._sessions, link.holder, SESSION_SECONDS, MAX_SESSIONS)

    def find(self, key: str) -> Session | None:
        """Return the session of a key; None if there is none, or it has expired."""
        session = self._sessions.get(_digest(key))
        if session is not None and self._clock() >= session.ends:
            self.end(key)
            return None
        return session

    def seconds_left(self, session: Session) -> float:
        return max(0.0, session.ends - self._clock())

    def end(self, key: str) -> None:
        self._sessions.pop(_digest(key), None)

    def _add(self, table: OrderedDict[str, Session], holder: Holder, seconds: float, most: int) -> str:
        key = secrets.token_urlsafe(32)
        table[_digest(key)] = Session(holder, self._clock() + seconds)
        while len(table) > most:
            table.popitem(last=False)
        return key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
