"""Show who may do what: the permissions of each caller, and the routes, tools and commands of each permission."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from orchestrator.service.callers import Access, Callers
from orchestrator.service.configuration import ServerSettings
from orchestrator.service.permissions import ANY, COMMANDS, OPEN, ROUTES, TOOLS, Permission

TABLES: Final = {"routes": ROUTES, "tools": TOOLS, "commands": COMMANDS}
TITLES: Final = {OPEN: "open: needs no permission", ANY: "any: needs at least one permission"}
WIDTH: Final = 116
UNBROKEN: Final = "\u00a0"  # stands for a space at which no line is broken


def permissions_json(settings: ServerSettings, home: Path) -> dict[str, Any]:
    """Return the permissions and roles of each caller, and what each permission is for."""
    return {
        "callers": {access.key: [*_permissions(access), *_other_roles(access)] for access in _callers(settings, home)},
        "needs": {
            str(need): {kind: list(table.get(need, ())) for kind, table in TABLES.items()}
            for need in (OPEN, ANY, *Permission)
        },
    }


def permission_lines(settings: ServerSettings, home: Path) -> Iterator[str]:
    """Yield `permissions_json` as lines of text."""
    shown = permissions_json(settings, home)
    yield "Who may do what; `callers` of [server] says so."
    width = max(map(len, shown["callers"]))
    for key, granted in shown["callers"].items():
        yield f"  {key:{width}}  {' '.join(granted) or 'nothing'}"
    yield ""
    yield "What each permission is for. It is for one's own runs, chats, responses and files; read:all and operate are"
    yield "for those of others, too. An X-Force-Model header needs teach as well."
    for need, tables in shown["needs"].items():
        yield TITLES.get(need, need)
        for kind, names in tables.items():
            if names:
                head = f"  {kind:9} "
                joined = ", ".join(name.replace(" ", UNBROKEN) for name in names)
                lines = textwrap.wrap(joined, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
                yield from (line.replace(UNBROKEN, " ") for line in lines)


def _callers(settings: ServerSettings, home: Path) -> list[Access]:
    callers = Callers(home, settings.callers)
    users = [key.removeprefix("user:") for key in settings.callers if key.startswith("user:")]
    named = [key.partition(":")[2] for key in settings.callers if key.startswith("token:")]
    accesses = [
        callers.named_user(callers.folder_owner().removeprefix("user:")),
        callers.named_user("root"),
        *map(callers.named_user, users),
        callers.token("", ""),
        *(callers.token(name, "") for name in (*settings.tokens, *named)),
    ]
    # The configuration may name the owner or root too.
    return list({access.key: access for access in accesses}.values())


def _permissions(access: Access) -> list[str]:
    return [permission for permission in Permission if permission in access.permissions]


def _other_roles(access: Access) -> list[str]:
    # Only procedures know these roles.
    return sorted(access.caller.roles - {"owner", "operator", "approver"})
