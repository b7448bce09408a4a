"""Turn the parts of a plan into steps of a TaskIR, one part at a time, each checked against those before it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from orchestrator.run.frontdoor.compact import Part, PersonaPart, PlanFlaw
from orchestrator.run.frontdoor.each_words import EACH, is_said, name_for
from orchestrator.run.frontdoor.personas import PersonaFlaw, PlanPersonas
from orchestrator.run.frontdoor.references import (
    FileNames,
    default_output,
    in_place_of_list,
    names_file,
    referred_part,
    with_folders,
)
from orchestrator.run.gates import default_gates
from orchestrator.run.planning import CheckSteps, PlannedPart
from orchestrator.run.steps.foreach import LIST_OF_TEXTS
from orchestrator.task.analysis import PlanAnalysis
from orchestrator.task.events import PlanPersona
from orchestrator.task.taskir import REQUEST_LABEL, InvalidTask, Step, nearest
from registry.models import Persona

_FILE_NAME = re.compile(r"[\w./*{}-]*\.[A-Za-z][A-Za-z0-9]{0,4}")
"""A word that can only be the name of a file or a pattern for names."""
_PART = re.compile(r"\bP[1-9][0-9]{0,5}\b")

_PROSE_ENDINGS: Final = frozenset((".md", ".txt", ".rst", ".html", ".tex", ".adoc"))

MAX_EACH = 1000
"""The most steps that one part may stand for."""


class PlanBuilder:
    """Builds the steps of a plan, part by part. What was accepted never changes, and a part names only earlier ones.

    `known` are the parts that were accepted before now. If some are `done`, only the rest of the plan is being written:
    it depends on what the last done part has found, so each of its steps waits for that part. `check` is as in
    `PlanContext`. `personas` are those of the registry. With `reads_named`, a step reads what its action names, even if
    the part does not list that: files by their whole names, and earlier parts. Words in `each` are words of the
    `request`, if that is given.
    """

    def __init__(
        self,
        files: Sequence[str],
        roles: Sequence[str],
        known: Sequence[PlannedPart] = (),
        done: int = 0,
        check: CheckSteps | None = None,
        *,
        reads_named: bool = False,
        request: str | None = None,
        personas: Mapping[str, Persona] | None = None,
    ) -> None:
        self.parts: list[tuple[Step, ...]] = []
        self.accepted: list[Part] = [_part(planned) for planned in known]
        self.done = done
        self._files = FileNames(files)
        self._roles = roles
        self._reads_named = reads_named
        self._request = request
        self._taken = with_folders([*files, REQUEST_LABEL])
        self._personas = PlanPersonas(personas or {}, [one for planned in known for one in planned.personas])
        analysis = PlanAnalysis([REQUEST_LABEL], files)
        self._check = check or analysis.add
        for planned in known:
            if check is None:
                analysis.add(planned.steps)
            self._keep(planned.steps)

    @property
    def steps(self) -> list[Step]:
        """The steps of all accepted parts."""
        return [*chain.from_iterable(self.parts)]

    @property
    def fresh(self) -> list[Part]:
        """The accepted parts of the plan, or of the rest that is being written."""
        return self.accepted[self.done :]

    @property
    def goes_on_after(self) -> str | None:
        """The last step, if the plan is to go on after it; None if not."""
        return self.parts[-1][0].id if self.fresh and self.fresh[-1].replan else None

    def add(self, part: Part, *, as_list: bool = False) -> PlannedPart:
        """Accept a part and return its steps. Raises `PlanFlaw` for a part that does not fit; the plan is unchanged.

        With `as_list` its output is a JSON list of texts, which a later part runs over.
        """
        if last := self.goes_on_after:
            raise self._flaw(f"nothing may follow {last}, whose replan ends the plan for now")
        if part.role not in self._roles:
            near = nearest(part.role, self._roles)
            hint = f", perhaps {near!r}" if near else ""
            raise self._flaw(f"there is no role {part.role!r}{hint}; roles: {', '.join(self._roles)}")
        if self._reads_named:
            part = self._with_named_reads(part)
        persona, defined = self._persona(part)
        each, inputs = self._things(part.each), self._resolve_all(part.inputs)
        self._check_action(part.action)
        self._check_each(part, each)
        action, foreach = self._action(part), self._list_of(part)
        if each and not any(thing.reads for thing in each) and EACH not in action:
            action = f"{action.rstrip('.')}: {EACH}."
        after = tuple(dict.fromkeys(chain.from_iterable(map(self._waited_for, part.after))))
        steps = list[Step]()
        for number, thing in enumerate(each or (_Thing(),), len(self.steps) + 1):
            reads = inputs if thing.name in inputs else (*thing.reads, *inputs)  # siblings then have one beginning
            if self._reads_named:
                reads = _request_last(reads)
            outputs = tuple(name.replace(EACH, thing.file_name) for name in _outputs(part))
            if not outputs and thing.name and not thing.reads:
                outputs = self._outputs_for(thing, inputs)
            about = action.replace(EACH, thing.name)
            steps.append(self._step(number, part.role, about, reads, foreach, outputs, after, persona, as_list=as_list))
        self._take(steps)
        self.accepted.append(part)
        for one in defined:
            self._personas.take(one)
        return PlannedPart(tuple(steps), part.written, defined)

    def repeats(self, part: Part) -> bool:
        """Return whether a part does the same with the same as an accepted one. A model that writes it is in a loop."""
        if not self._reads_named:
            return False
        read = self._with_named_reads(part)
        same = (one for one in self.accepted if one.action == read.action and one.foreach == read.foreach)
        return any(_all_names(one) == _all_names(read) for one in same)

    def _step(
        self,
        number: int,
        role: str,
        action: str,
        inputs: tuple[str, ...],
        foreach: str | None = None,
        outputs: tuple[str, ...] = (),
        after: tuple[str, ...] = (),
        persona: str | None = None,
        *,
        as_list: bool = False,
    ) -> Step:
        """Return the step with this number. Without `outputs` its output gets a default name."""
        for output in outputs:
            self._check_output(output, inputs)
        depends_on = after + self._awaited({*inputs, foreach}, after)
        fields = {
            "inputs": inputs,
            "depends_on": depends_on,
            "foreach": foreach,
            "persona": persona,
            "output_schema": LIST_OF_TEXTS if as_list else None,
        }
        try:
            step = Step(
                id=f"S{number}",
                actor=role,
                action=action,
                outputs=outputs or (default_output(number, foreach is not None or as_list, self._taken),),
                **{field: value for field, value in fields.items() if value},
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            raise self._flaw(f"{'/'.join(map(str, first['loc']))}: {first['msg']}") from error
        gates = default_gates(step)
        return step.model_copy(update={"gates": gates}) if gates else step

    def _take(self, steps: Sequence[Step]) -> None:
        """Make these steps the next part, if they fit the plan. Raises `PlanFlaw`."""
        try:
            self._check(steps)
        except InvalidTask as error:
            raise self._flaw(error.problems[0].what) from error
        self._keep(tuple(steps))

    def _keep(self, steps: tuple[Step, ...]) -> None:
        self.parts.append(steps)
        self._taken |= with_folders(name for step in steps for name in step.outputs)

    def _persona(self, part: Part) -> tuple[str | None, tuple[PlanPersona, ...]]:
        """Return the name of a part's persona, if it has one, and the persona itself where the part defines it."""
        try:
            match part.persona:
                case None:
                    return None, ()
                case PersonaPart(name=name, text=text):
                    found, defined = self._personas.placed(name, text)
                    return found, () if defined is None else (defined,)
                case str(name):
                    return self._personas.named(name), ()
        except PersonaFlaw as error:
            raise self._flaw(str(error)) from error

    def _check_action(self, action: str) -> None:
        """Refuse an action that only names things and does not say what to do with them."""
        words = [word.strip("\"'`.()[]") for word in re.split(r"[\s,;]+", action)]
        if all(not word or word == EACH.strip("{}") or self._is_name(word) for word in words):
            raise self._flaw(f"its action {action.strip()!r} is only a name: an action says what to do, in a sentence")

    def _is_name(self, word: str) -> bool:
        return (
            word in (EACH, REQUEST_LABEL)
            or word in self._files.files
            or referred_part(word) is not None
            or _FILE_NAME.fullmatch(word) is not None
        )

    def _check_each(self, part: Part, each: tuple["_Thing", ...]) -> None:
        if EACH in part.action and not each:
            raise self._flaw(f"its action speaks of {EACH}, and `each` names nothing")
        if part.output is not None and part.outputs:
            raise self._flaw("it has `output` and `outputs`: the first is for one output, the second for several")
        if each and part.foreach is not None:
            raise self._flaw("it has `each`, for what is known now, and `foreach`, for a list to come")
        if len(each) > MAX_EACH:
            raise self._flaw(f"`each` stands for {len(each):,} steps; at most {MAX_EACH:,}")
        fixed = [name for name in _outputs(part) if EACH not in name]
        if len(each) > 1 and (fixed or part.replan):
            said = "replan" if part.replan else f"the output {fixed[0]!r}"
            raise self._flaw(f"{said} needs a part of one step, and `each` stands for {len(each)}")

    def _with_named_reads(self, part: Part) -> Part:
        """Return the part with inputs for what its action names, and `{each}` where that lists the files of `each`.

        What it reads anyway is not added.
        """
        things = self._things(part.each)
        each = tuple(thing.name for thing in things)
        action = in_place_of_list(part.action, each, EACH) if len(each) > 1 and EACH not in part.action else part.action
        read = chain.from_iterable(thing.reads for thing in things)
        known = {*read, *self._resolve_all(part.inputs), part.foreach}
        files = [file for file in self._files.files if file not in known and names_file(action, file)]
        parts = [name for name in _PART.findall(action) if name not in {*part.inputs, part.foreach}]
        numbers = [name for name in parts if int(name[1:]) <= len(self.parts)]
        added = [name for name in dict.fromkeys([*files, *numbers]) if name not in _outputs(part)]
        return part.model_copy(update={"action": action, "inputs": (*part.inputs, *added)})

    def _check_output(self, output: str, inputs: Sequence[str]) -> None:
        """Refuse the name of something else. A step that reads it writes a new version."""
        if output == REQUEST_LABEL:
            raise self._flaw(f"the output {output!r} is the name of the request")
        if output in inputs:
            return
        if any(output in step.outputs for step in self.steps):
            raise self._flaw(f"the output {output!r} is written by an earlier step already, which it does not read")
        if output in self._files.files:
            raise self._flaw(f"the output {output!r} is the name of a file, which it does not read")

    def _things(self, each: Sequence[str]) -> tuple["_Thing", ...]:
        """Return what the names in `each` stand for: what can be read, or words if one of them is only a word."""
        if all(self._stands_for_something(name) for name in each):
            return tuple(_Thing(name, (name,)) for name in self._resolve_all(each))
        words = [name for name in each if not self._stands_for_something(name, exactly=True)]
        for word in words:
            said = self._request is None or is_said(self._request, word)
            if not said or "*" in word or _FILE_NAME.fullmatch(word):
                raise self._flaw(f"{word!r} is no earlier part, no file and no word of the request")
        read = self._resolve_all([name for name in each if name not in words])
        things = [*(_Thing(name, (name,)) for name in read), *(_Thing(" ".join(word.split())) for word in words)]
        return tuple({thing.name.casefold(): thing for thing in things}.values())

    def _stands_for_something(self, name: str, *, exactly: bool = False) -> bool:
        """Return whether a name stands for what can be read; a stem of a file does not do so `exactly`."""
        if referred_part(name) is not None or name == REQUEST_LABEL or any(name in step.outputs for step in self.steps):
            return True
        files = self._files.find(name)
        return bool(files) and not (exactly and "*" not in name and name not in files)

    def _outputs_for(self, thing: "_Thing", inputs: Sequence[str]) -> tuple[str, ...]:
        """Return the output of the step for a word, which its name shows; none if that name is taken."""
        files = [PurePosixPath(name) for name in inputs if name in self._files.files]
        stem = f"{files[0].stem}." if len(files) == 1 else ""
        ending = files[0].suffix if len(files) == 1 and files[0].suffix in _PROSE_ENDINGS else ".txt"
        name = f"{stem}{thing.file_name}{ending}"
        return (name,) if thing.file_name and name not in self._taken else ()

    def _resolve_all(self, written: Sequence[str]) -> tuple[str, ...]:
        """Return the artifacts, labels and files that the names in a part stand for, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(map(self._resolve, written))))

    def _list_of(self, part: Part) -> str | None:
        """Return the artifact that holds the list of a part with `foreach`."""
        if part.foreach is None:
            return None
        found = self._resolve(part.foreach)
        if found == (REQUEST_LABEL,) or len(found) > 1:
            what = "is none" if found == (REQUEST_LABEL,) else f"stands for {len(found)} outputs"
            raise self._flaw(f"foreach needs a list, and {part.foreach!r} {what}")
        return found[0]

    def _resolve(self, name: str) -> tuple[str, ...]:
        """Return what a name in a part stands for. A part of several steps, or a pattern, stands for several."""
        if (number := referred_part(name)) is not None:
            return tuple(step.outputs[0] for step in self._earlier(name, number))
        if name == REQUEST_LABEL or any(name in step.outputs for step in self.steps):
            return (name,)
        files = self._files.find(name)
        if not files:
            raise self._flaw(f"{name!r} is no earlier part, no file and not {REQUEST_LABEL!r}")
        return files

    def _waited_for(self, name: str) -> tuple[str, ...]:
        if (number := referred_part(name)) is not None:
            return tuple(step.id for step in self._earlier(name, number))
        writer = next((step.id for step in self.steps if name in step.outputs), None)
        if writer is None:
            raise self._flaw(f"it cannot come after {name!r}, which is no earlier part")
        return (writer,)

    def _awaited(self, read: set[str | None], depends_on: tuple[str, ...]) -> tuple[str, ...]:
        """Return the step that the rest of the plan depends on, unless the new step waits for it anyway."""
        finding = [*chain.from_iterable(self.parts[self.done - 1 :])] if self.done else []
        if not finding or any(step.id in depends_on or not read.isdisjoint(step.outputs) for step in finding):
            return ()
        return (finding[0].id,)

    def _earlier(self, name: str, number: int) -> tuple[Step, ...]:
        if number > len(self.parts):
            known = f"; earlier parts: P1 to P{len(self.parts)}" if self.parts else ""
            raise self._flaw(f"{name} is no earlier part{known}")
        return self.parts[number - 1]

    def _action(self, part: Part) -> str:
        """Return the part's action, in which its inputs have the names that they will have in the prompt."""
        reads = {*part.inputs, part.foreach}

        def name_of(match: re.Match[str]) -> str:
            return ", ".join(self._resolve(match[0])) if match[0] in reads else match[0]

        return _PART.sub(name_of, part.action)

    def _flaw(self, what: str) -> PlanFlaw:
        return PlanFlaw(f"P{len(self.parts) + 1}: {what}")


@dataclass(frozen=True, slots=True)
class _Thing:
    """One of the things that a part does something for."""

    name: str = ""
    """What it is called in the action; empty if the part is a single step."""
    reads: tuple[str, ...] = ()
    """What the step reads because of it; nothing for a word."""

    @property
    def file_name(self) -> str:
        """The name in the name of an output."""
        return self.name if self.reads else name_for(self.name)


def _outputs(part: Part) -> tuple[str, ...]:
    return (part.output,) if part.output is not None else part.outputs


def _request_last(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names with the request behind the others: a small model follows what it reads first."""
    return tuple(sorted(names, key=lambda name: name == REQUEST_LABEL))


def _all_names(part: Part) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(part.each), frozenset(part.inputs)


def _part(planned: PlannedPart) -> Part:
    """Return an accepted part in its compact form, which is made up for a step that no model has written."""
    if planned.written:
        return Part.model_validate_json(planned.written)
    (step,) = planned.steps
    return Part.model_construct(
        role=step.actor,
        action=step.action,
        inputs=step.inputs,
        foreach=step.foreach,
        output=step.outputs[0],
        after=step.depends_on,
        persona=step.persona,
    )
