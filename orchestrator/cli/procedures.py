"""The commands about procedures: list, show, run, approve, history, rollback, audit, new, validate and others.

They do the work in this process, also beside a daemon: the daemon follows the files that procedures change, and what
only the owner of the state folder can do is refused while a daemon owns it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.api.auth import token_path
from orchestrator.cli.backend import ask_backend, backend
from orchestrator.cli.client import DaemonClient, answers
from orchestrator.cli.errors import ExitCode
from orchestrator.cli.memory import rebuild_index_and_graph
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import print_json, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.journal import Journal
from orchestrator.service.backup import Backup, make_backup
from orchestrator.service.configuration import load_configuration, models_folder, procedures_folder
from orchestrator.service.operations import Installation
from orchestrator.service.procedures import owner, procedures_engine
from procedures.audit import Entry, Head, head_from
from procedures.engine import Engine
from procedures.errors import ProcedureInvalid
from procedures.execution import Execution, State
from procedures.forms import Procedure, procedure_from, procedure_schema, read_procedure
from procedures.library import read_named
from procedures.plan import Plan, plan_to_json
from procedures.run import Watcher

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    help="Maintain this installation by procedures: planned, approved, audited and reversible.",
    no_args_is_help=True,
    subcommand_metavar="COMMAND [ARGS]...",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The procedure, as `procedures list` names it.")]
ExecutionArgument = Annotated[
    str, typer.Argument(metavar="EXECUTION", help="The execution, as `procedures history` names it.")
]
SCAFFOLD: Final = """\
# `orchestrator procedures schema` has everything that a procedure may say.
id: {name}
version: 0.1.0
category: other
description: Says in one sentence what the procedure does.
permissions:
  roles: [owner]
  requires_approval: true
inputs:
  text: {{type: string, description: What is written., default: a note}}
steps:
  - id: note
    file_write:
      path: "{{{{ places.home }}}}/note.txt"
      content: "{{{{ inputs.text }}}}"
outputs:
  file: {{value: "{{{{ steps.note.path }}}}", description: The file that was written.}}
verification:
  - {{that: steps.note.state == "done", otherwise: nothing was written}}
"""


@app.callback()
def procedures() -> None:
    """Maintain this installation by procedures: planned, approved, audited and reversible."""


@app.command("list")
def list_procedures(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the procedures that ship, and those of your own folder."""
    with _engine(settings(context)) as engine:
        found = list(engine.library.procedures())
    good = [one for one in found if isinstance(one, Procedure)]
    broken = [one for one in found if isinstance(one, ProcedureInvalid)]
    if as_json:
        print_json({"procedures": [_described(one) for one in good], "broken": [str(one) for one in broken]})
        return
    width = max((len(one.id) for one in good), default=0)
    lines = [f"{one.id:{width}}  {one.form.version:8}  {_first_line(one.form.description)}" for one in good]
    write(lambda: print(printable("\n".join([*lines, *(f"broken: {one}" for one in broken)]))))


