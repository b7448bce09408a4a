"""Find what is old of executions that are over: plans, and sealed parts of the audit log.

What a rollback needs stays: the plans and the entries of the executions whose checkpoints are kept. So do those of
executions that are not over.
"""

from pathlib import Path
from typing import Final

from procedures.audit import Audit, SealedPart
from procedures.execution import execution_of

KEPT_CHECKPOINTS: Final = 20
"""Of how many executions, those that began last, the checkpoints are kept, so that they can be rolled back."""
PLANS: Final = "plans"


def plan_file(folder: Path, execution: str) -> Path:
    """Return the file that has the plan of an execution; `folder` is that of the procedures of a state folder."""
    return folder / PLANS / f"{execution}.json"


def old_plans(folder: Path, audit: Audit, before: float) -> list[Path]:
    """Return the files of the plans of executions that have ended before a time, in seconds since the epoch.

    Also those that were set aside, and those of which the log tells nothing, since they were never submitted. Blocks on
    the disk. Raises ProcedureError.
    """
    kept = _kept(audit)
    found = sorted((folder / PLANS).glob("*.json*"))
    return [path for path in found if _changed(path) < before and _is_old(audit, _execution_of(path), kept, before)]


def old_parts(audit: Audit, before: float) -> list[SealedPart]:
    """Return the oldest sealed parts of the log all whose entries, and the ends of whose executions, are from before a
    time. None of these executions can be rolled back any more. Raises ProcedureError.
    """
    kept, found = _kept(audit), list[SealedPart]()
    for part in audit.sealed():
        executions, at = audit.executions_in(part)
        if at >= before or not all(_is_old(audit, execution, kept, before) for execution in executions):
            break
        found.append(part)
    return found


def _kept(audit: Audit) -> frozenset[str]:
    """Return the executions that have ended and whose checkpoints are kept.

    Who asks may be one that is under way, and gets the same answer as when its plan was made.
    """
    under_way = frozenset(audit.not_ended())
    begun = audit.executions(KEPT_CHECKPOINTS + len(under_way), kinds=("begun",))
    return frozenset([one for one in begun if one not in under_way][:KEPT_CHECKPOINTS])


def _is_old(audit: Audit, execution: str, kept: frozenset[str], before: float) -> bool:
    entries = audit.entries(execution)
    one = execution_of(execution, entries)
    return not entries or (execution not in kept and one.is_over and (one.ended or 0.0) < before)


def _execution_of(path: Path) -> str:
    return path.name.partition(".json")[0]


def _changed(path: Path) -> float:
    """Return when a file was changed last; now and later if it is gone meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
