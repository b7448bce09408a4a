"""What a user asks for, and whether this installation can do it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis import analyze_task
from orchestrator.errors import InputError, Problem
from orchestrator.events import Mode, RoleRates, Rung
from orchestrator.gates import BUILT
from orchestrator.journal import JournalReader, Measured
from orchestrator.taskir import GATES, Capabilities, InvalidTask, TaskIR, check_task
from registry import Registry

FRONTDOOR = "frontdoor"
MAX_FILES = 10_000
MAX_REQUEST_BYTES = 1_000_000
STEP_TIERS = frozenset("BC")


@dataclass(frozen=True, slots=True)
class Job:
    """A request in words or a TaskIR document, exactly one of them, and the folder that its steps may read."""

    request: str | None
    task: TaskIR | None
    directory: Path | None
    mode: Mode


def check_job(job: Job, registry: Registry) -> tuple[str, ...]:
    """Return the files that the steps may read. Raises InputError for a job that cannot be run here."""
    files = list_files(job.directory) if job.directory else ()
    if job.task is not None:
        if problems := check_task(job.task, capabilities(registry)):
            raise InvalidTask(*problems)
        analyze_task(job.task, files=files, mode=job.mode)
    else:
        _check_request(job.request or "", registry)
    return files


def _check_request(request: str, registry: Registry) -> None:
    if not request.strip():
        raise InputError(Problem("request", "is empty", "what to do, in words"))
    if (size := len(request.encode(errors="replace"))) > MAX_REQUEST_BYTES:
        raise InputError(
            Problem("request", f"has {size} bytes", f"at most {MAX_REQUEST_BYTES}; put long texts in files")
        )
    if FRONTDOOR not in registry.roles:
        raise InputError(Problem(f"{registry.path}: roles", f"there is no {FRONTDOOR}", "a role that plans requests"))
    if reason := registry.why_not(FRONTDOOR):
        raise InputError(Problem(f"{registry.path}: roles.{FRONTDOOR}", reason, "a model that is there"))
    if not plan_roles(registry):
        raise InputError(Problem(f"{registry.path}: roles", "none can do steps", "one of tier B or C at least"))


def list_files(directory: Path) -> tuple[str, ...]:
    """Return the names of the regular files under a folder, relative and in order. Links and hidden names are left out.

    Raises InputError for a folder that is none, or that holds more than `MAX_FILES` files.
    """
    if not directory.is_dir():
        raise InputError(Problem(f"--dir {directory}", "is not a folder", "a folder that can be read"))
    names: list[str] = []
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        base = Path(folder)
        visible = [base / name for name in files if not name.startswith(".")]
        names += [
            path.relative_to(directory).as_posix() for path in visible if path.is_file() and not path.is_symlink()
        ]
        if len(names) > MAX_FILES:
            raise InputError(Problem(f"--dir {directory}", f"holds more than {MAX_FILES} files", "a smaller folder"))
    return tuple(sorted(names))


def capabilities(registry: Registry) -> Capabilities:
    """Return what this installation can do. A gate that is not built may be asked for: it reads "not run"."""
    return Capabilities(
        roles=frozenset(role for role in registry.usable_roles if role in plan_roles(registry)),
        personas=frozenset(registry.personas),
        gates=frozenset(GATES) | frozenset(BUILT),
        kinds=frozenset({"generate"}),
        input_types=frozenset({"path", "text"}),
        models=registry.usable_models,
    )


def plan_roles(registry: Registry) -> tuple[str, ...]:
    """Return the roles that steps may have: those that do work, with a model that is there."""
    usable = registry.usable_roles
    return tuple(name for name, role in registry.roles.items() if role.tier in STEP_TIERS and name in usable)


def rungs(registry: Registry) -> dict[str, Rung]:
    """Return who takes over from whom."""
    return {
        name: Rung(role.escalates_to, registry.roles[role.escalates_to].level)
        for name, role in registry.roles.items()
        if role.escalates_to is not None
    }


def known_rates(journal: JournalReader) -> dict[str, RoleRates]:
    """Return what is typical of each role, from the generations that ended last."""
    history: dict[str, list[Measured]] = {}
    for row in journal.measured():
        history.setdefault(row.role, []).append(row)
    return {role: _typical(rows) for role, rows in history.items()}


def _typical(rows: list[Measured]) -> RoleRates:
    default, count = RoleRates(), len(rows)
    computed = sum(row.prompt_tokens - row.cached_tokens for row in rows)
    written = sum(row.output_tokens for row in rows)
    return RoleRates(
        prefill_rate=_rate(computed, (row.prefill_seconds for row in rows)) or default.prefill_rate,
        decode_rate=_rate(written, (row.decode_seconds for row in rows)) or default.decode_rate,
        prompt_tokens=computed / count,
        output_tokens=written / count,
    )


def _rate(tokens: int, seconds: Iterable[float]) -> float:
    total = sum(seconds)
    return tokens / total if total > 0 else 0.0
