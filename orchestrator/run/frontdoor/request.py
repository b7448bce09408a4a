"""Read by code what a request names and needs: files that it wants read, written or changed, and tools.

A file is missing if a sentence certainly wants it to be read and the folder lacks it. Only orders change a program, not
questions about it. A tool is needed to book, send, buy or call, or to look up what is in no text here. The whole
request has to be such an order; a request for a text about it ("Write an email that…") is not. In doubt it is no order:
to refuse what a model could do is worse than an answer that says that it cannot be done. English, German, French and
Spanish are read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.fences import is_program
from orchestrator.run.frontdoor.references import names_file, ranges_of
from orchestrator.run.frontdoor.sentences import (
    Use,
    listed_with,
    may_be_ordered,
    may_be_program,
    names_code,
    orders_program,
    orders_reading,
    orders_something,
    sentences_of,
    tokens_of,
    use_of,
)
from orchestrator.run.frontdoor.words import folded
from orchestrator.run.gates.planned import module_under_test
from orchestrator.task.taskir.models import compose_name, find_name
from orchestrator.task.taskir.problems import nearest

MAX_INSTRUCTION: Final = 1500  # characters; a longer request contains texts, whose file names do not count

# a name with such an ending can only be a file
ENDINGS: Final = frozenset(
    """
    txt md rst adoc tex log csv tsv json jsonl ndjson yaml yml toml ini cfg conf env xml html htm css scss js mjs ts tsx
    jsx py pyi ipynb sh bash zsh ps1 bat sql c h cc cpp hpp cs rs go java kt rb php pl lua r swift scala vue svg srt vtt
    ics vcf eml diff patch lock bib pdf doc docx odt xls xlsx ods ppt pptx png jpg jpeg gif webp
    """.split()
)

# look like names of files; lower case
PRODUCTS: Final = frozenset(
    "node.js vue.js next.js nuxt.js react.js express.js angular.js ember.js backbone.js three.js d3.js p5.js chart.js "
    "alpine.js moment.js discord.py web.py bun.sh draw.io".split()
)


@dataclass(frozen=True, slots=True)
class RequestFiles:
    """The files that a request is about, in the order of the request."""

    named: tuple[str, ...] = ()  # existing files that it wants to be used
    outputs: tuple[str, ...] = ()  # new files that it certainly wants to be written
    missing: tuple[str, ...] = ()  # files that it wants to be read, and that the folder lacks

    @classmethod
    def of(cls, request: str, files: Sequence[str]) -> "RequestFiles":
        """Return the files that a request is about. `files` are those of the folder and texts that came with it.

        A request of more than MAX_INSTRUCTION characters names none.
        """
        if len(request) > MAX_INSTRUCTION:
            return cls()
        text = instruction(compose_name(request))
        present, absent = _uses(text, files)
        written = [name for name, use in absent if use is Use.WRITE]
        not_only_read = {name for name, use in absent if use is not Use.READ}  # one doubtful use prevents a refusal
        read = [name for name, use in absent if name not in not_only_read]
        missing = (
            name
            for name in read
            if _may_be_missing(name) and not _stands_in(name, request) and not may_be_program(name, text)
        )
        return cls(_named(text, files, present), _once(written), _once(missing))


def missing_needs(request: str, files: Sequence[str], has_tools: bool) -> tuple[str, ...]:
    """Return a sentence for each thing that a request needs and that is not here, with what is accepted.

    These are files and, if `has_tools` is false, a tool.
    """
    read = RequestFiles.of(request, files)
    tool = "" if has_tools else needed_tool(request, bool(read.named))
    return tuple(_missing(name, files) for name in read.missing) + ((tool,) if tool else ())


def _missing(name: str, files: Sequence[str]) -> str:
    if not files:
        how = "--dir FOLDER gives those of a folder, but no links"
        return f"{name} is not here: no files came with the request ({how})"
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


def instruction(request: str) -> str:
    """Return a request with blanks in place of quoted texts, code, addresses and earlier turns."""
    turns = [*_TURN.finditer(request)]
    if turns and turns[0].start() == 0:
        last = next((turn for turn in reversed(turns) if turn[0] == "user: "), turns[-1])
        request = " " * last.end() + request[last.end() :]
    blank = _FENCED.sub(lambda match: " " * len(match[0]), request)
    return _MASKED.sub(lambda match: " " * len(match[0]), blank)


def _stands_in(name: str, request: str) -> bool:
    # the text of the file may be in the request, under its name, or in an earlier turn
    if "```" in request or "~~~" in request or _TURN.match(request) is not None:
        return True
    return re.search(rf"(?m){re.escape(name)}\W{{0,12}}$\n\s*\S", request) is not None


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _named(text: str, files: Sequence[str], present: Sequence[tuple[str, Use]]) -> tuple[str, ...]:
    # `present` are names in the text of existing files; a file that is only to be written is not returned
    last = [_last_name(file) for file in files]
    counts = Counter(last)
    written = {name for name, use in present if use is Use.WRITE} - {name for name, use in present if use is Use.READ}
    places, excluded = dict[str, int](), set[str]()
    for file, name in zip(files, last, strict=True):
        called = next((candidate for candidate in (file, name) if names_file(text, compose_name(candidate))), "")
        if not called or called in written or (called != file and counts[name] > 1):
            continue
        at = text.find(compose_name(called))
        if _EXCLUDED.search(folded(text[max(0, at - 40) : at])):
            excluded.add(file)
        else:
            places[file] = at
    for listed in ranges_of(text, files):
        first = min((places[file] for file in listed if file in places), default=len(text))
        places |= {file: places.get(file, first) for file in listed if file not in excluded}
    return tuple(sorted(places, key=lambda file: places[file]))


def _may_be_missing(name: str) -> bool:
    return PurePosixPath(name).suffix[1:].lower() in ENDINGS and name.lower() not in PRODUCTS


# questions about files in general
_HOW = re.compile(
    r"\s*(?:how (?:do|to|can|should|would)|what (?:is|are) an?\b|why\b|warum\b|pourquoi\b|wie (?:kann|schreib|erstell)"
    r"|was ist ein|comment|qu'est-ce qu|como (?:se|puedo|hago)|que es un)"
)
# words before the name of a file that leave it out
_EXCLUDED = re.compile(
    r"\b(?:except|without|ignor\w*|exclud\w*|skip|not|never|don't|leave|untouched|other than|but|ausser|ohne|nicht|nie"
    r"|lass|sauf|sans|pas|hormis|excepto|sin|salvo|menos|no)\b(?:\s+[\w'\u2019]+){0,2}\s*[\"'`]?$"
)


def _last_name(file: str) -> str:
    return file.rpartition("/")[2]


_Uses = list[tuple[str, Use]]


# between two names: "a.csv and a.json", "a.csv mit a.json"
_LISTED = re.compile(
    r"\W*(?:(?:and|or|with|to|against|und|oder|mit|gegen|et|ou|avec|a|y|o|con)\W+)?(?:(?:the|die|le|la|el)\W+)?"
)


def _is_conversion(text: str, name: str, present: _Uses) -> bool:
    # "tools.txt as a table: tools.csv": an existing file of this name with another ending is spoken of first
    path, at = PurePosixPath(name), text.find(name)
    for other, _ in present:
        end = text.find(other) + len(other)
        if PurePosixPath(other).stem == path.stem and len(other) <= end <= at:
            return _LISTED.fullmatch(folded(text[end:at])) is None
    return False


def _uses(text: str, files: Sequence[str]) -> tuple[_Uses, _Uses]:
    # names of existing files, and names of other files
    by_case = {name.casefold() for file in files for name in (file, _last_name(file))}
    spaced = [compose_name(file) for file in files if " " in file and compose_name(file) in text]
    present, absent, program = _Uses(), _Uses(), False
    sentences = [(text[start:end], list(tokens_of(text[start:end]))) for start, end in sentences_of(text)]
    questions = [_HOW.match(folded(sentence)) is not None for sentence, _ in sentences]
    orders = [tokens for (_, tokens), asks in zip(sentences, questions, strict=True) if not asks]
    ordered = any(map(orders_something, orders)) or not any(map(orders_reading, orders))
    about_program = any(map(orders_program, orders)) or any(names_code(token) for tokens in orders for token in tokens)

    def exists(name: str) -> bool:
        return name.casefold() in by_case or find_name(name, files) is not None

    for (sentence, tokens), is_question in zip(sentences, questions, strict=True):
        asks = is_question or _QUESTION.match(folded(sentence)) is not None
        for at, token in enumerate(tokens):
            if not token.name or any(token.text in file for file in spaced):
                continue
            use = Use.UNSURE if is_question else use_of(tokens, at, program)
            if exists(token.text):
                present.append((token.text, use))
                continue
            existing_list = use is Use.UNSURE and exists(listed_with(tokens, at))
            if ordered and not (is_question or existing_list):
                use = Use.WRITE if may_be_ordered(tokens, at, use, program=about_program) else use
            if not asks and _is_conversion(text, token.text, present):
                use = Use.WRITE
            absent.append((token.text, use))
        program = program or orders_program(tokens)
    return present, absent


_CHANGE: Final = re.compile(
    r"(?<!\bthe )(?<!\ba )(?<!\ban )\b(?:fix|repair|correct|debug|extend|refactor|rewrite|update|rename|move"
    r"|remove|delete|replace|change|modify|edit|improve|simplify|optimi[sz]e|adapt|adjust|restructure"
    r"|clean up|speed up|make (?:it|them|sure)|add(?!\s+(?:\w+\s+){0,2}tests?\b)"
    r"|korrigier\w*|beheb\w*|reparier\w*|erweiter\w*|uberarbeit\w*|refaktorier\w*|ander[en]?|ersetz\w*|verbesser[en]?"
    r"|vereinfach\w*|erganz\w*|entfern\w*|losch\w*|fug\w*|benenn\w*"
    r"|corrig\w+|repar\w+|etend\w+|modifi\w+|refactori\w+|amelior\w+|renomm\w+|remplac\w+|ajout\w+|supprim\w+|simplifi\w+"
    r"|arregl\w+|ampli\w+|extiend\w+|mejor\w+|renombr\w+|reemplaz\w+|anad\w+|agreg\w+|elimin\w+|cambi\w+)\b"
)
# beginnings of sentences that ask about a program
_QUESTION: Final = re.compile(
    r"\s*(?:what|why|how|which|where|who|when|does|do|did|is|are|was|were|should|has|have|warum|wieso|wie|was|welche\w*|wo"
    r"|wer|wann|ist|sind|hat|soll\w*|pourquoi|comment|que|quel\w*|ou|qui|quand|est-ce|por que|como|cual\w*|donde|quien"
    r"|cuando|explain|describe|review|summari[sz]e|list|tell|erklar\w*|beschreib\w*|expliqu\w*|explic\w*|describ\w*)\b"
)


def changed_programs(request: str, named: Sequence[str], new: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the programs that a request wants in a new version, in its order.

    `named` are the files that it names, and `new` those that it wants to be written: `a.py` stays if `a_fixed.py` is.
    Changed programs follow an order to change something, or lack it ("a.py needs a method"). If an order names none,
    the only program that the request names is meant. If there is another program, tests only count as the object of
    such a verb ("extend test_a.py").
    """
    named = [name for name in named if not any(_is_version(version, name) for version in new)]
    text, ordered, objects = instruction(compose_name(request)), False, list[str]()
    programs, extended = [name for name in named if is_program(name)], set[str]()
    for start, end in sentences_of(text):
        sentence = folded(text[start:end])
        verb = None if _QUESTION.match(sentence) else _CHANGE.search(sentence)
        if verb is not None:
            ordered = True
            objects += [name for name in named if _follows(sentence, verb.end(), name)]
            extended |= {name for name in programs if _follows_at_once(sentence, verb.end(), name)}
        objects += [name for name in programs if _lacks_something(sentence, name)]
    modules = [name for name in programs if module_under_test(name) is None] or programs
    if objects:
        return tuple(name for name in dict.fromkeys(objects) if name in modules or name in extended)
    return tuple(modules) if ordered and len(modules) == 1 else ()


