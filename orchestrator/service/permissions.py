"""The one table of rights: the permission of each HTTP route, MCP tool and command, and what roles stand for.

A permission covers the caller's own objects: runs, chats, stored responses, threads and files. `read:all` also shows
those of others, and `operate` also changes them. The daemon does not start if a route or a tool has no entry here, or
if an entry belongs to nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    READ_OWN = "read:own"
    READ_ALL = "read:all"
    SUBMIT = "submit"
    OPERATE = "operate"
    APPROVE = "approve"
    OWN = "own"
    TEACH = "teach"


OPEN: Final = "open"
ANY: Final = "any"
Need = Permission | str  # a permission, `OPEN` or `ANY`

MEANINGS: Final[Mapping[Need, str]] = {
    OPEN: "no permission, and over TCP no token; a command that only uses files is open, as their modes protect them",
    ANY: "a caller to whom the configuration gives anything at all",
    Permission.READ_OWN: "see one's own runs, chats, responses and files",
    Permission.READ_ALL: "see everybody's, what the router has learned, and plans of procedures; includes read:own",
    Permission.SUBMIT: "give work to models; cancel, retry and delete one's own",
    Permission.OPERATE: "change others' objects, load models, add personas, make backups, run operators' procedures,"
    " read the log",
    Permission.APPROVE: "approve plans of procedures, as a person",
    Permission.OWN: "replace or purge what is kept, name any folder, run owners' procedures",
    Permission.TEACH: "rate, and force a choice that the router learns from",
}

# The permissions of a role that a configuration gives to a caller.
ROLES: Final[Mapping[str, frozenset[Permission]]] = {
    "owner": frozenset(Permission) - {Permission.APPROVE},
    "operator": frozenset({Permission.READ_ALL, Permission.SUBMIT, Permission.OPERATE, Permission.TEACH}),
    "approver": frozenset({Permission.READ_ALL, Permission.APPROVE}),
}
FORCED_MODEL: Final = "X-Force-Model"  # a header; its outcome teaches the router, so it needs `teach` as well

# These routes are there with and without `/v1`.
_OPENAI: Final[Mapping[Need, tuple[str, ...]]] = {
    ANY: ("GET /models", "GET /models/{name:path}"),
    Permission.READ_OWN: (
        "GET /responses/{response}",
        "GET /responses/{response}/input_items",
        "GET /files",
        "GET /files/{file}",
        "GET /files/{file}/content",
    ),
    Permission.SUBMIT: (
        "POST /chat/completions",
        "POST /completions",
        "POST /responses",
        "DELETE /responses/{response}",
        "POST /files",
        "DELETE /files/{file}",
        "POST /embeddings",
        "POST /rerank",
    ),
}

_OWN_API: Final[Mapping[Need, tuple[str, ...]]] = {
    OPEN: (
        *("GET /health", "GET /v1/health", "GET /health/live", "GET /health/ready"),
        *("GET /", "GET /page/{name:path}", "POST /v1/login"),  # the web page without any data, and its login
    ),
    ANY: (
        "GET /openapi.json",
        "* /mcp",  # each tool has a permission of its own
        "GET /v1/session",
        "DELETE /v1/session",
        "POST /v1/session/links",  # which give no more than the caller has
        "GET /v1/registry",
        "GET /v1/pool",
        "GET /v1/nodes",
        "GET /v1/machine",
        "GET /v1/personas",
        "GET /v1/personas/{name}",
        "GET /props",
        "GET /slots",
        # The roles that a procedure names say who may run and stop it.
        "POST /v1/procedures/{name}/plan",
        "POST /v1/procedures/{name}/executions",
        "POST /v1/procedures/executions/{execution}/withdraw",
        "POST /v1/procedures/executions/{execution}/cancel",
        "POST /v1/procedures/executions/{execution}/rollback",
    ),
    Permission.READ_OWN: (
        "GET /v1/runs",
        "GET /v1/runs/{run}",
        "GET /v1/runs/{run}/picture",
        "GET /v1/runs/{run}/comparison/{other}",
        "GET /v1/runs/{run}/result",
        "GET /v1/runs/{run}/artifacts",
        "GET /v1/runs/{run}/artifacts/{name:path}",
        "GET /v1/runs/{run}/diff",
        "GET /v1/runs/{run}/steps/{step}",
        "GET /v1/runs/{run}/steps/{step}/attempts/{number}",
        "GET /v1/runs/{run}/export",
        "GET /v1/runs/{run}/trace",
        "GET /v1/runs/{run}/events",
        "GET /v1/memory/runs/{run}",
        "GET /v1/chats",
        "GET /v1/chats/{chat}",
    ),
    Permission.READ_ALL: (
        "GET /metrics",
        "GET /v1/memory",
        "POST /v1/memory/ask",
        "GET /v1/memory/evaluate/{router_name}",
        "GET /v1/memory/choices",
        "GET /v1/memory/values",
        "GET /v1/memory/personas",
        "GET /v1/memory/trainings",
        "GET /v1/procedures",
        "GET /v1/procedures/{name}",
        "GET /v1/procedures/executions",
        "GET /v1/procedures/executions/{execution}",
        "GET /v1/procedures/executions/{execution}/events",
        "GET /v1/procedures/audit",
        "GET /v1/procedures/audit/verify",
    ),
    Permission.SUBMIT: (
        "POST /v1/runs",
        "POST /v1/runs/{run}/cancel",
        "POST /v1/runs/{run}/resume",
        "POST /v1/runs/{run}/retry",
        "POST /v1/runs/{run}/prioritise",
        "DELETE /v1/runs/{run}",
        "POST /v1/plans",
        "POST /v1/forecasts",
        "POST /v1/runs/{run}/what-if",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
        "POST /completion",
        "POST /infill",
        "POST /tokenize",
        "POST /detokenize",
        "POST /apply-template",
    ),
    Permission.TEACH: ("POST /v1/runs/{run}/ratings", "POST /v1/chats/{chat}/ratings"),
    Permission.OPERATE: (
        "POST /v1/pool/{model}/{verb}",
        "POST /slots/{slot}",
        "POST /v1/personas",
        "DELETE /v1/personas/{name}",
        "POST /v1/memory/rebuild",
        "POST /v1/procedures/recover",
        "GET /v1/backups",
        "POST /v1/backups",
        "GET /v1/doctor",
        "GET /v1/log",
    ),
    Permission.APPROVE: ("POST /v1/procedures/executions/{execution}/approve",),
    Permission.OWN: (
        "POST /v1/backups/{name}/restore",
        "POST /v1/vacuum",
        "POST /v1/procedures/audit/new",
    ),
}

# The tools of the MCP server, and its requests about tasks.
TOOLS: Final[Mapping[Need, tuple[str, ...]]] = {
    ANY: ("models",),
    Permission.READ_OWN: ("watch", "result", "explain", "tasks/get", "tasks/update"),
    Permission.SUBMIT: ("submit", "cancel", "tasks/cancel"),
}
# By tool; it forces a model, and so needs `teach` too.
TEACHING_ARGUMENTS: Final[Mapping[str, str]] = {"submit": "model"}

# By what their request to a daemon needs. Without a daemon the modes of the state folder decide.
COMMANDS: Final[Mapping[Need, tuple[str, ...]]] = {
    OPEN: (
        *("init", "validate", "schema", "serve", "standby", "cluster start", "logs", "doctor", "version"),
        *("service install", "service show"),
        *("config show", "config path", "models get", "models add", "models try", "models import"),
        *("frontdoor train", "frontdoor undo"),
        *("bench model", "bench critical-path", "bench compare", "bench history", "bench simulate", "bench machine"),
        *("procedures new", "procedures validate", "procedures schema", "procedures operations"),
    ),
    ANY: (
        *("ui", "pool", "nodes", "mcp", "personas list", "personas show", "personas stats"),
        *("procedures run", "procedures withdraw", "procedures cancel", "procedures rollback"),
    ),
    Permission.READ_OWN: (
        *("watch", "result", "runs", "show", "explain", "memory explain"),
        *("diff", "apply", "export"),  # these write with the rights of the user, not with those of the daemon
    ),
    Permission.READ_ALL: (
        *("memory stats", "memory evaluate", "memory ask"),
        *("procedures list", "procedures show", "procedures history", "procedures audit"),
    ),
    Permission.SUBMIT: ("run", "submit", "cancel", "retry", "prioritise", "delete", "plan", "resume"),
    Permission.TEACH: ("rate", "memory train"),
    Permission.OPERATE: (
        *("models load", "models unload", "models pin", "personas add", "personas retire"),
        *("memory rebuild", "backup", "procedures recover"),
    ),
    Permission.APPROVE: ("procedures approve",),
    Permission.OWN: ("restore", "vacuum"),
}


def _both_ways(routes: Iterable[str]) -> Iterator[str]:
    for route in routes:
        yield route.replace(" /", " /v1/", 1)
        yield route


# `METHOD PATH`, with the path as the application has it; `*` for all methods.
ROUTES: Final[Mapping[Need, tuple[str, ...]]] = {
    need: (*_OWN_API.get(need, ()), *_both_ways(_OPENAI.get(need, ()))) for need in (OPEN, ANY, *Permission)
}


def by_name(table: Mapping[Need, tuple[str, ...]]) -> dict[str, Need]:
    return {name: need for need, names in table.items() for name in names}


def undeclared(names: Iterable[str], table: Mapping[Need, tuple[str, ...]]) -> list[str]:
    """Return the differences between a table and the names that exist, a line for each; empty if they agree."""
    existing, declared = set(names), by_name(table)
    return [
        *(f"{name} declares no permission" for name in sorted(existing - declared.keys())),
        *(f"{name} has a permission, but does not exist" for name in sorted(declared.keys() - existing)),
    ]
