"""Say who calls, and what that caller may do: users of the Unix socket, and holders of tokens.

The configuration gives permissions and roles to callers: `user:ann` or `user:1000`, `token` for the API's own token,
and `token:NAME` for a named one. Of callers that it does not name, the user whom the state folder belongs to and root
may do everything, the API's own token has the role `operator`, and other users and named tokens may do nothing.

Whoever may `approve` counts as a person, whose approval a plan of a procedure may need. A token may only if the
configuration says so, since programs hold tokens. Programs that act as the user whom the folder belongs to cannot be
told from that user.
"""

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from orchestrator.errors import OrchestratorError
from orchestrator.service.permissions import ANY, OPEN, ROLES, Need, Permission, granted, procedure_roles
from procedures.ports import Caller

OWN_WORDS: Final = ("owner", "operator", "approver")
"""What the user whom the state folder belongs to and root have, unless the configuration says something else."""
TOKEN_WORDS: Final = ("operator",)
"""What the API's own token has. Programs hold it, so it does not approve, and does not own."""
NOT_GIVEN: Final = frozenset({"schedule", "model"})
"""Roles that only the daemon itself gives, to schedules and to plans of runs."""
API_TOKEN: Final = "token"  # noqa: S105 - the key of a caller
"""The key of whoever holds the API's own token."""
_KEY: Final = re.compile(r"user:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}|token(:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?")
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ACCEPTED: Final = (
    "user:NAME, user:NUMBER, token or token:NAME with permissions"
    f" ({', '.join(Permission)}) or roles ({', '.join(ROLES)}, or one that a procedure names),"
    ' as "token:ann" = "read:own submit"'
)


class Forbidden(OrchestratorError):
    """A caller lacks the permission that a request needs."""


def check_callers(stated: Mapping[str, str]) -> Mapping[str, str]:
    """Return the callers of a configuration as they are. Raises ValueError with what would be accepted."""
    for key, text in stated.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no caller; accepted: {_ACCEPTED}")
        for word in text.split():
            if word not in set(Permission) and (not _ROLE.fullmatch(word) or word in NOT_GIVEN):
                raise ValueError(f"{word!r} is no permission or role that {key} can have; accepted: {_ACCEPTED}")
    return stated


@dataclass(frozen=True, slots=True)
class Access:
    """Who calls, and what that caller may do."""

    key: str
    """`user:NAME`, `token` or `token:NAME`: the owner of what the caller makes. Empty for nobody."""
    name: str = "nobody"
    """Such as `ann (user 1000)` or `the API's token from 127.0.0.1`, for messages and the audit log."""
    words: tuple[str, ...] = ()
    """The permissions and roles, as the configuration has them."""
    local: bool = False
    """Whether the caller is a user of the Unix socket, or of this process."""

    @property
    def permissions(self) -> frozenset[Permission]:
        """What the caller may do."""
        return granted(self.words)

    @property
    def caller(self) -> Caller:
        """The caller as procedures know it."""
        person = Permission.APPROVE in self.permissions
        return Caller(self.name, procedure_roles(self.words), person=person, key=self.key)

    @property
    def only(self) -> str | None:
        """Whose objects the caller sees; None for those of everybody."""
        return None if Permission.READ_ALL in self.permissions else self.key

    @property
    def may_name_folders(self) -> bool:
        """Whether the caller's runs may read any folder, and not only those of the configuration."""
        return self.local and Permission.OWN in self.permissions

    def sees(self, owner: str) -> bool:
        """Return whether the caller sees an object of this owner, which is empty for objects of early versions."""
        return self.only is None or (owner != "" and owner == self.only)

    def may(self, need: Need) -> bool:
        """Return whether the caller may do what needs this."""
        return need == OPEN or (need == ANY and bool(self.words)) or need in self.permissions

    def require(self, need: Need, what: str = "this") -> None:
        """Raise Forbidden if the caller may not do what needs this."""
        if self.may(need):
            return
        missing = need if need != ANY else "read:own submit"
        line = f'"{self.key}" = "{" ".join((*self.words, missing))}"'
        raise Forbidden(
            f"{self.name} may not do {what}: it lacks {'any permission' if need == ANY else f'the permission {need}'};"
            f" the owner grants it in the configuration: [server] callers = {{{line}}}"
        )

    def require_change(self, owner: str) -> None:
        """Raise Forbidden if the caller may not change an object of this owner, which it sees."""
        if owner != self.key:
            self.require(Permission.OPERATE, "this to what belongs to others")


NOBODY: Final = Access("")
"""Whoever has not said who it is."""


class Callers:
    """The callers of one installation."""

    def __init__(self, home: Path, stated: Mapping[str, str]) -> None:
        """`stated` are the callers that the configuration names, with their permissions and roles between spaces."""
        self._home = home
        self._stated = stated

    def user(self, uid: int | None = None) -> Access:
        """Return a user as a caller: the one at the other end of the Unix socket, or without `uid` of this process."""
        number = os.getuid() if uid is None else uid
        name = _user_name(number)
        own = OWN_WORDS if number in (0, _owner_of(self._home)) else ()
        words = self._words((f"user:{name}", f"user:{number}"), own)
        return Access(f"user:{name}", f"{name if name != str(number) else 'user'} (user {number})", words, local=True)

    def named_user(self, name: str) -> Access:
        """Return a user by the name or the number that a configuration gives, who need not exist."""
        try:
            return self.user(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except (KeyError, OverflowError):
            return Access(f"user:{name}", name, self._words((f"user:{name}",), ()), local=True)

    def token(self, name: str, address: str) -> Access:
        """Return whoever has sent a token from an address as a caller. `name` is empty for the API's own token."""
        what = f"the token {name}" if name else "the API's token"
        key = f"{API_TOKEN}:{name}" if name else API_TOKEN
        return Access(key, f"{what} from {address}", self._words((key,), () if name else TOKEN_WORDS))

    def folder_owner(self) -> str:
        """Return the key of the user whom the state folder belongs to, who owns what schedules start."""
        return f"user:{_user_name(_owner_of(self._home))}"

    def _words(self, keys: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
        stated = next((self._stated[key] for key in keys if key in self._stated), None)
        return usual if stated is None else tuple(stated.split())


def user_key() -> str:
    """Return the key of the user of this process."""
    return f"user:{_user_name(os.getuid())}"


@lru_cache
def _user_name(number: int) -> str:
    """Return the name of a user, or the number if there is none. To look it up may take a network."""
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return str(number)


def _owner_of(home: Path) -> int:
    """Return the user whom a state folder belongs to: this process's where there is none yet."""
    try:
        return home.stat().st_uid
    except FileNotFoundError:
        return os.getuid()