def _follows(sentence: str, at: int, name: str) -> bool:
    # the file is the object of a verb that ends at `at` if no other clause comes between them
    called = sentence.find(folded(compose_name(PurePosixPath(name).name)), at)
    return called >= 0 and not re.search(r"[,;:]|\b(?:with|by|so that|using|mit|damit|avec|con)\b", sentence[at:called])


def _is_version(version: str, name: str) -> bool:
    new, old = PurePosixPath(version), PurePosixPath(name)
    return new.suffix == old.suffix and new.stem.startswith(old.stem)


def _follows_at_once(sentence: str, at: int, name: str) -> bool:
    words_between = r"(?:\s+(?:also|the|file|auch|die|datei|aussi|le|fichier|tambien|el|archivo))*\s+"
    return re.match(words_between + _called(name), sentence[at:]) is not None


def _lacks_something(sentence: str, name: str) -> bool:
    lacks = r"\s+(?:needs|lacks|should|must|has to|braucht|soll\w*|muss|doit|devrait|debe\w*|necesita)\b"
    return not _QUESTION.match(sentence) and re.search(_called(name) + lacks, sentence) is not None


def _called(name: str) -> str:
    return re.escape(folded(compose_name(PurePosixPath(name).name)))


MAX_ORDER: Final = 300  # characters; a longer request is more than such an order

