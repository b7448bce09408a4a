"""Say by code, without a model, whether a request has anything that several steps could share.

It reads English, German, French and Spanish. A wrong yes only costs a plan; a wrong no loses what a plan could bring.
So doubtful words count as divisible.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.references import definite_words
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.words import related, words

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
