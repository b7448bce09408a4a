"""Say which outputs of a plan the user wants, in the order of the request, by code.

Wanted are the files that the request names; the outputs of parts that a clause of the request asks for, even if other
steps read them ("Summarize each file, then compare them": the summaries and the comparison); and outputs that no other
step reads, unless they were only made on the way. An output was made on the way if no clause asks for it, and a later
step reads all that it was made from.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from orchestrator.run.frontdoor.clauses import Clause, clauses_of, made_by
from orchestrator.run.frontdoor.request import RequestFiles
from orchestrator.run.frontdoor.words import related
from orchestrator.task.taskir import Step


@dataclass(frozen=True, slots=True)
class _Part:
    steps: tuple[Step, ...]
    clause: Clause | None
    """The clause of the request that asks for it."""

    @property
    def place(self) -> float:
        return self.clause.start if self.clause is not None else inf


def wanted_outputs(
    request: str, files: Sequence[str], parts: Sequence[tuple[Step, ...]], replanned: Collection[int] = ()
) -> tuple[str, ...]:
    """Return the names of the outputs that the user wants.

    `parts` are the steps of the plan, part by part. The outputs of those at the places `replanned` were read by the
    frontdoor, for the rest of the plan.
    """
    named = RequestFiles.of(request, files).outputs
    clauses = clauses_of(request)
    known = [_Part(steps, _clause_for(steps, clauses)) for steps in parts]
    readers = _readers(known)
    for at in replanned:
        readers.update((name, [at + 1]) for name in _outputs(known[at]) if at + 1 < len(known))
    wanted = [part for at, part in enumerate(known) if _is_wanted(part, at, known, readers)]
    written = [name for part in sorted(wanted, key=lambda part: part.place) for name in _outputs(part)]
    all_written = {name for part in known for name in _outputs(part)}
    return tuple(dict.fromkeys([*(name for name in named if name in all_written), *written]))


def _outputs(part: _Part) -> list[str]:
    return [name for step in part.steps for name in step.outputs]


def _clause_for(steps: Sequence[Step], clauses: Sequence[Clause]) -> Clause | None:
    """Return the clause that asks for what these steps make: the first that makes the same."""
    made = made_by(steps[0].action)
    return next(
        (clause for clause in clauses if any(related(word, other) for word in made for other in clause.makes)), None
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
    later = ({name for step in other.steps for name in step.inputs} for other in parts[at + 1 :])
    return not sources or not any(sources <= read for read in later)
