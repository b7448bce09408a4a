"""Say who calls the engine of procedures, and what rights that gives: users of the Unix socket, and holders of tokens.

The configuration gives roles to callers: `user:ann` or `user:1000`, `token` for the API's own token, and `token:NAME`
for a named one. Of callers that it does not name, the user whom the state folder belongs to and root have the roles
`owner`, `operator` and `approver`, other users have none, and tokens have `operator`.

Who has the role `approver` counts as a person, whose approval a plan may need. A token has it only if the configuration
says so, since programs hold tokens. Programs that act as the user whom the folder belongs to cannot be told from that
user.
"""

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from procedures.ports import Caller

APPROVER: Final = "approver"
OWN_ROLES: Final = ("owner", "operator", APPROVER)
TOKEN_ROLES: Final = ("operator",)
NOT_GIVEN: Final = frozenset({"schedule", "model"})
"""Roles that only the daemon itself gives, to schedules and to plans of runs."""
_KEY: Final = re.compile(r"user:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}|token(:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?")
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ACCEPTED: Final = 'user:NAME, user:NUMBER, token or token:NAME with roles, as "token:ann" = "operator approver"'


def check_callers(stated: Mapping[str, str]) -> Mapping[str, str]:
    """Return the callers of a configuration as they are. Raises ValueError with what would be accepted."""
    for key, text in stated.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no caller; accepted: {_ACCEPTED}")
        for role in text.split():
            if not _ROLE.fullmatch(role) or role in NOT_GIVEN:
                raise ValueError(f"{role!r} is no role that {key} can have; accepted: {_ACCEPTED}")
    return stated


class Callers:
    """The callers of one installation."""

    def __init__(self, home: Path, stated: Mapping[str, str]) -> None:
        """`stated` are the callers that the configuration names, with their roles between spaces."""
        self._home = home
        self._stated = stated

    def user(self, uid: int | None = None) -> Caller:
        """Return a user as a caller: the one at the other end of the Unix socket, or without `uid` of this process."""
        number = os.getuid() if uid is None else uid
        name = _user_name(number)
        own = OWN_ROLES if number in (0, _owner_of(self._home)) else ()
        return self._caller(f"{name} (user {number})", (f"user:{name}", f"user:{number}"), own)

    def token(self, name: str, address: str) -> Caller:
        """Return whoever has sent a token from an address as a caller. `name` is empty for the API's own token."""
        what = f"the token {name}" if name else "the API's token"
        return self._caller(f"{what} from {address}", (f"token:{name}" if name else "token",), TOKEN_ROLES)

    def _caller(self, name: str, keys: tuple[str, ...], usual: tuple[str, ...]) -> Caller:
        stated = next((self._stated[key] for key in keys if key in self._stated), None)
        roles = frozenset(usual if stated is None else stated.split())
        return Caller(name, roles, person=APPROVER in roles)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return "user"


def _owner_of(home: Path) -> int:
    """Return the user whom a state folder belongs to: this process's where there is none yet."""
    try:
        return home.stat().st_uid
    except FileNotFoundError:
        return os.getuid()