_POLITE = (
    r"\s*(?:(?:hi|hello|hey|hallo|bonjour|salut|hola)\b[\s,!.]*)?"
    r"(?:(?:please|kindly|bitte|por favor|s'il (?:te|vous) plait|stp|svp)[\s,]+)?"
    r"(?:(?:can|could|will|would) you(?: please)?|i (?:want|need|would like) you to|i'd like you to|go and|"
    r"(?:kannst|konntest|wurdest) du(?: mir| bitte)*|konnen sie(?: mir| bitte)*|(?:peux|pourrais)-tu|pouvez-vous|"
    r"(?:puedes|podrias|puede)(?: por favor)?)?[\s,]*"
    r"(?:please|bitte|mir|uns)?[\s,¿]*"
)
_TRIP = (
    r"(?:flights?|hotels?|rooms?|tables?|tickets?|taxi|cab|trains?|seats?|appointments?|car|trip|holiday|restaurant"
    r"|flug\w*|hotelzimmer|zimmer|tisch|fahrkarten?|karten|zug|termin|mietwagen"
    r"|vols?|chambres?|billets?|train|rendez-vous|voiture|places?"
    r"|vuelos?|habitacion(?:es)?|mesas?|billetes?|entradas?|tren|cita|coche|boletos?)"
)
_MAIL = (
    r"(?:e-?mails?|mails?|messages?|sms|letters?|reminders?|invitations?|whatsapp|fax"
    r"|nachricht(?:en)?|einladung(?:en)?|brief|courriels?|lettre|correos?|mensajes?|carta|invitacion(?:es)?)"
)
_PERSON = (
    r"(?:mum|mom|mother|dad|father|brother|sister|wife|husband|boss|doctor|dentist|bank|police|school|hotel|restaurant"
    r"|landlord|neighbou?r|friend|plumber|garage|insurance|colleague|customer|client)"
)
_WEB = r"(?:on the (?:web|internet|net)|on (?:google|wikipedia)|online(?=[.?!]*$))"
_NETZ = r"(?:im (?:internet|web|netz)|auf google|online(?=[.?!]*$))"
_SOCIAL = r"(?:twitter|x|facebook|linkedin|instagram|reddit|youtube)\b"
_READ_PAGE = (
    r"(?:summari[sz]e|read|open|visit|download|fetch|translate|check|scrape|crawl|go to|fasse?|lies|offne|lade|besuche"
    r"|ubersetz\w*|resume\w*|lis|ouvre|telecharge\w*|traduis|lee|abre|descarga|traduce)"
)
_NOW = r"(?:the )?(?:latest|current|today's|live)"
_ASK = r"(?:what(?:'s| is| will)|how(?:'s| is)|tell me|show me|get me|give me|check)"