@app.command("show")
def show(context: typer.Context, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a procedure: what it does, its inputs, and its file."""
    with _engine(settings(context)) as engine:
        procedure = engine.library.procedure(name)
    if as_json:
        print_json({**_described(procedure), "file": str(procedure.path), "text": procedure.text.decode()})
        return
    write(lambda: print(printable(f"# {procedure.path}\n{procedure.text.decode()}"), end=""))


@app.command("run")
def run(
    context: typer.Context,
    name: NameArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input; several times for several."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and the exact changes, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Approve the plan without being asked.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Plan a procedure, show what it will change, and execute it once it is approved.

    In a terminal you are asked to approve the plan. Elsewhere a plan that needs an approval is kept, and executed by
    `procedures approve`. Exits with 1 if the execution fails; what was done is then undone, as the procedure says.
    """
    with _engine(settings(context)) as engine:
        _recover(engine)
        plan = engine.plan(name, _inputs(inputs or []), owner())
        if not as_json:
            write(lambda: print(printable("\n".join(_plan_lines(plan)))))
        if dry_run:
            if as_json:
                print_json({**plan_to_json(plan), "digest": plan.digest})
            raise typer.Exit(ExitCode.FAILED if plan.problems else ExitCode.DONE)
        identity = engine.submit(plan, owner())
        if plan.needs_approval and not (yes or _confirmed(as_json=as_json)):
            _tell_waiting(identity, plan, as_json=as_json)
            return
        if plan.needs_approval:
            engine.approve(identity, plan.digest, owner())
        _finish(engine.execute(identity, owner(), _watcher(as_json)), "done", as_json=as_json)


@app.command("approve")
def approve(
    context: typer.Context,
    execution: ExecutionArgument,
    digest: Annotated[
        str, typer.Argument(metavar="DIGEST", help="The digest of its plan, or the beginning of it, from 8 digits on.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Approve the plan of an execution, and execute it.

    A plan that would be another one by now is not executed: it has to be planned and approved anew.
    """
    with _engine(settings(context)) as engine:
        _recover(engine)
        engine.approve(execution, digest, owner())
        _finish(engine.execute(execution, owner(), _watcher(as_json)), "done", as_json=as_json)


@app.command("withdraw")
def withdraw(context: typer.Context, execution: ExecutionArgument, as_json: JsonFlag = False) -> None:
    """Give up an execution that has not begun."""
    with _engine(settings(context)) as engine:
        engine.withdraw(execution, owner())
        _finish(engine.execution(execution), "withdrawn", as_json=as_json)


@app.command("history")
def history(
    context: typer.Context,
    execution: Annotated[
        str | None, typer.Argument(metavar="EXECUTION", help="Show this execution and its plan; without it, list all.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="List so many, the newest.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List executions, newest first, or show one: what it changed, what was undone, what to look at."""
    with _engine(settings(context)) as engine:
        if execution is not None:
            one, plan = engine.execution(execution), engine.plan_of(execution)
            if as_json:
                print_json({**one.to_json(), "plan_of_steps": plan_to_json(plan)["steps"]})
            else:
                write(lambda: print(printable("\n".join([*_plan_lines(plan), "", *_execution_lines(one)]))))
            return
        found = engine.executions(limit)
    if as_json:
        print_json({"executions": [one.to_json() for one in found]})
        return
    write(lambda: print(printable("\n".join(_line(one) for one in found) or "no procedure was executed yet")))


@app.command("rollback")
def rollback(
    context: typer.Context,
    execution: ExecutionArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Put back what others have changed since, too; a copy of it is kept.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Undo what an execution has changed, byte for byte."""
    with _engine(settings(context)) as engine:
        _recover(engine)
        undone = engine.rollback(execution, owner(), force=force, watcher=_watcher(as_json))
        _finish(undone, "rolled back", as_json=as_json)


@app.command("recover")
def recover(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Bring executions to their end whose process was killed. Other commands do this before they execute anything."""
    with _engine(settings(context)) as engine:
        found = engine.recover(_watcher(as_json))
    if as_json:
        print_json({"recovered": [one.to_json() for one in found]})
        return
    lines = [line for one in found for line in _execution_lines(one)] or ["nothing was interrupted"]
    write(lambda: print(printable("\n".join(lines))))


@app.command("audit")
def audit(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Check the whole log for edits, cuts and moves.")] = False,
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="With --verify: an entry that was noted elsewhere has to be there."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Print so many entries, the last.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Print the audit log of everything that procedures did, or check it.

    The last line is the head of the log: its number and hash. Note it elsewhere to find a log that was written anew.
    """
    known = _head(head)
    with _engine(settings(context)) as engine:
        count = engine.audit.verify(known) if verify else None
        last, entries = engine.audit.head(), [] if verify else engine.audit.last(limit)
    if as_json:
        shown = [
            {"number": one.number, "at": one.at, "kind": one.kind, "execution": one.execution, **one.data}
            for one in entries
        ]
        print_json({"head": str(last), "verified": count, "entries": shown})
        return
    lines = [_entry_line(one) for one in entries] if count is None else [f"{count} entries are what was written"]
    write(lambda: print(printable("\n".join([*lines, f"head {last}"]))))


@app.command("new")
def new(
    context: typer.Context,
    name: NameArgument,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Where; your own folder of procedures without it.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a new procedure for you to change, which works as it is."""
    target = (folder or procedures_folder(load_configuration().procedures, os.environ)) / f"{name}.yaml"
    text = SCAFFOLD.format(name=name)
    procedure_from(text.encode(), target)  # refuses what is no name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(Problem(str(target), "exists already", "another name")) from error
    if as_json:
        print_json({"file": str(target)})
    else:
        write(lambda: print(printable(str(target))))


@app.command("validate")
def validate(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of procedures.")],
    as_json: JsonFlag = False,
) -> None:
    """Check files of procedures, and exit with 2 for one that cannot be used."""
    with _engine(settings(context)) as engine:
        names = [read_procedure(file).id if file.suffix != ".yaml" else read_named(file).id for file in files]
        known = frozenset(engine.ports.operations)
        for file in files:
            _check_operations(read_procedure(file), known)
    if as_json:
        print_json({"valid": names})
    else:
        write(lambda: print(printable("\n".join(f"{name} is valid" for name in names))))


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a procedure's file."""
    print_json(procedure_schema())


@app.command("operations")
def operations(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the operations that steps can call, with their arguments and outputs."""
    with _engine(settings(context)) as engine:
        found = sorted(engine.ports.operations.items())
    rows = [
        {
            "name": name,
            "description": one.description,
            "arguments": one.form.model_json_schema().get("properties", {}),
            "outputs": dict(one.outputs),
        }
        for name, one in found
    ]
    if as_json:
        print_json({"operations": rows})
        return
    write(lambda: print(printable("\n".join(line for row in rows for line in _operation_lines(row)))))


@contextmanager
def _engine(chosen: Settings) -> Iterator[Engine]:
    configuration = load_configuration()
    home = chosen.home
    installation = Installation(
        home=home,
        registry=chosen.registry_path,
        models=models_folder(configuration.models, os.environ),
        token=token_path(home),
        backup=lambda: _backup(home),
        vacuum=lambda request: ask_backend(chosen, lambda one: one.vacuum(request)),
        runs=lambda: backend(chosen),
        add_persona=lambda proposal: ask_backend(chosen, lambda one: one.add_persona(proposal)),
        retire_persona=lambda name: ask_backend(chosen, lambda one: one.retire_persona(name)),
        personas_put_back=lambda: _personas_put_back(home),
        rebuild_memory=lambda: rebuild_index_and_graph(chosen, configuration.memory),
        memory=configuration.memory,
    )
    engine = procedures_engine(installation, configuration)
    try:
        yield engine
    finally:
        engine.close()


def _backup(home: Path) -> Backup:
    if answers(home):
        with DaemonClient(home) as daemon:
            return Backup(**daemon.ask("POST", "/v1/backups"))
    with Journal.open(home) as journal:
        return make_backup(journal)


def _personas_put_back(home: Path) -> None:
    if answers(home):
        with DaemonClient(home) as daemon:
            daemon.ask("POST", "/v1/personas/reload")


def _recover(engine: Engine) -> None:
    """Bring interrupted executions to their end, and tell on stderr how each has ended."""
    for one in engine.recover():
        lines = [f"interrupted earlier: {line}" for line in _execution_lines(one)]
        write(lambda lines=lines: print(printable("\n".join(lines)), file=sys.stderr))  # type: ignore[misc]


def _inputs(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise InputError(Problem(f"--input {text}", "has no =", "NAME=VALUE"))
        found[name] = value
    return found


def _head(text: str | None) -> Head | None:
    try:
        return None if text is None else head_from(text)
    except ValueError as error:
        raise InputError(Problem("--head", str(error))) from error


def _confirmed(*, as_json: bool) -> bool:
    """Return whether the user approves the plan that was shown; False without a terminal."""
    return not as_json and sys.stdin.isatty() and typer.confirm("Approve and execute this plan?", err=True)


def _tell_waiting(identity: str, plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": identity, "state": "planned", "plan": plan.digest})
        return
    command = f"orchestrator procedures approve {identity} {plan.digest[:16]}"
    write(lambda: print(f"\nThe plan is kept and waits for an approval. To approve and execute it: {command}"))


def _watcher(as_json: bool) -> Watcher:
    if as_json:
        return Watcher()

    def observe(entry: Entry) -> None:
        if "step" in entry.data and entry.kind in ("acting", "step_done", "step_failed", "undone", "not_undone"):
            _say(f"{entry.data['step']}: {entry.kind.replace('_', ' ').removeprefix('step ')}")

    return Watcher(observe, lambda step, text: _say(f"{step}: {text}"))


def _say(text: str) -> None:
    write(lambda: print(printable(text), file=sys.stderr, flush=True))


def _finish(execution: Execution, wanted: State, *, as_json: bool) -> None:
    """Print how an execution has ended, and exit with 1 if that is not as `wanted`."""
    if as_json:
        print_json(execution.to_json())
    else:
        write(lambda: print(printable("\n".join(_execution_lines(execution)))))
    if execution.state != wanted:
        raise typer.Exit(ExitCode.FAILED)


def _described(procedure: Procedure) -> dict[str, Any]:
    form = procedure.form
    return {
        "id": form.id,
        "version": form.version,
        "category": form.category,
        "description": form.description,
        "permissions": form.permissions.model_dump(mode="json"),
        "inputs": {name: one.model_dump(mode="json") for name, one in form.inputs.items()},
        "outputs": {name: one.description for name, one in form.outputs.items()},
        "steps": list(procedure.order),
    }


def _check_operations(procedure: Procedure, known: frozenset[str]) -> None:
    """Raise ProcedureInvalid for a call of an operation that is not here."""
    problems = [
        procedure.problem(
            ("steps", index, "call", "operation"),
            f"there is no operation {step.call.operation!r}",
            ", ".join(sorted(known)),
        )
        for index, step in enumerate(procedure.form.steps)
        if step.call is not None and step.call.operation not in known
    ]
    if problems:
        raise ProcedureInvalid(*problems)


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.digest[:16]} of {plan.procedure} {plan.version}"
    for step in plan.steps:
        told = f": {step.description}" if step.description else ""
        runs = "" if step.runs == "yes" else f" ({step.runs})"
        yield f"{step.id} [{step.kind}]{told}{runs}"
        yield from (f"    {line}" for line in step.shown.splitlines())
        yield f"    undo: {step.undo}"
    if plan.destructive:
        yield "This procedure is destructive."
    yield from (f"problem: {problem}" for problem in plan.problems)


def _execution_lines(execution: Execution) -> Iterator[str]:
    yield f"{execution.id}  {execution.procedure} {execution.version}: {execution.state}"
    if execution.error:
        yield f"  why: {execution.error}"
    for name, step in execution.steps.items():
        changed = f"; changed {', '.join(map(str, step.resources))}" if step.resources else ""
        yield f"  {name}: {step.state}{changed}"
    yield from (f"  {name} = {value}" for name, value in execution.outputs.items())
    yield from (f"  look at: {text}" for text in execution.look_at)


def _line(execution: Execution) -> str:
    planned = datetime.fromtimestamp(execution.planned).strftime("%Y-%m-%d %H:%M:%S")
    return f"{execution.id}  {planned}  {execution.state:15}  {execution.procedure} {execution.version}"


def _entry_line(entry: Entry) -> str:
    at = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M:%S")
    step = f" {entry.data['step']}" if "step" in entry.data else ""
    return f"{entry.number:6}  {at}  {entry.execution}  {entry.kind}{step}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def _operation_lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['name']}({', '.join(row['arguments'])}) -> {', '.join(row['outputs']) or 'nothing'}"
    yield f"    {row['description']}"
