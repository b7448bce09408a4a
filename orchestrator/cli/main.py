"""The `orchestrator` command: its global options, and the commands that the other modules of this package hold."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import (
    bench,
    history,
    import_models,
    init,
    memory,
    models,
    personas,
    pool,
    procedures,
    rate,
    run,
    serve,
    state_folder,
    submit,
    system,
    task,
    trial,
)
from orchestrator.cli.errors import Boundary
from orchestrator.cli.settings import Settings

app = typer.Typer(
    cls=Boundary,
    name="orchestrator",
    help="Turn a request or a TaskIR document into a DAG of steps and run it on local llama.cpp models.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    registry: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The registry of models [env: ORCHESTRATOR_REGISTRY].")
    ] = None,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="The state folder [env: ORCHESTRATOR_HOME].")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Keep the global options for the command; without a command, print the help."""
    context.obj = Settings(registry, home)
    if version:
        system.show_version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("run")(run.run)
app.command("init")(init.init)
app.command("submit")(submit.submit)
app.command("watch")(submit.watch)
app.command("result")(submit.result)
app.command("cancel")(submit.cancel)
app.command("retry")(submit.retry)
app.command("delete")(submit.delete)
app.command("plan")(task.plan)
app.command("validate")(task.validate)
app.command("schema")(task.schema)
models.app.command("try")(trial.try_model)
models.app.command("import")(import_models.import_models)
app.add_typer(models.app, name="models")
app.add_typer(personas.app, name="personas")
app.add_typer(memory.app, name="memory")
app.add_typer(bench.app, name="bench")
app.command("runs")(history.runs)
app.command("show")(history.show)
app.command("explain")(history.explain)
app.command("rate")(rate.rate)
app.command("resume")(run.resume)
app.command("serve")(serve.serve)
app.command("pool")(pool.pool)
app.command("logs")(serve.logs)
app.command("backup")(state_folder.backup)
app.command("restore")(state_folder.restore)
app.command("vacuum")(state_folder.vacuum)
app.add_typer(procedures.app, name="procedures")
app.add_typer(serve.service_app, name="service")
app.add_typer(serve.config_app, name="config")
app.command("doctor")(system.doctor)
app.command("version")(system.show_version)

if __name__ == "__main__":
    app()
