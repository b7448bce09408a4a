"""Compare an answer with its request, by code, and say what speaks against it.

A doubt has to be certain: a doubt about a correct answer costs more trust than a wrong answer without one.
"""

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.line_lists import ListForm
from orchestrator.run.frontdoor.references import names_file
from orchestrator.run.frontdoor.request import RequestFiles, instruction
from orchestrator.run.frontdoor.sources import LANGUAGE_SUFFIX, PROSE, in_sentence, problem_with
from orchestrator.run.frontdoor.wishes import (
    LANGUAGE_NAMES,
    Amount,
    Wishes,
    has_words_of,
    language_of,
    languages_wanted,
    names_language,
    schema_for,
)
from orchestrator.run.frontdoor.words import LEAST_COMMON, folded, related, words

READ_BYTES: Final = 200_000  # longer outputs are not read
SLACK: Final = 1.1  # how much too long a text may be, because words are counted in different ways
ALIKE: Final = 0.9  # share of words in common, in the same order, that makes two texts the same
MOST_COMPARED: Final = 500  # words of each text that are compared
_LEAST_PROSE: Final = 12  # the language of an answer with fewer words is not doubted


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks against an answer, in one sentence. `output` is None if it is about no single output."""

    text: str
    output: str | None = None
    corrected: str | None = None  # that output as the request wants it, if nothing but this is left to choose


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The texts that belong to an answer, by name."""

    outputs: Mapping[str, str]  # the outputs that are the answer
    written: Mapping[str, str]  # all outputs of the run
    inputs: Mapping[str, str]  # what its steps have read, if known


