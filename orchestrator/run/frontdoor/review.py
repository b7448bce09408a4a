"""Repair the plan of a model against the request, by code, while it is written, and check it when it is complete.

A part is repaired as it comes, by what is known of the request and of the parts before it:

- a part that only reads, repeats or collects is no step: those that read it read its sources instead;
- a part reads the originals that its action is about, and outputs of others only if its action speaks of them;
- a part that writes a file of the request writes it under its name, and a program is written by a coder;
- a part waits for others only if it reads what they write.

The last part is held back until another one begins or the plan closes: it may still have to read a file that no part
has read, or to write one that no part has written. So a step starts one token later at most. What code cannot repair is
a flaw.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.changes import changed_programs
from orchestrator.run.frontdoor.clauses import MAKING, Clause, clauses_of, made_by, speaks_of
from orchestrator.run.frontdoor.compact import MAX_ACTION, MAX_READS, Part, PlanFlaw
from orchestrator.run.frontdoor.coverage import lost_words
from orchestrator.run.frontdoor.each_words import EACH, name_for
from orchestrator.run.frontdoor.listed import CODE_ROLES, is_program
from orchestrator.run.frontdoor.references import FileNames, names_file, referred_part
from orchestrator.run.frontdoor.request import RequestFiles
from orchestrator.run.frontdoor.words import STOP_WORDS, concept, folded, related, words
from orchestrator.run.planning import Accept
from orchestrator.task.taskir import REQUEST_LABEL, Step
from registry.options import StepContext

CODER: Final = "coder"

_FETCHES: Final = frozenset(
    """
    read open load fetch get take collect gather retrieve access receive provide copy repeat pass reread
    lies lese lesen offne lade hole sammle sammeln kopiere wiederhole nimm
    lis lire ouvre charge prends rassemble recueille collecte copie repete recupere
    lee leer abre carga toma recoge reune recopila copia repite obten
    """.split()
)
"""Verbs of actions that make nothing."""
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
"""Words for what such a verb may have as its object, whatever the text is about."""
_TEXTS: Final = frozenset("text file document note notes page datei fichier texte texto archivo documento".split())
_FINDS: Final = frozenset(
    """
    compute calculate count determine find name say tell list extract give identify estimate sum show
    berechne zahle bestimme finde nenne sag liste ermittle gib zeig
    calcule compte trouve nomme dis liste donne montre determine
    calcula cuenta encuentra nombra di enumera da muestra determina
    """.split()
)
"""Verbs of actions whose object is still to be found."""
_KNOWN_OBJECT: Final = re.compile(
    r"\b(?:the|this|that|der|die|das|den|dem|des|le|la|les|el|los|las)\s+([^\W\d_]{3,})|\bl['\u2019]([^\W\d_]{3,})"
)
"""What stands behind an article, in folded actions."""
_POINTS_BACK: Final = re.compile(
    r"\b(?:it|them|these|those|this|both|the two|results?|outputs?|answers?|texts|parts|pieces|versions?|above|previous"
    r"|together|combine|merge|join|es(?= (?:in|ins|und|zu|auf|als)\b|[.!]?$)|sie|diese[nmrs]?|beide[nmr]?|ergebniss?e?"
    r"|ausgaben?|fassungen|zusammen|obigen?|verbinde|elles?|ils|ces|les deux|resultats?|sorties?|reponses?|ensemble"
    r"|fusionne|ellos|estos|estas|ambos|ambas|los dos|las dos|resultados?|salidas?|respuestas?|junta|combina)\b"
)
"""Folded words by which an action refers to outputs without saying what they are."""


_OF_CODE: Final = re.compile(
    r"\b(?:functions?|scripts?|programs?|class(?:es)?|modules?|code|tests?|quer(?:y|ies)|sql|regex\w*|python|bash|shell|"
    r"java\w*|typescript|rust|algorithms?|implement\w*|bugs?|debug\w*|refactor\w*|funktion\w*|skripte?|programm\w*|klassen?|"
    r"modul\w*|abfragen?|fonctions?|programmes?|requetes?|funcion(?:es)?|programas?|consultas?|codigo)\b"
)
"""Folded words of actions that are about programs."""
_ASKS: Final = re.compile(
    r"\b(?:when|which|who|whom|where|why|how|whether|if|wann|welche[rsmn]?|wer|wen|wo|warum|wie|ob|quand|quels?|quelles?|qui"
    r"|pourquoi|comment|combien|si|cuando|cual(?:es)?|quien(?:es)?|donde|cuantos?|cuantas?)\b"
)
"""Folded words of actions that ask something of what was made, and do not only repeat it."""
_LISTS: Final = re.compile(
    r"\b(?:lists?|find|extract|collect|gather|name|split|divide|identify|get|take|pick|suggest|think|brainstorm|every|all|"
    r"liste|listen?|finde|suche|nenne|sammle|teile|zerlege|ermittle|alle|jede[nrs]?|trouve|releve|extrais|enumere|donne|"
    r"tous|toutes|enumera|saca|busca|extrae|nombra|divide|todos|todas)\b"
)
"""Folded words of actions that may make a list."""

_OTHERS: Final = re.compile(
    r"\b(?:others?|both|two|three|files|texts|documents|rest|against|them|these|those"
    r"|(?:each|every) (?:file|text|document)|beide[nr]?|ander[en]+|dateien|texte[n]?|dokumente[n]?|gegen"
    r"|jede[rns]? (?:datei|text|dokument)|autres?|deux|fichiers|textes|contre|chaque (?:fichier|texte)"
    r"|otr[oa]s?|ambos|ambas|archivos|textos|contra|cada (?:archivo|texto))\b"
)
"""Folded words by which an action may speak of files that it does not name."""


class PlanReview:
    """Takes the parts of one answer of a model, and adds what they should be to the plan of a builder."""

    def __init__(
        self,
        request: str,
        files: Sequence[str],
        roles: Sequence[str],
        builder: PlanBuilder,
        accept: Accept,
        step_context: Mapping[str, StepContext] | None = None,
    ) -> None:
        """The answer begins with the parts that the builder has accepted already, which are not taken again."""
        self.looped = False
        """Whether a part has repeated an earlier one. The plan ends before it."""
        self._request = request
        self._files, self._names = files, FileNames(files)
        self._roles = roles
        self._builder, self._accept = builder, accept
        self._step_context = step_context or {}
        self._read = RequestFiles.of(request, files)
        self._changed = changed_programs(request, self._read.named)
        self._clauses = clauses_of(request)
        self._stands: list[tuple[str, ...]] = [(f"P{number}",) for number in range(1, len(builder.accepted) + 1)]
        self._unplaced: dict[int, Part] = {}
        """The parts that only read, by their number in the answer. One becomes a step if a `foreach` needs its list."""
        self._lists: dict[int, str] = {}
        """What these steps are called in the plan."""
        self._last: Part | None = None

    def take(self, part: Part) -> None:
        """Take the next part of the answer. Raises `PlanFlaw` for a part that does not fit the plan."""
        self._place(as_list=part.foreach is not None and self._is_last(part.foreach))
        number = len(self._stands) + 1
        part = self._renumbered(part)
        if self._only_fetches(part) or self._only_repeats(part):
            self._unplaced[number] = part
            self._stands.append(self._sources_of(part))
            return
        stands = list[str]()
        for one in self._one_for_each_output(part):
            self._place()
            repaired = self._repaired(one)
            if self._builder.repeats(repaired):
                self.looped = True
                return
            self._last = repaired
            stands.append(f"P{len(self._builder.accepted) + 1}")
        self._stands.append(tuple(stands))
        if part.replan:
            self._place()

    def next_begins(self) -> None:
        """Add the part that was held back to the plan, since another one follows. Raises `PlanFlaw`.

        A part that lists something waits for the whole of the next one, which may run over its list.
        """
        if self._last is not None and not _LISTS.search(folded(self._last.action)):
            self._place()

    def _place(self, *, as_list: bool = False) -> None:
        part, self._last = self._last, None
        if part is not None:
            self._accept(self._builder.add(part, as_list=as_list))

    def _is_last(self, name: str) -> bool:
        """Return whether a name stands for the part that was held back, which is one step without a named output."""
        part = self._last
        if part is None or _outputs(part) or len(self._expanded(part.each)) > 1:
            return False
        return referred_part(name) == len(self._stands) and len(self._stands[-1]) == 1

    def close(self) -> None:
        """Complete the plan, of which the answer has no more parts. Raises `PlanFlaw` if something is still lacking."""
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
        """Keep a part that only reads if that is what the request asks for."""
        part = next(reversed(self._unplaced.values()))
        if not self._builder.done and not self._fetches(self._request, ()):
            raise PlanFlaw("no part does what the request asks for: to read or to collect texts is no step")
        if not self._builder.done:
            self._accept(self._builder.add(part))

    def _renumbered(self, part: Part) -> Part:
        """Return the part with names of the plan for the parts of the answer, and without orders that carry no data."""
        changes: dict[str, object] = {"after": ()}
        if part.role in CODE_ROLES:
            changes["replan"] = False  # a program does not decide what the next steps are
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
        """Return the fields of a part that runs once for each item of a list, or for each of several texts."""
        number = referred_part(name) or 0
        if (fetching := self._unplaced.get(number)) is not None:
            if len(files := tuple(chain.from_iterable(map(self._found, self._sources_of(fetching))))) > 1:
                return {"foreach": None, "each": files}
            if number not in self._lists:
                self._accept(self._builder.add(fetching, as_list=True))
                self._lists[number] = f"P{len(self._builder.accepted)}"
            return {"foreach": self._lists[number]}
        stands = self._standing_for(name)
        if sum(len(self._steps_of(one)) for one in stands) > 1:
            return {"foreach": None, "each": stands}
        return {"foreach": next(iter(stands), name)}

    def _found(self, name: str) -> tuple[str, ...]:
        return self._names.find(name)

    def _only_fetches(self, part: Part) -> bool:
        """Return whether a part makes nothing that its sources do not have already."""
        if part.foreach is not None or part.replan or part.persona is not None or _outputs(part):
            return False
        return self._fetches(part.action, self._sources_of(part))

    def _only_repeats(self, part: Part) -> bool:
        """Return whether a part only says again, or saves, what the parts have made that it reads."""
        if part.foreach is not None or part.replan or part.persona is not None or part.each:
            return False
        if _ASKS.search(folded(part.action)):
            return False
        actions = [words(earlier.action) for earlier in self._parts_of(part.inputs)]
        unwritten = self._unwritten()
        if not actions or any(name in part.action or name in _outputs(part) for name in unwritten):
            return False
        made = [*chain.from_iterable(actions)]
        spoken = words(_without_names(part.action, (EACH, *self._files, *self._written())))
        verbs = {concept(action[0]) for action in actions if action}
        if not spoken or not (spoken[0] in MAKING or concept(spoken[0]) in verbs):
            return False
        rest = [word for word in spoken if word not in MAKING | _FETCHES | _ANYTHING | STOP_WORDS]
        return all(any(related(word, other) for other in made) for word in rest)

    def _written(self) -> set[str]:
        return {name for step in self._builder.steps for name in step.outputs}

    def _sources_of(self, part: Part) -> tuple[str, ...]:
        """Return what a part reads that makes nothing of it: without any names, all that was made before."""
        named = (file for file in self._files if names_file(part.action, file))
        made = (f"P{number}" for number in range(1, len(self._builder.accepted) + 1))
        each = (name for name in part.each if referred_part(name) is not None or self._found(name))
        return tuple(dict.fromkeys((*each, *part.inputs, *named))) or tuple(made)

    def _fetches(self, action: str, reads: Sequence[str]) -> bool:
        """Return whether an action says nothing but to read or to collect what is read."""
        spoken = words(_without_names(action, (EACH, *self._files, *reads)))
        if not spoken or spoken[0] not in _FETCHES:
            return False
        sources = [*chain.from_iterable(words(PurePosixPath(name).stem) for name in reads), *self._made(reads)]
        rest = [word for word in spoken if word not in _FETCHES | _ANYTHING | STOP_WORDS]
        return all(any(related(word, source) for source in sources) for word in rest)

    def _made(self, names: Iterable[str]) -> list[str]:
        """Return words for what the parts with these names make."""
        return [*chain.from_iterable(made_by(part.action) for part in self._parts_of(names))]

    def _parts_of(self, names: Iterable[str]) -> list[Part]:
        """Return the parts of the plan that are among these names."""
        accepted = self._builder.accepted
        numbers = (number for name in names if (number := referred_part(name)) is not None)
        return [accepted[number - 1] for number in numbers if number <= len(accepted)]

    def _repaired(self, part: Part) -> Part:
        part = self._with_originals(self._without_unnamed(part))
        read = {name for step in self._read_steps(part) for name in step.outputs} | {*part.inputs}
        if part.output in self._written() - read:  # the part that the request wants it of has it already
            part = part.model_copy(update={"output": None})
        if not _outputs(part) and not part.replan and len(self._expanded(part.each)) < 2:
            output = self._output_of(part)
            inputs = tuple(dict.fromkeys((*part.inputs, *(name for name in self._changed if name == output))))
            part = part.model_copy(update={"output": output, "inputs": inputs})
        return self._with_context(self._by_right_role(self._with_tested(part)))

    def _with_context(self, part: Part) -> Part:
        """Return the part with the files that the model of its role reads next to its own sources."""
        match self._step_context.get(part.role, "own"):
            case "own":
                return part
            case "sources":
                read = {name for step in self._builder.steps for name in step.inputs}
                more = [file for file in self._files if file in read | {*self._expanded(part.each)}]
            case "shared":
                more = [*(self._read.named or self._names.mentioned(self._request) or self._files)]
        inputs = tuple(dict.fromkeys((*more, *part.inputs)))
        return part.model_copy(update={"inputs": inputs}) if len(inputs) <= MAX_READS else part

    def _with_tested(self, part: Part) -> Part:
        """Return a part that writes tests with the module that they are for among its inputs, if it is written."""
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
        """Return the part with a role that writes code if that is what it writes, and only then."""
        code = any(map(is_program, _outputs(part)))
        if code and part.role not in CODE_ROLES and CODER in self._roles:
            return part.model_copy(update={"role": CODER})
        others = [role for role in self._roles if role not in CODE_ROLES]
        if not code and part.role in CODE_ROLES and others and not self._is_about_code(part):
            return part.model_copy(update={"role": others[0]})
        return part

    def _is_about_code(self, part: Part) -> bool:
        """Return whether a part speaks of programs, or reads some."""
        read = (
            *self._expanded((*part.each, *part.inputs)),
            *(name for step in self._read_steps(part) for name in step.outputs),
        )
        by_coder = any(step.actor in CODE_ROLES for step in self._read_steps(part))
        return by_coder or any(map(is_program, read)) or _OF_CODE.search(folded(part.action)) is not None

    def _without_unnamed(self, part: Part) -> Part:
        """Return the part without files that its action is not about, if it names others of its files."""
        files = {name: self._found(name) for name in part.inputs if len(self._found(name)) == 1}
        named = [name for name, (file,) in files.items() if names_file(part.action, file)]
        if not named or len(named) == len(files) or _OTHERS.search(folded(part.action)):
            return part
        spoken = words(_without_names(part.action, self._files))
        unnamed = {name for name, (file,) in files.items() if name not in named and not _is_called(file, spoken)}
        return part.model_copy(update={"inputs": tuple(name for name in part.inputs if name not in unnamed)})

    def _with_originals(self, part: Part) -> Part:
        """Return the part with the originals of outputs that its action does not speak of.

        They replace several outputs, since one that joins them would see what was left of the originals. Next to a
        single output they are added, since what was made last may be meant without being named, unless the action
        names files. A check reads both, since it compares what was made with what it was made from.
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
        others = [name for name in part.inputs if name not in read]
        stay = checks or (len(written) < 2 and not named)
        inputs = tuple(dict.fromkeys((*originals, *others, *(read if stay else ()))))
        return part.model_copy(update={"inputs": inputs}) if originals and len(inputs) <= MAX_READS else part

    def _means_output(self, action: str, step: Step) -> bool:
        """Return whether an action without the name of a file means what a step has made, and not what that has read.

        So it is if the step has read no file itself, or if the action has an object that is known by then, such as "the
        reply", and that no file is called.
        """
        files = [name for name in step.inputs if self._found(name)]
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
        return named or bool(_POINTS_BACK.search(folded(action))) or speaks_of(action, self._made(read))

    def _steps_of(self, name: str) -> tuple[Step, ...]:
        number = referred_part(name) or 0
        return self._builder.parts[number - 1] if 0 < number <= len(self._builder.parts) else ()

    def _originals(self, written: Iterable[str]) -> tuple[str, ...]:
        """Return the files that these outputs were made from, also by way of other outputs, in their order."""
        writers = {name: step for step in self._builder.steps for name in step.outputs}
        seen, left, found = set[str](), list(written), list[str]()
        while left:
            name = left.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if (step := writers.get(name)) is not None:
                left[:0] = [*step.inputs, *([step.foreach] if step.foreach else [])]
            elif name != REQUEST_LABEL:
                found.append(name)
        return tuple(found)

    def _expanded(self, each: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(self._found(name) or (name,) for name in each)))

    def _one_for_each_output(self, part: Part) -> list[Part]:
        """Return one part for each output of the request that the part is to write; the part itself if that is one."""
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
        """Return the files that a part with this action may write. It writes a program only if it says to change it."""
        ordered = changed_programs(action, self._changed)
        return [name for name in self._unwritten() if name not in self._changed or name in ordered]

    def _output_of(self, part: Part) -> str | None:
        """Return the file of the request that a part writes: one that its action names, or that is wanted of it."""
        unwritten = self._may_write(part.action)
        if len(changed := [name for name in unwritten if name in self._changed]) == 1:
            return changed[0]
        named = [name for name in unwritten if names_file(part.action, name) and name not in part.inputs]
        named = named or [name for name in self._written_by(part.action) if name not in part.inputs]
        if len(named) == 1:
            return named[0]
        wanted = [name for name in unwritten if self._is_wanted_of(name, part.action)]
        if len(wanted) != 1:
            wanted = _best_named(wanted or unwritten, part.action)
        return wanted[0] if len(wanted) == 1 and not named else None

    def _written_by(self, action: str) -> list[str]:
        """Return the files that an action certainly writes, of those that the request speaks of."""
        outputs = RequestFiles.of(action, self._files).outputs
        return [name for name in outputs if name in self._request and name not in self._written()]

    def _is_wanted_of(self, output: str, action: str) -> bool:
        clause = self._clause_of(output)
        return clause is not None and speaks_of(action, clause.makes)

    def _clause_of(self, output: str) -> Clause | None:
        """Return the clause that makes an output: the one that it is named in, or the one before "save it as"."""
        at = self._request.find(output)
        before = [clause for clause in self._clauses if clause.start <= at]
        return before[-1] if before else None

    def _completed(self, part: Part) -> Part:
        """Return the last part with what no part has read, if it reads originals, and with what no part has written."""
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
        """Return whether files can be added to what a part reads: not if it is only about outputs of others."""
        outputs = [name for name in (*part.inputs, part.foreach or "") if referred_part(name) is not None]
        return not outputs or any(self._found(name) for name in part.inputs)

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
        """Return what the plan lacks. The rest of one need not read and say all, as it is made for what was found."""
        unwritten = self._unwritten()
        unread, lost = ([], ()) if self._builder.done else (self._unread(), self._lost())
        return [
            *([f"no part reads {', '.join(unread)}"] if unread else []),
            *([f"no part has the output {', '.join(unwritten)}"] if unwritten else []),
            *([f"the actions say nothing of {', '.join(lost[:4])}"] if lost else []),
        ]

    def _lost(self) -> tuple[str, ...]:
        """Return words of the request that no action has, if the plan has lost what it says, and no step reads it."""
        parts = [*self._builder.accepted, *([self._last] if self._last is not None else [])]
        if any(REQUEST_LABEL in part.inputs for part in parts):
            return ()
        names = (*self._files, *self._read.outputs)
        return lost_words(self._request, names, (f"{part.action} {' '.join(part.each)}" for part in parts))


