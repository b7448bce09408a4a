"""Say who calls, and what that caller may do: users of the Unix socket, and holders of tokens.

The configuration gives permissions and roles to callers: `user:ann` or `user:1000`, `token` for the API's own token,
and `token:NAME` for a named one. By default the owner of the state folder and root may do everything, the API's own
token has the role `operator`, and others may do nothing.

Whoever may `approve` counts as a person. By default no token does, since programs hold tokens. Programs that run as the
owner of the folder cannot be told from that user.
"""

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from orchestrator.errors import OrchestratorError
from orchestrator.service.permissions import ANY, OPEN, ROLES, Need, Permission

OWN_WORDS: Final = ("owner", "operator", "approver")  # of the folder's owner and root, by default
TOKEN_WORDS: Final = ("operator",)  # of the API's own token; programs hold it, so it neither approves nor owns
NOT_GIVEN: Final = frozenset({"schedule", "model"})  # only the daemon gives these: to schedules, and to plans of runs
API_TOKEN: Final = "token"  # noqa: S105 - the key of whoever holds the API's own token
_KEY: Final = re.compile(r"user:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}|token(:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?")
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ACCEPTED: Final = (
    "user:NAME, user:NUMBER, token or token:NAME with permissions"
    f" ({', '.join(Permission)}) or roles ({', '.join(ROLES)}, or one that a procedure names),"
    ' as "token:ann" = "read:own submit"'
)


# The role by which procedures know whoever is given a permission by itself.
_PROCEDURE_WORDS: Final[Mapping[str, str]] = {
    Permission.OWN: "owner",
    Permission.OPERATE: "operator",
    Permission.APPROVE: "approver",
}
_NAMES: Final = frozenset(map(str, Permission))


class Forbidden(OrchestratorError):
    """A caller lacks the permission that a request needs."""


def check_callers(stated: Mapping[str, str]) -> Mapping[str, str]:
    """Return the callers of a configuration unchanged. Raises ValueError with what would be accepted."""
    for key, text in stated.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no caller; accepted: {_ACCEPTED}")
        for word in text.split():
            if word not in set(Permission) and (not _ROLE.fullmatch(word) or word in NOT_GIVEN):
                raise ValueError(f"{word!r} is no permission or role that {key} can have; accepted: {_ACCEPTED}")
    return stated


def granted(words: Iterable[str]) -> frozenset[Permission]:
    """Return the permissions that words of a configuration grant. Other words are roles of procedures."""
    permissions: frozenset[Permission] = frozenset()
    for word in words:
        permissions |= ROLES.get(word, frozenset()) if word not in _NAMES else {Permission(word)}
    return permissions | {Permission.READ_OWN} if Permission.READ_ALL in permissions else permissions


