"""The commands about the frontdoor's own learning: frontdoor train, undo."""

from collections.abc import Mapping
from typing import ClassVar

import typer

from orchestrator.cli.on_demand import GroupOnDemand
from orchestrator.cli.root import CommandPlace
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import print_json, write
from orchestrator.memrl.parl.promote import undo as undo_promotion
from orchestrator.memrl.parl.trainings import FOLDER
from orchestrator.registry.load import find_registry


class _Frontdoor(GroupOnDemand):
    places: ClassVar[Mapping[str, CommandPlace]] = {
        "train": CommandPlace(
            "orchestrator.memrl.parl.train_command:train_frontdoor",
            "Train the frontdoor to split requests, and promote the adapter if it is better with certainty.",
        )
    }


app = typer.Typer(
    cls=_Frontdoor,
    name="frontdoor",
    help="Train the model that plans requests.",
    no_args_is_help=True,
)


@app.command()
def undo(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Take back the last adapter that `frontdoor train` has given the frontdoor."""
    options = settings(context)
    promotion = undo_promotion(find_registry(options.registry_flag), options.home / FOLDER)
    if as_json:
        print_json({"registry": promotion.registry, "values": promotion.before})
        return
    adapters = promotion.before["lora"]
    remaining = f"has {', '.join(adapter['file'] for adapter in adapters)}" if adapters else "has no adapter"
    write(lambda: print(f"{promotion.registry}: the role frontdoor {remaining} again"))
