"""The commands about the daemon itself: serve, mcp, service, config, logs.

`serve` and `mcp` replace themselves by other programs with exec, so that the other commands need not import these.
Only this file talks to logind, which may end the services of a user with the last logout.
"""

import os
import pwd
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.api.listen import tcp_address
from orchestrator.cli.complete import complete_run
from orchestrator.cli.daemon import NoDaemon, answers
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import print_lines
from orchestrator.errors import InputError, Problem
from orchestrator.registry.load import find_registry
from orchestrator.run.journal.home import Home
from orchestrator.service.callers import Access, Callers
from orchestrator.service.configuration import (
    ServerSettings,
    configuration_path,
    load_configuration,
    show_configuration,
    variable,
)
from orchestrator.service.permissions import ANY, COMMANDS, OPEN, ROUTES, TOOLS, Permission

MCP_PROGRAM: Final = (sys.executable, "-m", "orchestrator.api.mcp")
UNIT: Final = "orchestrator.service"
LOG_NAME: Final = "daemon.log"
TEMPLATE: Final = """[Unit]
Description=Orchestrator of local language models
After=network.target

[Service]
ExecStart={program}
ExecReload=/bin/kill -HUP $MAINPID
Environment={environment}
KillMode=mixed
TimeoutStopSec={stop_seconds:.0f}
Restart=on-failure
RestartForceExitStatus=SIGHUP
RestartSec=2
LimitNOFILE=65536
UMask=0077

[Install]
WantedBy=default.target
"""

_AS_ROOT: Final = "`loginctl enable-linger USER` by root, or no --linger"

service_app = typer.Typer(help="Have systemd run the daemon.", rich_markup_mode=None, add_completion=False)
config_app = typer.Typer(help="The configuration file.", rich_markup_mode=None, add_completion=False)


def serve(
    context: typer.Context,
    tcp: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Listen on TCP too; requests over TCP need the token.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow TCP beyond loopback without TLS.")] = False,
) -> None:
    """Own the state folder and serve its socket until SIGTERM or ctrl-C.

    Then runs in progress have some seconds to end, and the others are resumed at the next start. SIGHUP reads the
    configuration again.
    """
    options = settings(context)
    environ = daemon_environment(options)
    if tcp is not None:
        environ[variable("server", "tcp")] = tcp
    if insecure:
        environ[variable("server", "insecure")] = "true"
    tcp_address(load_configuration(environ).server)  # raises InputError here, before the daemon is started
    sys.stdout.flush()
    os.execve(options.root.daemon[0], options.root.daemon, environ)  # noqa: S606 - our own program


def mcp(context: typer.Context) -> None:
    """Serve the daemon's MCP tools on stdin and stdout.

    This is for clients that start their servers as programs. The daemon has to run. Over HTTP it offers the same tools
    at /mcp.
    """
    options = settings(context)
    if find_spec("mcp") is None:
        raise InputError(Problem("mcp", "needs the extra `mcp`", "pip install 'orchestrator[mcp]'"))
    if not answers(options.home):
        raise NoDaemon(options.home)
    sys.stdout.flush()
    os.execve(MCP_PROGRAM[0], MCP_PROGRAM, daemon_environment(options))  # noqa: S606 - our own program


