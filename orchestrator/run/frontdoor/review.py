"""Repair the plan of a model against the request, by code, while it is written, and check it when it is complete.

Each part is repaired when it comes, from the request and the earlier parts:

- a part that only reads, repeats or collects is no step: parts that read it read its sources instead;
- a part reads the originals that its action is about, and outputs of other parts only if its action speaks of them;
- a part that writes a file of the request uses the name of that file, and a coder writes programs;
- a part waits for other parts only if it reads what they write.

The last part is held back until another one starts or the plan closes, because it may still have to read a file that no
part has read, or write one that no part has written. So a step starts at most one token later. What code cannot repair
is a flaw.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from orchestrator.registry.options import StepContext
from orchestrator.run.fences import is_program
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.clauses import MAKING, Clause, clauses_of, lost_words, made_by, speaks_of
from orchestrator.run.frontdoor.compact import MAX_ACTION, MAX_READS, Part, PlanFlaw
from orchestrator.run.frontdoor.each_words import EACH, name_for
from orchestrator.run.frontdoor.listed import CODE_ROLES
from orchestrator.run.frontdoor.references import FileNames, names_file, referred_part
from orchestrator.run.frontdoor.request import RequestFiles, changed_programs
from orchestrator.run.frontdoor.words import STOP_WORDS, concept, folded, related, words
from orchestrator.run.planning import Accept
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step

CODER: Final = "coder"

# verbs of actions that make nothing
_FETCHES: Final = frozenset(
    """
    read open load fetch get take collect gather retrieve access receive provide copy repeat pass reread
    lies lese lesen offne lade hole sammle sammeln kopiere wiederhole nimm
    lis lire ouvre charge prends rassemble recueille collecte copie repete recupere
    lee leer abre carga toma recoge reune recopila copia repite obten
    """.split()
)
# objects that such a verb may have, whatever the text is about
_ANYTHING: Final = frozenset(
    """
    content contents data input inputs output outputs result results sentence sentences line lines word words paragraph
    paragraphs version versions full whole entire complete information document documents above previous given provided
    named it them
    inhalt inhalte daten ausgabe ausgaben ergebnis ergebnisse satz satze zeile zeilen wort worter ganze ganzen gesamten
    contenu contenus donnees entree sortie sorties resultat resultats phrase phrases ligne lignes entier
    contenido contenidos datos entrada salida salidas resultado resultados frase frases linea lineas completo
    """.split()
)
_TEXTS: Final = frozenset("text file document note notes page datei fichier texte texto archivo documento".split())
# verbs whose object is still to be found
_FINDS: Final = frozenset(
    """
    compute calculate count determine find name say tell list extract give identify estimate sum show
    berechne zahle bestimme finde nenne sag liste ermittle gib zeig
    calcule compte trouve nomme dis liste donne montre determine
    calcula cuenta encuentra nombra di enumera da muestra determina
    """.split()
)
# the noun after an article, in folded actions
_KNOWN_OBJECT: Final = re.compile(
    r"\b(?:the|this|that|der|die|das|den|dem|des|le|la|les|el|los|las)\s+([^\W\d_]{3,})|\bl['\u2019]([^\W\d_]{3,})"
)
# folded words that refer to outputs without saying what they are
_POINTS_BACK: Final = re.compile(
    r"\b(?:it|them|these|those|this|both|the two|results?|outputs?|answers?|texts|parts|pieces|versions?|above|previous"
    r"|together|combine|merge|join|es(?= (?:in|ins|und|zu|auf|als)\b|[.!]?$)|sie|diese[nmrs]?|beide[nmr]?|ergebniss?e?"
    r"|ausgaben?|fassungen|zusammen|obigen?|verbinde|elles?|ils|ces|les deux|resultats?|sorties?|reponses?|ensemble"
    r"|fusionne|ellos|estos|estas|ambos|ambas|los dos|las dos|resultados?|salidas?|respuestas?|junta|combina)\b"
)


# folded words of actions that are about programs
_OF_CODE: Final = re.compile(
    r"\b(?:functions?|scripts?|programs?|class(?:es)?|modules?|code|tests?|quer(?:y|ies)|sql|regex\w*|python|bash|shell|"
    r"java\w*|typescript|rust|algorithms?|implement\w*|bugs?|debug\w*|refactor\w*|funktion\w*|skripte?|programm\w*|klassen?|"
    r"modul\w*|abfragen?|fonctions?|programmes?|requetes?|funcion(?:es)?|programas?|consultas?|codigo)\b"
)
# folded words that ask something of an earlier result, so the action does not only repeat it
_ASKS: Final = re.compile(
    r"\b(?:when|which|who|whom|where|why|how|whether|if|wann|welche[rsmn]?|wer|wen|wo|warum|wie|ob|quand|quels?|quelles?|qui"
    r"|pourquoi|comment|combien|si|cuando|cual(?:es)?|quien(?:es)?|donde|cuantos?|cuantas?)\b"
)
# folded words of actions that may make a list
_LISTS: Final = re.compile(
    r"\b(?:lists?|find|extract|collect|gather|name|split|divide|identify|get|take|pick|suggest|think|brainstorm|every|all|"
    r"liste|listen?|finde|suche|nenne|sammle|teile|zerlege|ermittle|alle|jede[nrs]?|trouve|releve|extrais|enumere|donne|"
    r"tous|toutes|enumera|saca|busca|extrae|nombra|divide|todos|todas)\b"
)

# folded words for files that the action does not name
_OTHERS: Final = re.compile(
    r"\b(?:others?|both|two|three|files|texts|documents|rest|against|them|these|those"
    r"|(?:each|every) (?:file|text|document)|beide[nr]?|ander[en]+|dateien|texte[n]?|dokumente[n]?|gegen"
    r"|jede[rns]? (?:datei|text|dokument)|autres?|deux|fichiers|textes|contre|chaque (?:fichier|texte)"
    r"|otr[oa]s?|ambos|ambas|archivos|textos|contra|cada (?:archivo|texto))\b"
)


class PlanReview:
    """Takes the parts of one answer of a model, and adds them, repaired, to the plan of a builder."""

    def __init__(
        self,
        request: str,
        files: Sequence[str],
        roles: Sequence[str],
        builder: PlanBuilder,
        accept: Accept,
        step_context: Mapping[str, StepContext] | None = None,
    ) -> None:
        # the answer starts with the parts that the builder has accepted already, which are not taken again
        self.looped = False  # a part has repeated an earlier one, and the plan ends before it
        self._request = request
        self._files, self._names = files, FileNames(files)
        self._roles = roles
        self._builder, self._accept = builder, accept
        self._step_context = step_context or {}
        self._read = RequestFiles.of(request, files)
        self._changed = changed_programs(request, self._read.named, self._read.outputs)
        self._clauses = clauses_of(request)
        self._stands: list[tuple[str, ...]] = [(f"P{number}",) for number in range(1, len(builder.accepted) + 1)]
        # parts that only read, by number in the answer; a `foreach` over its list makes one a step
        self._unplaced: dict[int, Part] = {}
        self._lists: dict[int, str] = {}  # the names of these steps in the plan
        self._last: Part | None = None

    def take(self, part: Part) -> None:
        """Take the next part of the answer. Raises `PlanFlaw` if it does not fit the plan."""
        self._place(as_list=part.foreach is not None and self._is_last(part.foreach))
        number = len(self._stands) + 1
        part = self._renumbered(part)
        if self._only_fetches(part) or self._only_repeats(part):
            self._unplaced[number] = part
            self._stands.append(self._sources_of(part))
            return
        stands = list[str]()
        for piece in self._one_for_each_output(part):
            self._place()
            repaired = self._repaired(piece)
            if self._builder.repeats(repaired):
                self.looped = True
                return
            self._last = repaired
            stands.append(f"P{len(self._builder.accepted) + 1}")
        self._stands.append(tuple(stands))
        if part.replan:
            self._place()

    def next_begins(self) -> None:
        """Add the part that was held back, unless it makes a list, when the next one starts. Raises `PlanFlaw`."""
        # a part that makes a list waits for the whole next part, which may run over the list
        if self._last is not None and not _LISTS.search(folded(self._last.action)):
            self._place()

    def _place(self, *, as_list: bool = False) -> None:
        part, self._last = self._last, None
        if part is not None:
            self._accept(self._builder.add(part, as_list=as_list))

    def _is_last(self, name: str) -> bool:
        # `foreach` needs a part that is one step without a named output
        part = self._last
        if part is None or _outputs(part) or len(self._expanded(part.each)) > 1:
            return False
        return referred_part(name) == len(self._stands) and len(self._stands[-1]) == 1

    def close(self) -> None:
        """Complete the plan at the end of the answer. Raises `PlanFlaw` if something is missing."""
        if self._builder.goes_on_after:
            return
        if self._last is None and not self._builder.fresh and self._unplaced:
            self._close_without_steps()
            return
        if self._last is not None:
            self._last = self._completed(self._last)
        if lacking := self._lacking():
            self._last = None
            raise PlanFlaw("; ".join(lacking))
        self._place()

    def _close_without_steps(self) -> None:
        # a part that only reads is kept if that is what the request asks for
        part = next(reversed(self._unplaced.values()))
        if not self._builder.done and not self._fetches(self._request, ()):
            raise PlanFlaw("no part does what the request asks for: to read or to collect texts is no step")
        if not self._builder.done:
            self._accept(self._builder.add(part))

    def _renumbered(self, part: Part) -> Part:
        # numbers of the answer become numbers of the plan; orders that carry no data are dropped
        changes: dict[str, object] = {"after": ()}
        if part.role in CODE_ROLES:
            changes["replan"] = False  # a program does not decide on the next steps
        if part.foreach is not None:
            changes |= self._list_of(part.foreach)
        for field in ("each", "inputs"):
            if field not in changes:
                names = chain.from_iterable(map(self._standing_for, getattr(part, field)))
                changes[field] = tuple(dict.fromkeys(names))
        action = re.sub(r"\bP[1-9]\d*\b", lambda match: ", ".join(self._standing_for(match[0])), part.action)
        changes["action"] = action if len(action) <= MAX_ACTION else part.action
        return part.model_copy(update=changes)

    def _standing_for(self, name: str) -> tuple[str, ...]:
        number = referred_part(name)
        return self._stands[number - 1] if number is not None and number <= len(self._stands) else (name,)

    def _list_of(self, name: str) -> dict[str, object]:
        # a part that runs over a list has `foreach`; one that runs over several texts has `each`
        number = referred_part(name) or 0
        if (fetching := self._unplaced.get(number)) is not None:
            if len(files := tuple(chain.from_iterable(map(self._files_called, self._sources_of(fetching))))) > 1:
                return {"foreach": None, "each": files}
            if number not in self._lists:
                self._accept(self._builder.add(fetching, as_list=True))
                self._lists[number] = f"P{len(self._builder.accepted)}"
            return {"foreach": self._lists[number]}
        stands = self._standing_for(name)
        if sum(len(self._steps_of(stand)) for stand in stands) > 1:
            return {"foreach": None, "each": stands}
        return {"foreach": next(iter(stands), name)}

    def _files_called(self, name: str) -> tuple[str, ...]:
        return self._names.find(name)

    def _only_fetches(self, part: Part) -> bool:
        if part.foreach is not None or part.replan or part.persona is not None or _outputs(part):
            return False
        return self._fetches(part.action, self._sources_of(part))

    def _only_repeats(self, part: Part) -> bool:
        if part.foreach is not None or part.replan or part.persona is not None or part.each:
            return False
        if _ASKS.search(folded(part.action)):
            return False
        actions = [words(earlier.action) for earlier in self._parts_of(part.inputs)]
        unwritten = self._unwritten()
        if not actions or any(name in part.action or name in _outputs(part) for name in unwritten):
            return False
        product_words = [*chain.from_iterable(actions)]
        spoken = words(_without_names(part.action, (EACH, *self._files, *self._written())))
        verbs = {concept(action[0]) for action in actions if action}
        if not spoken or not (spoken[0] in MAKING or concept(spoken[0]) in verbs):
            return False
        rest = [word for word in spoken if word not in MAKING | _FETCHES | _ANYTHING | STOP_WORDS]
        return all(any(related(word, product) for product in product_words) for word in rest)

    def _written(self) -> set[str]:
        return {name for step in self._builder.steps for name in step.outputs}

    def _sources_of(self, part: Part) -> tuple[str, ...]:
        named = (file for file in self._files if names_file(part.action, file))
        all_parts = (f"P{number}" for number in range(1, len(self._builder.accepted) + 1))
        targets = (name for name in part.each if referred_part(name) is not None or self._files_called(name))
        return tuple(dict.fromkeys((*targets, *part.inputs, *named))) or tuple(all_parts)

    def _fetches(self, action: str, reads: Sequence[str]) -> bool:
        # nothing but to read or to collect what is read
        spoken = words(_without_names(action, (EACH, *self._files, *reads)))
        if not spoken or spoken[0] not in _FETCHES:
            return False
        sources = [*chain.from_iterable(words(PurePosixPath(name).stem) for name in reads), *self._products_of(reads)]
        rest = [word for word in spoken if word not in _FETCHES | _ANYTHING | STOP_WORDS]
        return all(any(related(word, source) for source in sources) for word in rest)

    def _products_of(self, names: Iterable[str]) -> list[str]:
        return [*chain.from_iterable(made_by(part.action) for part in self._parts_of(names))]

    def _parts_of(self, names: Iterable[str]) -> list[Part]:
        accepted = self._builder.accepted
        numbers = (number for name in names if (number := referred_part(name)) is not None)
        return [accepted[number - 1] for number in numbers if number <= len(accepted)]

    def _repaired(self, part: Part) -> Part:
        part = self._with_originals(self._without_unnamed(part))
        read = {name for step in self._read_steps(part) for name in step.outputs} | {*part.inputs}
        if part.output in self._written() - read:  # the right part has written it already
            part = part.model_copy(update={"output": None})
        if not _outputs(part) and not part.replan and len(self._expanded(part.each)) < 2:
            output = self._output_of(part)
            inputs = tuple(dict.fromkeys((*part.inputs, *(name for name in self._changed if name == output))))
            part = part.model_copy(update={"output": output, "inputs": inputs})
        return self._with_context(self._by_right_role(self._with_tested(part)))

    def _with_context(self, part: Part) -> Part:
        match self._step_context.get(part.role, "own"):
            case "own":
                return part
            case "sources":
                # only a part that joins others: an independent one is done best from its own files
                read = {name for step in self._read_steps(part) for name in step.inputs}
                context_files = [file for file in self._files if file in read]
            case "shared":
                context_files = [*(self._read.named or self._names.mentioned(self._request) or self._files)]
        inputs = tuple(dict.fromkeys((*context_files, *part.inputs)))
        return part.model_copy(update={"inputs": inputs}) if len(inputs) <= MAX_READS else part

    def _with_tested(self, part: Part) -> Part:
        # tests read the module that they are for, if the plan writes it
        output = PurePosixPath(part.output or "")
        if not output.stem.startswith("test_") or output.suffix != ".py":
            return part
        module = str(output.with_name(f"{output.stem.removeprefix('test_')}.py"))
        if module not in self._written() or any(module in step.outputs for step in self._read_steps(part)):
            return part
        return part.model_copy(update={"inputs": tuple(dict.fromkeys((*part.inputs, module)))})

    def _read_steps(self, part: Part) -> list[Step]:
        return [step for name in part.inputs for step in self._steps_of(name)]

    def _by_right_role(self, part: Part) -> Part:
        # code is written by a role that writes code, everything else is not
        code = any(map(is_program, _outputs(part)))
        if code and part.role not in CODE_ROLES and CODER in self._roles:
            return part.model_copy(update={"role": CODER})
        other_roles = [role for role in self._roles if role not in CODE_ROLES]
        if not code and part.role in CODE_ROLES and other_roles and not self._is_about_code(part):
            return part.model_copy(update={"role": other_roles[0]})
        return part

    def _is_about_code(self, part: Part) -> bool:
        read = (
            *self._expanded((*part.each, *part.inputs)),
            *(name for step in self._read_steps(part) for name in step.outputs),
        )
        by_coder = any(step.actor in CODE_ROLES for step in self._read_steps(part))
        return by_coder or any(map(is_program, read)) or _OF_CODE.search(folded(part.action)) is not None

    def _without_unnamed(self, part: Part) -> Part:
        # an action that names some of its files is not about the rest
        files = {name: self._files_called(name) for name in part.inputs if len(self._files_called(name)) == 1}
        named = [name for name, (file,) in files.items() if names_file(part.action, file)]
        if not named or len(named) == len(files) or _OTHERS.search(folded(part.action)):
            return part
        spoken = words(_without_names(part.action, self._files))
        unnamed = {name for name, (file,) in files.items() if name not in named and not _is_called(file, spoken)}
        return part.model_copy(update={"inputs": tuple(name for name in part.inputs if name not in unnamed)})

    def _with_originals(self, part: Part) -> Part:
        """Return the part with the originals of outputs that its action does not speak of.

        They replace several outputs, since a part that joins these would only see what is left of the originals. They
        are added to a single output, since the last result may be meant without a name, unless the action names files.
        A check reads both, since it compares them.
        """
        read = [name for name in part.inputs if referred_part(name) is not None]
        steps = self._read_steps(part)
        written = [name for step in steps for name in step.outputs]
        checks = bool(spoken := words(part.action)) and concept(spoken[0]) == "check"
        named = any(names_file(part.action, file) for file in self._files)
        if not steps or (not checks and self._speaks_of(part.action, read, written)):
            return part
        if len(written) == 1 and not checks and not named and self._means_output(part.action, steps[0]):
            return part
        originals = self._originals(written)
        remaining = [name for name in part.inputs if name not in read]
        stay = checks or (len(written) < 2 and not named)
        inputs = tuple(dict.fromkeys((*originals, *remaining, *(read if stay else ()))))
        return part.model_copy(update={"inputs": inputs}) if originals and len(inputs) <= MAX_READS else part

    def _means_output(self, action: str, step: Step) -> bool:
        # the step has read no file, or the action has a known object ("the reply") that is not the name of a file
        files = [name for name in step.inputs if self._files_called(name)]
        stems = [*chain.from_iterable(words(PurePosixPath(name).stem.replace("_", " ")) for name in files)]
        objects = [match[1] or match[2] for match in _KNOWN_OBJECT.finditer(folded(action))]
        meant = (
            word
            for word in objects
            if word not in _ANYTHING | _TEXTS and not any(related(word, stem) for stem in stems)
        )
        finds = bool(spoken := words(action)) and spoken[0] in _FINDS
        return not files or (not finds and any(meant))

    def _speaks_of(self, action: str, read: Sequence[str], written: Sequence[str]) -> bool:
        named = any(name in action for name in (*read, *written))
        return named or bool(_POINTS_BACK.search(folded(action))) or speaks_of(action, self._products_of(read))

    def _steps_of(self, name: str) -> tuple[Step, ...]:
        number = referred_part(name) or 0
        return self._builder.parts[number - 1] if 0 < number <= len(self._builder.parts) else ()

    def _originals(self, written: Iterable[str]) -> tuple[str, ...]:
        # also by way of other outputs
        writers = {name: step for step in self._builder.steps for name in step.outputs}
        visited, queue, originals = set[str](), list(written), list[str]()
        while queue:
            name = queue.pop(0)
            if name in visited:
                continue
            visited.add(name)
            if (step := writers.get(name)) is not None:
                queue[:0] = [*step.inputs, *([step.foreach] if step.foreach else [])]
            elif name != REQUEST_LABEL:
                originals.append(name)
        return tuple(originals)

    def _expanded(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(self._files_called(name) or (name,) for name in names)))

    def _one_for_each_output(self, part: Part) -> list[Part]:
        files, unwritten = self._expanded(part.each), self._may_write(part.action)
        named = [name for name in unwritten if names_file(part.action, name)]
        single = len(files) < 2 and part.foreach is None and not part.replan and not part.outputs
        if len(named) > 1 and single and part.output in (None, *named):
            only = {name: f"{part.action} Write only {name}."[-MAX_ACTION:] for name in named}
            return [part.model_copy(update={"action": action, "output": name}) for name, action in only.items()]
        if len(files) < 2 or _outputs(part):
            return [part]
        outputs = {file: [name for name in unwritten if _is_version(name, file, files)] for file in files}
        if any(len(names) != 1 for names in outputs.values()):
            return [part]
        return [
            part.model_copy(
                update={
                    "each": (),
                    "inputs": tuple(dict.fromkeys((file, *part.inputs))),
                    "action": part.action.replace(EACH, file),
                    "output": names[0],
                }
            )
            for file, names in outputs.items()
        ]

    def _unwritten(self) -> list[str]:
        written = self._written() | set(_outputs(self._last) if self._last is not None else ())
        return [name for name in (*self._read.outputs, *self._changed) if name not in written]

    def _may_write(self, action: str) -> list[str]:
        # programs only if the action says to change them
        ordered = changed_programs(action, self._changed)
        return [name for name in self._unwritten() if name not in self._changed or name in ordered]

    def _output_of(self, part: Part) -> str | None:
        # the file that the action names, or that the request wants of it
        unwritten = self._may_write(part.action)
        if len(changed := [name for name in unwritten if name in self._changed]) == 1:
            return changed[0]
        named = [name for name in unwritten if names_file(part.action, name) and name not in part.inputs]
        named = named or [name for name in self._written_by(part.action) if name not in part.inputs]
        if len(named) == 1:
            return named[0]
        candidates = [name for name in unwritten if self._is_wanted_of(name, part.action)]
        if len(candidates) != 1:
            candidates = _best_named(candidates or unwritten, part.action)
        return candidates[0] if len(candidates) == 1 and not named else None

    def _written_by(self, action: str) -> list[str]:
        outputs = RequestFiles.of(action, self._files).outputs
        return [name for name in outputs if name in self._request and name not in self._written()]

    def _is_wanted_of(self, output: str, action: str) -> bool:
        clause = self._clause_of(output)
        return clause is not None and speaks_of(action, clause.makes)

    def _clause_of(self, output: str) -> Clause | None:
        # the clause that names the output, or the clause before "save it as"
        at = self._request.find(output)
        before = [clause for clause in self._clauses if clause.start <= at]
        return before[-1] if before else None

    def _completed(self, part: Part) -> Part:
        # the last part gets what no part has read, if it reads originals, and what no part has written
        unread = [name for name in self._unread() if name not in self._all_reads(part)]
        if unread and self._may_read(part) and len(part.inputs) + len(unread) <= MAX_READS:
            files = self._expanded(part.each)
            more = "each" if len(files) > 1 and self._listed_together(files, unread) else "inputs"
            part = part.model_copy(update={more: (*(files if more == "each" else part.inputs), *unread)})
        unwritten = [name for name in self._unwritten() if name not in self._changed]
        if not _outputs(part) and len(unwritten) == 1 and len(self._expanded(part.each)) < 2:
            if not any(self._is_wanted_of(unwritten[0], earlier.action) for earlier in self._builder.fresh):
                part = self._by_right_role(part.model_copy(update={"output": unwritten[0]}))
        return part

    def _may_read(self, part: Part) -> bool:
        # not if the part is only about outputs of other parts
        outputs = [name for name in (*part.inputs, part.foreach or "") if referred_part(name) is not None]
        return not outputs or any(self._files_called(name) for name in part.inputs)

    def _listed_together(self, files: Sequence[str], unread: Sequence[str]) -> bool:
        return any({*files, *unread} <= set(listed) for listed in self._names.lists(self._request))

    def _all_reads(self, part: Part) -> set[str]:
        named = {file for file in self._files if names_file(part.action, file)}
        return {*self._expanded((*part.each, *part.inputs)), *named}

    def _unread(self) -> list[str]:
        read = {name for step in self._builder.steps for name in step.inputs}
        if self._last is not None:
            read |= self._all_reads(self._last)
        return [name for name in self._read.named if name not in read]

    def _lacking(self) -> list[str]:
        # the rest of a plan is made for what was found, so it need not read and say everything
        unwritten = self._unwritten()
        unread, lost = ([], ()) if self._builder.done else (self._unread(), self._lost())
        return [
            *([f"no part reads {', '.join(unread)}"] if unread else []),
            *([f"no part has the output {', '.join(unwritten)}"] if unwritten else []),
            *([f"the actions say nothing of {', '.join(lost[:4])}"] if lost else []),
        ]

    def _lost(self) -> tuple[str, ...]:
        parts = [*self._builder.accepted, *([self._last] if self._last is not None else [])]
        if any(REQUEST_LABEL in part.inputs for part in parts):
            return ()
        names = (*self._files, *self._read.outputs)
        return lost_words(self._request, names, (f"{part.action} {' '.join(part.each)}" for part in parts))


def _outputs(part: Part) -> tuple[str, ...]:
    # whether `each` has files or words is not known here, so a name may have either form
    templates = (part.output,) if part.output is not None else part.outputs
    targets = [name for target in part.each for name in (target, name_for(target))]
    return tuple(name.replace(EACH, target) for name in templates for target in (targets if EACH in name else [""]))


def _is_called(file: str, spoken: Sequence[str]) -> bool:
    return any(related(word, term) for word in words(PurePosixPath(file).stem.replace("_", " ")) for term in spoken)


def _without_names(text: str, names: Iterable[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    return re.sub(r"\bP\d+\b", " ", text)


def _best_named(outputs: Sequence[str], action: str) -> list[str]:
    # `test_slug.py` for "Write tests for slug"
    spoken = words(action)
    shares = dict[str, tuple[int, float]]()
    for output in outputs:
        named = [word for word in words(PurePosixPath(output).stem.replace("_", " ")) if word not in STOP_WORDS]
        count = sum(any(related(word, term) for term in spoken) for word in named)
        shares[output] = (count, count / len(named) if named else 0.0)
    best = max(shares.values(), default=(0, 0.0))
    return [output for output, share in shares.items() if share == best and best[0]]


def _is_version(output: str, file: str, files: Sequence[str]) -> bool:
    # `a.de.md` and `a_short.txt` are versions of `a.md`
    stem = folded(PurePosixPath(file).stem)
    name = folded(PurePosixPath(output).name)
    siblings = [folded(PurePosixPath(sibling).stem) for sibling in files if sibling != file]
    return stem in name and not any(len(sibling) > len(stem) and sibling in name for sibling in siblings)
