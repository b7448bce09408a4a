"""Find old plans and old sealed parts of the audit log.

Plans and entries stay for executions that are not over, and for those whose checkpoints are kept, for a rollback.
"""

from pathlib import Path
from typing import Final

from orchestrator.procedures.audit import Audit, SealedPart
from orchestrator.procedures.execution import execution_of

KEPT_CHECKPOINTS: Final = 20  # of the executions that started last
PLANS: Final = "plans"


def plan_file(folder: Path, execution: str) -> Path:
    """Return the file of a plan. `folder`: where a state folder keeps its procedures."""
    return folder / PLANS / f"{execution}.json"


def old_plans(folder: Path, audit: Audit, before: float) -> list[Path]:
    """Return plan files of executions that ended before a time in seconds since the epoch. Raises ProcedureError.

    Includes plans that were set aside, and those without an entry in the log: they were never submitted. Blocks on the
    disk.
    """
    retained = _retained(audit)
    paths = sorted((folder / PLANS).glob("*.json*"))
    return [path for path in paths if _changed(path) < before and _is_old(audit, _execution_of(path), retained, before)]


def old_parts(audit: Audit, before: float) -> list[SealedPart]:
    """Return the oldest sealed parts whose entries and ends of executions are before a time. Raises ProcedureError.

    None of these executions can be rolled back any more.
    """
    retained, parts = _retained(audit), list[SealedPart]()
    for part in audit.sealed():
        executions, at = audit.executions_in(part)
        if at >= before or not all(_is_old(audit, execution, retained, before) for execution in executions):
            break
        parts.append(part)
    return parts


def _retained(audit: Audit) -> frozenset[str]:
    # Ended executions with checkpoints. Those under way do not count, so an execution that asks gets the same answer as
    # when it was planned.
    under_way = frozenset(audit.not_ended())
    executions = audit.executions(KEPT_CHECKPOINTS + len(under_way), kinds=("begun",))
    return frozenset([identity for identity in executions if identity not in under_way][:KEPT_CHECKPOINTS])


def _is_old(audit: Audit, execution: str, retained: frozenset[str], before: float) -> bool:
    entries = audit.entries(execution)
    state = execution_of(execution, entries)
    return not entries or (execution not in retained and state.is_over and (state.ended or 0.0) < before)


def _execution_of(path: Path) -> str:
    return path.name.partition(".json")[0]


def _changed(path: Path) -> float:
    # infinite if the file is gone
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
