"""Turn compact steps into steps of a TaskIR, one at a time, each checked against those before it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from orchestrator.analysis import StepGraph, analyze
from orchestrator.frontdoor.compact import CompactStep
from orchestrator.frontdoor.errors import PlanFlaw
from orchestrator.frontdoor.naming import FileNames, default_output, referred_step
from orchestrator.taskir import InvalidTask, Step, nearest

REQUEST_LABEL = "request"
"""The name by which a step reads the text of the request itself."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that was accepted, and how it was `written`; empty for one that stands in for a plan."""

    step: Step
    written: str = ""


class PlanBuilder:
    """The plan as far as it is accepted. What was accepted never changes; a step names only earlier ones.

    `known` are the steps that were accepted before now. So many of them are `done` that only the rest of the plan is
    being written: it hangs on what the last of these has found, so every step of it waits for that one.
    """

    def __init__(
        self, files: Sequence[str], roles: Sequence[str], known: Sequence[PlannedStep] = (), done: int = 0
    ) -> None:
        self.steps: list[Step] = [planned.step for planned in known]
        self.accepted: list[CompactStep] = [_compact(planned) for planned in known]
        self.done = done
        self._files = FileNames(files)
        self._roles = roles
        self._graph: StepGraph | None = None
        for count in range(1, len(known) + 1):  # one by one: what a step reads does not depend on later ones
            self._graph = self._analyzed(self.steps[:count])

    @property
    def fresh(self) -> list[CompactStep]:
        """The accepted steps of what is being written, without those that were done before."""
        return self.accepted[self.done :]

    @property
    def goes_on_after(self) -> str | None:
        """The step that ends what is being written, because the plan is to go on when it is done."""
        return self.steps[-1].id if self.fresh and self.fresh[-1].replan else None

    def add(self, compact: CompactStep) -> Step:
        """Accept a step and return it. Raises `PlanFlaw`, and the plan is as it was."""
        number = len(self.steps) + 1
        if last := self.goes_on_after:
            raise PlanFlaw(f"step {number}: nothing may follow {last}, whose replan ends the plan for now")
        if compact.role not in self._roles:
            near = nearest(compact.role, self._roles)
            hint = f", perhaps {near!r}" if near else ""
            raise PlanFlaw(f"step {number}: there is no role {compact.role!r}{hint}; roles: {', '.join(self._roles)}")
        foreach = None if compact.foreach is None else self._read(number, compact.foreach)
        if foreach == REQUEST_LABEL:
            raise PlanFlaw(f"step {number}: foreach needs a list, and {REQUEST_LABEL!r} is none")
        return self._append(
            compact,
            actor=compact.role,
            action=self._told(compact),
            inputs=tuple(dict.fromkeys(self._read(number, name) for name in compact.inputs)),
            foreach=foreach,
            output=compact.output,
            depends_on=tuple(dict.fromkeys(self._waited_for(number, name) for name in compact.after)),
        )

    def fall_back(self, role: str, request: str) -> Step:
        """Accept and return one step that does the whole request, with the files that it speaks of."""
        inputs = self._files.mentioned(request) or (REQUEST_LABEL,)
        return self._append(None, actor=role, action=request, inputs=inputs, foreach=None, output=None, depends_on=())

    def _append(
        self,
        compact: CompactStep | None,
        *,
        actor: str,
        action: str,
        inputs: tuple[str, ...],
        foreach: str | None,
        output: str | None,
        depends_on: tuple[str, ...],
    ) -> Step:
        number = len(self.steps) + 1
        depends_on += self._awaited({*inputs, foreach}, depends_on)
        taken = [*self._files.files, REQUEST_LABEL, *(name for step in self.steps for name in step.outputs)]
        if any(output in step.outputs for step in self.steps):
            raise PlanFlaw(f"step {number}: the output {output!r} is written by an earlier step already")
        given = {"inputs": inputs, "depends_on": depends_on, "foreach": foreach}
        try:
            step = Step(
                id=f"S{number}",
                actor=actor,
                action=action,
                outputs=(output or default_output(number, foreach is not None, taken),),
                **{field: value for field, value in given.items() if value},
            )
            self._graph = self._analyzed([*self.steps, step])
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            raise PlanFlaw(f"step {number}: {'/'.join(map(str, first['loc']))}: {first['msg']}") from error
        except InvalidTask as error:
            raise PlanFlaw(f"step {number}: {error.problems[0].what}") from error
        self.steps.append(step)
        if compact is not None:
            self.accepted.append(compact)
        return step

    def _analyzed(self, steps: Sequence[Step]) -> StepGraph:
        """Return the graph of the known steps and one more. Raises `InvalidTask`."""
        files = self._files.files
        return analyze(steps, labels=[REQUEST_LABEL], files=files, mode="as-planned", earlier=self._graph)

    def _read(self, number: int, name: str) -> str:
        """Return the artifact, label or file that a name in a plan stands for."""
        if (earlier := referred_step(name)) is not None:
            return self._earlier(number, name, earlier).outputs[0]
        if name == REQUEST_LABEL or any(name in step.outputs for step in self.steps):
            return name
        file = self._files.find(name)
        if file is None:
            raise PlanFlaw(f"step {number}: {name!r} is no earlier step, no file and not {REQUEST_LABEL!r}")
        return file

    def _waited_for(self, number: int, name: str) -> str:
        if (earlier := referred_step(name)) is not None:
            return self._earlier(number, name, earlier).id
        writer = next((step.id for step in self.steps if name in step.outputs), None)
        if writer is None:
            raise PlanFlaw(f"step {number}: it cannot come after {name!r}, which is no earlier step")
        return writer

    def _awaited(self, read: set[str | None], depends_on: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last of the steps that were done before, unless a new step waits for it anyway."""
        hung_on = self.steps[self.done - 1 :] if self.done else []
        if not hung_on or any(step.id in depends_on or not read.isdisjoint(step.outputs) for step in hung_on):
            return ()
        return (hung_on[0].id,)

    def _earlier(self, number: int, name: str, earlier: int) -> Step:
        if earlier >= number:
            known = f"; earlier steps: S1 to S{number - 1}" if number > 1 else ""
            raise PlanFlaw(f"step {number}: {name} is no earlier step{known}")
        return self.steps[earlier - 1]

    def _told(self, compact: CompactStep) -> str:
        """Return the action with the names that the step's inputs will have in its prompt."""
        reads = {*compact.inputs, compact.foreach}

        def name_of(match: re.Match[str]) -> str:
            return self._read(len(self.steps) + 1, match[0]) if match[0] in reads else match[0]

        return re.sub(r"\bS[1-9][0-9]{0,5}\b", name_of, compact.action)


def _compact(planned: PlannedStep) -> CompactStep:
    """Return a known step in its compact form. A journal of an earlier version may not tell how it was written."""
    if planned.written:
        return CompactStep.model_validate_json(planned.written)
    step = planned.step
    return CompactStep.model_construct(
        role=step.actor,
        action=step.action,
        inputs=step.inputs,
        foreach=step.foreach,
        output=step.outputs[0],
        after=step.depends_on,
    )
