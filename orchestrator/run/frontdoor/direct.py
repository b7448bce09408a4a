"""Answer a request directly, with one step, if no plan can be expected to be better."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from pathlib import PurePosixPath
from typing import Final

from orchestrator.errors import Problem
from orchestrator.registry.models import LEAST_PLAN_QUALITY, Registry
from orchestrator.run.frontdoor.changes import changed_programs
from orchestrator.run.frontdoor.divisible import files_of_a_kind, parts_in
from orchestrator.run.frontdoor.listed import is_program
from orchestrator.run.frontdoor.references import FileNames, default_output, named_in_part, names_file, with_folders
from orchestrator.run.frontdoor.request import RequestFiles, instruction
from orchestrator.run.frontdoor.wishes import schema_for
from orchestrator.run.gates.planned import default_gates
from orchestrator.run.planning import PlannedPart
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step

FEW_FILES: Final = 10  # up to this many files, a request that mentions none is about all of them

BYTES_PER_TOKEN: Final = 3  # lower bound for most texts; tokens of code and of German are short

CODE_ROLES: Final = ("coder", "architect")  # the roles that write code, first choice first

_WRITE = (
    r"(?:please|bitte|por favor,?)?\s*(?:write|implement|create|make|give me|fix|schreib\w*|erstell\w*|implementier\w*"
    r"|écri\w*|crée\w*|implément\w*|escrib\w*|crea|implement\w*)\b"
)
_LANGUAGE = (
    r"(?:python|bash|shell|sql|java|javascript|typescript|rust|go|c|ruby|php|perl|lua|kotlin|swift|haskell|scala|html"
    r"|css)"
)
_PROGRAM = (
    r"(?:functions?|scripts?|programs?|class|module|query|funktion\w*|skript|programm|klasse|abfrage|fonction|programme"
    r"|classe|requête|función|programa|clase|consulta)"
)
# requests that start with an order for a program
_WRITES_PROGRAM: Final = re.compile(
    rf"\s*{_WRITE}[^.\n]{{0,40}}(?:\b{_LANGUAGE}[- ]?{_PROGRAM}\b|\b{_PROGRAM}\b[^.\n]{{0,40}}\b{_LANGUAGE}\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectAnswer:
    """The one step that answers a request, before it has a place in a plan."""

    request: str
    role: str
    model: str  # the model of the role
    inputs: tuple[str, ...] = ()  # in the order of the folder
    outputs: tuple[str, ...] = ()  # new files that the request names, and programs that it wants changed
    files: tuple[str, ...] = ()  # all names that the request may refer to

    def step(self, number: int = 1, written: Collection[str] = (), role: str | None = None) -> Step:
        """Return the step with this number; other steps have `written` outputs. `role` replaces the usual role."""
        names_in_use = with_folders([*written, *self.files, REQUEST_LABEL])
        outputs = tuple(name for name in self.outputs if name not in written)
        schema = schema_for(self.request, outputs[0]) if len(outputs) == 1 else None
        fields = {"inputs": self.inputs, "output_schema": schema}
        step = Step(
            id=f"S{number}",
            actor=role or self.role,
            action=self.request,
            outputs=outputs or (default_output(number, False, names_in_use),),
            **{field: value for field, value in fields.items() if value},
        )
        gates = default_gates(step)
        return step.model_copy(update={"gates": gates}) if gates else step

    def part(self, before: Sequence[Step] = ()) -> PlannedPart:
        """Return the step as the next part of a plan with the steps `before`."""
        written = with_folders(name for step in before for name in step.outputs)
        return PlannedPart((self.step(len(before) + 1, written),))


def why_no_direct(registry: Registry) -> Problem | None:
    """Return why this registry cannot answer any request directly, or None."""
    if registry.step_roles:
        return None
    return Problem(f"{registry.path}: roles", "none can do steps", "one of tier B or C at least")


def direct_answer(request: str, files: Sequence[str], sizes: Mapping[str, int], registry: Registry) -> DirectAnswer:
    """Return the step that answers a request directly.

    `files` are the names that the request may refer to, and `sizes` their bytes, if known. The step reads the files
    that the request mentions and those of a kind that it speaks of, or all if it mentions none and there are few. If
    these do not fit into the context of the model, it reads only those that are mentioned. Some role must do steps.
    """
    read, inputs = RequestFiles.of(request, files), mentioned(request, files)
    outputs = (*read.outputs, *changed_programs(request, read.named, read.outputs))
    role = _role(registry, code=any(map(is_program, outputs)) or _WRITES_PROGRAM.match(request) is not None)
    few = not inputs and len(files) <= FEW_FILES
    kind = set(files_of_a_kind(request, files, inputs, definite=few))
    more = tuple(file for file in files if file in kind or file in inputs)
    if few and not kind:
        more = tuple(files)
    if _fit(more, request, sizes, registry, role):
        inputs = more
    model = registry.roles[role].model
    return DirectAnswer(request=request, role=role, model=model, inputs=inputs, outputs=outputs, files=tuple(files))


def mentioned(request: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return the files that a request mentions, in the order of the folder.

    A file is mentioned by its name, in a range, by a pattern, or by a part of its name ("the mail from Keller").
    Without a whole name, stems count too.
    """
    patterns = [word.strip("\"'`.,;:()[]") for word in request.split() if "*" in word]
    matched = {file for pattern in patterns for file in files if fnmatchcase(file, pattern)}
    named = matched.union(RequestFiles.of(request, files).named)
    by_stem = FileNames(files).mentioned(request)
    in_part = named_in_part(instruction(request), files)
    stems = (file for file in by_stem if not names_file(request, file))  # excluded names are not in `named`
    # a stem is often a plain word, but not if it has a digit
    numbered = {file for file in stems if any(map(str.isdigit, PurePosixPath(file).stem))}
    called = {*by_stem, *in_part} if not named else {*named, *numbered, *in_part}
    return tuple(file for file in files if file in called)


def fits(answer: DirectAnswer, sizes: Mapping[str, int], registry: Registry) -> bool:
    """Return whether what a direct answer reads leaves half of the context of its model for the answer."""
    return _fit(answer.inputs, answer.request, sizes, registry, answer.role)


def why_direct(answer: DirectAnswer, plan_quality: float | None) -> str:
    """Return why to answer a request directly, without asking the frontdoor; empty if a plan may be better.

    `plan_quality` is the share of the frontdoor's plans that are correct; None if it has not been measured.
    """
    if not parts_in(answer.request, reads=len(answer.inputs), files=len(answer.files), writes=len(answer.outputs)):
        return "the request has nothing to split"
    if plan_quality is None:
        return "the plans of the frontdoor's model have not been measured"
    if plan_quality < LEAST_PLAN_QUALITY:
        return f"only {plan_quality:.0%} of the frontdoor's plans are right, and {LEAST_PLAN_QUALITY:.0%} are needed"
    return ""


def _role(registry: Registry, *, code: bool) -> str:
    coders = [name for name in CODE_ROLES if code and name in registry.plan_roles]
    return (*coders, *registry.answering_roles)[0]


def _fit(names: Collection[str], request: str, sizes: Mapping[str, int], registry: Registry, role: str) -> bool:
    context = registry.models[registry.roles[role].model].countable_context
    read = len(request.encode(errors="replace")) + sum(sizes.get(name, inf) for name in names)
    return context is None or read / BYTES_PER_TOKEN <= context / 2