# folded patterns of orders, by what a tool would have to do for them
_ORDERS: Final[dict[str, tuple[str, ...]]] = {
    "books or reserves": (
        rf"(?:book|reserve) (?:me|us|an?|the|my|our|two|three|four|\d+)\b.{{0,60}}\b{_TRIP}\b",
        rf"(?:buche?|buchen|reserviere?|reservieren|reserve[rz]?|reserva(?:r|me)?)\b.{{0,60}}\b{_TRIP}\b",
        rf"(?:eine?n?|zwei)\b.{{0,40}}\b{_TRIP}\b.{{0,40}}\b(?:buchen|reservieren)\b",
    ),
    "sends messages": (
        rf"send\b.{{0,80}}\b{_MAIL}\b",
        r"send (?!(?:me|us)\b).{1,60}\bto \w+",
        r"(?:e-?mail|text|message) (?:my|our|him|her|them|\w+@)",
        rf"(?:schicke?|sende|verschicke?|envoie|envoye[rz]|envia(?:r|le)?|manda(?:r|le)?)\b.{{0,80}}\b(?:{_MAIL}|a[nu]?)\b",
        rf"(?:eine?n?)\b.{{0,20}}\b{_MAIL}\b.{{0,40}}\b(?:schicken|senden|verschicken)\b",
    ),
    "makes calls": (
        rf"(?:phone|ring|call) (?:up )?(?:(?:my|the|our) )?{_PERSON}\b",
        r"call (?:me|us) (?:back|at|in|on)\b",
        r"call (?:a (?:taxi|cab)|an ambulance)\b",
        r"rufe?\b.{1,40}\ban\b",
        r"telefoniere? mit\b",
        r"(?:appelle|telephone)[rz]? (?:a )?(?:mon|ma|mes|un taxi)\b",
        r"llama(?:r)? (?:a mi|al (?:medico|dentista|banco|restaurante))\b",
    ),
    "buys or pays": (
        r"(?:buy|purchase) (?!or\b|and sell|vs|low\b)\w",
        r"order (?:me|us|an?|some|two|three) (?:\w+ )?(?:pizzas?|taxi|cab|food|flowers?|dinner|lunch|groceries)\b",
        r"(?:pay|transfer)\b.{0,30}(?:[$€£]|\b(?:euros?|dollars?|pounds?|(?:my|the) (?:bill|rent|invoice))\b)",
        r"(?:kaufe?|kaufen) (?!oder\b)\w",
        r"bestelle?\b.{0,30}\b(?:pizza|taxi|essen|blumen|buch)\b",
        r"(?:uberweise?|bezahle?)\b.{0,30}(?:€|\b(?:euro|rechnung|miete)\b)",
        r"achete[rz]? (?!ou\b)\w",
        r"commande(?:-moi|r|z)?\b.{0,20}\b(?:pizza|taxi|fleurs|livre)\b",
        r"compra(?:r|me)? (?!o\b|y venta)\w",
        r"pide(?:me)?\b.{0,20}\b(?:pizza|taxi|comida)\b",
    ),
    "searches the web": (
        rf"(?:look up|search for|find|check|research|get|tell me)\b.{{0,100}}\b{_WEB}",
        r"(?:search|browse) (?:the )?(?:web|internet|google)\b",
        r"google (?:for|the|how|what|who|whether|it|this|that)\b",
        r"look up\b",
        rf"(?:suche?|schaue?|finde|recherchiere?|schlage?)\b.{{0,100}}\b{_NETZ}",
        r"googl?e\b.{0,10}\bnach\b",
        r"(?:cherche|recherche|trouve)[rz]?\b.{0,100}\b(?:sur (?:internet|le web|google)|en ligne(?=[.?! ]*$))",
        r"busca(?:r|me)?\b.{0,100}\b(?:en (?:internet|la web|google|linea))\b",
    ),
    "reads web pages": (rf"{_READ_PAGE}\b.{{0,60}}(?:https?://|www\.)\S",),
    "knows the present": (
        rf"{_ASK} .{{0,15}}\bthe (?:current |latest |today's )?weather\b"
        r"(?! (?:report|data|like in (?:the|this) (?:story|text|poem)))",
        rf"{_ASK} .{{0,30}}\b{_NOW} (?:news|headlines|(?:\w+ )?prices?|exchange rate|score|traffic|temperature)\b",
        rf"{_ASK} .{{0,15}}\b{_NOW} time(?: in \w+)?[.?!]*$",
        r"what time is it(?: now| in \w+)?[.?!]*$",
        r"what day is (?:it|today)\b",
        r"what(?:'s| is) today's date\b",
        r"(?:will it rain|is it raining)\b",
        r"wie (?:ist|wird) (?:morgen |heute )?das wetter\b",
        r"wie spat ist es\b",
        r"welcher tag ist heute\b",
        r"regnet es\b",
        r"was kostet .{1,40}\b(?:heute|gerade|aktuell)\b",
        r"wie (?:steht|ist) der (?:aktuelle )?\w*kurs\b",
        r"quel temps (?:fait-il|fera-t-il)\b",
        r"quelle heure est-il\b",
        r"quelle est la meteo\b",
        r"quel jour sommes-nous\b",
        r"que tiempo (?:hace|hara)\b",
        r"que hora es\b",
        r"que dia es hoy\b",
        r"cual es el (?:clima|precio actual|tipo de cambio)\b",
    ),
    "keeps calendars and reminders": (
        r"remind me (?:to|at|in|on|tomorrow|every|about)\b",
        r"set (?:an? )?(?:alarm|timer|reminder)\b",
        r"add .{1,60} to my calendar\b",
        r"schedule (?:a|the) (?:meeting|call)\b",
        r"erinnere? mich (?:an|morgen|heute|um|am)\b",
        r"stelle? .{0,20}\b(?:wecker|timer)\b",
        r"trage? .{1,60}\bkalender\b",
        r"rappelle-moi (?:de|d'|demain)",
        r"mets une alarme\b",
        r"recuerdame (?!que (?:es|son|era))\w",
        r"pon(?:me)? (?:una )?(?:alarma|temporizador)\b",
    ),
    "controls devices": (
        r"(?:turn|switch) (?:on|off) the (?:lights?|heating|tv|television|radio|music)\b",
        r"play (?:some |the )?(?:music|song)\b",
        r"(?:schalte?|mache?) das licht\b",
        r"spiele? (?:mir )?(?:musik|das lied)\b",
        r"(?:allume|eteins|enciende|apaga) (?:la lumiere|la luz)\b",
    ),
    "publishes": (
        rf"(?:post|publish|upload)\b.{{1,60}}\b(?:on|to) {_SOCIAL}",
        r"tweet (?:this|that)\b",
        rf"poste\b.{{1,60}}\b(?:auf|sur) {_SOCIAL}",
        rf"publica\b.{{1,60}}\ben {_SOCIAL}",
    ),
}
_PATTERNS = {needed: re.compile(rf"{_POLITE}(?:{'|'.join(orders)})") for needed, orders in _ORDERS.items()}
# may also be in files that the request names, or in a text that follows
_FROM_TEXTS = frozenset({"knows the present", "searches the web"})
_TEXT_FOLLOWS = re.compile(r":|\n")
# a quoted text, or a request about a program
_NO_ORDER = re.compile(
    r"\s*[\"'“„«`]|.*(?:```|\b(?:functions?|scripts?|code|python|javascript|html|css|regex|class|funktion|skript|fonction"
    r"|funcion)\b)",
    re.DOTALL,
)


def needed_tool(request: str, names_files: bool) -> str:
    """Return a sentence about the tool that a request needs, if only a tool can fulfil it; else "".

    `names_files`: the request names existing files, in which the answer to a look-up may be.
    """
    order = folded(request).strip()
    if len(order) > MAX_ORDER or _NO_ORDER.match(order):
        return ""
    has_text = names_files or _TEXT_FOLLOWS.search(order) is not None
    for needed, pattern in _PATTERNS.items():
        if pattern.match(order) and not (has_text and needed in _FROM_TEXTS):
            return (
                f"the request needs a tool that {needed}, and there is none "
                "(an MCP server can bring one: [mcp.servers.NAME] in the configuration)"
            )
    return ""