@service_app.command("install")
def install(
    context: typer.Context,
    user: Annotated[
        bool, typer.Option("--user", help="Install it for this user, which is the only way and has to be given.")
    ] = False,
    linger: Annotated[
        bool, typer.Option("--linger", help="Let it run while this user is logged out (loginctl enable-linger).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a systemd unit for this user, and print how to start it.

    Without --linger, systemd ends the daemon with the last login of this user, unless lingering is enabled already.
    """
    if not user:
        raise InputError(Problem("service install", "installs nothing for the whole machine", "--user"))
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = base / "systemd" / "user" / UNIT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(unit(settings(context)), encoding="utf-8")
    why_not = enable_linger() if linger else ""
    if why_not:
        raise InputError(Problem("--linger", f"wrote {path}, but lingering is not enabled: {why_not}", _AS_ROOT))
    stays = linger or lingers()
    start = f"start it: systemctl --user daemon-reload; systemctl --user enable --now {UNIT}"
    lines = [f"wrote {path}", start, *_until_when(stays)]
    print_lines({"unit": str(path), "lingers": stays}, lines, as_json=as_json)


def _until_when(stays: bool | None) -> list[str]:
    # `stays` is None if logind does not say.
    if stays:
        return []
    ends = (
        "it ends with the last login of this user" if stays is False else "it may end with the last login of this user"
    )
    return [f"{ends}, and starts with the next one; to keep it running: {ENABLE}"]


@service_app.command("show")
def show_unit(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Print the systemd unit."""
    text = unit(settings(context))
    print_lines({"name": UNIT, "text": text}, text.splitlines(), as_json=as_json)


@config_app.command("show")
def show_config(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Print the current configuration with comments, in the form of a configuration file, and who may do what."""
    configuration, home = load_configuration(), settings(context).home
    permissions = permissions_json(configuration.server, home)
    file = str(configuration_path(os.environ))
    body = {"file": file, **configuration.model_dump(mode="json"), "permissions": permissions}
    rights = [f"# {line}".rstrip() for line in permission_lines(configuration.server, home)]
    print_lines(body, [show_configuration(configuration), "", *rights], as_json=as_json)


@config_app.command("path")
def show_path(as_json: JsonFlag = False) -> None:
    """Print the path of the configuration file, which may not exist."""
    path = configuration_path(os.environ)
    print_lines({"file": str(path), "exists": path.exists()}, [str(path)], as_json=as_json)


def logs(
    context: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many of the newest lines to print.")] = 50,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Only the lines about this run, given by its full id.", autocompletion=complete_run
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the last lines of the daemon's log, each a JSON object."""
    path = Home(settings(context).home).logs / LOG_NAME
    tail: list[str] = []
    for file in chain((path,), (path.with_name(f"{LOG_NAME}.{age}") for age in count(1))):  # the newest first
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            break
        about = [line for line in text.split("\n") if line and (run is None or run in line)]
        tail = about[len(tail) - lines :] + tail
        if len(tail) == lines:
            break
    if not path.exists():
        raise InputError(Problem(str(path), "does not exist", "a daemon that has run: `orchestrator serve`"))
    if run is not None and not tail:
        raise InputError(Problem("--run", f"no line of {path} is about {run!r}", "the full id of a run of the daemon"))
    print_lines({"file": str(path), "lines": list(tail)}, tail, as_json=as_json)


def unit(options: Settings) -> str:
    """Return the systemd unit that runs the daemon with these settings."""
    own = daemon_environment(options)
    stated = {name: value for name, value in own.items() if name.startswith("ORCHESTRATOR_")}
    seconds = load_configuration(own).server.drain_seconds
    return TEMPLATE.format(
        program=" ".join(
            _quoted(word).replace("$", "$$") for word in options.root.daemon
        ),  # systemd substitutes variables only here
        environment=" ".join(_quoted(f"{name}={value}") for name, value in sorted(stated.items())),
        stop_seconds=seconds + 30,
    )


def daemon_environment(options: Settings) -> dict[str, str]:
    """Return the environment of a daemon, with the global options of the command line as variables."""
    stated = {
        "ORCHESTRATOR_HOME": str(options.home),
        "ORCHESTRATOR_REGISTRY": str(find_registry(options.registry_flag).absolute()),
    }
    return {**os.environ, **stated}


def _quoted(text: str) -> str:
    # systemd expands % specifiers.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


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


ENABLE: Final = "loginctl enable-linger"
# The error of loginctl for a user without a session whose services do not outlive one
_NO_SESSION: Final = "not logged in or lingering"
_SECONDS: Final = 10.0  # timeout of one loginctl call


def lingers() -> bool | None:
    """Return whether this user's services continue after the last logout; None if logind does not say."""
    user = pwd.getpwuid(os.getuid()).pw_name
    process = _loginctl("show-user", user, "--property=Linger", "--value")
    if process is None:
        return None
    if process.returncode != 0:
        return False if _NO_SESSION in process.stderr else None
    return {"yes": True, "no": False}.get(process.stdout.strip())


def enable_linger() -> str:
    """Keep this user's services running after the last logout. Return why that failed; empty if it did not."""
    process = _loginctl("enable-linger")
    if process is None:
        return "loginctl does not run here"
    return "" if process.returncode == 0 else process.stderr.strip() or f"loginctl ended with {process.returncode}"


def _loginctl(*words: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 (fixed words and the name of this user)
            ["loginctl", *words],  # noqa: S607 (systemd's own, wherever the system has it)
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
