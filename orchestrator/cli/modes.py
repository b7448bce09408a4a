"""The options that say how a plan is run."""

from typing import Annotated

import typer

from orchestrator.task.modes import Mode

ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="as-planned: by the edges of the plan; discover: without edges that carry no data; serial: one by one; "
        "direct: one step answers the whole request. Without it: directly if no plan can be expected to be better, "
        "else as planned; or as the router has learned."
    ),
]
DirectFlag = Annotated[
    bool, typer.Option("--direct", help="Answer the request by one step, without a plan: --mode direct.")
]