def _outputs(part: Part) -> tuple[str, ...]:
    """Return the names of what a part writes, as far as it says them; one for each of its things if they differ."""
    said = (part.output,) if part.output is not None else part.outputs
    things = [name for thing in part.each for name in (thing, name_for(thing))]
    return tuple(name.replace(EACH, thing) for name in said for thing in (things if EACH in name else [""]))


def _is_called(file: str, spoken: Sequence[str]) -> bool:
    """Return whether a text with these words speaks of a file by a word of its name."""
    return any(related(word, other) for word in words(PurePosixPath(file).stem.replace("_", " ")) for other in spoken)


def _without_names(text: str, names: Iterable[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    return re.sub(r"\bP\d+\b", " ", text)


def _best_named(outputs: Sequence[str], action: str) -> list[str]:
    """Return the outputs with the most words of their names in an action: `test_slug.py` for "Write tests for slug"."""
    spoken = words(action)
    shares = dict[str, tuple[int, float]]()
    for output in outputs:
        named = [word for word in words(PurePosixPath(output).stem.replace("_", " ")) if word not in STOP_WORDS]
        count = sum(any(related(word, other) for other in spoken) for word in named)
        shares[output] = (count, count / len(named) if named else 0.0)
    best = max(shares.values(), default=(0, 0.0))
    return [output for output, share in shares.items() if share == best and best[0]]


def _is_version(output: str, file: str, files: Sequence[str]) -> bool:
    """Return whether an output is named after this one of several files: `a.de.md` or `a_short.txt` after `a.md`."""
    stem = folded(PurePosixPath(file).stem)
    name = folded(PurePosixPath(output).name)
    others = [folded(PurePosixPath(other).stem) for other in files if other != file]
    return stem in name and not any(len(other) > len(stem) and other in name for other in others)
