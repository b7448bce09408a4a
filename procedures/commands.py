"""The commands about procedures: list, show, run, approve, history, rollback, audit, new, validate and others.

The daemon of the state folder does the work, or this process if there is none: see `procedures.client`.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.daemon import DaemonClient, DaemonRefused
from orchestrator.cli.errors import ExitCode
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import print_json, print_lines, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.procedures.audit import AuditHead, head_from
from orchestrator.procedures.client import (
    AUDIT,
    Body,
    ProcedureClient,
    Tell,
    execution_path,
    procedure_path,
    with_procedures,
)
from orchestrator.procedures.errors import ProcedureInvalid
from orchestrator.procedures.forms import (
    ActionForm,
    Procedure,
    kind_of,
    procedure_from,
    procedure_schema,
    read_procedure,
)
from orchestrator.procedures.library import SHIPPED, SUFFIX, library_of, read_named
from orchestrator.procedures.ports import Operation, proposer
from orchestrator.registry.errors import RegistryProblem, nearest
from orchestrator.registry.load import find_registry
from orchestrator.registry.strict_yaml import KeyPath
from orchestrator.service.configuration import load_configuration, procedures_folder

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    help="Maintain this installation by procedures: planned, approved, audited and reversible.",
    no_args_is_help=True,
    subcommand_metavar="COMMAND [ARGS]...",
)


def _complete(_context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in library_of(load_configuration().procedures).files() if name.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The procedure, as `procedures list` names it.", autocompletion=_complete),
]
ExecutionArgument = Annotated[
    str, typer.Argument(metavar="EXECUTION", help="The execution, as `procedures history` names it.")
]
# Imported only where it is needed, because operations use the whole program.
OPERATIONS: Final = "orchestrator.procedures.installation:known_operations"
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
    """List the procedures that ship, those of your own folder, and the schedules with what was missed."""
    overview = with_procedures(settings(context), lambda client: client.ask("GET", "/v1/procedures"))
    width = max((len(procedure["id"]) for procedure in overview["procedures"]), default=0)
    lines = [
        f"{procedure['id']:{width}}  {procedure['version']:8}  {_first_line(procedure['description'])}"
        for procedure in overview["procedures"]
    ]
    lines += [f"broken: {problem}" for problem in overview["broken"]]
    lines += [line for schedule in overview["schedules"] for line in _schedule_lines(schedule)]
    print_lines(overview, lines, as_json=as_json)


@app.command("show")
def show(context: typer.Context, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a procedure: what it does, its inputs, and its file."""
    procedure = with_procedures(settings(context), lambda client: client.ask("GET", procedure_path(name)))
    print_lines(procedure, [f"# {procedure['file']}", *procedure["text"].splitlines()], as_json=as_json)


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
    `procedures approve`. Exits with 1 if the execution fails; what was done is then undone, as the procedure says. The
    daemon of the state folder executes it, or this command itself if there is no daemon; ctrl-C then stops it, and
    undoes what it has done.
    """
    options, values = settings(context), _inputs(inputs or [])

    async def planned(client: ProcedureClient) -> Body:
        await _recover(client)
        return await client.ask("POST", procedure_path(name, "/plan"), json={"inputs": values})

    plan = with_procedures(options, planned)
    if not as_json:
        write(lambda: print(printable("\n".join(_plan_lines(plan)))))
    if dry_run:
        if as_json:
            print_json(plan)
        raise typer.Exit(ExitCode.FAILED if plan["problems"] else ExitCode.DONE)
    approvable = plan["needs_approval"] and not plan["problems"]
    approved = plan["digest"] if approvable and (yes or _confirmed(as_json=as_json)) else None
    execution = with_procedures(options, lambda client: client.begin(name, values, approved, _tell(as_json)))
    if execution["state"] == "planned":
        _tell_waiting(execution, as_json=as_json)
        return
    _finish(execution, "done", as_json=as_json)


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

    A plan that would now be different is not executed: plan and approve it again.
    """

    async def approved(client: ProcedureClient) -> Body:
        await _recover(client)
        return await client.approve(execution, digest, _tell(as_json))

    _finish(with_procedures(settings(context), approved), "done", as_json=as_json)


@app.command("withdraw")
def withdraw(context: typer.Context, execution: ExecutionArgument, as_json: JsonFlag = False) -> None:
    """Give up an execution that has not begun."""
    path = execution_path(execution, "/withdraw")
    withdrawn = with_procedures(settings(context), lambda client: client.ask("POST", path))
    _finish(withdrawn, "withdrawn", as_json=as_json)