def doubts(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> tuple[Doubt, ...]:
    """Return what speaks against an answer; nothing if it may be correct. `files` existed before the run."""
    all_doubts = list(_about_files(request, files, answer))
    for name, text in answer.outputs.items():
        if len(text) <= READ_BYTES:
            all_doubts += _about_output(request, name, text, answer)
    all_doubts += _about_twins(request, answer, {doubt.output for doubt in all_doubts})
    all_doubts += _about_lines(request, answer)
    all_doubts += _about_left_out(request, answer)
    all_doubts += _about_mentions(request, answer)
    all_doubts += _about_empty_files(request, answer)
    if not all_doubts:
        all_doubts += _about_form(request, files, answer)
    if not all_doubts:
        all_doubts += _about_language(request, answer)
    return (*all_doubts, *_about_words(request, files, answer))


def _about_files(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> Iterator[Doubt]:
    # files that the request certainly wants: missing, or not of their type
    for name in RequestFiles.of(request, files).outputs:
        text = answer.written.get(name)
        if text is None:
            if not any(PurePosixPath(output).name == PurePosixPath(name).name for output in answer.written):
                yield Doubt(f"You asked for {name}; no step has written it.")
        elif len(text) <= READ_BYTES and text.strip() and (problem := _unreadable(name, text) or _wrapped(name, text)):
            yield Doubt(f"{name} {problem}.", name)
        elif schema_for(request, name) and _is_json(text) and text.lstrip().startswith("{"):
            yield Doubt(f"You asked for a list in {name}; it is an object.", name, _only_list(text))


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


def _unreadable(name: str, text: str) -> str:
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
    if PurePosixPath(name).suffix in PROSE and _PREAMBLE.match(folded(text)) and _FENCED.search(text):
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
    if problem := _about_text(which, request, name, text, answer):
        yield Doubt(problem, name)
    elif PurePosixPath(name).suffix in PROSE:
        yield from _about_addresses(which, name, text, folded(instruction(request)))


def _about_text(which: str, request: str, name: str, text: str, answer: WrittenAnswer) -> str:
    spoken, order = words(text), folded(instruction(request))
    if not re.search(r"[^\s*_#|`-]", text) and not _MAY_BE_EMPTY.search(f"{order} {name}"):
        return f"{which} is empty."
    plain = re.sub(r"[.!\s]+$", "", folded(text).strip())
    if plain in _DONE and not _WANTS_A_WORD.search(order):
        return f"{which} says only {text.strip()!r}."
    if PurePosixPath(name).suffix not in PROSE:
        return ""
    if _REFUSAL.match(folded(text)) and len(spoken) < 80 and not _SPEAKS.search(order):
        return f"{which} says that this cannot be done."
    if _loops(text):
        return f"{which} repeats the same lines."
    if _ASKS_BACK.search(folded(text)) and len(spoken) < 50 and not _SPEAKS.search(order):
        return f"{which} asks for something instead of answering."
    return problem_with(which, request, text, answer.outputs, answer.inputs)


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
    counts = Counter(line.strip() for line in _FENCED.sub(" ", text).splitlines() if len(line.split()) > 4)
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
    # an answer with a line for each of several files has none for these
    if len(answer.outputs) != 1 or len(answer.inputs) < 3 or _SELECTS.search(folded(instruction(request))):
        return
    ((name, text),) = answer.outputs.items()
    lines = [re.sub(r"^[\s\-*•#>|\d.)(\[\"'`_]+", "", line) for line in text.splitlines()]
    # "check claim1 to claim6 against policy.txt" wants no line for the policy
    named = [file for file in answer.inputs if names_file(request, file)]
    listed = [file for file in answer.inputs if file not in named] or named
    missing = [file for file in listed if not any(line.startswith(file) for line in lines)]
    if 0 < len(missing) <= len(listed) - 2 and not any(file in text for file in missing):
        yield Doubt(f"The answer says nothing of {' and '.join(missing[:3])}.", name)


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


def _about_form(request: str, files: tuple[str, ...], answer: WrittenAnswer) -> Iterator[Doubt]:
    wishes = Wishes.of(request)
    texts = {name: text.strip() for name, text in answer.outputs.items() if len(text) <= READ_BYTES}
    if wishes.format and texts and not any(_has_format(wishes.format, text) for text in texts.values()):
        only = next(iter(texts)) if len(texts) == 1 else None
        yield Doubt(f"You asked for {wishes.format}; the answer is something else.", only)
    named = [name for name in RequestFiles.of(request, files).outputs if PurePosixPath(name).suffix in PROSE]
    if wishes.length_of_each and len(named) > 1:
        for name in filter(texts.__contains__, named):
            measured = _measure(wishes.length_of_each.of, texts[name])
            if not _fits(wishes.length_of_each, measured, 1.0):
                yield Doubt(f"You asked for {wishes.length_of_each} each; {name} has {measured}.", name)
    if len(texts) != 1 or (len(answer.written) > 1 and wishes.several):
        return
    ((name, text),) = texts.items()
    if wishes.items and (problem := _miscounted(wishes.items, text, only=not wishes.several)):
        corrected = _first_items(text, wishes.items.number) if wishes.items.bound in ("exactly", "at most") else None
        yield Doubt(f"You asked for {wishes.items}; the answer has {problem}.", name, corrected)
    if wishes.length and not wishes.format and PurePosixPath(name).suffix in PROSE and "```" not in text:
        measured = _measure(wishes.length.of, text)
        if not _fits(wishes.length, measured, 2.0 if wishes.several else 1.0):
            yield Doubt(f"You asked for {wishes.length}; the answer has {measured}.", name)


_FENCED = re.compile(r"```[\w+-]*\n(.*?)(?:```|\Z)", re.DOTALL)


def _has_format(format_name: str, text: str) -> bool:
    candidates = [text, *(match[1] for match in _FENCED.finditer(text))]
    if format_name == "JSON":
        return any(_is_json(candidate) for candidate in candidates)
    if format_name == "CSV":
        return any(_is_csv(candidate) for candidate in candidates)
    if format_name == "a Markdown table":
        return re.search(r"(?m)^.*\|.*\n[ \t|:-]*-[ \t|:-]*\|?[ \t|:-]*$", text) is not None
    return bool(_LISTED.search(text)) or len(text.split()) < 8


def _only_list(text: str) -> str | None:
    # the list in an object that has nothing else
    members = list(json.loads(text).values())
    if len(members) != 1 or not isinstance(members[0], list):
        return None
    return json.dumps(members[0], ensure_ascii=False, indent=2)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _is_csv(text: str) -> bool:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return bool(lines) and sum(any(mark in line for mark in ",;\t") for line in lines) >= max(1, len(lines) - 2)


_LISTED = re.compile(r"(?m)^\s*(?:[-*•\u2013]\s+\S|\d{1,3}[.)]\s+\S)")
_NUMBERED = re.compile(r"^ {0,3}(?:#+ *|[*_]{1,2}|[A-Z][a-z]+ )?(\d{1,3})[.):]")
_BULLET = re.compile(r"^(\s*)[-*•\u2013+]\s+\S")


def _miscounted(amount: Amount, text: str, *, only: bool) -> str:
    # too few items or, if they are the `only` content, too many
    least, most = _items_in(text)
    fewest = amount.number / (2 if amount.bound == "about" else 1)
    if most is not None and most < fewest and amount.bound != "at most":
        return str(most) if least == most else f"at most {most}"
    if only and least > amount.number * (1.5 if amount.bound == "about" else 1) and amount.bound != "at least":
        return str(least)
    return ""


def _first_items(text: str, number: int) -> str | None:
    # None if there are no more, or if it is not plain where an item starts and ends
    if _is_json(text):
        value = json.loads(text)
        return json.dumps(value[:number], ensure_ascii=False, indent=2) if isinstance(value, list) else None
    least, most = _items_in(text)
    if most is None or most <= number or least != most:
        return None
    lines = text.splitlines()
    marks = [(at, _BULLET.match(line)) for at, line in enumerate(lines)]
    bullets = [(at, len(mark[1].expandtabs(4))) for at, mark in marks if mark is not None]
    outermost = min((indent for _, indent in bullets), default=0)
    numbered = [at for at, line in enumerate(lines) if _NUMBERED.match(line)]
    starts = numbered if len(numbered) == most else [at for at, indent in bullets if indent == outermost]
    if len(starts) != most:
        return None
    end = next((at for at in range(starts[-1] + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    while not lines[end - 1].strip():  # a blank line between the list and what follows stays
        end -= 1
    return "\n".join((*lines[: starts[number]], *lines[end:])).strip()


def _items_in(text: str) -> tuple[int, int | None]:
    # at least and at most; None if there may be any number
    if _is_json(text):
        return _items_in_json(json.loads(text))
    if "```" in text or "|" in text:
        return 0, None
    lines = [line for line in text.splitlines() if line.strip()]
    numbers = [int(match[1]) for line in lines if (match := _NUMBERED.match(line))]
    if len(numbers) >= 2:
        return (len(numbers), len(numbers)) if numbers == [*range(1, len(numbers) + 1)] else (0, None)
    bullets = [at for at, line in enumerate(lines) if _BULLET.match(line)]
    if bullets:
        return _items_in_bullets(lines, bullets)
    parts = len(re.findall(r"[,;:/&]|\b(?:and|or|und|oder|et|ou|y|o|e|then|dann|puis|luego)\b", folded(text))) + 1
    return 0, max(len(lines), len(re.findall(r"[.!?]+(?:\s|$)", text)), parts)


def _items_in_json(value: object) -> tuple[int, int | None]:
    if isinstance(value, list):
        return len(value), len(value)
    lists = [member for member in value.values() if isinstance(member, list)] if isinstance(value, dict) else []
    return (len(lists[0]), len(lists[0])) if len(lists) == 1 else (0, None)


def _items_in_bullets(lines: list[str], bullets: list[int]) -> tuple[int, int | None]:
    # bullets of the outermost level; other lines between them make the number uncertain
    if any(_BULLET.match(line) is None and line[:1].strip() for line in lines[bullets[0] : bullets[-1]]):
        return 0, None
    indents = [len(match[1].expandtabs(4)) for at in bullets if (match := _BULLET.match(lines[at]))]
    outer = sum(indent == min(indents) for indent in indents)
    return (outer, outer) if len(bullets) > 1 else (0, None)


def _measure(unit: str, text: str) -> int:
    if unit == "characters":
        return len(text)
    if unit == "words":
        return len(re.findall(r"[^\W_]+(?:['\u2019.,-][^\W_]+)*", text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    body = [line for line in lines if line[-1] in ".!?…\"'»”)" or len(line.split()) > 10] or lines
    return sum(max(1, _sentences(line)) for line in body)


_ABBREVIATED = re.compile(
    r"\b(?:[A-Za-zÄÖÜ]|\d+|e\.g|i\.e|z\.\s?B|d\.\s?h|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|ca|bzw|usw|approx|M|Mme|Sr|Sra|"
    r"Inc|Ltd|Co|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|p\.\s?ej|p\.\s?m|a\.\s?m|U\.\s?S)\.$"
)


def _sentences(line: str) -> int:
    ends = list(re.finditer(r"[.!?…]+[\"'»”)*_]*(?=\s+[\"'«„“(*_¿¡]*[A-ZÄÖÜÉÈÀÇÁÍÓÚÑ])", line))
    return 1 + sum(not _ABBREVIATED.search(line[: end.end()]) for end in ends)


def _fits(amount: Amount, measured: int, slack: float) -> bool:
    most = amount.number * slack * (SLACK if amount.of != "sentences" else 1) + (2 if amount.of == "words" else 0)
    if amount.bound == "at least":
        return measured >= amount.number / SLACK
    if amount.bound == "about":
        return amount.number / 2.5 <= measured <= 2 * most
    return measured <= most


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
    return _FENCED.sub(" ", text)
