"""Compare an answer with its request, by code: say what speaks against it, and correct what leaves nothing to choose.

A doubt has to be certain: a doubt about a correct answer costs more trust than a wrong answer without one. Some doubts
have the text without what is wrong. A model that is asked again mostly makes the same mistake, and code takes no time.
The user is told what was changed.
"""

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.fences import is_program
from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.forms import FENCED, READ_BYTES, ListForm, about_form, is_json, only_list
from orchestrator.run.frontdoor.references import names_file
from orchestrator.run.frontdoor.request import RequestFiles, instruction
from orchestrator.run.frontdoor.sources import LANGUAGE_SUFFIX, PROSE, about_replies, about_sources, in_sentence
from orchestrator.run.frontdoor.tables import about_tables
from orchestrator.run.frontdoor.wishes import (
    LANGUAGE_NAMES,
    Wishes,
    has_words_of,
    language_of,
    languages_wanted,
    names_language,
    schema_for,
)
from orchestrator.run.frontdoor.words import LEAST_COMMON, folded, related, words

ALIKE: Final = 0.9  # share of words in common, in the same order, that makes two texts the same
MOST_COMPARED: Final = 500  # words of each text that are compared
MOST_CORRECTIONS: Final = 8
_LEAST_PROSE: Final = 12  # the language of an answer with fewer words is not doubted


