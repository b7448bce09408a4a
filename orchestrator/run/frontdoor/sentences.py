"""Say by verb and preposition what a sentence does with the name of a file, in four languages.

"Summarize a.md", "the numbers in a.csv" and "a summary of a.md" read it; "write a.md", "save it as a.md" and "a.md
speichern" write it. A file that a program works with ("a script that reads a.csv") is unsure. A program that does not
exist is to be written if the request orders anything and nothing says that the program is read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.run.frontdoor.words import concept, folded


class Use(Enum):
    """What is done with a file."""

    READ = "read"
    WRITE = "write"
    UNSURE = "unsure"


_NAME = re.compile(r"(?<![\w./*@-])[\w-][\w./-]*\.[A-Za-z]\w{0,7}(?![\w/*(@-])")
_TOKEN = re.compile(r"->|=>|[→⇒]|[\w./'\u2019-]*\w|[,;:(]")
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|\n{2,}|\n(?=\s*(?:[-*•]|\d+[.)])\s)")

_WRITING = """
    write writes? save creates? produce generate store export output put implement develop draft compose prepare
    build name call make schreib(?:e|en|st|t)? speicher(?:e|n|st|t)? erstell(?:e|en|t)? erzeug(?:e|en|t)?
    generier(?:e|en)? ausgeben leg sicher(?:e|n) programmier(?:e|en)? implementier(?:e|en)? verfass(?:e|en|t)?
    ableg(?:e|en|t) nenn exportier(?:e|en)? abspeicher(?:n|e) entwickl(?:e|t) ecri(?:s|re|vez|s-le|s-la)
    enregistr(?:e|er|ez)(?:-l[ea]s?)? sauvegard(?:e|er|ez)(?:-l[ea]s?)? cre(?:e|er|ez) gener(?:e|er|ez)
    mets(?:-l[ea]s?)? mettre redige(?:r|z)? exporte(?:r|z)? implement(?:e|er|ez)
    escrib(?:e|ir|a|elo|ela|elos|elas) guard(?:a|ar|e|alo|ala|alos|alas) crea(?:r|lo)? gener(?:a|ar|alo)
    pon(?:er|lo|la)? redact(?:a|ar) exporta(?:r)? implementa(?:r)? almacena(?:r)? llam(?:alo|ala) nombra(?:lo)?
    """.split()
_READING = """
    read summari[sz]e translate compare check review fix list extract explain analy[sz]e count sort find look
    use take open load parse describe classify rate proofread correct convert turn improve rewrite edit update
    refactor merge combine join debug test run tell show answer validate verify rank group filter calculate
    compute sum split rename copy move clean format shorten condense outline identify highlight pick choose
    judge evaluate inspect examine search scan see quote paraphrase simplify transform change modify annotate
    diff document say says mention mentions add append apply give get lies lest lesen fass fasse zusammenfassen
    ubersetz(?:e|en|t)? vergleich(?:e|en|t)? (?:uber)?pruf(?:e|en|t)? liste auflisten extrahier(?:e|en)?
    erklar(?:e|en|t)? analysier(?:e|en)? zahl(?:e|en)? sortier(?:e|en)? such(?:e|en)? find(?:e|en)? nimm nehmen
    nutz(?:e|en)? verwend(?:e|en)? offn(?:e|en) beschreib(?:e|en)? klassifizier(?:e|en)? bewert(?:e|en)?
    korrigier(?:e|en)? verbesser(?:e|n)? uberarbeit(?:e|en)? aktualisier(?:e|en)? konvertier(?:e|en)?
    wandl(?:e)? formulier(?:e|en)? kurz(?:e|en) berechn(?:e|en) ordn(?:e|en) zeig(?:e|en)? sag(?:e|en)? nenne
    steht gib li(?:s|re|sez) resum(?:e|er|ez) tradui(?:s|re|sez) compar(?:e|er|ez) verifi(?:e|er|ez) lister?
    extrai(?:s|re|yez) expliqu(?:e|er|ez) analys(?:e|er|ez) compt(?:e|er|ez) tri(?:e|er|ez) trouv(?:e|er|ez)
    cherch(?:e|er|ez) utilis(?:e|er|ez) prends decri(?:s|re|vez) class(?:e|er|ez) corrig(?:e|er|ez)
    amelior(?:e|er|ez) convert(?:is|ir) transform(?:e|er|ez) calcul(?:e|er|ez) montr(?:e|er|ez) dis
    regard(?:e|er|ez) reformul(?:e|er|ez) simplifi(?:e|er) fusionn(?:e|er) reli(?:s|re) lee leer resum(?:e|ir|a)
    traduc(?:e|ir|elo) compar(?:a|ar) revis(?:a|ar) verific(?:a|ar) comprueba enumera(?:r)? extra(?:e|er)
    explic(?:a|ar) analiz(?:a|ar) cuenta contar ordena(?:r)? encuentra busca(?:r)? usa(?:r)? utiliza(?:r)?
    clasific(?:a|ar) corrige corregir mejora(?:r)? convierte transforma(?:r)? calcula(?:r)? muestra di mira
    fusiona(?:r)? combina(?:r)? une
    """.split()
# also nouns or participles, unless they start a clause: "a packing list"
_NOUNS = frozenset(
    """
    list check review test use look sort rate count answer open load show rank group filter format outline highlight
    judge search quote change edit run scan copy move draft build store call name make document split turn say
    liste zahl compte classe corrige resume cuenta muestra lista mira usa
    """.split()
)
_WRITES = re.compile(rf"(?:{'|'.join(_WRITING)})")
_READS = re.compile(rf"(?:{'|'.join(_READING)})")
_ARTICLE = frozenset(
    """
    a an the this that my your our its his her their ein eine einen einem einer eines der die das den dem des
    mein meine un une le la les du des ce cette mon ma mes el los las una unos unas mi mis su sus al del
    """.split()
)
_INDEFINITE = frozenset("a an ein eine einen un une una".split())
# words between a preposition and its name
_FILLERS = _ARTICLE | frozenset(
    """
    file files new datei dateien neue neuen fichier fichiers nouveau archivo archivos fichero ficheros nuevo
    document dokument documento both beide deux dos two
    """.split()
)
_AND = frozenset("and or und oder sowie et ou y o e & , : as-well-as plus".split())
# words after which a verb may start a clause
_BEFORE_VERB = _AND | frozenset(
    """
    then please to also you i we finally next first just now can could should must shall will would let me
    bitte dann danach zuletzt zuerst auch jetzt du sie zu puis ensuite enfin aussi d'abord veuillez
    luego despues tambien primero ahora ( ;
    """.split()
)
_NAMING = frozenset(
    """
    as named called titled als namens genannt benannt comme nomme nommee appele appelee sous como llamado
    llamada titulado
    """.split()
)
_SAYS = frozenset(
    """
    says say said describes describe described explains shows defines requires demands wants asks suggests specifies
    prescribes does uses sagt beschreibt erklart zeigt verlangt vorschreibt dit decrit explique montre demande
    dice explica muestra pide exige
    """.split()
)
_FROM = frozenset(
    """
    from of about for using on by per against via between von vom aus uber fur auf mithilfe laut anhand gegen
    zwischen zu de du des d depuis pour sur par contre entre selon desde sobre para por segun del contra based
    according regarding
    """.split()
)
_WITH = frozenset("with mit avec con without ohne sans sin".split())
_NOT = frozenset("not never without nicht ohne sans pas sin".split())
_ARROWS = frozenset("-> => → ⇒".split())
_INTO = frozenset("into vers hacia".split())
_IN = frozenset("in inside im within dans en nach under unter to a al au".split())
_TO = frozenset("to a al au nach".split())
# concepts of verbs that make a new text of a file
_CHANGES = frozenset("translate summarize convert correct improve sort rewrite edit refactor simplify format".split())
# concepts of verbs that make one text of several, which an "in" may name
_GATHERS = frozenset(
    """
    combine merge join collect gather summarize rank group outline document add append turn transform move copy split
    put bring condense une fusiona combina fusionne rassemble reune
    """.split()
)
_QUESTION = frozenset(
    """
    what which who whom whose when where why how is are was were does do did has have can there
    was welche welcher welches welchen wer wen wem wann wo warum wie wieviel ist sind hat haben steht gibt
    que quoi quel quelle quels quelles qui quand ou pourquoi comment combien est sont y
    cual cuales quien quienes cuando donde cuanto cuanta cuantos cuantas como es son hay
    """.split()
)
_RESULT = frozenset(
    """
    result results output answer translation summary ergebnis ergebnisse ausgabe antwort ubersetzung zusammenfassung
    resultat sortie reponse traduction resultado salida respuesta traduccion
    """.split()
)
_REPLY = frozenset("answer reply response antwort reponse respuesta contestacion".split())
_NEW = frozenset("new neue neuen neues nouveau nouvelle nuevo nueva".split())
_PLURAL = frozenset("files dateien fichiers archivos ficheros".split())
_SO_THAT = frozenset("so that which to damit dass sodass um pour qui que para".split())
_CODE = re.compile(r".*\.(?:py|js|ts|sh|java|c|cpp|cs|go|rs|rb|php|kt|swift)", re.IGNORECASE)
_RELATIVE = frozenset(
    """
    that which who whose reads reading loads loading takes taking parses uses welche welches welcher liest ladt
    qui que lit lisant charge cual lea lee carga
    """.split()
)
_MODAL = frozenset(
    """
    should must shall will would can soll sollte muss kann doit devrait peut debe deberia puede
    """.split()
)
_ASKS = frozenset(
    """
    need needs want wants like give add please brauche brauchen will mochte hatte gib mach mache fuge bitte besoin veux
    voudrais donne fais faites ajoute plait stp svp necesito quiero dame da haz anade agrega favor
    """.split()
)
_GIVES = frozenset("give gib donne donne-moi dame da".split())
_ADDS = frozenset("add fuge ajoute ajouter ajoutez anade anadir agrega agregar".split())
_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.[a-z]+", re.IGNORECASE)
# words that may tie the name of an ordered file to its sentence, besides verbs of writing and programs
_ORDERING = (
    _ASKS
    | _AND
    | _IN
    | _INTO
    | _NAMING
    | _ARROWS
    | _RESULT
    | _ARTICLE
    | frozenset(
        "; ( file files datei dateien fichier archivo also auch aussi tambien ich me mir us uns moi you".split()
    )
    | {""}
)
_AFTER_ORDERED = _AND | _WITH | _FROM | _IN | _INTO | _MODAL | _NAMING | _ARROWS | frozenset("; ( please bitte".split())
_IS = frozenset("is are was were ist sind war est sont etait esta estan hay find see steht stehen".split())
_PROGRAM = re.compile(
    r"\b(?:functions?|scripts?|programs?|class|module|tool|cli|app|application|command|server|library|parser|makefile|"
    r"dockerfile|workflow|pipeline|config(?:uration)?|code|funktion\w*|skripte?|programm\w*|klasse|modul|werkzeug|befehl|"
    r"fonctions?|programmes?|classe|outil|commande|funcion(?:es)?|programas?|clase|herramienta|comando)\b"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a sign or the name of a file."""

    text: str  # folded, except names
    name: bool
    capital: bool  # a noun by its capital, as in German; never at the start of a clause


def sentences_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each sentence of a text. Items of a list are sentences too."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        yield start, match.end()
        start = match.end()
    yield start, len(text)


def tokens_of(sentence: str) -> Iterator[Token]:
    """Yield the words, the signs and the names of files of a sentence."""
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
        yield Token(plain, named, text[:1].isupper() and not begins)
        begins = text in ",;:" or plain in _AND
        at = match.end()


def may_be_program(name: str, text: str) -> bool:
    """Return whether a file may be the program that a text speaks of, and is then to be written."""
    return _CODE.fullmatch(name) is not None and _PROGRAM.search(folded(text)) is not None


def names_code(token: Token) -> bool:
    """Return whether a token is the name of a program."""
    return token.name and _CODE.fullmatch(token.text) is not None


def orders_program(tokens: Sequence[Token]) -> bool:
    """Return whether a sentence orders a program, so that later names may be files that it works with."""
    verb = next((at for at in range(len(tokens)) if _is_verb(tokens, at, _WRITES)), None)
    rest = tokens[verb + 1 :] if verb is not None else ()
    return any(_PROGRAM.fullmatch(token.text) for token in rest if not token.name)


def orders_something(tokens: Sequence[Token]) -> bool:
    """Return whether a sentence orders something to be made."""
    return any(_orders(tokens, at) for at in range(len(tokens)))


def _orders(tokens: Sequence[Token], at: int) -> bool:
    token = tokens[at]
    if token.name:
        return _names_new(tokens, at)
    # "a.py should …"
    lacks = token.text in _MODAL and at > 0 and tokens[at - 1].name
    return lacks or token.text in _ASKS or token.text in _RESULT or _is_verb(tokens, at, _WRITES)


def orders_reading(tokens: Sequence[Token]) -> bool:
    """Return whether a sentence orders something to be read."""
    return any(_is_verb(tokens, at, _READS) for at in range(len(tokens)))


def may_be_ordered(tokens: Sequence[Token], at: int, use: Use, *, program: bool) -> bool:
    """Return whether the name at `at`, of no existing file, may be that of a file that its request orders.

    Tests are also ordered by what they are for ("prove it with test_a.py"), and files of another type at the end of a
    list ("a table from a.txt, b.csv"). With a `program` in the request, files that are no code may be for the program.
    """
    is_code = _CODE.fullmatch(tokens[at].text) is not None
    if (program and not is_code) or any(token.text in _NOT for token in tokens[max(0, at - 3) : at]):
        return False
    if _speaks_of_existing(tokens, at):
        return False
    if _names_new(tokens, at):
        return True
    link = _link_word(tokens, at)
    if use is Use.READ:
        return _is_of_other_type(tokens, at) or (_TEST_FILE.fullmatch(tokens[at].text) is not None and link in _WITH)
    clause = max((place for place in range(at) if tokens[place].text in (",", ";")), default=0)
    described = any(token.text in _RELATIVE or token.text in _SO_THAT - _TO for token in tokens[clause:at])
    orders = link in _ORDERING or _is_verb(tokens, _link(tokens, at), _WRITES) or _PROGRAM.fullmatch(link) is not None
    return orders and not described and (is_code or link != "(")


def listed_with(tokens: Sequence[Token], at: int) -> str:
    """Return the name before this one in a list such as "a.md and b.md"; empty if there is none."""
    listed = _listed_after(tokens, _link(tokens, at))
    return "" if listed is None else tokens[listed].text


def _speaks_of_existing(tokens: Sequence[Token], at: int) -> bool:
    # "a.py crashes", "the bug is in a.py", "README.md files"
    behind = tokens[at + 1].text if at + 1 < len(tokens) and not tokens[at + 1].name else ""
    if behind in _PLURAL:
        return True
    if behind and behind not in _AFTER_ORDERED and not _governed(tokens, at):
        return True
    link = _link(tokens, at)
    return link > 0 and tokens[link].text in _IN and tokens[link - 1].text in _IS


def _governed(tokens: Sequence[Token], at: int) -> bool:
    # by a verb, by a word of asking, or by a preposition
    return (
        _verb_before(tokens, at)[0] is not None
        or any(token.text in _ASKS or token.text in _RESULT for token in tokens[:at])
        or _link_word(tokens, at) in _IN | _INTO | _NAMING
    )


def _is_of_other_type(tokens: Sequence[Token], at: int) -> bool:
    # "from a.txt, b.csv with two columns": behind a comma or a colon, and not within a list
    if at < 2 or tokens[at - 1].text not in (",", ":") or not tokens[at - 2].name:
        return False
    behind = tokens[at + 1].text if at + 1 < len(tokens) else ""
    in_list = behind in _AND - {",", ":"} or (at + 2 < len(tokens) and behind == "," and tokens[at + 2].name)
    return not in_list and _ending(tokens[at].text) != _ending(tokens[at - 2].text)


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _names_new(tokens: Sequence[Token], at: int) -> bool:
    # "a module a.py", "a file a.py"
    if at < 2 or tokens[at - 1].name or tokens[at - 2].text not in _INDEFINITE:
        return False
    kind = tokens[at - 1].text
    return _PROGRAM.fullmatch(kind) is not None or kind in _FILLERS - _ARTICLE


def _link_word(tokens: Sequence[Token], at: int) -> str:
    link = _link(tokens, at)
    return "" if link < 0 or tokens[link].name else tokens[link].text


def _is_verb(tokens: Sequence[Token], at: int, verbs: re.Pattern[str]) -> bool:
    token, before = tokens[at], tokens[at - 1].text if at else ""
    if token.name or token.capital or before in _ARTICLE:
        return False
    if token.text in _NOUNS and before and before not in _BEFORE_VERB and not tokens[at - 1].name:
        return False
    return verbs.fullmatch(token.text) is not None


def use_of(tokens: Sequence[Token], at: int, program: bool) -> Use:
    """Return what a sentence does with the name at `at`. `program`: an earlier sentence orders a program."""
    link, preposition = _link(tokens, at), _link_word(tokens, at)
    if (listed := _listed_after(tokens, link)) is not None:
        return use_of(tokens, listed, program)
    if preposition in _NAMING and at + 1 < len(tokens) and tokens[at + 1].text in _SAYS:
        return Use.READ  # "as style.md says"
    if preposition in _NAMING or preposition in _ARROWS or _is_heading(tokens, link, at):
        return Use.WRITE
    if any(token.text in _NOT for token in tokens[max(0, at - 3) : at]):
        return Use.UNSURE
    if at + 1 < len(tokens) and tokens[at + 1].text in _PLURAL:
        return Use.UNSURE  # "README.md files" are any such files
    if link < 0 and at + 1 < len(tokens) and tokens[at + 1].text in _MODAL:
        return Use.UNSURE  # "a.py should …"
    if any(token.text in _NEW for token in tokens[link + 1 : at]):
        return Use.WRITE
    in_program = program or _in_program(tokens, at)
    if preposition == "(" or (link >= 0 and tokens[link].name):
        return Use.WRITE if _makes_text(tokens, at) else Use.UNSURE
    if preposition in _INTO or preposition in _IN:
        return _into(tokens, link, at, in_program=in_program)
    return _object(tokens, at, preposition, in_program=in_program)


def _is_heading(tokens: Sequence[Token], link: int, at: int) -> bool:
    # a name alone, or at a colon: "a.md: a short version", "Result: a.md"
    if all(token.name or token.text in _AND for token in tokens):
        return True
    if link > 0 and tokens[link].text == ":" and tokens[link - 1].text in _RESULT:
        return True
    begins = link < 0 or tokens[link].text == "," or _PROGRAM.fullmatch(tokens[link].text) is not None
    return begins and at + 1 < len(tokens) and tokens[at + 1].text == ":"


def _link(tokens: Sequence[Token], at: int) -> int:
    # the word that ties the name to the sentence, such as a preposition; -1 for none
    link = at - 1
    while link >= 0 and not tokens[link].name:
        filler = tokens[link].text in _FILLERS
        if (
            filler
            and tokens[link].text in _TO
            and link > 0
            and (tokens[link - 1].name or tokens[link - 1].text in _REPLY)
        ):
            break  # "a.md a b.md", "una respuesta a a.md": no article, but Spanish or French for "to"
        if not filler and not (tokens[link].text == ":" and link > 0 and tokens[link - 1].text in _FILLERS):
            break  # a colon belongs to "in two files: a.md and b.md"
        link -= 1
    return link


def _listed_after(tokens: Sequence[Token], link: int) -> int | None:
    # the name before the comma or the "and" of a list
    if link < 0 or tokens[link].name or tokens[link].text not in _AND:
        return None
    at = link
    while at >= 0 and not tokens[at].name and (tokens[at].text in _AND or tokens[at].text in _FILLERS):
        at -= 1
    return at if at >= 0 and tokens[at].name and tokens[at + 1].text != ":" else None


def _object(tokens: Sequence[Token], at: int, preposition: str, *, in_program: bool) -> Use:
    # the name is the object of a verb, or belongs to it by a preposition of origin
    verb, writes = _verb_before(tokens, at)
    between = tokens[verb + 1 : at] if verb is not None else tokens[:at]
    described = any(token.text in _RELATIVE or token.text in _MODAL for token in between)
    if (writes and described) or (in_program and not writes):
        return Use.UNSURE
    if preposition in _WITH:
        return Use.UNSURE if writes else Use.READ
    if preposition in _FROM:
        return Use.UNSURE if in_program and _program_in(between) else Use.READ
    if verb is None:
        return _without_verb(tokens, at)
    if writes:
        return Use.WRITE
    gives = tokens[verb].text in _GIVES and _CODE.fullmatch(tokens[at].text) is not None
    doubtful = gives or _adds(tokens, verb, at) or tokens[at - 1].text in _INDEFINITE
    return Use.UNSURE if doubtful else Use.READ


def _adds(tokens: Sequence[Token], verb: int, at: int) -> bool:
    # "add a.md" may order a new file, but "add a.md to b.md" reads one
    behind = [token.text for token in tokens[at + 1 :]]
    goes_into = behind[:1] == ["a"] or not {"to", "into", "zu", "al", "au"}.isdisjoint(behind)
    return tokens[verb].text in _ADDS and _link(tokens, at) == verb and not goes_into


def _verb_before(tokens: Sequence[Token], at: int) -> tuple[int | None, bool]:
    # the verb that governs the name, and whether it is one of writing
    for place in range(at - 1, -1, -1):
        if _is_verb(tokens, place, _WRITES):
            return place, True
        if _is_verb(tokens, place, _READS):
            return place, False
    return None, False


def _verb_behind(tokens: Sequence[Token], at: int) -> bool | None:
    # German verbs may follow the name; None if none follows soon
    for place in range(at + 1, min(len(tokens), at + 6)):
        if tokens[place].text in _AND or tokens[place].name:
            return None
        if _is_verb(tokens, place, _WRITES):
            return True
        if _is_verb(tokens, place, _READS) or tokens[place].text in ("zusammen", "vor"):
            return False
    return None


def _in_program(tokens: Sequence[Token], at: int) -> bool:
    # the sentence orders a program that works with the file
    verb = next((place for place in range(at) if _is_verb(tokens, place, _WRITES)), None)
    code = next((place for place in range(at) if tokens[place].name and _CODE.fullmatch(tokens[place].text)), None)
    changed = code is not None and any(token.text in _SO_THAT | _MODAL for token in tokens[code + 1 : at - 1])
    return changed or (verb is not None and _program_in(tokens[verb + 1 : at]))


def _program_in(tokens: Iterable[Token]) -> bool:
    return any(_PROGRAM.fullmatch(token.text) for token in tokens if not token.name)


def _into(tokens: Sequence[Token], link: int, at: int, *, in_program: bool) -> Use:
    # after a preposition of place or direction
    preposition, (_, writes) = tokens[link].text, _verb_before(tokens, at)
    if preposition not in _TO and link > 0 and tokens[link - 1].text in ("one", "ones", "those"):
        return Use.READ  # "like the one in a.md"
    if preposition in _TO and link > 1 and tokens[link - 1].text in _REPLY and tokens[link - 2].text in _INDEFINITE:
        return Use.READ  # "a reply to mail.txt", but "write the reply to reply.txt"
    if preposition in _INTO or _verb_behind(tokens, at) or (link > 0 and tokens[link - 1].name):
        return Use.UNSURE if in_program and not writes else Use.WRITE
    if writes:
        return Use.UNSURE if in_program and _relative_before(tokens, at) else Use.WRITE
    if in_program:
        return Use.UNSURE
    begins = max((place + 1 for place in range(link) if tokens[place].text in _AND), default=0)
    if any(_is_verb(tokens, place, _WRITES) for place in range(begins, link)):
        return Use.WRITE
    return _place(tokens, begins, at)


def _place(tokens: Sequence[Token], begins: int, at: int) -> Use:
    # after a preposition of place, without a verb of writing: if the sentence names another file before, this may
    # be where the result goes, unless the two are compared
    verb, _ = _verb_before(tokens, at)
    clause = tokens[max(begins, -1 if verb is None else verb + 1) : at]
    if verb is None and not _is_question(tokens):
        return Use.UNSURE  # "the findings belong in a.md"
    if verb is not None and concept(tokens[verb].text) in _GATHERS:
        return Use.WRITE if _changes_file(tokens, at) else Use.UNSURE  # "combine the summaries in a.md"
    if _CODE.fullmatch(tokens[at].text) and _program_in(tokens[:at]):
        return Use.UNSURE  # "a function that counts words, in a.py"
    if _changes_file(tokens, at) or any(token.text in _RESULT for token in clause):
        return Use.WRITE
    compared = verb is not None and concept(tokens[verb].text) == "compare"
    doubtful = any(token.text in _MODAL for token in clause) or any(token.name for token in tokens[:at])
    return Use.UNSURE if doubtful and not compared else Use.READ


def _makes_text(tokens: Sequence[Token], at: int) -> bool:
    # as "write" and "translate" do
    verb, writes = _verb_before(tokens, at)
    return writes or (verb is not None and concept(tokens[verb].text) in _CHANGES)


def _changes_file(tokens: Sequence[Token], at: int) -> bool:
    # "Translate a.md for Anna in b.md"
    verb, _ = _verb_before(tokens, at)
    if verb is None or not _makes_text(tokens, at):
        return False
    name = next((place for place in range(verb + 1, at) if tokens[place].name), None)
    return name is not None and _link(tokens, name) == verb


def _relative_before(tokens: Sequence[Token], at: int) -> bool:
    verb, _ = _verb_before(tokens, at)
    return any(token.text in _RELATIVE for token in tokens[(verb or 0) : at])


def _without_verb(tokens: Sequence[Token], at: int) -> Use:
    # "a.md zusammenfassen", "What is in a.md?"
    behind = _verb_behind(tokens, at)
    if behind:
        return Use.WRITE
    if at > 0 and tokens[at - 1].text in _INDEFINITE:
        return Use.UNSURE
    return Use.READ if behind is False or _is_question(tokens) else Use.UNSURE


def _is_question(tokens: Sequence[Token]) -> bool:
    return any(token.text in _QUESTION for token in tokens[:3] if not token.name)
