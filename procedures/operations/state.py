"""The operations that steps of procedures can call: on models, gates, benchmarks, the state folder and the token.

Each says what it changes, so that the engine of procedures can copy that before and put it back. Unlike the service,
they read the clocks of the machine: engines are measured in real time, and the ages of plans and of parts of the audit
log follow the times that the engine of procedures gave them.
"""

import math
import os
import secrets
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.files import sync_folder
from orchestrator.pool.machine import memory_budget
from orchestrator.procedures.audit import Audit, SealedPart
from orchestrator.procedures.durable import make_private_folder, replace_file
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.resources import DatabaseResource, PathResource, Resource, RowsResource
from orchestrator.procedures.retention import old_parts, old_plans
from orchestrator.procedures.upkeep import Installation, NoArguments, run_or_fail, run_to_end
from orchestrator.registry.checks import why_no_draft
from orchestrator.registry.fit import Room
from orchestrator.registry.forms import Form
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import ModelEntry, Registry
from orchestrator.registry.propose import propose
from orchestrator.registry.sources.get import get_model
from orchestrator.run.gates.contract import Artifact, GateContext
from orchestrator.run.gates.pipeline import BUILTIN_GATES, run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.run.gates.shares import JobRunner
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.sandbox.sandbox import SandboxOnDemand
from orchestrator.service.backup import discard_backup, find_backup, restore_backup
from orchestrator.service.doctor import examine
from orchestrator.service.retention import DAY_SECONDS, VacuumRequest, VacuumResult
from orchestrator.task.taskir.models import Step

MAX_RUNS_AT_ONCE: Final = 20_000
MAX_FILES: Final = 1000
PROCEDURES: Final = "procedures"  # the folder of plans, checkpoints and the audit log in the state folder
MOST_CONTEXT: Final = 4096
ANSWER_TOKENS: Final = 128
PROMPT: Final = "Describe a harbour town, its people and its weather, in as much detail as you can. " * 4


class ProposeArguments(Form):
    file: str
    id: str | None = None
    roles: tuple[str, ...] = ()


class GetArguments(Form):
    source: str


class ModelArguments(Form):
    model: str


class DraftArguments(Form):
    model: str
    draft: str  # the model that is to draft for it


class BenchmarkArguments(Form):
    model: str
    seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0


class GateArguments(Form):
    folder: str
    gates: tuple[str, ...] | str


class BackupArguments(Form):
    name: str


class BackupCopyArguments(Form):
    name: str
    folder: str


class VacuumArguments(Form):
    """Which runs that have ended are kept; 0: no limit."""

    days: Annotated[float, Field(ge=0)] = 0
    runs: Annotated[int, Field(ge=0)] = 0
    bytes: Annotated[int, Field(ge=0)] = 0


class PruneArguments(Form):
    """For how many days plans and parts of the audit log are kept; 0: no limit, null: as configured."""

    plan_days: Annotated[float, Field(ge=0)] | None = None
    audit_days: Annotated[float, Field(ge=0)] | None = None


