"""The composition root: the core, and the three attachments that it is put together with.

This file names all that an attachment adds to the core, which imports none of them. Each is named as
`MODULE:ATTRIBUTE` and imported when it is needed: the command line opens no service for most commands, and the daemon
has no command line.

`python -m orchestrator.app` is the daemon. The command line is `orchestrator`, or `python -m orchestrator`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from orchestrator.cli.root import CommandPlace, Root

if TYPE_CHECKING:
    from typer import Typer

    from orchestrator.api.app import Attached, Endpoints
    from orchestrator.cli.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    attach: str  # makes the part of a service, which is a port of `orchestrator.service.attachments`
    endpoints: str  # of the API, with what answers their errors
    commands: Mapping[str, CommandPlace]


# Routes attempts and chats, learns from how they ended, and proposes personas.
LEARNED_ROUTING: Final = Attachment(
    attach="orchestrator.memrl.learning:attach",
    endpoints="orchestrator.memrl.endpoints:ENDPOINTS",
    commands={
        "memory": CommandPlace(
            "orchestrator.memrl.commands:app",
            "Show, ask and train what the router has learned from the outcomes of runs.",
            after="personas",
        ),
        "frontdoor": CommandPlace(
            "orchestrator.memrl.parl.commands:app", "Train the model that plans requests.", after="personas"
        ),
    },
)
# Plans requests for maintenance, and executes procedures, also by schedule. Their operations are on all of the core and
# on what the router has learned.
PROCEDURES: Final = Attachment(
    attach="orchestrator.procedures.attachment:attach",
    endpoints="orchestrator.procedures.endpoints:ENDPOINTS",
    commands={
        "procedures": CommandPlace(
            "orchestrator.procedures.commands:app",
            "Maintain this installation by procedures: planned, approved, audited and reversible.",
            after="vacuum",
        )
    },
)
# Runs engines on the nodes of a Ray cluster, if one is configured.
CLUSTER: Final = Attachment(
    attach="orchestrator.cluster.attachment:attach",
    endpoints="orchestrator.cluster.endpoints:ENDPOINTS",
    commands={
        "nodes": CommandPlace(
            "orchestrator.cluster.commands:nodes",
            "Show the machines of the daemon's cluster and the servers of its models, and what runs on them.",
            after="pool",
        ),
        "cluster": CommandPlace(
            "orchestrator.cluster.commands:cluster_app", "Make this machine a part of a Ray cluster.", after="pool"
        ),
        "standby": CommandPlace(
            "orchestrator.cluster.commands:standby",
            "Get a copy of the head's journal, and take over as the daemon when the head is gone.",
            after="serve",
        ),
    },
)
SIMULATIONS: Final = "orchestrator.bench.simulate.endpoints:ENDPOINTS"  # of runs on other machines
PROPOSALS: Final = "orchestrator.procedures.commands:ask_about_proposals"  # called after a run that has some


def attached() -> "Attached":
    """Return what is attached to services, and to the API of each."""
    attachments: Attached = resolve_name("orchestrator.api.app:Attached")(
        learner=resolve_name(LEARNED_ROUTING.attach),
        procedures=resolve_name(PROCEDURES.attach),
        cluster=resolve_name(CLUSTER.attach),
        load_endpoints=_endpoints,
    )
    return attachments


def _endpoints() -> "tuple[Endpoints, ...]":
    return tuple(map(resolve_name, (LEARNED_ROUTING.endpoints, PROCEDURES.endpoints, CLUSTER.endpoints, SIMULATIONS)))


def _ask_about_proposals(options: "Settings", run: str) -> None:
    resolve_name(PROPOSALS)(options, run)


ROOT: Final = Root(
    commands={**LEARNED_ROUTING.commands, **PROCEDURES.commands, **CLUSTER.commands},
    attached=attached,
    ask_about_proposals=_ask_about_proposals,
    daemon=(sys.executable, "-m", "orchestrator.app"),
)


def command_line() -> "Typer":
    application: Typer = resolve_name("orchestrator.cli.main:command_line")(ROOT)
    return application


def main() -> None:
    """Run the command of this process's arguments."""
    command_line()()


def daemon() -> int:
    """Serve until a signal, and return the exit code."""
    code: int = resolve_name("orchestrator.api.daemon:main")(attached())
    return code


if __name__ == "__main__":
    sys.exit(daemon())
