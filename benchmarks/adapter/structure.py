"""Compare plans by their structure: which parts there are, what each of their steps reads, and what it writes."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part

CODER = "coder"
ROLES = ("worker", CODER)  # the roles of the steps in generated plans


@dataclass(frozen=True, slots=True)
class StepStructure:
    """The structure of one step."""

    reads: frozenset[str]  # files, `request`, or parts such as `P1`
    code: bool = False  # whether the coder does it
    foreach: str | None = None  # the part whose list it goes over
    output: str | None = None  # the name of its output, if the plan names it
    replan: bool = False  # whether planning continues after it


Structure = tuple[frozenset[StepStructure], ...]  # for each part of a plan, the steps that it stands for


def structure_of(files: Sequence[str], parts: Sequence[Part]) -> Structure:
    """Return the structure of a plan for a request with these files. Raises PlanFlaw for a plan that is none."""
    builder = PlanBuilder(files, ROLES)
    writers: dict[str, str] = {}
    structures = []
    for number, part in enumerate(parts, 1):
        steps = builder.add(part).steps
        structures.append(
            frozenset(
                StepStructure(
                    frozenset(writers.get(name, name) for name in step.inputs or ()),
                    part.role == CODER,
                    None if step.foreach is None else writers.get(step.foreach, step.foreach),
                    part.output,
                    part.replan,
                )
                for step in steps
            )
        )
        writers |= {name: f"P{number}" for step in steps for name in step.outputs}
    return tuple(structures)
