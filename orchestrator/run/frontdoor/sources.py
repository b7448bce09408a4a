"""Compare a text with the texts that it was made from: whether it repeats them, or lacks a part of them.

The words of requests are read in English, German, French and Spanish.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.wishes import Wishes, language_of, languages_wanted
from orchestrator.run.frontdoor.words import folded, words

PROSE: Final = frozenset(("", ".md", ".txt", ".rst", ".adoc"))  # endings of files that are texts in a language
COPIED: Final = 0.75  # share of the word runs of a text that is in its sources, if it is a copy
COPIED_LENGTH: Final = 0.6  # least length of a copy, as a share of its sources: a summary may quote some sentences
LANGUAGE_SUFFIX: Final = re.compile(r"[._-](en|de|fr|es|it|pt|nl)\.\w+$")  # of the name of a translation
WHOLE: Final = 0.95  # share of the word runs of a source that is in a text, if the text contains it
TRANSLATED: Final = 0.5  # least length of a translation, as a share of its source
_RUN: Final = 5  # words of a run
_NO_REQUEST: Final = "Do not repeat the request."
_SHORT: Final = "Be short."
_LEAST_COPY: Final = 20
_LEAST_WORDS: Final = 12  # a shorter text is not compared

_COPIES = re.compile(
    r"\b(?:repeat|say|print|copy|echo|quote|cite|translate|complete|continue|correct|fix|rewrite|wiederhol\w*|sag\w*|"
    r"kopier\w*|zitier\w*|ubersetz\w*|korrigier\w*|repete\w*|dis|copie\w*|corrige\w*|repite|di|copia)\b"
)
# asks for a text that may be nearly the old one
_KEEPS = re.compile(
    r"\b(?:copy|quote|cite|complete|continue|correct|fix|proofread|typos?|spelling|grammar|merge|join|combine|sort|format|"
    r"korrigier\w*|rechtschreib\w*|fehler|zitier\w*|corrige\w*|fautes?|orthographe|ortografia)\b"
)
_CHANGES = re.compile(
    r"\b(?:explain\w*|erklar\w*|expliqu\w*|explic\w*|friendlier|nicer|politer|shorter|simpler|freundlicher|hoflicher|kurzer|einfacher|"
    r"plus (?:poli|court|simple)\w*|"
    r"mas (?:amable|cort|sencill)\w*|rewrite|reword|rephrase|simplify|\w+er versions?|umschreib\w*|umformulier\w*|"
    r"vereinfach\w*|reformule\w*|reecri\w*|simplifi\w*|reescrib\w*|version(?:en|es)|"
    r"summari[sz]e|summary|shorten|condense|translate|translation|paraphrase|fasse?|zusammenfass\w*|"
    r"zusammenfassung|kurz(?:e|en)|ubersetz\w*|resume[rz]?|resumen|traduis\w*|traduire|raccourci\w*|traduc\w*|"
    r"acorta\w*|abrevia\w*)\b"
)


# asks for the texts themselves, next to something about them
_WITH_ORIGINAL = re.compile(
    r"\b(?:originals?|originale?n?|originaux|originales|(?:full|whole|entire|complete) texts?|volltexte?"
    r"|texte (?:complet|integral|entier)|texto (?:completo|integro)|below|above|underneath|darunter|daneben|ci-dessous"
    r"|abajo|debajo|add|append|insert|prepend|extend|expand|anfug\w*|einfug\w*|fuge?|erganz\w*|erweiter\w*|ajout\w*|inser\w*"
    r"|anad\w*|agreg\w*)\b"
)


def in_sentence(which: str) -> str:
    """Return the answer's name as it stands within a sentence; names of files stay as they are."""
    return which.replace("The answer", "the answer")


