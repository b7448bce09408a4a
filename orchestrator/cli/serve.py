"""The commands about the daemon itself: serve, mcp, service, config, logs.

`serve` and `mcp` replace themselves by other programs with exec, so that the other commands need not import these.
"""

import os
import sys
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.api.listen import tcp_address
from orchestrator.cli.complete import complete_run
from orchestrator.cli.daemon import NoDaemon, answers
from orchestrator.cli.linger import ENABLE, enable_linger, lingers
from orchestrator.cli.permissions_view import permission_lines, permissions_json
from orchestrator.cli.registry import registry_path
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import print_lines
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.home import Home
from orchestrator.service.configuration import (
    configuration_path,
    load_configuration,
    show_configuration,
    variable,
)

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
    environ = _environment(options)
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
    os.execve(MCP_PROGRAM[0], MCP_PROGRAM, _environment(options))  # noqa: S606 - our own program


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
    print_lines({"file": str(path), "lines": list(tail)}, tail, as_json=as_json)


def unit(options: Settings) -> str:
    """Return the systemd unit that runs the daemon with these settings."""
    own = _environment(options)
    stated = {name: value for name, value in own.items() if name.startswith("ORCHESTRATOR_")}
    seconds = load_configuration(own).server.drain_seconds
    return TEMPLATE.format(
        program=" ".join(
            _quoted(word).replace("$", "$$") for word in options.root.daemon
        ),  # systemd substitutes variables only here
        environment=" ".join(_quoted(f"{name}={value}") for name, value in sorted(stated.items())),
        stop_seconds=seconds + 30,
    )


def _environment(options: Settings) -> dict[str, str]:
    # The daemon gets the global options of the command line as variables.
    stated = {"ORCHESTRATOR_HOME": str(options.home), "ORCHESTRATOR_REGISTRY": str(registry_path(options).absolute())}
    return {**os.environ, **stated}


def _quoted(text: str) -> str:
    # systemd expands % specifiers.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
