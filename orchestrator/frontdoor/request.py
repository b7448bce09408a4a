"""Read by code which files a request is about: those that it names, those that it wants, and those that are missing.

A sentence says by its verb and its preposition whether a file is to be read or to be written: "Summarize a.md", "the
numbers in a.csv" and "a summary of a.md" read it, "write a.md", "save it as a.md" and "a.md speichern" write it. What
a program is to do with files ("a script that reads a.csv") says neither. English, German, French and Spanish are read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Final

from orchestrator.frontdoor.orders import needed_tool
from orchestrator.frontdoor.references import FileNames, names_file
from orchestrator.frontdoor.words import folded
from orchestrator.taskir import nearest
from orchestrator.taskir.names import compose_name

MAX_INSTRUCTION: Final = 1500
"""A request with more characters has texts in it whose names of files are not the user's own. None of them is missing."""

ENDINGS: Final = frozenset(
    """
    txt md rst adoc tex log csv tsv json jsonl ndjson yaml yml toml ini cfg conf env xml html htm css scss js mjs ts tsx
    jsx py pyi ipynb sh bash zsh ps1 bat sql c h cc cpp hpp cs rs go java kt rb php pl lua r swift scala vue svg srt vtt
    ics vcf eml diff patch lock bib pdf doc docx odt xls xlsx ods ppt pptx png jpg jpeg gif webp
    """.split()
)
"""What the names of files end in, for a name to be one that nobody could mean otherwise."""

PRODUCTS: Final = frozenset(
    "node.js vue.js next.js nuxt.js react.js express.js angular.js ember.js backbone.js three.js d3.js p5.js chart.js "
    "alpine.js moment.js discord.py web.py bun.sh draw.io".split()
)
"""Names that look like those of files, in lower case."""


class _Use(Enum):
    READ = "read"
    WRITE = "write"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class RequestFiles:
    """The files that a request is about, each list in the order of the request."""

    named: tuple[str, ...] = ()
    """The files of the folder that it names by their whole names, and wants to be used."""
    outputs: tuple[str, ...] = ()
    """The files that it certainly wants to be written, and that the folder lacks."""
    missing: tuple[str, ...] = ()
    """The files that it wants to be read, and that the folder lacks."""

    @classmethod
    def of(cls, request: str, files: Sequence[str]) -> "RequestFiles":
        """Return the files that a request is about. `files` are those of the folder, and texts that came with it."""
        text = _instruction(compose_name(request))
        uses = list(_uses(text, files))
        written = tuple(dict.fromkeys(name for name, use in uses if use is _Use.WRITE))
        read = dict.fromkeys(name for name, use in uses if use is _Use.READ and name not in written)
        missing = (name for name in read if _may_be_missing(name) and not _stands_in(name, request))
        return cls(_named(text, files), written, tuple(missing) if len(request) <= MAX_INSTRUCTION else ())


def missing_needs(request: str, files: Sequence[str], has_tools: bool) -> tuple[str, ...]:
    """Return a sentence for each thing that a request needs and that is not here: what is missing, what is accepted.

    These are files, and, without tools, one that does what no model can.
    """
    read = RequestFiles.of(request, files)
    tool = "" if has_tools else needed_tool(request, bool(read.named))
    return tuple(_missing(name, files) for name in read.missing) + ((tool,) if tool else ())


def _missing(name: str, files: Sequence[str]) -> str:
    if not files:
        return f"{name} is not here: the request came without files (--dir FOLDER gives it those of a folder)"
    near = nearest(name, files) or nearest(PurePosixPath(name).name, files)
    accepted = f"perhaps {near} is meant" if near else f"the files are {', '.join(files[:8])}"
    more = f" and {len(files) - 8} more" if not near and len(files) > 8 else ""
    return f"{name} is not among the files of the request ({accepted}{more})"


_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TURN = re.compile(r"^(?:user|assistant|system|tool): ", re.MULTILINE)
_MASKED = re.compile(
    r"\w+://\S+|\bwww\.\S+|[\w.+-]+@[\w-]+\.\S+"  # addresses
    r"|\"[^\"\n]*\s[^\"\n]*\"|“[^”\n]*\s[^”\n]*”|„[^“”\n]*\s[^“”\n]*[“”]|«[^»\n]{3,}\s[^»\n]{3,}»"  # quoted texts
)