def about_sources(which: str, request: str, name: str, answer: WrittenAnswer) -> Doubt | None:
    """Return what speaks against the output `name`, compared with what was read, in a sentence about `which`."""
    text, inputs = answer.outputs[name], answer.inputs
    spoken, query, order = words(text), words(request), folded(instruction(request))
    keeps = _KEEPS.search(order) is not None or _WITH_ORIGINAL.search(order) is not None
    if (
        len(spoken) >= 5
        and spoken == query[: len(spoken)]
        and len(spoken) >= 0.8 * len(query)
        and not _COPIES.search(order)
    ):
        return Doubt(f"{which} only repeats the request.", name, demand=_NO_REQUEST)
    if len(spoken) >= 8 and _CHANGES.search(order) and not keeps:
        for file, source in inputs.items():
            if spoken == words(source):
                return Doubt(f"{which} only repeats {file}.", name, demand=f"Do not repeat {file}.")
        if len(spoken) >= _LEAST_WORDS and len(_runs(spoken) & _runs(query)) >= COPIED * len(_runs(spoken)):
            return Doubt(f"{which} only repeats the request.", name, demand=_NO_REQUEST)
        if _copied(spoken, [words(source) for source in inputs.values()]):
            sources = next(iter(inputs)) if len(inputs) == 1 else "the texts"
            return Doubt(f"{which} only repeats {sources}.", name, demand=f"Do not repeat {sources}.")
    return _about_summary(which, request, name, answer, keeps=keeps) or _about_translation(which, request, name, answer)


_SUMMARY = re.compile(
    r"\b(?:summari[sz]e\w*|summar(?:y|ies)|condense|zusammenfass\w*|fasse?\b[^.?!]*\bzusammen|"
    r"resumen|resum(?:e[rz]?|ir)\s(?:chacune?|chaque|l[ea]s?\b|l['\u2019]|ce\b|ces\b|cette|el|los|cada))"
)
_LONG_SUMMARY = re.compile(
    r"\b(?:long\w*|detail\w*|thorough\w*|complete\w*|full|lange?\w*|ausfuhrlich\w*|complet\w*|larg[oa]\w*)\b"
)
_LEAST_SUMMARISED = 60  # the summary of a text with fewer words may be longer


def _about_summary(which: str, request: str, name: str, answer: WrittenAnswer, *, keeps: bool) -> Doubt | None:
    spoken, outputs, inputs = words(answer.outputs[name]), answer.outputs, answer.inputs
    order, wishes = folded(instruction(request)), Wishes.of(request)
    named = _SUMMARY.search(folded(" ".join(outputs))) is not None
    is_summary = _SUMMARY.search(folded(which) if len(outputs) > 1 else order) is not None
    if is_summary and not wishes.code and not keeps and _contains_all(spoken, inputs):
        text = f"You asked for a summary; {in_sentence(which)} contains all of what it was made from."
        return Doubt(text, name, demand=_SHORT)
    if wishes.code or not (named or (_SUMMARY.search(order) and not wishes.several)) or _LONG_SUMMARY.search(order):
        return None
    read = sum(len(words(text)) for text in inputs.values())
    if _LEAST_SUMMARISED <= read < len(spoken):
        text = f"You asked for a summary; {in_sentence(which)} is longer than what it was made from."
        return Doubt(text, name, demand=_SHORT)
    return None


def _contains_all(spoken: list[str], inputs: Mapping[str, str]) -> bool:
    # also next to other words; none may be so short that it is its own summary
    sources = [words(text) for text in inputs.values()]
    runs = _runs(spoken)
    whole = (len(_runs(source) & runs) >= WHOLE * len(_runs(source)) for source in sources)
    return bool(sources) and min(map(len, sources)) >= _LEAST_COPY and all(whole)


def _copied(spoken: list[str], sources: list[list[str]]) -> bool:
    read = [source for source in sources if _runs(source) & _runs(spoken)]
    of_all = _runs(spoken) & set[tuple[str, ...]]().union(*map(_runs, read))
    long_enough = len(spoken) >= max(_LEAST_COPY, COPIED_LENGTH * sum(map(len, read)))
    return long_enough and len(of_all) >= COPIED * len(_runs(spoken))


def _runs(text: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(text[at : at + _RUN]) for at in range(len(text) - _RUN + 1)}


