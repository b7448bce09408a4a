"""Requests in natural English, each with the structures of plans that are right for it."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from orchestrator.bench.real.structure import CODER, Structure, structure, width, without_originals
from orchestrator.registry.strict_yaml import parse_file
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part
from orchestrator.run.frontdoor.each_words import EACH
from orchestrator.task.taskir.models import Step

# The sets of requests; `all` are tuning and unseen, by which `orchestrator init` compares models.
Which = Literal["tuning", "unseen", "wide", "all"]
ROLES: Final = ("worker", CODER)
_FOLDER: Final = Path(__file__).parent
_STRICT: Final = ConfigDict(extra="forbid")


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class RightPart:
    """A part of a right plan: what a part says except its wording, see `orchestrator.run.frontdoor.compact`."""

    code: bool = False  # whether the part has to be the coder's
    each: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    foreach: str | None = None
    output: str | None = None
    after: tuple[str, ...] = ()
    replan: bool = False

    def part(self) -> Part:
        """Return the part with some wording."""
        return Part(
            role=CODER if self.code else ROLES[0],
            action=f"Work on {EACH}." if self.each else "Work on it.",
            each=self.each,
            inputs=self.inputs,
            foreach=self.foreach,
            output=self.output,
            after=self.after,
            replan=self.replan,
        )


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class RealRequest:
    """A request, the files that it may refer to, and the plans that are right for it."""

    request: str
    files: tuple[str, ...]
    right: tuple[tuple[RightPart, ...], ...]

    def is_right(self, steps: tuple[Step, ...], goes_on_after: str | None) -> bool:
        """Return whether a plan of these steps has a structure that is right, perhaps with more originals read."""
        return any(
            structure(read, named=alternative.named, goes_on_after=goes_on_after) == alternative.structure
            for alternative in self.alternatives()
            for read in (steps, without_originals(steps))
        )

    def alternatives(self) -> tuple["Alternative", ...]:
        """Return the right structures. Raises `PlanFlaw` for one that no plan can have."""
        return tuple(map(self._alternative, self.right))

    @property
    def best_width(self) -> int:
        """How many steps the first right structure lets run at once."""
        return self.alternatives()[0].width

    def _alternative(self, parts: tuple[RightPart, ...]) -> "Alternative":
        builder = PlanBuilder(self.files, ROLES)
        for part in parts:
            builder.add(part.part())
        named = frozenset(part.output for part in parts if part.output is not None)
        right = structure(builder.steps, named=named, goes_on_after=builder.goes_on_after)
        return Alternative(named, right, width(builder.steps))


@dataclass(frozen=True, slots=True)
class Alternative:
    """One right structure."""

    named: frozenset[str]  # the outputs whose names matter
    structure: Structure
    width: int  # how many of its steps may run at once


@cache
def real_requests(which: Which) -> tuple[RealRequest, ...]:
    """Return the requests of a set."""
    if which == "all":
        return (*real_requests("tuning"), *real_requests("unseen"))
    data = parse_file(_FOLDER / f"{which}.yaml").data
    return TypeAdapter(tuple[RealRequest, ...]).validate_python(data)