@app.command("cancel")
def cancel(context: typer.Context, execution: ExecutionArgument, as_json: JsonFlag = False) -> None:
    """Have the daemon stop an execution before its next action, and undo what it has done."""
    with DaemonClient(settings(context).home) as daemon:
        body = daemon.ask("POST", execution_path(execution, "/cancel"))
    print_lines(body, [f"{body['id']}: is to stop, and to undo what it has done"], as_json=as_json)


@app.command("history")
def history(
    context: typer.Context,
    execution: Annotated[
        str | None, typer.Argument(metavar="EXECUTION", help="Show this execution and its plan; without it, list all.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="List so many, the newest.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List executions, newest first, or show one: what it changed, what was undone, what to look at."""
    if execution is not None:
        path = execution_path(execution)
        body = with_procedures(settings(context), lambda client: client.ask("GET", path))
        lines = [*_plan_lines(body["plan_of"]), ""] if body["plan_of"] is not None else []
        lines += [f"without its plan: {body['no_plan']}"] if body["no_plan"] else []
        print_lines(body, [*lines, *_execution_lines(body)], as_json=as_json)
        return
    listed = with_procedures(settings(context), lambda client: _executions(client, limit))
    lines = [*map(_line, listed["executions"])] or ["no procedure was executed yet"]
    print_lines(listed, lines, as_json=as_json)


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

    async def undone(client: ProcedureClient) -> Body:
        await _recover(client)
        return await client.rollback(execution, force=force, tell=_tell(as_json))

    _finish(with_procedures(settings(context), undone), "rolled back", as_json=as_json)


@app.command("recover")
def recover(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Bring executions to their end whose process was killed. Other commands do this before they execute anything."""
    rows = with_procedures(settings(context), lambda client: client.recover(_tell(as_json)))
    lines = [line for row in rows for line in _execution_lines(row)] or ["nothing was interrupted"]
    print_lines({"recovered": rows}, lines, as_json=as_json)


@app.command("audit")
def audit(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Check the whole log for edits, cuts and moves.")] = False,
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="With --verify: an entry that was noted elsewhere has to be there."),
    ] = None,
    new_log: Annotated[
        bool, typer.Option("--begin-new", help="Keep a damaged log, and begin a new one that tells of the break.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Print so many entries, the last.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Print the audit log of everything that procedures did, or check it.

    The last line is the head of the log: its number and hash. Note it elsewhere to detect a log that was rewritten.
    Where the end of the log is damaged, it takes no more entries, so nothing is executed; --verify finds any damage.
    --begin-new keeps a damaged log in a folder of its own, with the checkpoints by which its executions could be
    undone, and begins another one.
    """
    noted_head = _head(head)
    options = settings(context)
    if new_log:
        _tell_break(with_procedures(options, lambda client: client.ask("POST", f"{AUDIT}/new")), as_json=as_json)
        return
    query = {"limit": limit} if not verify else {} if noted_head is None else {"head": str(noted_head)}
    path = f"{AUDIT}/verify" if verify else AUDIT
    report = with_procedures(options, lambda client: client.ask("GET", path, params=query))
    lines = _verified_lines(report) if verify else map(_entry_line, report["entries"])
    body = {"verified": None, "entries": [], **report}
    print_lines(body, [*lines, f"head {report['head']}"], as_json=as_json)


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
    try:
        procedure_from(text.encode(), target)  # refuses what is no name
    except ProcedureInvalid as error:
        raise InputError(*error.input_problems) from error
    if (SHIPPED / target.name).exists():  # it would take the place of the one that ships
        raise InputError(Problem("NAME", f"{name} is a procedure that ships", "another name"))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(Problem(str(target), "exists already", "another name")) from error
    print_lines({"file": str(target)}, [str(target)], as_json=as_json)


@app.command("validate")
def validate(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of procedures.")],
    as_json: JsonFlag = False,
) -> None:
    """Check files of procedures, and exit with 2 for one that cannot be used."""
    callable_operations, names, problems = _operations(settings(context)), list[str](), list[RegistryProblem]()
    for file in files:
        try:
            procedure = read_named(file) if file.suffix == SUFFIX else read_procedure(file)
        except ProcedureInvalid as error:
            problems += error.problems
            continue
        problems += _operation_problems(procedure, callable_operations)
        names.append(procedure.id)
    if problems:
        raise InputError(*ProcedureInvalid(*problems).input_problems)
    print_lines({"valid": names}, (f"{name} is valid" for name in names), as_json=as_json)


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a procedure's file."""
    print_json(procedure_schema())


@app.command("operations")
def operations(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the operations that steps can call, with their arguments and outputs."""
    rows = [
        {
            "name": name,
            "description": operation.description,
            "arguments": operation.form.model_json_schema().get("properties", {}),
            "outputs": dict(operation.outputs),
        }
        for name, operation in sorted(_operations(settings(context)).items())
    ]
    print_lines({"operations": rows}, (line for row in rows for line in _operation_lines(row)), as_json=as_json)


def ask_about(options: Settings, execution: Body) -> None:
    """Show a plan that waits for an approval. Execute it if the user approves it, else print how to approve it.

    Exits with 1 if the execution fails.
    """
    plan = execution["plan_of"]
    write(lambda: print(printable("\n".join(["", *_plan_lines(plan)]))))
    if not _confirmed(as_json=False):
        _tell_waiting(execution, as_json=False)
        return
    identity, digest = execution["id"], plan["digest"]
    approved = with_procedures(options, lambda client: client.approve(identity, digest, _tell(as_json=False)))
    _finish(approved, "done", as_json=False)


def _operations(options: Settings) -> Mapping[str, Operation[Any]]:
    operations: Mapping[str, Operation[Any]] = resolve_name(OPERATIONS)(
        options.home, find_registry(options.registry_flag)
    )
    return operations


def ask_about_proposals(options: Settings, run: str) -> None:
    """Ask about each procedure that a run has proposed: see `ask_about`."""
    for execution in with_procedures(options, lambda client: _proposals(client, run)):
        ask_about(options, execution)


async def _proposals(client: ProcedureClient, run: str) -> list[Body]:
    rows = (await _executions(client, 20))["executions"]
    waiting = [row["id"] for row in rows if row["caller"] == proposer(run) and row["state"] == "planned"]
    return [await client.ask("GET", execution_path(identity)) for identity in waiting]


async def _executions(client: ProcedureClient, limit: int) -> Body:
    return await client.ask("GET", "/v1/procedures/executions", params={"limit": limit})


async def _recover(client: ProcedureClient) -> None:
    try:
        recovered = await client.recover(_tell(as_json=True))  # silent: only the end of each execution is printed
    except DaemonRefused:
        # This user may not recover; the command that follows says what hinders it.
        return
    for execution in recovered:
        for line in _execution_lines(execution):
            _say(f"interrupted earlier: {line}")


def _inputs(arguments: list[str]) -> dict[str, str]:
    inputs = {}
    for text in arguments:
        name, sign, value = text.partition("=")
        if not sign:
            raise InputError(Problem(f"--input {text}", "has no =", "NAME=VALUE"))
        inputs[name] = value
    return inputs


def _head(text: str | None) -> AuditHead | None:
    try:
        return None if text is None else head_from(text)
    except ValueError as error:
        raise InputError(Problem("--head", str(error))) from error


def _confirmed(*, as_json: bool) -> bool:
    # Without a terminal nobody can approve.
    return not as_json and sys.stdin.isatty() and typer.confirm("Approve and execute this plan?", err=True)


def _tell_waiting(execution: Body, *, as_json: bool) -> None:
    identity, digest = execution["id"], execution["plan"]
    command = f"orchestrator procedures approve {identity} {digest[:16]}"
    lines = ["", f"The plan is kept and waits for an approval. To approve and execute it: {command}"]
    print_lines({"id": identity, "state": "planned", "plan": digest}, lines, as_json=as_json)


def _tell_break(entry: Body, *, as_json: bool) -> None:
    lines = [
        f"the damaged log is kept in {entry['kept']}, beside the new one, which begins with: {entry['damage']}",
        *(
            f"look at: execution {execution} was under way, and can no longer be undone"
            for execution in entry["executions"]
        ),
    ]
    print_lines(entry, lines, as_json=as_json)


def _tell(as_json: bool) -> Tell:
    return (lambda _step, _text: None) if as_json else (lambda step, text: _say(f"{step}: {text}"))


def _say(text: str) -> None:
    write(lambda: print(printable(text), file=sys.stderr, flush=True))


def _finish(execution: Body, expected: str, *, as_json: bool) -> None:
    print_lines(execution, _execution_lines(execution), as_json=as_json)
    if execution["state"] != expected:
        raise typer.Exit(ExitCode.FAILED)


def _operation_problems(procedure: Procedure, operations: Mapping[str, Operation[Any]]) -> Iterator[RegistryProblem]:
    for index, step in enumerate(procedure.form.steps):
        place: KeyPath = ("steps", index)
        yield from _call_problems(procedure, step, place, operations)
        if step.compensation is not None:
            yield from _call_problems(procedure, step.compensation, (*place, "compensation"), operations)


def _call_problems(
    procedure: Procedure, action: ActionForm, place: KeyPath, operations: Mapping[str, Operation[Any]]
) -> Iterator[RegistryProblem]:
    kind = kind_of(action)
    if (called := action.call or action.memory) is None:
        return
    # A step of the kind `memory` names its operation without the prefix.
    prefix = "memory." if kind == "memory" else ""
    operation = operations.get(prefix + called.operation)
    if operation is None:
        names = [full_name.removeprefix(prefix) for full_name in operations if full_name.startswith(prefix)]
        reason = f"there is no operation {called.operation!r}"
        yield procedure.problem((*place, kind, "operation"), reason, nearest(called.operation, names))
        return
    fields = operation.form.model_fields
    for name in called.arguments:
        if name not in fields:
            reason = f"{operation.name} has no such argument"
            yield procedure.problem((*place, kind, "arguments", name), reason, nearest(name, fields))
    for name, field in fields.items():
        if field.is_required() and name not in called.arguments:
            yield procedure.problem((*place, kind), f"{operation.name} needs the argument {name}")


def _plan_lines(plan: Body) -> Iterator[str]:
    yield f"plan {plan['digest'][:16]} of {plan['procedure']} {plan['version']}"
    for step in plan["steps"]:
        description = f": {step['description']}" if step["description"] else ""
        runs = "" if step["runs"] in ("yes", "no") else f" (if its condition holds: {step['runs']})"
        yield f"{step['id']} [{step['kind']}]{description}{runs}"
        yield from (f"    {line}" for line in step["shown"].splitlines())
        yield f"    undo: {step['undo']}"
    if plan["destructive"]:
        yield "This procedure is destructive."
    yield from (f"problem: {problem}" for problem in plan["problems"])


def _execution_lines(execution: Body) -> Iterator[str]:
    yield f"{execution['id']}  {execution['procedure']} {execution['version']}: {execution['state']}"
    if execution["error"]:
        yield f"  why: {execution['error']}"
    for step in execution["steps"]:
        changed = f"; changed {', '.join(step['changed'])}" if step["changed"] else ""
        yield f"  {step['id']}: {step['state']}{changed}"
    if execution["state"] != "done":
        yield from (f"  is changed: {text}" for text in execution["changed"])
        yield from (f"  was undone: {text}" for text in execution["undone"])
    yield from (f"  {name} = {value}" for name, value in execution["outputs"].items())
    yield from (f"  look at: {text}" for text in execution["look_at"])


def _line(execution: Body) -> str:
    version = f" {execution['version']}" if execution["version"] else ""
    why = f": {execution['error']}" if execution["state"] == "missed" else ""
    subject = f"{execution['procedure']}{version}{why}"
    return f"{execution['id']}  {_at(execution['planned'])}  {execution['state']:15}  {subject}"


def _schedule_lines(schedule: Body) -> Iterator[str]:
    due = "never again" if schedule["next"] is None else _at(schedule["next"])
    last = schedule["last"]
    last_run = f"; last {_at(last['at'])}: {last['state']} ({last['id']})" if last else ""
    yield f"schedule {schedule['schedule']}: next {due}{last_run}"
    if schedule["why_not"]:
        yield f"  not executed: {schedule['why_not']}"
    yield from (f"  missed {_at(occasion['at'])}: {occasion['why']}" for occasion in schedule["missed"])


def _verified_lines(report: Body) -> Iterator[str]:
    yield f"{report['verified']} entries are what was written"
    if report["after"]:
        yield f"those up to {report['after']} are no longer kept, as the log says"


def _entry_line(entry: Body) -> str:
    subject = next((f" {entry[key]}" for key in ("step", "procedure", "state") if key in entry), "")
    by = f" by {entry['caller']}" if entry.get("caller") else ""
    execution = f"{entry['execution']}  " if entry["execution"] else ""
    return f"{entry['number']:6}  {_at(entry['at'])}  {execution}{entry['kind']}{subject}{by}"


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def _operation_lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['name']}({', '.join(row['arguments'])}) -> {', '.join(row['outputs']) or 'nothing'}"
    yield f"    {row['description']}"
