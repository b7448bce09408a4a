"""The command that opens the web page of the daemon."""

import os
import webbrowser
from typing import Annotated, Final

import typer

from orchestrator.cli.daemon import DaemonClient
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import print_lines

DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")  # without one a browser would take over the terminal


def ui(
    context: typer.Context,
    opened: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, if this machine has a display.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Open the web page of the daemon, logged in as this user.

    It prints a link that works once, within five minutes, for whoever opens it first.
    """
    with DaemonClient(settings(context).home) as daemon:
        link = daemon.ask("POST", "/v1/session/links")
    minutes = round(link["seconds"] / 60)
    print_lines(link, [link["url"], f"the link works once, within {minutes} minutes"], as_json=as_json)
    if opened and not as_json and any(os.environ.get(name) for name in DISPLAYS):
        webbrowser.open(link["url"])