def _instruction(request: str) -> str:
    """Return what a request says itself, with blanks for addresses, quoted texts and code, and for earlier turns."""
    turns = [*_TURN.finditer(request)]
    if turns and turns[0].start() == 0:
        last = next((turn for turn in reversed(turns) if turn[0] == "user: "), turns[-1])
        request = " " * last.end() + request[last.end() :]
    blank = _FENCED.sub(lambda match: " " * len(match[0]), request)
    return _MASKED.sub(lambda match: " " * len(match[0]), blank)


def _stands_in(name: str, request: str) -> bool:
    """Return whether the text of a file may stand in the request itself, under its name, or in an earlier turn."""
    if "```" in request or "~~~" in request or _TURN.match(request) is not None:
        return True
    return re.search(rf"(?m){re.escape(name)}\W{{0,12}}$\n\s*\S", request) is not None


def _named(text: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return the files whose whole names, or whose names without the folder, are in a text, in the order of the text."""
    last = [PurePosixPath(file).name for file in files]
    once = {name for name in last if last.count(name) == 1} if len(files) <= MAX_INSTRUCTION else set()
    places = {}
    for file, name in zip(files, last, strict=True):
        written = compose_name(file) if names_file(text, compose_name(file)) else name
        if (written != name or name in once) and (written in text and names_file(text, compose_name(written))):
            start = re.search(rf"(?<![\w./-]){re.escape(written)}(?![\w/-])", text)
            if start is not None and not _EXCLUDED.search(folded(text[max(0, start.start() - 40) : start.start()])):
                places[file] = start.start()
    return tuple(sorted(places, key=lambda file: places[file]))


def _may_be_missing(name: str) -> bool:
    return PurePosixPath(name).suffix[1:].lower() in ENDINGS and name.lower() not in PRODUCTS


_NAME = re.compile(r"(?<![\w./*@-])[\w-][\w./-]*\.[A-Za-z]\w{0,7}(?![\w/*(@-])")
_TOKEN = re.compile(r"[\w./'\u2019-]*\w|[,;:]")
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|\n{2,}|\n(?=\s*(?:[-*•]|\d+[.)])\s)")

_WRITING = (
    "write writes? save creates? produce generate store export output put implement develop draft compose prepare build "
    "name call make schreib(?:e|en|st|t)? speicher(?:e|n|st|t)? erstell(?:e|en|t)? erzeug(?:e|en|t)? generier(?:e|en)? "
    "ausgeben leg sicher(?:e|n) programmier(?:e|en)? implementier(?:e|en)? verfass(?:e|en|t)? ableg(?:e|en|t) nenn "
    "exportier(?:e|en)? abspeicher(?:n|e) entwickl(?:e|t) "
    "ecri(?:s|re|vez|s-le|s-la) enregistr(?:e|er|ez)(?:-l[ea]s?)? sauvegard(?:e|er|ez)(?:-l[ea]s?)? cre(?:e|er|ez) "
    "gener(?:e|er|ez) mets(?:-l[ea]s?)? mettre redige(?:r|z)? exporte(?:r|z)? implement(?:e|er|ez) "
    "escrib(?:e|ir|a|elo|ela|elos|elas) guard(?:a|ar|e|alo|ala|alos|alas) crea(?:r|lo)? gener(?:a|ar|alo) pon(?:er|lo|la)? "
    "redact(?:a|ar) exporta(?:r)? implementa(?:r)? almacena(?:r)? llam(?:alo|ala) nombra(?:lo)?"
).split()
_READING = (
    "read summari[sz]e translate compare check review fix list extract explain analy[sz]e count sort find look use take "
    "open load parse describe classify rate proofread correct convert turn improve rewrite edit update refactor merge "
    "combine join debug test run tell show answer validate verify rank group filter calculate compute sum split rename "
    "copy move clean format shorten condense outline identify highlight pick choose judge evaluate inspect examine search "
    "scan see quote paraphrase simplify transform change modify annotate diff document say says mention mentions add "
    "append apply give get "
    "lies lest lesen fass fasse zusammenfassen ubersetz(?:e|en|t)? vergleich(?:e|en|t)? (?:uber)?pruf(?:e|en|t)? liste "
    "auflisten extrahier(?:e|en)? erklar(?:e|en|t)? analysier(?:e|en)? zahl(?:e|en)? sortier(?:e|en)? such(?:e|en)? "
    "find(?:e|en)? nimm nehmen nutz(?:e|en)? verwend(?:e|en)? offn(?:e|en) beschreib(?:e|en)? klassifizier(?:e|en)? "
    "bewert(?:e|en)? korrigier(?:e|en)? verbesser(?:e|n)? uberarbeit(?:e|en)? aktualisier(?:e|en)? konvertier(?:e|en)? "
    "wandl(?:e)? formulier(?:e|en)? kurz(?:e|en) berechn(?:e|en) ordn(?:e|en) zeig(?:e|en)? sag(?:e|en)? nenne steht gib "
    "li(?:s|re|sez) resum(?:e|er|ez) tradui(?:s|re|sez) compar(?:e|er|ez) verifi(?:e|er|ez) lister? extrai(?:s|re|yez) "
    "expliqu(?:e|er|ez) analys(?:e|er|ez) compt(?:e|er|ez) tri(?:e|er|ez) trouv(?:e|er|ez) cherch(?:e|er|ez) "
    "utilis(?:e|er|ez) prends decri(?:s|re|vez) class(?:e|er|ez) corrig(?:e|er|ez) amelior(?:e|er|ez) convert(?:is|ir) "
    "transform(?:e|er|ez) calcul(?:e|er|ez) montr(?:e|er|ez) dis regard(?:e|er|ez) reformul(?:e|er|ez) simplifi(?:e|er) "
    "fusionn(?:e|er) reli(?:s|re) "
    "lee leer resum(?:e|ir|a) traduc(?:e|ir|elo) compar(?:a|ar) revis(?:a|ar) verific(?:a|ar) comprueba enumera(?:r)? "
    "extra(?:e|er) explic(?:a|ar) analiz(?:a|ar) cuenta contar ordena(?:r)? encuentra busca(?:r)? usa(?:r)? utiliza(?:r)? "
    "clasific(?:a|ar) corrige corregir mejora(?:r)? convierte transforma(?:r)? calcula(?:r)? muestra di mira fusiona(?:r)? "
    "combina(?:r)? une"
).split()
_WRITES = re.compile(rf"(?:{'|'.join(_WRITING)})")
_READS = re.compile(rf"(?:{'|'.join(_READING)})")
_ARTICLE = frozenset(
    "a an the this that my your our its his her their ein eine einen einem einer eines der die das den dem des mein meine "
    "un une le la les du des ce cette mon ma mes el los las una unos unas mi mis su sus al del".split()
)
_INDEFINITE = frozenset("a an ein eine einen un une una".split())
_FILLERS = _ARTICLE | frozenset(
    "file files new datei dateien neue neuen fichier fichiers nouveau archivo archivos fichero ficheros nuevo document "
    "dokument documento both beide deux dos two".split()
)
"""Words that may stand between a preposition and the name that it belongs to."""
_AND = frozenset("and or und oder sowie et ou y o e & , : as-well-as plus".split())
_NAMING = frozenset(
    "as named called titled als namens genannt benannt comme nomme nommee appele appelee sous como llamado llamada "
    "titulado".split()
)
_FROM = frozenset(
    "from of about for using on by per against via between von vom aus uber fur mithilfe laut anhand gegen zwischen zu "
    "de du des d depuis pour sur par contre entre selon desde sobre para por segun del contra based according "
    "regarding".split()
)
_WITH = frozenset("with mit avec con without ohne sans sin".split())
_NOT = frozenset("not never without nicht ohne sans pas sin".split())
_INTO = frozenset("into vers hacia".split())
_IN = frozenset("in inside im within dans en nach under unter to a al au".split())
_TO = frozenset("to a al au nach".split())
_RELATIVE = frozenset(
    "that which who whose reads reading loads loading takes taking parses uses welche welches welcher liest ladt qui que "
    "lit lisant charge cual lea lee carga".split()
)
_MODAL = frozenset(
    "should must shall will would can soll sollte muss kann doit devrait peut debe deberia puede".split()
)
_PROGRAM = re.compile(
    r"\b(?:functions?|scripts?|programs?|class|module|tool|cli|app|application|command|server|library|parser|makefile|"
    r"dockerfile|workflow|pipeline|config(?:uration)?|code|funktion\w*|skripte?|programm\w*|klasse|modul|werkzeug|befehl|"
    r"fonctions?|programmes?|classe|outil|commande|funcion(?:es)?|programas?|clase|herramienta|comando)\b"
)
_HOW = re.compile(r"\s*(?:how (?:do|to|can|should|would)|what (?:is|are) an?\b|why (?:do|does|is)|wie (?:kann|schreib|"
                  r"erstell)|was ist ein|comment|qu'est-ce qu|como (?:se|puedo|hago)|que es un)")  # fmt: skip
_EXCLUDED = re.compile(
    r"\b(?:except|without|ignor\w*|exclud\w*|skip|not|never|don't|leave|untouched|other than|but|außer|ausser|ohne|nicht|"
    r"nie|lass|sauf|sans|pas|hormis|excepto|sin|salvo|ignora\w*|menos|no)\b(?:\s+[\w'\u2019]+){0,2}\s*[\"'`]?$"
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    """Folded, but names as they are."""
    name: bool
    capital: bool
    """Whether it is a noun by its capital, as in German; not at the beginning of a clause."""


def _uses(text: str, files: Sequence[str]) -> Iterator[tuple[str, _Use]]:
    """Yield the names in a text that look like those of files and are none of the folder, and what is done with each."""
    names = FileNames(files)
    by_case = {folded(file) for file in files} | {folded(PurePosixPath(file).name) for file in files}
    spaced = [compose_name(file) for file in files if " " in file]
    program = False
    for start, end in _sentences(text):
        sentence = text[start:end]
        tokens = list(_tokens(sentence))
        for at, token in enumerate(tokens):
            if token.name and not any(token.text in file and file in text for file in spaced):
                there = folded(token.text) in by_case or names.find(token.text)
                use = _Use.UNSURE if _HOW.match(folded(sentence)) else _use(tokens, at, program)
                if not there:
                    yield token.text, use
        program = program or _orders_program(tokens)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        yield start, match.end()
        start = match.end()
    yield start, len(text)


def _tokens(sentence: str) -> Iterator[_Token]:
    names = {match.start(): match for match in _NAME.finditer(sentence)}
    at, begins = 0, True
    while at < len(sentence):
        match = names.get(at) or _TOKEN.match(sentence, at)
        if match is None:
            at += 1
            continue
        text, named = match[0], at in names
        if not named and any(at < start < match.end() for start in names):
            at += 1  # a quote or a bracket before the name
            continue
        plain = text if named else re.sub(r"^[ldjn]['\u2019]", "", folded(text))
        yield _Token(plain, named, text[:1].isupper() and not begins)
        begins = text in ",;:" or plain in _AND
        at = match.end()


def _orders_program(tokens: Sequence[_Token]) -> bool:
    """Return whether a sentence orders a program, so that the names that follow may be those that it works with."""
    verb = next((at for at in range(len(tokens)) if _is_verb(tokens, at, _WRITES)), None)
    rest = tokens[verb + 1 :] if verb is not None else ()
    return any(_PROGRAM.fullmatch(token.text) for token in rest if not token.name)


def _is_verb(tokens: Sequence[_Token], at: int, verbs: re.Pattern[str]) -> bool:
    token = tokens[at]
    article = at > 0 and tokens[at - 1].text in _ARTICLE
    return not (token.name or token.capital or article) and verbs.fullmatch(token.text) is not None


def _use(tokens: Sequence[_Token], at: int, program: bool) -> _Use:
    """Return what a sentence wants to be done with the name at this place of it. `program`: one was ordered before."""
    link = at - 1
    while link >= 0 and tokens[link].text in _FILLERS and not tokens[link].name:
        link -= 1
    before = tokens[link] if link >= 0 else None
    if before is not None and (before.text in _AND or before.name) and (joined := _joined(tokens, link)) is not None:
        return _use(tokens, joined, program)
    verb, writes = _verb_before(tokens, at)
    between = tokens[verb + 1 : at] if verb is not None else tokens[:at]
    in_program = program or _in_program(tokens, at)
    if before is not None and not before.name and before.text in _NAMING:
        return _Use.WRITE
    if any(token.text in _NOT for token in tokens[max(0, at - 3) : at]):
        return _Use.UNSURE
    preposition = before.text if before is not None and not before.name and at > 0 else ""
    if preposition in _INTO or preposition in _IN:
        return _into(tokens, link, at, preposition, writes=writes, in_program=in_program)
    described = any(token.text in _RELATIVE or token.text in _MODAL for token in between)
    if (writes and described) or (in_program and not writes):
        return _Use.UNSURE
    if preposition in _WITH:
        return _Use.UNSURE if writes else _Use.READ
    if preposition in _FROM or preposition.startswith("d'"):
        return _Use.UNSURE if in_program and _program_in(between) else _Use.READ
    if verb is None:
        return _without_verb(tokens, at, in_program)
    if not writes:
        return _Use.UNSURE if tokens[at - 1].text in _INDEFINITE else _Use.READ
    return _Use.WRITE


def _joined(tokens: Sequence[_Token], link: int) -> int | None:
    """Return the place of the name before a comma or an `and`, if the two are one list."""
    at = link
    while at >= 0 and not tokens[at].name and (tokens[at].text in _AND or tokens[at].text in _FILLERS):
        at -= 1
    return at if at >= 0 and tokens[at].name else None


def _verb_before(tokens: Sequence[_Token], at: int) -> tuple[int | None, bool]:
    """Return the place of the verb that governs a name, if one stands before it, and whether it is one of writing."""
    for place in range(at - 1, -1, -1):
        if _is_verb(tokens, place, _WRITES):
            return place, True
        if _is_verb(tokens, place, _READS):
            return place, False
    return None, False


def _verb_behind(tokens: Sequence[_Token], at: int) -> bool | None:
    """Return whether the verb that follows a name, as in German, is one of writing; None if none follows at once."""
    for place in range(at + 1, min(len(tokens), at + 6)):
        if tokens[place].text in _AND or tokens[place].name:
            return None
        if _is_verb(tokens, place, _WRITES):
            return True
        if _is_verb(tokens, place, _READS) or tokens[place].text in ("zusammen", "vor"):
            return False
    return None


def _in_program(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether a name is part of what a program is to do that the sentence orders."""
    verb = next((place for place in range(at) if _is_verb(tokens, place, _WRITES)), None)
    return verb is not None and _program_in(tokens[verb + 1 : at])


def _program_in(tokens: Iterable[_Token]) -> bool:
    return any(_PROGRAM.fullmatch(token.text) for token in tokens if not token.name)


def _into(tokens: Sequence[_Token], link: int, at: int, preposition: str, *, writes: bool, in_program: bool) -> _Use:
    """Return what is done with a name behind a preposition of place or direction."""
    behind = _verb_behind(tokens, at)
    if preposition in _INTO or behind or (link > 0 and tokens[link - 1].name):
        return _Use.UNSURE if in_program and not writes else _Use.WRITE
    if writes:
        return _Use.UNSURE if in_program and _relative_before(tokens, at) else _Use.WRITE
    if in_program:
        return _Use.UNSURE
    if preposition in _TO and any(_is_verb(tokens, place, _WRITES) for place in range(link)):
        return _Use.WRITE
    if preposition in _IN and any(_is_verb(tokens, place, _WRITES) for place in range(link)):
        return _Use.UNSURE
    return _Use.READ


def _relative_before(tokens: Sequence[_Token], at: int) -> bool:
    verb, _ = _verb_before(tokens, at)
    return any(token.text in _RELATIVE for token in tokens[(verb or 0) : at])


def _without_verb(tokens: Sequence[_Token], at: int, in_program: bool) -> _Use:
    """Return what is done with a name that no verb stands before, as in "a.md zusammenfassen" or "What is in a.md?"."""
    if _verb_behind(tokens, at):
        return _Use.WRITE
    if in_program or (at > 0 and tokens[at - 1].text in _INDEFINITE):
        return _Use.UNSURE
    return _Use.READ