_TRANSLATES = re.compile(
    r"\b(?:translate|ubersetze?n?|traduis(?:ez)?|traduire|traduce[nr]?|traducir|traduzca\w*"
    r"|says? in (?:english|german|french|spanish|italian|portuguese|dutch))\b"
)
# asks for the translation of a part, for a shorter text, with the help of other texts, or about translating
_OF_PART = re.compile(
    r"\b(?:only|just|first|last|second|parts?|titles?|headings?|headlines?|subjects?|sentences?|paragraphs?|lines?|words"
    r"|terms?|phrases?|names|labels?|summar\w+|short\w*|brief\w*|using|with|glossar\w*|mentions?|which|where|answer\w*"
    r"|nur|erste\w*|letzte\w*|zweite\w*|teile?|titel|uberschrift\w*|betreff|satze?n?|absatz\w*|zeilen?|worter\w*"
    r"|begriffe?n?|namen|zusammen\w*|kurz\w*|welche\w*|mit"
    r"|seulement|premiere?s?|derniere?s?|partie|titres?|objet|paragraphes?|lignes?|mots?|termes?|noms|resum\w+|court\w*"
    r"|bref|quels?|avec"
    r"|solo|primer\w*|ultim\w*|partes?|titulos?|asunto|parrafos?|lineas?|palabras?|terminos?|nombres|frases?|breve\w*"
    r"|cort\w+|cual\w*|con"
    r"|should|how|why|who|when|cost|soll\w*|wie|warum|wer|faut|dois|comment|pourquoi|debo|deberia\w*|como|quien)\b"
)
_EACH = re.compile(
    r"\b(?:each|every|both|all|jede[mnrs]?|alle|beide[nr]?|chacune?|chaque|tous|toutes|deux|cada|tod[oa]s|ambos"
    r"|ambas)\b"
)


def _about_translation(which: str, request: str, name: str, answer: WrittenAnswer) -> Doubt | None:
    text, outputs, inputs = answer.outputs[name], answer.outputs, answer.inputs
    order, spoken = folded(instruction(request)), words(text)
    if not _TRANSLATES.search(order) or _OF_PART.search(order) or Wishes.of(request).code or not _is_latin(text):
        return None
    if not inputs or any(PurePosixPath(name).suffix not in PROSE for name in inputs):
        return None
    if len(inputs) > 1 and (len(outputs) > 1 or not _EACH.search(order)):
        return None
    if len(outputs) > 1 and not LANGUAGE_SUFFIX.search(which):
        return None
    if {language_of(source) for source in inputs.values()} & {*languages_wanted(request)}:
        return None  # there may be nothing to translate
    read = sum(len(words(source)) for source in inputs.values())
    if read >= 2 * _LEAST_WORDS and len(spoken) < TRANSLATED * read:
        lengths = f"{len(spoken)} words, and the original {read}"
        return Doubt(f"You asked for a translation; {in_sentence(which)} has {lengths}.", name)
    return None


def _is_latin(text: str) -> bool:
    # the words of some other scripts cannot be counted
    letters = [char for char in folded(text) if char.isalpha()]
    return sum(char.isascii() for char in letters) >= 0.9 * len(letters)


_LEAST_SENTENCE: Final = 6  # of a sentence that nobody writes again by chance
_MESSAGE = (
    r"(?:e-?mails?|mails?|letters?|messages?|briefen?|brief|nachrichten?|anfragen?|lettres?|courriels?|cartas?|correos?"
    r"|mensajes?|customers?|kunden|kundinnen|clients?|clientes?)"
)
_REPLY = re.compile(
    rf"\b(?:repl(?:y|ies)|respond|responses?)\b|\banswer\b[^.?!]*\b{_MESSAGE}\b"
    rf"|\b(?:beantworte\w*|antworte)\b[^.?!]*\b{_MESSAGE}\b|\bantwort(?:en)? auf\b"
    r"|\brepon(?:ds|dez|dre|ses?)\b|\brespon(?:de|der|da)\b|\brespuestas?\b"
)
_OF_THE_WRITER = re.compile(r"\b(?:i|my|me|ich|mein\w*|mir|mich|je|j|mon|ma|mes|moi|yo|mi|mis|me)\b")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]")


def about_replies(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    """Yield a doubt for each reply with a sentence in which the writer of what was read speaks of themselves.

    A small model that is asked to answer a mail continues it: "I would like to collect the roses myself" comes back as
    the answer to the customer who wrote it.
    """
    if not _REPLY.search(folded(instruction(request))):
        return
    files = {
        sentence: file
        for file, text in answer.inputs.items()
        for sentence in _sentences(text)
        if _OF_THE_WRITER.search(sentence)
    }
    for name, text in answer.outputs.items():
        own_lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">"))
        file = next((files[sentence] for sentence in _sentences(own_lines) if sentence in files), None)
        if file is not None and name not in files.values():
            demand = f"Reply to {file} as the one who got it, in sentences that are not in it."
            yield Doubt(f"A sentence of {file} is in the reply, as if it were its own.", name, demand=demand)


def _sentences(text: str) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = words(match[0])
        if len(sentence) >= _LEAST_SENTENCE:
            yield " ".join(sentence)