class Operations:
    def __init__(self, installation: Installation) -> None:
        self._on = installation

    def by_name(self) -> dict[str, Operation[Any]]:
        every: tuple[Operation[Any], ...] = (*self._models(), *self._checks(), *self._folder(), self._rotation())
        return {operation.name: operation for operation in every}

    def _models(self) -> tuple[Operation[Any], ...]:
        return (
            Operation(
                name="models.propose",
                description="Propose an entry of the registry for a model's file, from its header and the memory.",
                form=ProposeArguments,
                outputs={"id": "the model's id", "entry": "keys and values", "role": "what it suits", "warnings": ""},
                run=self._propose,
                reads_only=True,
            ),
            Operation(
                name="models.get",
                description="Bring a model onto this machine: by a short name, from a hub, an index or an address.",
                form=GetArguments,
                outputs={"file": "where it is", "downloaded": "bytes that were transferred"},
                run=self._get,
                changes=lambda _: [PathResource(self._on.models, written="once")],
                preview=lambda arguments: f"get {arguments.source} into {self._on.models}, unless it is there",
            ),
            Operation(
                name="models.usage",
                description="Tell who uses a model of the registry.",
                form=ModelArguments,
                outputs={"roles": "the roles that have it", "file": "its file", "others": "models of the same file"},
                run=self._usage,
                reads_only=True,
            ),
            Operation(
                name="models.check_draft",
                description="Tell whether a model can draft for another, from their headers.",
                form=DraftArguments,
                outputs={"compatible": "true or false", "reason": "why not"},
                run=self._check_draft,
                reads_only=True,
            ),
            Operation(
                name="benchmark",
                description="Measure how quickly a model reads a prompt and writes an answer, alone on this machine.",
                form=BenchmarkArguments,
                outputs={
                    "prefill": "tokens of the prompt per second",
                    "decode": "tokens of the answer per second",
                    "load_seconds": "how long it took to load",
                    "generations": "how many were measured",
                },
                run=self._benchmark,
            ),
        )

    def _checks(self) -> tuple[Operation[Any], ...]:
        return (
            Operation(
                name="gate",
                description="Run gates on the files of a folder. Fails if a gate does.",
                form=GateArguments,
                outputs={"results": "of each gate", "files": "how many were checked"},
                run=self._gate,
            ),
            Operation(
                name="installation.check",
                description="Check everything that a run needs, as `orchestrator doctor` does. Fails if it is broken.",
                form=NoArguments,
                outputs={"checks": "of each part", "notes": "how many parts are only noted"},
                run=self._check,
            ),
        )

    def _folder(self) -> tuple[Operation[Any], ...]:
        return (
            Operation(
                name="state.backup",
                description="Back up the state folder, while it is in use too.",
                form=NoArguments,
                outputs={"name": "of the backup", "bytes": "its size"},
                run=lambda _arguments, _work: {
                    "name": (backup := self._on.upkeep.backup()).name,
                    "bytes": backup.bytes,
                },
                preview=lambda _: f"make a backup in {self._on.home / 'backups'}",
                leaves="a backup",
            ),
            Operation(
                name="state.check_backup",
                description="Check that a backup is whole. Fails if it is damaged.",
                form=BackupArguments,
                outputs={"runs": "how many it has"},
                run=self._check_backup,
            ),
            Operation(
                name="state.check",
                description="Check that the journal of the state folder is whole. Fails if it is damaged.",
                form=NoArguments,
                outputs={"runs": "how many it has"},
                run=lambda _arguments, _work: {
                    "runs": run_or_fail(lambda: _runs_of_whole(self._on.home, "the journal"))
                },
            ),
            Operation(
                name="state.copy_backup",
                description="Copy a backup into another folder, such as one on another disk.",
                form=BackupCopyArguments,
                outputs={"folder": "that has the copy"},
                run=self._copy_backup,
                changes=lambda arguments: [_new_folder(Path(arguments.folder) / arguments.name)],
            ),
            Operation(
                name="state.discard_backup",
                description="Remove a backup; none if the name is empty.",
                form=BackupArguments,
                run=self._discard_backup,
                changes=lambda arguments: [self._backup_folder(arguments.name)] if arguments.name else [],
            ),
            Operation(
                name="state.restore",
                description="Replace all runs by those of a backup. A daemon interrupts its runs for that, and goes on"
                " with those of the backup.",
                form=BackupArguments,
                run=self._restore,
                changes=lambda _: [self._journal()],
                guard=lambda _arguments, _undoing: self._on.upkeep.journal_closed(),
                preview=lambda arguments: f"replace {Home(self._on.home).database} by that of backup {arguments.name}",
            ),
            Operation(
                name="state.vacuum",
                description="Remove runs that have ended and that the limits do not keep, and data that no run uses.",
                form=VacuumArguments,
                outputs={"runs": "that were removed", "objects": "how many", "bytes": "that they had"},
                run=self._vacuum,
                changes=self._removed,
                preview=self._to_remove,
            ),
            Operation(
                name="state.upgrade",
                description="Bring the journal's database up to the schema of this version. A daemon, which has done so"
                " when it started, interrupts its runs for that, and continues them.",
                form=NoArguments,
                outputs={"runs": "how many runs it has"},
                run=self._upgrade,
                changes=lambda _: [self._journal()],
                guard=lambda _arguments, _undoing: self._on.upkeep.journal_closed(),
            ),
            Operation(
                name="procedures.prune",
                description="Remove plans of executions that ended long ago, and old parts of the audit log, of which"
                " an entry tells. What can still be rolled back stays.",
                form=PruneArguments,
                outputs={"plans": "how many were removed", "parts": "the parts of the log that were removed"},
                run=self._prune,
                changes=lambda arguments: [PathResource(path, written="once") for path in self._to_prune(arguments)],
                preview=lambda arguments: "\n".join(f"remove {path}" for path in self._to_prune(arguments)),
            ),
        )

    def _rotation(self) -> Operation[Any]:
        return Operation(
            name="token.rotate",
            description="Make a new token for requests over TCP. A daemon accepts it at once, and the old one no more.",
            form=NoArguments,
            run=self._rotate,
            outputs={"file": "that has the token"},
            changes=lambda _: [PathResource(self._on.token, secret=True, written="as a whole")],
            preview=lambda _: f"write a new token into {self._on.token} (its content is secret)",
            undone=lambda _arguments, _work: run_or_fail(self._on.upkeep.token_changed),
        )

    def _registry(self) -> Registry:
        return run_or_fail(lambda: load_registry(self._on.registry))

    def _entry(self, name: str) -> ModelEntry:
        registry = self._registry()
        model_id = registry.model_named(name)
        if model_id is None:
            raise StepFailed(f"{registry.path} has no model {name!r}; accepted: {', '.join(registry.models)}")
        return registry.models[model_id]

    def _propose(self, arguments: ProposeArguments, _work: Work) -> Mapping[str, Any]:
        registry, file = self._registry(), Path(arguments.file)
        header = run_or_fail(lambda: read_header(file))
        budget = memory_budget() if registry.defaults.memory is None else registry.defaults.memory
        room = Room(budget=budget)
        proposal = propose(header, file, registry, room, name=arguments.id, roles=arguments.roles)
        warnings = [*proposal.warnings, *(why for why in (proposal.why_no_text, proposal.why_no_prompt) if why)]
        return {"id": proposal.id, "entry": _plain(proposal.entry), "role": proposal.suits.role, "warnings": warnings}

    def _get(self, arguments: GetArguments, work: Work) -> Mapping[str, Any]:
        self._on.models.mkdir(parents=True, exist_ok=True)
        obtained, _ = run_or_fail(lambda: get_model(arguments.source, self._on.models, _Reported(work)))
        return {"file": str(obtained.file), "downloaded": obtained.downloaded}

    def _usage(self, arguments: ModelArguments, _work: Work) -> Mapping[str, Any]:
        entry, registry = self._entry(arguments.model), self._registry()
        return {
            "roles": [role.name for role in registry.roles.values() if role.model == entry.id],
            "file": None if entry.file is None else str(entry.file),
            "others": [
                model.id
                for model in registry.models.values()
                if model.id != entry.id and entry.file and model.file == entry.file
            ],
        }

    def _check_draft(self, arguments: DraftArguments, _work: Work) -> Mapping[str, Any]:
        target, draft = self._entry(arguments.model), self._entry(arguments.draft)
        for model in (target, draft):
            if model.header is None:
                raise StepFailed(
                    f"the header of {model.id} cannot be read: {model.why_not or 'another server runs it'}"
                )
        assert target.header is not None
        assert draft.header is not None
        reason = why_no_draft(target.header, draft.header)
        return {"compatible": reason is None, "reason": reason or ""}

    def _benchmark(self, arguments: BenchmarkArguments, work: Work) -> Mapping[str, Any]:
        entry = self._entry(arguments.model)
        if entry.file is None or entry.why_not is not None or entry.embeds:
            why = entry.why_not or "it makes vectors, or another server runs it"
            raise StepFailed(f"{entry.id} cannot be measured: {why}")
        return run_to_end(_measured(entry, entry.file, arguments.seconds, work), work)

    def _gate(self, arguments: GateArguments, work: Work) -> Mapping[str, Any]:
        folder = Path(arguments.folder)
        names = (arguments.gates,) if isinstance(arguments.gates, str) else arguments.gates
        if unknown := sorted(set(names) - set(BUILTIN_GATES)):
            raise StepFailed(f"there is no gate {unknown[0]!r}; accepted: {', '.join(BUILTIN_GATES)}")
        artifacts = _artifacts(folder)
        step = Step(id="S1", actor="worker", action="check", outputs=tuple(artifact.name for artifact in artifacts))
        context = GateContext(Scope(step), run=JobRunner(SandboxOnDemand(), 1).with_slack(math.inf))
        outcome = run_to_end(run_gates(names, artifacts, context), work)
        results = [{"gate": gate.gate, "status": gate.status, "evidence": gate.evidence} for gate in outcome.results]
        if outcome.failure is not None:
            raise StepFailed(f"{outcome.failure.message}\n{outcome.failure.evidence}".strip())
        return {"results": results, "files": len(artifacts)}

    def _check(self, _arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        checks = examine(self._on.registry, self._on.home)
        if broken := [f"{check.name}: {check.found}" for check in checks if check.state == "broken"]:
            raise StepFailed("; ".join(broken))
        return {"checks": [asdict(check) for check in checks], "notes": sum(check.state == "note" for check in checks)}

    def _check_backup(self, arguments: BackupArguments, _work: Work) -> Mapping[str, Any]:
        name = arguments.name
        return {"runs": run_or_fail(lambda: _runs_of_whole(find_backup(self._on.home, name), f"backup {name}"))}

    def _copy_backup(self, arguments: BackupCopyArguments, work: Work) -> Mapping[str, Any]:
        source, target = run_or_fail(lambda: find_backup(self._on.home, arguments.name)), Path(arguments.folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            work.say(f"copy {source} into {target}")
            shutil.copytree(source, target / arguments.name, copy_function=_copied)
            (target / arguments.name).chmod(0o700)
            sync_folder(target)
        except (OSError, shutil.Error) as error:
            raise StepFailed(f"{target}: the backup cannot be copied: {error}") from error
        return {"folder": str(target / arguments.name)}

    def _discard_backup(self, arguments: BackupArguments, _work: Work) -> Mapping[str, Any]:
        if arguments.name:
            run_or_fail(lambda: discard_backup(self._on.home, arguments.name))
        return {}

    def _restore(self, arguments: BackupArguments, _work: Work) -> Mapping[str, Any]:
        run_or_fail(lambda: restore_backup(self._on.home, arguments.name))
        return {}

    def _vacuum(self, arguments: VacuumArguments, _work: Work) -> Mapping[str, Any]:
        result = run_or_fail(lambda: self._on.upkeep.vacuum(_request(arguments, dry_run=False)))
        return {"runs": list(result.runs), "objects": result.objects, "bytes": result.object_bytes}

    def _removed(self, arguments: VacuumArguments) -> Sequence[Resource]:
        home, would = Home(self._on.home), self._expired(arguments)
        runs = would.runs
        if len(runs) > MAX_RUNS_AT_ONCE:
            raise StepFailed(f"{len(runs):,} runs would be removed; accepted: at most {MAX_RUNS_AT_ONCE:,} at a time")
        quoted = ", ".join("'" + run.replace("'", "''") + "'" for run in runs)
        rows = [RowsResource(home.database, table, f"run IN ({quoted})") for table in ("runs", "events", "outcomes")]
        chats = [RowsResource(home.database, "chat_events", shared=True)] if would.chats else []
        folders = [PathResource(home.runs / run, written="once") for run in runs]
        return [*(rows if runs else ()), *chats, *folders, PathResource(home.objects, written="once", shared=True)]

    def _to_remove(self, arguments: VacuumArguments) -> str:
        would = self._expired(arguments)
        lines = [f"remove run {run}" for run in would.runs]
        lines += [f"remove {would.chats} chats"] if would.chats else []
        return "\n".join([*lines, f"remove {would.objects} objects of {would.object_bytes:,} bytes"])

    def _expired(self, arguments: VacuumArguments) -> VacuumResult:
        if not Home(self._on.home).database.exists():
            raise StepFailed(f"{self._on.home} has no journal yet, so there are no runs to remove")
        return run_or_fail(lambda: self._on.upkeep.vacuum(_request(arguments, dry_run=True)))

    def _upgrade(self, _arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        def upgraded() -> int:
            with Journal.open(self._on.home) as journal:
                return len(journal.runs())

        return {"runs": run_or_fail(upgraded)}

    def _rotate(self, _arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        write_secret(self._on.token, secrets.token_urlsafe(32))
        run_or_fail(self._on.upkeep.token_changed)
        return {"file": str(self._on.token)}

    def _prune(self, arguments: PruneArguments, _work: Work) -> Mapping[str, Any]:
        plans, parts = self._old(arguments)
        for path in plans:
            path.unlink(missing_ok=True)
        with Audit(self._on.home / PROCEDURES) as audit:
            audit.remove_sealed(parts, "the operation procedures.prune")
        return {"plans": len(plans), "parts": [part.path.name for part in parts]}

    def _to_prune(self, arguments: PruneArguments) -> list[Path]:
        plans, parts = self._old(arguments)
        return [*plans, *(part.path for part in parts)]

    def _old(self, arguments: PruneArguments) -> tuple[list[Path], list[SealedPart]]:
        limits, now, folder = self._on.configuration.retention, time.time(), self._on.home / PROCEDURES
        plan_days = limits.max_plan_days if arguments.plan_days is None else arguments.plan_days
        audit_days = limits.max_audit_days if arguments.audit_days is None else arguments.audit_days
        with Audit(folder) as audit:
            plans = old_plans(folder, audit, now - plan_days * DAY_SECONDS) if plan_days else []
            parts = old_parts(audit, now - audit_days * DAY_SECONDS) if audit_days else []
        return plans, parts

    def _journal(self) -> DatabaseResource:
        home = Home(self._on.home)
        return DatabaseResource(home.database, home.lock_file)

    def _backup_folder(self, name: str) -> PathResource:
        return PathResource(run_or_fail(lambda: find_backup(self._on.home, name)), written="once")


class _Reported:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._name, self._size, self._done, self._tenths = "", 0, 0, 0

    def begin(self, name: str, size: int | None, done: int) -> None:
        self._name, self._size, self._done, self._tenths = name, size or 0, done, 0
        self._work.say(f"{name}: {done:,} of {size or 0:,} bytes")

    def advance(self, count: int) -> None:
        self._done += count
        self._work.seconds_left  # noqa: B018 - raises if there are none
        tenth = 10 * self._done // self._size if self._size else 0  # each tenth of a file is reported
        if tenth > self._tenths:
            self._tenths = tenth
            self._work.say(f"{self._name}: {self._done:,} of {self._size:,} bytes")

    def end(self, checked: str) -> None:
        self._work.say(f"{self._name}: complete; {checked}")


async def _measured(entry: ModelEntry, file: Path, seconds: float, work: Work) -> Mapping[str, Any]:
    options = replace(entry.options, context=min(entry.context, MOST_CONTEXT), slots=1, cells=None)
    begun = time.monotonic()
    totals = {"prefill": [0, 0.0], "decode": [0, 0.0]}
    count = 0
    async with await Engine.start(EngineSpec.of(options, file=str(file), name=entry.id)) as engine:
        load_seconds = time.monotonic() - begun
        until = time.monotonic() + seconds
        while count < 2 or time.monotonic() < until:  # the first answer warms the model up and does not count
            message = Message("user", f"{count}. {PROMPT}")  # another beginning, so that no prefix is found again
            answer = await engine.generate(Generation(messages=(message,), max_tokens=ANSWER_TOKENS, fit=1))
            usage = answer.usage
            if count:
                totals["prefill"][0] += usage.prompt_tokens - usage.cached_tokens
                totals["prefill"][1] += usage.prefill_seconds
                totals["decode"][0] += usage.output_tokens
                totals["decode"][1] += usage.decode_seconds
            count += 1
            work.say(f"{count} answers")
    rates = {name: round(tokens / spent, 2) if spent else None for name, (tokens, spent) in totals.items()}
    return {**rates, "load_seconds": round(load_seconds, 3), "generations": count - 1}


def _runs_of_whole(folder: Path, subject: str) -> int:
    with JournalReader.open_to_read(folder) as journal:
        if damage := journal.damage():
            raise StepFailed(f"{subject} is damaged: {damage[0]}")
        return len(journal.runs())


def _copied(source: str, target: str) -> str:
    shutil.copy2(source, target)  # with times and rights
    with open(target, "rb") as file:
        os.fsync(file.fileno())  # a copy is durable
    return target


def _new_folder(path: Path) -> PathResource:
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    # The first missing folder is what changes.
    return PathResource(missing[-1] if missing else path, written="once")


def write_secret(path: Path, text: str) -> None:
    """Write a secret atomically into a file that only its owner can read. Raises StepFailed."""
    try:
        make_private_folder(path.parent)
        replace_file(path, f"{text}\n".encode(), 0o600)
    except OSError as error:
        raise StepFailed(f"{path}: {error.strerror}") from error


def _artifacts(folder: Path) -> list[Artifact]:
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            raise StepFailed(f"{folder} has no files; accepted: a folder with files that gates can check")
        if len(files) > MAX_FILES:
            raise StepFailed(f"{folder} has {len(files):,} files; accepted: at most {MAX_FILES:,}")
        return [Artifact(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]
    except OSError as error:
        raise StepFailed(f"{error.filename or folder}: {error.strerror}") from error


def _request(arguments: VacuumArguments, *, dry_run: bool) -> VacuumRequest:
    return VacuumRequest(days=arguments.days, runs=arguments.runs, bytes=arguments.bytes, chats=0, dry_run=dry_run)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, Collection) and not isinstance(value, str) else value
