"""Say by code which outputs of a plan the user wants, in the order of the request.

Wanted are the files that the request names; outputs of parts that a clause of the request asks for, even if other
steps read them ("Summarize each file, then compare them"); and outputs that no other step reads. Intermediate results
are not wanted: no clause asks for them, and a later step reads all that they were made from.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from orchestrator.run.frontdoor.clauses import Clause, clauses_of, made_by
from orchestrator.run.frontdoor.request import RequestFiles
from orchestrator.run.frontdoor.words import related
from orchestrator.task.taskir.models import Step


@dataclass(frozen=True, slots=True)
class _Part:
    steps: tuple[Step, ...]
    clause: Clause | None  # the clause of the request that asks for it

    @property
    def place(self) -> float:
        return self.clause.start if self.clause is not None else inf


def wanted_outputs(
    request: str, files: Sequence[str], parts: Sequence[tuple[Step, ...]], replanned: Collection[int] = ()
) -> tuple[str, ...]:
    """Return the names of the outputs that the user wants.

    `parts` are the steps of the plan, part by part. For the rest of the plan, the frontdoor has read the outputs of the
    parts at the positions `replanned`.
    """
    named = RequestFiles.of(request, files).outputs
    clauses = clauses_of(request)
    plan_parts = [_Part(steps, _clause_for(steps, clauses)) for steps in parts]
    readers = _readers(plan_parts)
    for at in replanned:
        readers.update((name, [at + 1]) for name in _outputs(plan_parts[at]) if at + 1 < len(plan_parts))
    wanted_parts = [part for at, part in enumerate(plan_parts) if _is_wanted(part, at, plan_parts, readers)]
    written = [name for part in sorted(wanted_parts, key=lambda part: part.place) for name in _outputs(part)]
    all_written = {name for part in plan_parts for name in _outputs(part)}
    return tuple(dict.fromkeys([*(name for name in named if name in all_written), *written]))


def _outputs(part: _Part) -> list[str]:
    return [name for step in part.steps for name in step.outputs]


def _clause_for(steps: Sequence[Step], clauses: Sequence[Clause]) -> Clause | None:
    products = made_by(steps[0].action)
    return next(
        (clause for clause in clauses if any(related(word, order) for word in products for order in clause.makes)), None
    )


def _readers(parts: Sequence[_Part]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for at, part in enumerate(parts):
        for step in part.steps:
            for name in (*step.inputs, *([step.foreach] if step.foreach else [])):
                readers.setdefault(name, []).append(at)
    return readers


def _is_wanted(part: _Part, at: int, parts: Sequence[_Part], readers: Mapping[str, list[int]]) -> bool:
    if part.clause is not None:
        return True
    if any(readers.get(name) for name in _outputs(part)):
        return False
    sources = {name for step in part.steps for name in step.inputs}
    later = ({name for step in later_part.steps for name in step.inputs} for later_part in parts[at + 1 :])
    return not sources or not any(sources <= read for read in later)
