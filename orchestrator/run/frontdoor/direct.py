"""Answer a request directly, with one step, if no plan can be expected to be better.

Code decides that twice: by the words of the request, before a model is asked for a plan, and by what the plan has
that a direct answer lacks. It reads English, German, French and Spanish. A needless plan only costs its time, and a
direct answer may lose what a plan could bring. So doubtful words count as divisible.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from math import inf
from pathlib import PurePosixPath
from typing import Final

from orchestrator.errors import Problem
from orchestrator.registry.models import LEAST_PLAN_QUALITY, Registry
from orchestrator.run.fences import is_program
from orchestrator.run.frontdoor.references import (
    FileNames,
    default_output,
    definite_words,
    named_in_part,
    names_file,
    with_folders,
)
from orchestrator.run.frontdoor.request import RequestFiles, changed_programs, instruction
from orchestrator.run.frontdoor.wishes import schema_for
from orchestrator.run.frontdoor.words import related, words
from orchestrator.run.gates.planned import default_gates
from orchestrator.run.planning import Accept, PlannedPart, Predict
from orchestrator.task.analysis import PlanAnalysis
from orchestrator.task.events import ModeForecast, Prediction, RoleRates
from orchestrator.task.prediction import PredictedPath, predict_step
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step

FEW_FILES: Final = 10  # up to this many files, a request that mentions none is about all of them

BYTES_PER_TOKEN: Final = 3  # lower bound for most texts; tokens of code and of German are short

CODE_ROLES: Final = ("coder", "architect")  # the roles that write code, first choice first

# longest predicted time of a sequential plan, as a share of a direct answer: each step that passes a text on loses
# something, and most predictions are off by as much
CLEARLY_FASTER: Final = 0.8

# share of correct plans from which steps start before their plan is complete: that saves seconds, and steps of a
# flawed plan cost far more
EARLY_QUALITY: Final = 0.9

_WRITE = (
    r"(?:please|bitte|por favor,?)?\s*(?:write|implement|create|make|give me|fix|schreib\w*|erstell\w*|implementier\w*"
    r"|écri\w*|crée\w*|implément\w*|escrib\w*|crea|implement\w*)\b"
)
_PROGRAMMING_LANGUAGE = (
    r"(?:python|bash|shell|sql|java|javascript|typescript|rust|go|c|ruby|php|perl|lua|kotlin|swift|haskell|scala|html"
    r"|css)"
)
_PROGRAM = (
    r"(?:functions?|scripts?|programs?|class|module|query|funktion\w*|skript|programm|klasse|abfrage|fonction|programme"
    r"|classe|requête|función|programa|clase|consulta)"
)
# requests that start with an order for a program
_WRITES_PROGRAM: Final = re.compile(
    rf"\s*{_WRITE}[^.\n]{{0,40}}(?:\b{_PROGRAMMING_LANGUAGE}[- ]?{_PROGRAM}\b"
    rf"|\b{_PROGRAM}\b[^.\n]{{0,40}}\b{_PROGRAMMING_LANGUAGE}\b)",
    re.IGNORECASE,
)

SHORT: Final = 400  # characters without quoted texts; a longer request may have parts that no pattern here matches

# what the request is about, not what it asks for
_QUOTED = re.compile(r"```.*?```|`[^`]*`|\"[^\"\n]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|(?<!\w)'[^'\n]+'(?!\w)", re.DOTALL)
_FILE_NAME = re.compile(r"[\w./*-]*\.[A-Za-z]\w{0,7}\b")
# starts of questions, which one or two sentences answer whatever they list
_QUESTION = re.compile(
    r"[\s¿]*(?:who|whom|whose|what|when|where|which|why|how|wer|wen|wem|was|wann|wo|welche\w*|warum|wie|qui|que|quand|où"
    r"|quel\w*|pourquoi|comment|combien|quién\w*|qué|cuándo|dónde|cuál\w*|por qué|cómo|cuánt\w*)\b",
    re.IGNORECASE,
)
_AND = r"(?:and|und|et|y|e|as well as|sowie|ainsi que|así como|&)"
_ITEM = r"[^\s,;:.!?()]+(?:\s+[^\s,;:.!?()]+){0,4}?"
# three items or more: `a, b and c`; alternatives (`a, b or c`) are one choice
_LIST = re.compile(rf"{_ITEM}\s*,\s*{_ITEM}\s*,?\s+{_AND}\s+\w", re.IGNORECASE)
# stands before a list of the ingredients of a single result
_WITHIN = re.compile(r"\b(?:with|using|between|mit|aus|zwischen|avec|entre|con|usando)\b", re.IGNORECASE)
# words that show that a list names the attributes of a single result
_ATTRIBUTES = re.compile(
    r"\b(?:json|csv|yaml|table|tabelle|tableau|tabla|fields?|keys?|columns?|felder[n]?|schlüsseln?|spalten?|champs?|clés?"
    r"|colonnes?|campos?|claves?|columnas?|extract|extrahier\w*|extrai\w*|extrae\w*)\b",
    re.IGNORECASE,
)
_LANGUAGE = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|russian|chinese|japanese|arabic|turkish"
    r"|englisch\w*|deutsch\w*|französisch\w*|spanisch\w*|italienisch\w*|portugiesisch\w*|niederländisch\w*|polnisch\w*"
    r"|anglais|allemand|français|espagnol|italien|portugais|néerlandais|polonais"
    r"|inglés|alemán|francés|español|italiano|portugués|holandés|polaco)"
)
_BEFORE_NEXT = r"(?:in(?:to|s)?\s+|en\s+|al?\s+|to\s+|auf\s+|das\s+|l')?"
_LANGUAGES = re.compile(rf"\b{_LANGUAGE}\s*(?:,|{_AND})\s*{_BEFORE_NEXT}{_LANGUAGE}\b", re.IGNORECASE)
_DISTRIBUTIVE = re.compile(
    r"\b(?:each|every|respectively|individually|separately|one by one|for all|both"
    r"|jeweils|jede[nmrs]?|einzeln|getrennt|nacheinander|für alle|beide[nrms]?|je ein\w*|pro \w+"
    r"|chacune?s?|chaque|séparément|respectivement|un par un|une par une|pour (?:tous|toutes)"
    r"|cada|por separado|respectivamente|un[oa] por un[oa]|para tod[oa]s|amb[oa]s"
    r"|per (?:file|line|row|item|chapter|section|paragraph|page|person|function|class))\b"
    r"|\bles deux\b|\bpar (?:fichier|ligne|chapitre|section|paragraphe|page|personne|fonction)\b"
    r"|\bpor (?:archivo|línea|capítulo|sección|párrafo|página|persona|función)\b",
    re.IGNORECASE,
)
_NUMBER = (
    r"(?:[2-9]|[1-9]\d+|two|three|four|five|six|several|different|zwei|drei|vier|fünf|sechs|mehrere|verschiedene"
    r"|deux|trois|quatre|cinq|six|plusieurs|dos|tres|cuatro|cinco|seis|varios|varias)"
)
_VARIANT = (
    r"(?:versions?|variants?|variations?|drafts?|audiences?|languages?|perspectives?|angles?|aspects?|styles?|tones?"
    r"|fassung(?:en)?|varianten?|version(?:en)?|entwürfen?|zielgruppen?|sprachen?|aspekten?|perspektiven?|sichten"
    r"|variantes?|publics?|langues?|points de vue|tons?|brouillons?"
    r"|versiones|públicos?|idiomas?|aspectos?|perspectivas?|borradores|estilos?|tonos?)"
)
_VARIANTS = re.compile(rf"\b{_NUMBER}\s+(?:[\w-]+\s+)?{_VARIANT}\b", re.IGNORECASE)
# may be files of the folder that the request does not name
_PLURAL_FILES = re.compile(
    r"\b(?:files|documents|texts|notes|reports|letters|reviews|dateien|dokumente[n]?|texte[n]?|notizen|berichte[n]?|briefe[n]?"
    r"|fichiers|documents|textes|rapports|lettres|archivos|ficheros|documentos|textos|notas|informes|cartas)\b",
    re.IGNORECASE,
)
_TESTS = re.compile(
    rf"\b(?:{_AND}|with|mit|avec|con|plus)\s+(?:\w+\s+){{0,2}}(?:unit ?tests?|tests?|pruebas?|testfälle\w*)\b",
    re.IGNORECASE,
)
_SECOND_RESULT = re.compile(
    rf"\b{_AND}\s+(?:\w+\s+)?(?:a|an|ein|eine|einen|un|une|una)\s+(?:[\w-]+\s+)?(?:summary|translation|list|table|e-?mail"
    r"|letter|tweet|post|poem|headline|title|outline|checklist|zusammenfassung|übersetzung|liste|tabelle|brief|gedicht"
    r"|überschrift|titel|gliederung|résumé|traduction|tableau|lettre|poème|titre|plan|resumen|traducción|lista|tabla"
    r"|carta|correo|poema|título)\b",
    re.IGNORECASE,
)
_VERB = (
    r"(?:write|translate|summari[sz]e|list|compare|create|draft|explain|describe|extract|classify|check|review|count|find"
    r"|implement|add|make|give|answer|rewrite|fix|generate"
    r"|schreib\w*|übersetz\w*|fass\w*|liste|vergleich\w*|erstell\w*|erklär\w*|beschreib\w*|prüf\w*|zähl\w*|finde"
    r"|écri\w*|rédige\w*|tradui\w*|résume\w*|compare[zr]?|crée\w*|explique\w*|décri\w*|vérifie\w*|trouve\w*"
    r"|escrib\w*|traduc\w*|resum\w*|compar\w*|crea\w*|explic\w*|describ\w*|revis\w*|cuent\w*|encuentr\w*|redact\w*)"
)
_ORDER = re.compile(rf"(?:^|[.!?;\n]\s*)(?:please\s+|bitte\s+|por favor,?\s+)?{_VERB}\b", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+\S", re.MULTILINE)
_NUMBERED = re.compile(r"(?:^|\s)\(?[1-9a-d]\)\s")


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

    def predict(self, rates: Mapping[str, RoleRates], sizes: Mapping[str, int]) -> Prediction:
        """Return what to expect of the step. `sizes` are the bytes of files by name."""
        return predict_step(self.step(), rates, sum(sizes.get(name, 0) for name in self.inputs))

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
    read_files = tuple(file for file in files if file in kind or file in inputs)
    if few and not kind:
        read_files = tuple(files)
    if _fit(read_files, request, sizes, registry, role):
        inputs = read_files
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


def files_of_a_kind(
    request: str, files: Sequence[str], named: Collection[str], *, definite: bool = False
) -> tuple[str, ...]:
    """Return the files that a request speaks of without naming them: "the mails" are `mail_a.md` and `mail_b.md`.

    If some of a kind are `named`, the others are not meant. If none are named, "the files" are all of them. A kind that
    is not `definite` may be one that the request wants written ("a mail").
    """
    text = _QUOTED.sub("TEXT", instruction(request))
    kinds = defaultdict[str, list[str]](list)
    for file in files:
        kinds[re.split(r"[\W\d_]+", PurePosixPath(file).stem.casefold())[0]].append(file)
    several = {kind: group for kind, group in kinds.items() if len(group) > 1 and len(kind) > 2}
    text = _FILE_NAME.sub("FILE", text)
    spoken = definite_words(text) if definite else words(text)
    called = (
        group
        for kind, group in several.items()
        if not set(group) & set(named) and any(related(word, kind) for word in spoken)
    )
    if (group := tuple(chain.from_iterable(called))) or named:
        return group
    return tuple(files) if _PLURAL_FILES.search(text) else ()


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


def parts_in(request: str, *, reads: int, files: int, writes: int) -> str:
    """Return what in a request could be split among steps; empty if nothing could be.

    A direct answer would read `reads` of the `files` files, and the request asks for `writes` files.
    """
    text = instruction(request)
    if len(" ".join(text.split())) > SHORT:
        return "it is long"
    if reads > 1:
        return f"it is about {reads} files"
    if writes > 1:
        return f"it asks for {writes} files"
    text = _FILE_NAME.sub("FILE", _QUOTED.sub("TEXT", text))
    if files > reads and _PLURAL_FILES.search(text):
        return "it may be about several files"
    return next(_signs(text), "")


def _signs(text: str) -> Iterator[str]:
    # `text` has no quotations and no names of files
    if len(_BULLET.findall(text)) > 1 or len(_NUMBERED.findall(text)) > 1:
        yield "it has a list of points"
    if _LANGUAGES.search(text):
        yield "it names several languages"
    if _lists_things(text):
        yield "it lists several things"
    if (match := _DISTRIBUTIVE.search(text)) is not None:
        yield f"it says {match[0]!r}"
    if (match := _VARIANTS.search(text)) is not None:
        yield f"it asks for {match[0]!r}"
    if _TESTS.search(text):
        yield "it asks for tests too"
    if _SECOND_RESULT.search(text):
        yield "it asks for a second result"
    if len(_ORDER.findall(text)) > 1:
        yield "it has several orders"


def _lists_things(text: str) -> bool:
    if _ATTRIBUTES.search(text) or _QUESTION.match(text):
        return False
    clauses = (re.split(r"[.;:!?\n]", text[: match.end()])[-1] for match in _LIST.finditer(text))
    return any(not _WITHIN.search(clause.partition(",")[0]) for clause in clauses)


def _role(registry: Registry, *, code: bool) -> str:
    coders = [name for name in CODE_ROLES if code and name in registry.plan_roles]
    return (*coders, *registry.answering_roles)[0]


def _fit(names: Collection[str], request: str, sizes: Mapping[str, int], registry: Registry, role: str) -> bool:
    context = registry.models[registry.roles[role].model].countable_context
    read = len(request.encode(errors="replace")) + sum(sizes.get(name, inf) for name in names)
    return context is None or read / BYTES_PER_TOKEN <= context / 2


class PlanTrial:
    """Holds parts back until one shows that the plan may be better than the direct answer.

    From then on, if steps may start `early`, each part is handed to `accept` when it comes.
    """

    def __init__(self, direct: DirectAnswer, predict: Predict, accept: Accept, *, early: bool = True) -> None:
        self.kept = False  # whether the plan was preferred
        self._direct, self._predict, self._accept, self._early = direct, predict, accept, early
        self._held: list[PlannedPart] = []
        self._direct_path = predict([direct.step()])

    def __call__(self, part: PlannedPart) -> None:
        """Take the next part of the plan."""
        if self.kept:
            self._accept(part)
            return
        self._held.append(part)
        if self._early and gains(self._steps, self._direct):
            self.keep()

    def keep(self) -> None:
        """Prefer the plan: accept the parts that were held back, and each later one when it comes."""
        self.kept = True
        for part in self._held:
            self._accept(part)
        self._held.clear()

    def drop(self) -> bool:
        """Drop the parts that are held back, for a new plan. Return False if parts were handed on already."""
        if not self.kept:
            self._held.clear()
        return not self.kept

    def why_direct(self) -> str:
        """Return why the complete plan gives way to the direct answer; empty if it stays."""
        if self.kept or gains(self._steps, self._direct):
            return ""
        if len(self._steps) == 1:
            return "the plan has only one step"
        plan, direct = self._predict(self._steps), self._direct_path
        if plan.seconds <= CLEARLY_FASTER * direct.seconds:
            return ""
        return (
            f"the plan's {len(self._steps)} steps wait for each other and only pass texts on: it was predicted to take "
            f"{_expected(plan)}, and a direct answer {_expected(direct)}"
        )

    def forecast(self, steps: Sequence[Step] = ()) -> ModeForecast:
        """Return the predicted seconds of a direct answer, and of these steps or of those that are held."""
        direct, planned = self._direct_path, steps or self._steps
        forecast = ModeForecast(direct_seconds=direct.seconds, direct_assumed=direct.assumed)
        if not planned:
            return forecast
        plan = self._predict(planned)
        return replace(forecast, plan_seconds=plan.seconds, plan_assumed=plan.assumed)

    @property
    def _steps(self) -> list[Step]:
        return [*chain.from_iterable(part.steps for part in self._held)]


def _expected(path: PredictedPath) -> str:
    return f"{path.seconds:.1f} s{' (assumed, no data)' if path.assumed else ''}"


def gains(steps: Sequence[Step], direct: DirectAnswer) -> str:
    """Return what a plan with these steps has that a direct answer lacks; empty for nothing."""
    if any(step.foreach is not None for step in steps):
        return "it runs over a list"
    if any(step.persona is not None for step in steps):
        return "it has a persona"
    graph = PlanAnalysis([REQUEST_LABEL], direct.files).add(steps)
    if graph.width > 1:
        return f"{graph.width} of its steps can run at a time"
    if _wanted_writers(steps, direct.outputs) > 1:
        return "its steps write several of the files that are asked for"
    if any(step.gates for step in steps) and not direct.step().gates:
        return "gates check what it writes"
    return ""


def _wanted_writers(steps: Sequence[Step], names: Collection[str]) -> int:
    return sum(not set(step.outputs).isdisjoint(names) for step in steps)