def doubts(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> tuple[Doubt, ...]:
    """Return what speaks against an answer; nothing if it may be correct. `files` existed before the run."""
    all_doubts = list(_about_files(request, files, answer))
    for name, text in answer.outputs.items():
        if len(text) <= READ_BYTES:
            all_doubts += _about_output(request, name, text, answer)
    all_doubts += _about_twins(request, answer, {doubt.output for doubt in all_doubts})
    all_doubts += _about_lines(request, answer)
    all_doubts += _about_left_out(request, answer)
    all_doubts += _about_names(request, answer)
    all_doubts += about_replies(request, answer)
    all_doubts += _about_mentions(request, answer)
    all_doubts += _about_empty_files(request, answer)
    all_doubts += about_tables(answer)
    if not all_doubts:
        all_doubts += about_form(Wishes.of(request), RequestFiles.of(request, files).outputs, answer)
    if not all_doubts:
        all_doubts += _about_language(request, answer)
    return (*all_doubts, *_about_words(request, files, answer))


@dataclass(frozen=True, slots=True)
class CorrectedAnswer:
    """An answer after its corrections, none of which may have been possible."""

    answer: WrittenAnswer
    doubts: tuple[Doubt, ...]  # about the corrected answer
    solved: tuple[Doubt, ...] = ()  # by the corrections, in their order


def corrected(
    request: str, files: tuple[str, ...], answer: WrittenAnswer, changeable: Collection[str]
) -> CorrectedAnswer:
    """Return an answer with the corrections of its doubts, in the outputs that are `changeable`.

    A correction stands if it ends its doubt and there are not more than before. `files` are as in `doubts`.
    """
    latest = CorrectedAnswer(answer, doubts(request, files, answer))
    for _ in range(MOST_CORRECTIONS):
        options = (_with_correction(request, files, latest, doubt, changeable) for doubt in latest.doubts)
        better = next(filter(None, options), None)
        if better is None:
            break
        latest = better
    return latest


def _with_correction(
    request: str, files: tuple[str, ...], before: CorrectedAnswer, doubt: Doubt, changeable: Collection[str]
) -> CorrectedAnswer | None:
    if doubt.corrected is None or doubt.output is None or doubt.output not in changeable:
        return None
    changed = {doubt.output: doubt.corrected}
    outputs, written = before.answer.outputs, before.answer.written
    answer = replace(before.answer, outputs={**outputs, **changed}, written={**written, **changed})
    remaining = doubts(request, files, answer)
    ended = doubt.text not in [other.text for other in remaining] and len(remaining) <= len(before.doubts)
    return CorrectedAnswer(answer, remaining, (*before.solved, doubt)) if ended else None


def _about_files(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> Iterator[Doubt]:
    # files that the request certainly wants: missing, or not of their type
    for name in RequestFiles.of(request, files).outputs:
        text = answer.written.get(name)
        if text is None:
            if not any(PurePosixPath(output).name == PurePosixPath(name).name for output in answer.written):
                yield Doubt(f"You asked for {name}; no step has written it.")
        elif len(text) <= READ_BYTES and text.strip() and (problem := unreadable(name, text) or _wrapped(name, text)):
            yield Doubt(f"{name} {problem}.", name)
        elif schema_for(request, name) and is_json(text) and text.lstrip().startswith("{"):
            yield Doubt(f"You asked for a list in {name}; it is an object.", name, only_list(text))


_TELLS = re.compile(
    r"\btell (?:me|us)\b(?! (?:when|once|if) (?:you|it|that)\b)|"
    r"\b(?:sag|sagt|sagen sie|verrat|nenn|nenne) (?:mir|uns)\b|"
    r"\b(?:dis|dites)[- ](?:moi|nous)\b|\b(?:dime|dinos|digame)\b"
)


def _about_words(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> Iterator[Doubt]:
    # what the request wants to be told, when the answer has nothing but files that it names; no repair of one adds it
    names = {PurePosixPath(name).name for name in RequestFiles.of(request, files).outputs}
    if _TELLS.search(folded(instruction(request))) and {PurePosixPath(name).name for name in answer.outputs} <= names:
        yield Doubt("You also asked to be told something; the answer has only files.")


def unreadable(name: str, text: str) -> str:
    """Return why a file of data cannot be read, as the end of a sentence about it; empty if it can, or is none."""
    try:
        match PurePosixPath(name).suffix.lower():
            case ".json":
                json.loads(text)
            case ".toml":
                tomllib.loads(text)
            case ".csv":
                if len({len(row) for row in csv.reader(io.StringIO(text.strip())) if row}) > 1:
                    return "has rows with different numbers of columns"
    except (ValueError, RecursionError, csv.Error) as error:
        return f"is not {PurePosixPath(name).suffix[1:].upper()}: {str(error).splitlines()[0][:100]}"
    return ""


_PREAMBLE = re.compile(
    r"\s*(?:sure|certainly|of course|okay|here(?: is| are|'s)|gerne|naturlich|hier (?:ist|sind)|bien sur|voici|claro|"
    r"por supuesto|aqui (?:esta|tiene))\b[^\n]*\n"
)


def _wrapped(name: str, text: str) -> str:
    if PurePosixPath(name).suffix in PROSE and _PREAMBLE.match(folded(text)) and FENCED.search(text):
        return "has words to you around its content"
    return ""


_DONE: Final = frozenset(
    "done|ok|okay|sure|finished|completed|task completed|task is done|the task is completed|the task is done|n/a|none|"
    "null|todo|tbd|fertig|erledigt|gemacht|fait|termine|c'est fait|hecho|listo|terminado".split("|")
)
_MAY_BE_EMPTY = re.compile(
    r"\b(?:draw|lines?|dash\w*|stars?|pattern|empty|zeichne|linien?|leere?n?|dessine|ligne|vide|dibuja|linea|vacio)\b|"
    r"__init__\.py|\.gitkeep"
)
_WANTS_A_WORD = re.compile(r"\?|\b(?:whether|if|words?|yes|done|ok|wort|ob|ja|mots?|oui|palabras?|si)\b")
_REFUSAL = re.compile(
    r"\s*(?:i['\u2019]?m sorry|i am sorry|sorry|i apologi[sz]e|unfortunately|as an ai|es tut mir leid|tut mir leid|"
    r"leider|je suis desolee?|desolee?|malheureusement|lo siento|lamentablemente)\b.{0,120}?\b(?:can['\u2019]?t|cannot|"
    r"can not|unable|not able|don['\u2019]?t have|do not have|kann (?:ich )?\w* ?\w* ?nicht|keinen zugriff|ne peux pas|"
    r"n['\u2019]ai pas acces|"
    r"no puedo|no tengo acceso)\b",
    re.DOTALL,
)
_ASKS_BACK = re.compile(
    r"\b(?:please (?:provide|share|upload|paste|send)|(?:could|can) you (?:please )?(?:provide|share|paste)|i "
    r"(?:don['\u2019]?t|do not) have access|i (?:don['\u2019]?t|do not) see (?:any|the)|bitte (?:gib|stell|sende|"
    r"schick|lade)\w* (?:mir )?(?:den|die|das) (?:text|datei|inhalt)|veuillez fournir|por favor,? (?:proporciona|"
    r"comparte|envia)\w*)\b"
)
# starts words to the user, unless words to somebody are asked for
_OFFERS = re.compile(
    r"\W*(?:(?:sure|of course|certainly|gerne|naturlich|bien sur|claro)\W+)?(?:i can (?:help|assist)|"
    r"i(?:['\u2019]d| would) be (?:happy|glad) to (?:help|assist)|(?:da )?(?:helfe ich|kann ich) (?:dir|ihnen)|"
    r"je peux (?:vous |t['\u2019])aider|puedo ayudar(?:te|le|os))\b"
)
_TO_SOMEBODY = re.compile(
    r"\b(?:repl(?:y|ies)|answer|respon\w*|e?-?mails?|letters?|messages?|dialog\w*|chat\w*|beantwort\w*|antwort|briefe?|"
    r"nachrichte?n?|reponse|repond\w*|lettres?|respuesta|respond\w*|cartas?|correos?|mensajes?)\b"
)
# asks for words of one person to another, which may contain an apology or a question
_SPEAKS = re.compile(
    r"\b(?:apolog\w*|sorry|declin\w*|refus\w*|reject\w*|cancel\w*|repl(?:y|ies)|answer|respon\w*|mail|email|letter|"
    r"message|dialog\w*|story|request\w*|invit\w*|question\w*|interview\w*|survey|phrases?|sentences?|translat\w*|"
    r"prompt|chat\w*|entschuldig\w*|absag\w*|ablehn\w*|antwort\w*|brief|einlad\w*|frage\w*|ubersetz\w*|satz\w*|"
    r"excus\w*|reponse|repond\w*|lettre|tradu\w*|disculp\w*|respuesta|respond\w*|carta|correo|mensaje|pregunta\w*)\b"
)


def _about_output(request: str, name: str, text: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # what speaks against one output, whatever form was wanted
    which = "The answer" if len(answer.outputs) == 1 else name
    if (doubt := _about_text(which, request, name, text, answer)) is not None:
        yield doubt
    elif PurePosixPath(name).suffix in PROSE:
        yield from _about_addresses(which, name, text, folded(instruction(request)))


def _about_text(which: str, request: str, name: str, text: str, answer: WrittenAnswer) -> Doubt | None:
    spoken, order = words(text), folded(instruction(request))
    if not re.search(r"[^\s*_#|`-]", text) and not _MAY_BE_EMPTY.search(f"{order} {name}"):
        return Doubt(f"{which} is empty.", name, void=True)
    plain = re.sub(r"[.!\s]+$", "", folded(text).strip())
    if plain in _DONE and not _WANTS_A_WORD.search(order):
        return Doubt(f"{which} says only {text.strip()!r}.", name, void=True)
    if PurePosixPath(name).suffix not in PROSE:
        return None
    if _REFUSAL.match(folded(text)) and len(spoken) < 80 and not _SPEAKS.search(order):
        return Doubt(f"{which} says that this cannot be done.", name, void=True)
    if _loops(text):
        return Doubt(f"{which} repeats the same lines.", name, demand="Write no line twice.")
    speaks = _SPEAKS.search(order) and (_TO_SOMEBODY.search(order) or not _OFFERS.match(folded(text)))
    if _ASKS_BACK.search(folded(text)) and len(spoken) < 50 and not speaks:
        demand = f"Answer with the content of {name}." if names_file(request, name) else ""
        return Doubt(f"{which} asks for something instead of answering.", name, demand=demand, void=True)
    if _is_program_for(text, answer.inputs) and not Wishes.of(request).code and not _ON_PROGRAMS.search(order):
        demand = "Answer in words, not with a program."
        return Doubt(f"{which} is a program, and not what it would find.", name, demand=demand, void=True)
    return about_sources(which, request, name, answer)


_LEAST_PROGRAM: Final = 5  # lines
_PROGRAM = re.compile(
    r"```(?:python\d?|py|bash|sh|shell|javascript|js|perl|ruby|powershell)\b[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL
)
# asks how something is done, or with a program
_ON_PROGRAMS = re.compile(
    r"\b(?:how|commands?|automat\w*|macros?|formulas?|quer(?:y|ies)|tools?|implement\w*|wie|befehle?|makros?|formeln?|"
    r"comment|commandes?|automatis\w*|como|comandos?)\b"
)


def _is_program_for(text: str, inputs: Mapping[str, str]) -> bool:
    # one that would read texts or other data that the model has read
    data = [file for file in inputs if not is_program(file)]
    blocks = [match[1] for match in _PROGRAM.finditer(text)]
    return any(block.count("\n") >= _LEAST_PROGRAM and _names_any(block, data) for block in blocks)


def _names_any(text: str, files: Collection[str]) -> bool:
    return any(names_file(text, file) for file in files)


_ADDRESSES = re.compile(
    r"\b(?:e-?mail[- ]?ad(?:d?resses|ressen)|adresses e-?mail|direcciones de (?:e-?mail|correo))\b.*"
    r"\b(?:nothing else|only|just|one per line|nichts (?:anderes|weiter)|nur|pro zeile|rien d'autre|une par ligne"
    r"|nada mas|una por linea)\b"
)


def _about_addresses(which: str, name: str, text: str, order: str) -> Iterator[Doubt]:
    lines = [line.strip(" -*•,;\t") for line in text.splitlines() if line.strip() and not line.startswith("```")]
    strays = [line for line in lines if "@" not in line]
    if strays and len(strays) < len(lines) and _ADDRESSES.search(order):
        corrected = "\n".join(line for line in text.splitlines() if "@" in line)
        shown = f"{in_sentence(which)} has {strays[0][:60]!r} among them"
        yield Doubt(f"You asked for e-mail addresses; {shown}.", name, corrected)


def _loops(text: str) -> bool:
    counts = Counter(line.strip() for line in FENCED.sub(" ", text).splitlines() if len(line.split()) > 4)
    repeated = sum(count for count in counts.values() if count > 2)
    return repeated > 5 and repeated > counts.total() / 2


def _about_twins(request: str, answer: WrittenAnswer, doubted: Collection[str | None]) -> Iterator[Doubt]:
    texts = {name: words(text) for name, text in answer.outputs.items() if PurePosixPath(name).suffix in PROSE}
    first: list[str] = []
    for name, text_words in texts.items():
        twin = next((earlier for earlier in first if _alike(text_words, texts[earlier])), None)
        if twin is None:
            first.append(name)
        elif name not in doubted and not _SAME.search(folded(instruction(request))):
            nearly = "" if text_words == texts[twin] else "nearly "
            yield Doubt(f"{twin} and {name} are {nearly}the same text.", name)


_SAME: Final = re.compile(
    r"\b(?:same|identical|copies|gleiche\w*|identisch\w*|memes?|identiques?|mism[oa]s?|identic[oa]s?)\b"
)


def _alike(first: list[str], second: list[str]) -> bool:
    if min(len(first), len(second)) < _LEAST_PROSE:
        return False
    return SequenceMatcher(None, first[:MOST_COMPARED], second[:MOST_COMPARED], autojunk=False).ratio() >= ALIKE


# requests that may leave out some of the files
_SELECTS: Final = re.compile(
    r"\b(?:which|who|whose|those|only|any|most|best|worst|cheapest|largest|rank\w*|sort\w*|top|find|mention\w*|welche\w*|wer|nur"
    r"|diejenigen|beste\w*|finde|such\w*|quels?|quelles?|qui|seulement|meilleure?s?|trouve\w*|cual(?:es)?|quien(?:es)?|solo"
    r"|mejor(?:es)?|encuentra)\b"
)


def _about_left_out(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # an answer with a line or a part for each of several files has none for these
    if len(answer.outputs) != 1 or len(answer.inputs) < 3 or _SELECTS.search(folded(instruction(request))):
        return
    ((name, text),) = answer.outputs.items()
    lines = [re.sub(r"^[\s\-*•#>|\d.)(\[\"'`_]+", "", line).casefold() for line in text.splitlines()]
    # "check claim1 to claim6 against policy.txt" wants no line for the policy
    named = [file for file in answer.inputs if names_file(request, file)]
    listed = [file for file in answer.inputs if file not in named] or named
    lower = text.casefold()
    has_part = [file for file in listed if file.casefold() in lower or any(map(_starts_with(file), lines))]
    missing = [file for file in listed if _stem(file) not in lower]
    fewest = 1 if _EACH_NAME.search(folded(instruction(request))) else 2  # parts that make an answer a list of files
    if missing and len(has_part) >= fewest:
        more = [f"{len(missing) - 3} more"] if len(missing) > 3 else []
        yield Doubt(f"The answer says nothing of {' and '.join((*missing[:3], *more))}.", name)


def _stem(file: str) -> str:
    return PurePosixPath(file).stem.casefold()


def _starts_with(file: str) -> Callable[[str], bool]:
    # "Claim1: ..." is about claim1.txt, but "Garden: ..." need not be about garden.txt
    stem = _stem(file)
    return lambda line: not stem.isalpha() and line.startswith(stem)


_EACH_NAME = re.compile(
    r"\b(?:each|every|je|jeweils|jede[nmrs]?|chacun\w*|chaque|cada)\b"
    r"|\b(?:one|a|ein\w*|une?|una?) \w+ (?:per|pro|par|por)\b"
)
_NAME = r"[^\W\d_a-zß-ÿ][\w-]+"
# three names or more, such as "Wien, Lissabon und Oslo"
_NAMES = re.compile(rf"\b{_NAME}(?:, {_NAME})+,? (?:and|und|et|y|e) {_NAME}\b")
_BETWEEN = re.compile(r",? (?:and|und|et|y|e) |, ")


# may well say the same to each
_TO_SEVERAL = re.compile(
    r"\b(?:invit\w*|letters?|e?-?mails?|messages?|cards?|greetings?|reminders?|einladung\w*|brief\w*|nachricht\w*|karten?|gruss\w*"
    r"|lettres?|courriels?|cartes?|cartas?|correos?|mensajes?|tarjetas?)\b"
)


def _about_names(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # an answer with a part for each of several names has none for these, or the same part for two
    order = instruction(request)
    lists = [match[0] for match in _NAMES.finditer(order)]
    if len(lists) != 1 or len(answer.outputs) != 1 or not _EACH_NAME.search(folded(order)):
        return
    ((output, text),) = answer.outputs.items()
    names = _BETWEEN.split(lists[0])
    lines = [line.lstrip("#*_-> \t") for line in text.splitlines()]
    missing = [name for name in names if name not in text]
    if missing and sum(any(line.startswith(name) for line in lines) for name in names) > 1:
        yield Doubt(f"The answer says nothing of {' and '.join(missing)}.", output)
    elif not _TO_SEVERAL.search(folded(order)) and not _SAME.search(folded(order)):
        parts = _parts_of(names, text)
        same = [(a, b) for a, b in combinations(parts, 2) if _alike(parts[a], parts[b])]
        if same:
            yield Doubt(f"The answer says the same of {' and '.join(same[0])}.", output)


def _parts_of(names: Sequence[str], text: str) -> dict[str, list[str]]:
    # the words below or behind each name at the start of a line, without the names
    parts: dict[str, list[str]] = {}
    current, own = "", {word for name in names for word in words(name)}
    for line in text.splitlines():
        plain = line.lstrip("#*_-> \t")
        current = next((name for name in names if plain.startswith(name)), current)
        if current:
            parts.setdefault(current, []).extend(word for word in words(line) if word not in own)
    return parts


# Such as "is empty", "has no content", "0 bytes", "there is nothing", "blank".
_EMPTY = re.compile(
    r"\b(?:empty|blank|nothing|leere?[mnrs]?|nichts|vides?|rien|vaci[oa]s?|nada)\b|\b(?:0|zero|no|kein\w*|aucune?)\s\w"
)


def _about_empty_files(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # files that the request names, in which there is nothing that an answer could say
    empty = [file for file, text in answer.inputs.items() if not text.strip() and names_file(request, file)]
    empty = [file for file in empty if file not in answer.written]
    text = "\n".join((request, *answer.outputs.values()))
    for file in empty:
        text = text.replace(file, " ")  # such as empty.txt
    if empty and not _EMPTY.search(folded(text)) and any(output.strip() for output in answer.outputs.values()):
        yield Doubt(f"{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty.")


_MENTION = re.compile(
    r"\b(?:which|what|welche\w*|quel\w*|cual\w*|que)\b.*?\b(?:mentions?|erwahn\w*|mentionn\w*|mencion\w*)\s"
    r"(?:(?:the|an?|any|our|my|de[nrm]|das|die|eine?n?|unsere?n?|les?|la|une?|notre|el|los|una?|nuestr[oa])\s)?"
    r"(?P<topic>\w+)"
)
_ABOUT = re.compile(
    r"\b(?:about|uber|sur|sobre)\s(?:(?:the|our|my|de[nrm]|das|die|unsere?n?|les?|la|notre|el|los|nuestr[oa])\s)?"
    r"(?P<topic>\w+)"
)
_PRONOUNS: Final = frozenset("it them this that ihn sie es ca cela lo la los las".split())
_NEGATION = re.compile(r"\b(?:not?|none|without|nicht|keine?\w*|ohne|pas|sans|sin)\b|n['\u2019]t\b")
_MOST_AROUND_NAMES: Final = 8  # words besides the names of files, for an answer to be a list of them


def _about_mentions(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # files that the answer lists, which have no word like the topic
    order = folded(instruction(request))
    match = _MENTION.search(order)
    if match is not None and match["topic"] in _PRONOUNS:
        match = _ABOUT.search(order)
    if match is None or len(answer.outputs) != 1:
        return
    ((name, text),) = answer.outputs.items()
    listed = [file for file in answer.inputs if file in text]
    around = text
    for file in sorted(listed, key=len, reverse=True):
        around = around.replace(file, " ")
    if _NEGATION.search(folded(around)) or len(words(around)) > _MOST_AROUND_NAMES:
        return
    topic = match["topic"]
    unrelated = [file for file in listed if not any(_is_about(word, topic) for word in words(answer.inputs[file]))]
    if unrelated:
        only = f"{' and '.join(unrelated[:2])}" + (f" and {len(unrelated) - 2} more" if len(unrelated) > 2 else "")
        corrected = _without_names(text, unrelated, [file for file in listed if file not in unrelated], around)
        yield Doubt(f"The answer lists {only}, without a word like {topic!r}.", name, corrected)


_BETWEEN_NAMES = re.compile(r"[\s,;.&]|\b(?:and|und|et|y|e)\b")


def _without_names(text: str, removed: Collection[str], matching: Collection[str], around: str) -> str | None:
    # None if no name is left, or if they stand within a text; `around` is the text without the names
    if matching and "\n" not in text.strip() and not _BETWEEN_NAMES.sub("", around):
        return ", ".join(matching)
    remaining = "\n".join(line for line in text.splitlines() if not any(name in line for name in removed))
    return remaining if matching and all(name in remaining for name in matching) else None


def _is_about(word: str, topic: str) -> bool:
    # also another form of the word, or a part of a compound
    return topic in word or (len(word) >= LEAST_COMMON and word in topic) or related(word, topic)


def _about_lines(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    form = ListForm.of(request)
    prose = {name: text for name, text in answer.outputs.items() if PurePosixPath(name).suffix in PROSE}
    if len(prose) != 1 or form == ListForm():
        return
    ((name, text),) = prose.items()
    if len(text) <= READ_BYTES and (problem := next(form.problems(text), None)):
        yield Doubt(f"You asked for {problem}.", name, form.corrected(text))


def _about_language(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    prose = {name: text for name, text in answer.outputs.items() if _is_prose(name, text)}
    spoken = {name: language for name, text in prose.items() if (language := language_of(_without_code(text)))}
    languages = languages_wanted(instruction(request))
    for name, language in spoken.items():
        by_name = LANGUAGE_SUFFIX.search(name)
        expected = by_name[1] if by_name else _expected(request, languages, answer, language)
        if expected is not None and language != expected:
            which = "the answer" if len(answer.outputs) == 1 else name
            preposition = "for" if expected in languages or by_name else "in"
            yield Doubt(
                f"You asked {preposition} {LANGUAGE_NAMES[expected]}; {which} is in {LANGUAGE_NAMES[language]}.", name
            )
        elif not by_name and not names_language(request):
            yield from _about_paragraphs(name, language, request, answer)


def _about_paragraphs(name: str, language: str, request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    # one that is in a language of neither the request nor a text; without texts, it may be what was asked about
    read = {language_of(text) for text in answer.inputs.values()}
    if language_of(instruction(request)) != language or language not in read or Wishes.of(request).code:
        return
    for paragraph in re.split(r"\n\s*\n", _without_code(answer.outputs[name])):
        other = language_of(paragraph) if len(paragraph.split()) >= _LEAST_PROSE else None
        texts = (request, *answer.inputs.values())
        if other not in (None, language) and not any(has_words_of(other, text, language) for text in texts):
            which = "the answer" if len(answer.outputs) == 1 else name
            yield Doubt(
                f"You asked in {LANGUAGE_NAMES[language]}; some of {which} is in {LANGUAGE_NAMES[other]}.", name
            )
            return


def _expected(request: str, languages: tuple[str, ...], answer: WrittenAnswer, language: str) -> str | None:
    # None if other languages may be right too
    if len(languages) == 1 and len(answer.outputs) == 1:
        return languages[0]
    if languages or names_language(request) or Wishes.of(request).code:
        return None
    own = language_of(instruction(request))
    if own is None or (own != language and has_words_of(language, request, own)):
        return None
    read = {language_of(_without_code(text)) for text in answer.inputs.values()}
    return own if language not in read and read <= {own, None} else None


def _is_prose(name: str, text: str) -> bool:
    return (
        PurePosixPath(name).suffix.lower() in PROSE
        and len(text) <= READ_BYTES
        and len(_without_code(text).split()) >= _LEAST_PROSE
    )


def _without_code(text: str) -> str:
    return FENCED.sub(" ", text)