def procedure_roles(words: Iterable[str]) -> frozenset[str]:
    """Return the roles by which procedures know a caller who has these words in the configuration."""
    return frozenset(
        _PROCEDURE_WORDS.get(word, word) for word in words if word in _PROCEDURE_WORDS or word not in _NAMES
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller as procedures know it: a user, a token, a schedule or the plan of a run."""

    name: str  # for the audit log, such as `ann (user 1000)` or `the API's token from 127.0.0.1`
    roles: frozenset[str]
    # May approve plans. Schedules and models are no persons; users and tokens are as the configuration says.
    person: bool
    key: str = ""  # owner of what the execution makes, such as `user:ann`; empty if unknown


@dataclass(frozen=True, slots=True)
class Access:
    """A caller, and what it may do."""

    key: str  # `user:NAME`, `token` or `token:NAME`, which owns what the caller makes; empty for nobody
    name: str = "nobody"  # for messages and the audit log: `ann (user 1000)`, `the API's token from 127.0.0.1`
    words: tuple[str, ...] = ()  # permissions and roles, as the configuration has them
    local: bool = False  # a user of the Unix socket, or of this process
    owns_files: bool = False  # has the state folder's files open itself, so that only procedures check its words

    @property
    def permissions(self) -> frozenset[Permission]:
        return granted(self.words)

    @property
    def caller(self) -> Caller:
        person = Permission.APPROVE in self.permissions
        return Caller(self.name, procedure_roles(self.words), person=person, key=self.key)

    @property
    def only(self) -> str | None:
        """Whose objects the caller sees; None for everybody's."""
        return None if self.may(Permission.READ_ALL) else self.key

    @property
    def may_name_folders(self) -> bool:
        """Whether the caller's runs may read any folder, not only the configured ones."""
        return self.local and self.may(Permission.OWN)

    def sees(self, owner: str) -> bool:
        """Return whether the caller sees an object of this owner; it is empty for objects of early versions."""
        return self.only is None or (owner != "" and owner == self.only)

    def may(self, need: Need) -> bool:
        return self.owns_files or need == OPEN or (need == ANY and bool(self.words)) or need in self.permissions

    def require(self, need: Need, act: str = "this") -> None:
        """Raise Forbidden if the caller may not do what needs this."""
        if self.may(need):
            return
        missing = need if need != ANY else "read:own submit"
        line = f'"{self.key}" = "{" ".join((*self.words, missing))}"'
        raise Forbidden(
            f"{self.name} may not do {act}: it lacks {'any permission' if need == ANY else f'the permission {need}'};"
            f" the owner grants it in the configuration: [server] callers = {{{line}}}"
        )

    def changes(self, owner: str) -> bool:
        """Return whether the caller may change an object of this owner, with the permission for the kind of change."""
        return owner == self.key or self.may(Permission.OPERATE)

    def require_change(self, owner: str) -> None:
        """Raise Forbidden if the caller may not change an object of this owner, which it sees."""
        if not self.changes(owner):
            self.require(Permission.OPERATE, "this to what belongs to others")


NOBODY: Final = Access("")  # has not said who it is


class Callers:
    """The callers of an installation. `stated` maps the configured ones to permissions and roles between spaces."""

    def __init__(self, home: Path, stated: Mapping[str, str]) -> None:
        self._home = home
        self._stated = stated

    def user(self, uid: int | None = None) -> Access:
        """Return the user at the other end of the Unix socket, or without `uid` the user of this process."""
        number = os.getuid() if uid is None else uid
        name = _user_name(number)
        own = OWN_WORDS if number in (0, _owner_of(self._home)) else ()
        words = self._words((f"user:{name}", f"user:{number}"), own)
        return Access(f"user:{name}", f"{name if name != str(number) else 'user'} (user {number})", words, local=True)

    def file_owner(self) -> Access:
        """Return the user of this process, for a command without a daemon: the modes of the files decide."""
        return replace(self.user(), owns_files=True)

    def named_user(self, name: str) -> Access:
        """Return a user by the name or number in a configuration. The user need not exist."""
        try:
            return self.user(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except (KeyError, OverflowError):
            return Access(f"user:{name}", name, self._words((f"user:{name}",), ()), local=True)

    def token(self, name: str, address: str) -> Access:
        """Return the holder of a token. `name` is empty for the API's own token."""
        holder = f"the token {name}" if name else "the API's token"
        key = f"{API_TOKEN}:{name}" if name else API_TOKEN
        return Access(key, f"{holder} from {address}", self._words((key,), () if name else TOKEN_WORDS))

    def folder_owner(self) -> str:
        """Return the key of the owner of the state folder, who owns what schedules start."""
        return f"user:{_user_name(_owner_of(self._home))}"

    def _words(self, keys: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
        stated = next((self._stated[key] for key in keys if key in self._stated), None)
        return usual if stated is None else tuple(stated.split())


def user_key() -> str:
    """Return the key of the user of this process."""
    return f"user:{_user_name(os.getuid())}"


@lru_cache  # a lookup may take a network
def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return str(number)


def _owner_of(home: Path) -> int:
    try:
        return home.stat().st_uid
    except FileNotFoundError:  # there is no folder yet
        return os.getuid()
