"""Turn the parts of a plan into steps of a TaskIR, one part at a time; each is checked against the earlier ones."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from orchestrator.registry.persona import Persona
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
from orchestrator.run.frontdoor.wishes import schema_for
from orchestrator.run.gates.planned import default_gates
from orchestrator.run.planning import CheckSteps, PlannedPart
from orchestrator.run.steps.foreach import LIST_OF_TEXTS
from orchestrator.task.analysis import PlanAnalysis
from orchestrator.task.events import PlanPersona
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.problems import InvalidTask, nearest

# a word that can only be the name of a file or a pattern
_FILE_NAME = re.compile(r"[\w./*{}-]*\.[A-Za-z][A-Za-z0-9]{0,4}")
_PART = re.compile(r"\bP[1-9][0-9]{0,5}\b")

_PROSE_ENDINGS: Final = frozenset((".md", ".txt", ".rst", ".html", ".tex", ".adoc"))

MAX_EACH = 1000  # steps that one part may stand for


class PlanBuilder:
    """Builds the steps of a plan part by part. Accepted parts never change, and a part can only name earlier parts.

    `known` are parts that were accepted before. If the first `done` of them are finished, only the rest of the plan is
    written, and each of its steps waits for the last finished part. `check` is as in `PlanContext`. `personas` are
    those of the registry. With `reads_named`, a step also reads the files (by whole name) and the earlier parts that
    its action names. If `request` is given, words in `each` must be words of it.
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
        self._personas = PlanPersonas(personas or {}, [persona for planned in known for persona in planned.personas])
        analysis = PlanAnalysis([REQUEST_LABEL], files)
        self._check = check or analysis.add
        for planned in known:
            if check is None:
                analysis.add(planned.steps)
            self._keep(planned.steps)

    @property
    def steps(self) -> list[Step]:
        return [*chain.from_iterable(self.parts)]

    @property
    def fresh(self) -> list[Part]:
        """Accepted parts that are not `done`."""
        return self.accepted[self.done :]

    @property
    def goes_on_after(self) -> str | None:
        """Id of the last step if the plan continues after it (`replan`), else None."""
        return self.parts[-1][0].id if self.fresh and self.fresh[-1].replan else None

    def add(self, part: Part, *, as_list: bool = False) -> PlannedPart:
        """Accept a part and return its steps. Raises `PlanFlaw` if it does not fit; the plan is then unchanged.

        With `as_list`, its output is a JSON list of texts that a later part runs over.
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
        targets, inputs = self._targets(part.each), self._resolve_all(part.inputs)
        self._check_action(part.action)
        self._check_each(part, targets)
        action, foreach = self._action(part), self._list_of(part)
        if targets and not any(target.reads for target in targets) and EACH not in action:
            action = f"{action.rstrip('.')}: {EACH}."
        after = tuple(dict.fromkeys(chain.from_iterable(map(self._waited_for, part.after))))
        steps = list[Step]()
        for number, target in enumerate(targets or (_Thing(),), len(self.steps) + 1):
            reads = inputs if target.name in inputs else (*target.reads, *inputs)  # siblings share a prompt prefix
            if self._reads_named:
                reads = _request_last(reads)
            outputs = tuple(name.replace(EACH, target.file_name) for name in _outputs(part))
            if not outputs and target.name and not target.reads:
                outputs = self._outputs_for(target, inputs)
            about = action.replace(EACH, target.name)
            steps.append(self._step(number, part.role, about, reads, foreach, outputs, after, persona, as_list=as_list))
        self._take(steps)
        self.accepted.append(part)
        for definition in defined:
            self._personas.take(definition)
        return PlannedPart(tuple(steps), part.written, defined)

    def repeats(self, part: Part) -> bool:
        """Return whether an accepted part has the same action and inputs, which means that the model is in a loop."""
        if not self._reads_named:
            return False
        read = self._with_named_reads(part)
        same = (
            earlier for earlier in self.accepted if earlier.action == read.action and earlier.foreach == read.foreach
        )
        return any(_all_names(earlier) == _all_names(read) for earlier in same)

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
        for output in outputs:
            self._check_output(output, inputs)
        schema = schema_for(self._request or "", outputs[0]) if len(outputs) == 1 and foreach is None else None
        depends_on = after + self._awaited({*inputs, foreach}, after)
        fields = {
            "inputs": inputs,
            "depends_on": depends_on,
            "foreach": foreach,
            "persona": persona,
            "output_schema": LIST_OF_TEXTS if as_list else schema,
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
        try:
            self._check(steps)
        except InvalidTask as error:
            raise self._flaw(error.problems[0].what) from error
        self._keep(tuple(steps))

    def _keep(self, steps: tuple[Step, ...]) -> None:
        self.parts.append(steps)
        self._taken |= with_folders(name for step in steps for name in step.outputs)

    def _persona(self, part: Part) -> tuple[str | None, tuple[PlanPersona, ...]]:
        # the name of the part's persona, and its definition if the part defines a new one
        try:
            match part.persona:
                case None:
                    return None, ()
                case PersonaPart(name=name, text=text):
                    placed_name, defined = self._personas.placed(name, text)
                    return placed_name, () if defined is None else (defined,)
                case str(name):
                    return self._personas.named(name), ()
        except PersonaFlaw as error:
            raise self._flaw(str(error)) from error

    def _check_action(self, action: str) -> None:
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

    def _check_each(self, part: Part, targets: tuple["_Thing", ...]) -> None:
        if EACH in part.action and not targets:
            raise self._flaw(f"its action speaks of {EACH}, and `each` names nothing")
        if part.output is not None and part.outputs:
            raise self._flaw("it has `output` and `outputs`: the first is for one output, the second for several")
        if targets and part.foreach is not None:
            raise self._flaw("it has `each`, for what is known now, and `foreach`, for a list to come")
        if len(targets) > MAX_EACH:
            raise self._flaw(f"`each` stands for {len(targets):,} steps; at most {MAX_EACH:,}")
        fixed = [name for name in _outputs(part) if EACH not in name]
        if len(targets) > 1 and (fixed or part.replan):
            subject = "replan" if part.replan else f"the output {fixed[0]!r}"
            raise self._flaw(f"{subject} needs a part of one step, and `each` stands for {len(targets)}")

    def _with_named_reads(self, part: Part) -> Part:
        targets = self._targets(part.each)
        names = tuple(target.name for target in targets)
        # an action that lists the files of `each` is about one of them at a time
        action = (
            in_place_of_list(part.action, names, EACH) if len(names) > 1 and EACH not in part.action else part.action
        )
        read = chain.from_iterable(target.reads for target in targets)
        already_read = {*read, *self._resolve_all(part.inputs), part.foreach}
        files = [file for file in self._files.files if file not in already_read and names_file(action, file)]
        parts = [name for name in _PART.findall(action) if name not in {*part.inputs, part.foreach}]
        numbers = [name for name in parts if int(name[1:]) <= len(self.parts)]
        added = [name for name in dict.fromkeys([*files, *numbers]) if name not in _outputs(part)]
        return part.model_copy(update={"action": action, "inputs": (*part.inputs, *added)})

    def _check_output(self, output: str, inputs: Sequence[str]) -> None:
        if output == REQUEST_LABEL:
            raise self._flaw(f"the output {output!r} is the name of the request")
        # the step writes a new version of what it reads
        if output in inputs:
            return
        if any(output in step.outputs for step in self.steps):
            raise self._flaw(f"the output {output!r} is written by an earlier step already, which it does not read")
        if output in self._files.files:
            raise self._flaw(f"the output {output!r} is the name of a file, which it does not read")

    def _targets(self, names: Sequence[str]) -> tuple["_Thing", ...]:
        if all(self._stands_for_something(name) for name in names):
            return tuple(_Thing(name, (name,)) for name in self._resolve_all(names))
        # at least one name is only a word, so the stem of a file is taken for a word too
        words = [name for name in names if not self._stands_for_something(name, exactly=True)]
        for word in words:
            in_request = self._request is None or is_said(self._request, word)
            if not in_request or "*" in word or _FILE_NAME.fullmatch(word):
                raise self._flaw(f"{word!r} is no earlier part, no file and no word of the request")
        read = self._resolve_all([name for name in names if name not in words])
        targets = [*(_Thing(name, (name,)) for name in read), *(_Thing(" ".join(word.split())) for word in words)]
        return tuple({target.name.casefold(): target for target in targets}.values())

    def _stands_for_something(self, name: str, *, exactly: bool = False) -> bool:
        # `exactly`: the stem of a file does not count
        if referred_part(name) is not None or name == REQUEST_LABEL or any(name in step.outputs for step in self.steps):
            return True
        files = self._files.find(name)
        return bool(files) and not (exactly and "*" not in name and name not in files)

    def _outputs_for(self, target: "_Thing", inputs: Sequence[str]) -> tuple[str, ...]:
        files = [PurePosixPath(name) for name in inputs if name in self._files.files]
        stem = f"{files[0].stem}." if len(files) == 1 else ""
        ending = files[0].suffix if len(files) == 1 and files[0].suffix in _PROSE_ENDINGS else ".txt"
        name = f"{stem}{target.file_name}{ending}"
        return (name,) if target.file_name and name not in self._taken else ()

    def _resolve_all(self, written: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(map(self._resolve, written))))

    def _list_of(self, part: Part) -> str | None:
        if part.foreach is None:
            return None
        artifacts = self._resolve(part.foreach)
        if artifacts == (REQUEST_LABEL,) or len(artifacts) > 1:
            problem = "is none" if artifacts == (REQUEST_LABEL,) else f"stands for {len(artifacts)} outputs"
            raise self._flaw(f"foreach needs a list, and {part.foreach!r} {problem}")
        return artifacts[0]

    def _resolve(self, name: str) -> tuple[str, ...]:
        # a part of several steps, or a pattern, stands for several artifacts
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
        # the rest of a plan depends on what the last finished part found
        finding = [*chain.from_iterable(self.parts[self.done - 1 :])] if self.done else []
        if not finding or any(step.id in depends_on or not read.isdisjoint(step.outputs) for step in finding):
            return ()
        return (finding[0].id,)

    def _earlier(self, name: str, number: int) -> tuple[Step, ...]:
        if number > len(self.parts):
            hint = f"; earlier parts: P1 to P{len(self.parts)}" if self.parts else ""
            raise self._flaw(f"{name} is no earlier part{hint}")
        return self.parts[number - 1]

    def _action(self, part: Part) -> str:
        # a prompt shows inputs by the names of their artifacts, not as P1
        reads = {*part.inputs, part.foreach}

        def name_of(match: re.Match[str]) -> str:
            return ", ".join(self._resolve(match[0])) if match[0] in reads else match[0]

        return _PART.sub(name_of, part.action)

    def _flaw(self, problem: str) -> PlanFlaw:
        return PlanFlaw(f"P{len(self.parts) + 1}: {problem}")


@dataclass(frozen=True, slots=True)
class _Thing:
    """What one step of a part is about: a file, an output or a word."""

    name: str = ""  # as the action calls it; empty if the part is a single step
    reads: tuple[str, ...] = ()  # empty for a word

    @property
    def file_name(self) -> str:
        return self.name if self.reads else name_for(self.name)


def _outputs(part: Part) -> tuple[str, ...]:
    return (part.output,) if part.output is not None else part.outputs


def _request_last(names: tuple[str, ...]) -> tuple[str, ...]:
    # a small model follows what it reads first
    return tuple(sorted(names, key=lambda name: name == REQUEST_LABEL))


def _all_names(part: Part) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(part.each), frozenset(part.inputs)


def _part(planned: PlannedPart) -> Part:
    if planned.written:
        return Part.model_validate_json(planned.written)
    # no model has written this step, so its compact form is derived from it
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
