"""Read by code what form a request wants its answer in: how many items, how long, which format, which language.

Only what a request certainly says counts, in English, German, French and Spanish. For each of several texts, only the
length is read. What is said of existing texts does not count. The language of a text is recognised by its most frequent
words.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from orchestrator.run.frontdoor.request import MAX_INSTRUCTION, instruction
from orchestrator.run.frontdoor.words import folded

Bound = Literal["exactly", "at least", "at most", "about"]
Unit = Literal["words", "sentences", "characters"]
Format = Literal["JSON", "CSV", "a Markdown table", "a list"]

_NUMBERS: Final = {
    word: number
    for number, words in enumerate(
        (
            "one a single ein eine einem einen einer un une una uno",
            "two zwei deux dos",
            "three drei trois tres",
            "four vier quatre cuatro",
            "five funf cinq cinco",
            "six sechs six seis",
            "seven sieben sept siete",
            "eight acht huit ocho",
            "nine neun neuf nueve",
            "ten zehn dix diez",
            "eleven elf onze once",
            "twelve zwolf douze doce",
        ),
        start=1,
    )
    for word in words.split()
    if word not in ("a", "single")
}
_NUMBER = rf"(?P<number>\d{{1,4}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"

_BOUNDS: Final[dict[Bound, str]] = {
    "at least": "at least|no fewer than|mindestens|au moins|al menos|por lo menos",
    "at most": "at most|no more than|not more than|a maximum of|maximum of|maximum|max\\.?|up to|under|fewer than|"
    "less than|within|hochstens|maximal|nicht mehr als|bis zu|unter|weniger als|au plus|au maximum|moins de|pas plus "
    "de|"
    "como maximo|como mucho|un maximo de|maximo|menos de|no mas de",
    "about": "about|around|roughly|approximately|circa|ca\\.?|etwa|ungefahr|rund|environ|aproximadamente|alrededor de",
    "exactly": "exactly|precisely|just|genau|exactement|exactamente",
}
_BOUND = rf"(?:(?P<bound>{'|'.join(_BOUNDS.values())})\s+)?"
_AFTERWARDS = (
    r"(?:\s*,?\s*(?P<after>or less|or fewer|at most|max(?:imum)?\b|oder weniger|hochstens|ou moins|o menos|"
    r"como maximo))?"
)

_ORDERS = (
    "give write list name suggest propose create make generate provide tell invent brainstorm formulate draft add "
    "recommend nenn(?:e|en)? gib schreib(?:e|en)? list(?:e|en)? erstell(?:e|en)? erfind(?:e|en)? formulier(?:e|en)? "
    "schlag(?:e)? mach(?:e)? uberleg(?:e)? donn(?:e|ez|er) ecri(?:s|re|vez) cit(?:e|ez|er) propos(?:e|ez|er) "
    "redig(?:e|ez|er) invent(?:e|ez|er) nomm(?:e|ez|er) formul(?:e|ez|er) dame danos da escrib(?:e|ir) nombra propon "
    "sugier(?:e|eme) inventa crea genera redacta cita enumera formula lista recomienda"
).split()
_ITEMS: Final = (
    "tips questions ideas names reasons examples steps points bullets titles headlines slogans arguments advantages "
    "disadvantages benefits drawbacks facts suggestions options keywords synonyms recommendations risks measures tasks "
    "rules hints jokes proverbs quotes countries cities animals fruits vegetables books films movies hashtags topics "
    "items activities lessons goals mistakes gifts presents hobbies colors colours tipps fragen ideen namen "
    "grunde beispiele schritte punkte stichpunkte titel uberschriften argumente vorteile nachteile fakten vorschlage "
    "moglichkeiten optionen stichworter stichworte synonyme empfehlungen risiken massnahmen aufgaben regeln hinweise "
    "witze sprichworter lander stadte tiere bucher filme themen ratschlage ziele conseils idees noms raisons exemples "
    "etapes titres avantages inconvenients faits mots-cles synonymes recommandations risques mesures taches regles "
    "astuces blagues pays villes animaux livres sujets proverbes consejos preguntas nombres razones ejemplos pasos "
    "puntos titulos lemas argumentos ventajas desventajas hechos sugerencias opciones sinonimos recomendaciones "
    "riesgos medidas tareas reglas trucos chistes paises ciudades animales libros peliculas temas refranes"
).split()
_COUNT = re.compile(
    rf"\b(?:{'|'.join(_ORDERS)})(?:[- ](?:me|us|mir|uns|moi|nous|nos))?(?:\s(?:a|an|eine|une|una)\s(?:\w+\s)?(?:list|"
    rf"set|liste|lista)\s(?:of|von|mit|de|con))?\s(?:the top\s)?{_BOUND}{_NUMBER}\s(?:(?!of\b|and\b|und\b|et\b|"
    rf"von\b)[\w-]+\s){{0,3}}?(?P<item>{'|'.join(_ITEMS)})\b(?!\s(?:and|und|et|y|or|oder|ou|o|e)\b)"
)
_POINTS = re.compile(
    rf"\b(?:in|as|als|mit|en|con)\s{_BOUND}{_NUMBER}\s(?:[\w-]+\s)?"
    r"(?P<item>bullet points|bullets|key points|stichpunkten?|points cles|puntos)\b"
)
# "3 subject lines for each of our 4 newsletters"
_COUNT_OF_EACH = re.compile(
    rf"\b{_NUMBER}\s(?:(?!of\b|and\b|und\b|et\b|von\b)[\w-]+\s){{0,3}}?(?P<item>{'|'.join(_ITEMS)}|lines)\b"
    r"[^.;:?!]{0,30}?\s(?:for|of|from|fur|zu|aus|von|pour|de|para)\s(?:each|every|jede[nmrs]?|chacun\w*|cada un[oa])\s"
    rf"(?:of|von|de[rns]?|des)?\s?(?:(?:the|our|my|these|those|your|unsere[rn]?|meine[rn]?|diese[rn]?|ces|nos|mes|las|los|"
    rf"nuestr[oa]s|mis)\s)?(?P<wholes>[2-9]|[1-9]\d|{'|'.join(word for word in _NUMBERS if _NUMBERS[word] > 1)})\s\w"
)
# "two questions for each chapter"; how many chapters there are, the files may say
_COUNT_FOR_EACH = re.compile(
    rf"\b{_NUMBER}\s(?:(?!of\b|and\b|und\b|et\b|von\b)[\w-]+\s){{0,3}}?(?P<item>{'|'.join(_ITEMS)}|lines)\b"
    r"[^.;:?!]{0,30}?\s(?:(?:for|fur|zu|pour|para)\s(?:each|every|jede[nmrs]?|chaque|cada)|per|pro|par|por)\s"
    r"(?P<whole>(?!of\b|von\b|de\b)\w+)\b"
)
_EACH = re.compile(r"\b(?:each|every|per|both|respectively|jede[mnrs]?|je|jeweils|pro|beide[nr]?|chacune?|chaque|par|"
                   r"cada|por|ambos|ambas)\b")  # fmt: skip

_UNITS: Final[dict[Unit, str]] = {
    "words": "words?|worte[rn]?|wortern|wort|mots?|palabras?",
    "sentences": "sentences?|satze[n]?|satz|phrases?|frases?|oraciones|oracion",
    "characters": "characters?|zeichen|caracteres?",
}
_LENGTH = re.compile(
    rf"\b(?:(?P<in>in|en|auf|mit|with|of|of only|avec|con)\s)?{_BOUND}(?:only\s|just\s|nur\s|einem?\s(?=einzigen)|"
    rf"einzigen\s)?{_NUMBER}[- ](?:short\s|simple\s|single\s|brief\s|kurzen?\s|einzigen?\s|einfachen\s|seule\s|sola\s|"
    rf"courtes?\s|clear\s)?(?:{'|'.join(f'(?P<{unit}>{words})' for unit, words in _UNITS.items())})\b{_AFTERWARDS}"
)
_OF_PARTS = re.compile(
    r"\b(?:first|last|next|the|these|those|my|your|ersten?|letzten?|die|diese|den|premieres?|dernieres?|les|ces|"
    r"primeras?|ultimas?|las|los|estas)\s*$|\b(?:sentences?|satzen?|phrases|frases|titles?|titel|headlines?|lines?|"
    r"zeilen?|names?|bullets?|points?|paragraphs?|absatz\w*|subject|betreff|slogans?|passwords?|sections?|titres?|"
    r"titulos?)\b.{0,30}$"
)
_JOINED = re.compile(r"\b(?:and|then|also|plus|und|dann|sowie|et|puis|ensuite|y|luego|ademas|&)\b")
# a question word behind it continues what the text has to say: "when it starts and what to bring"
_NEXT_THING = re.compile(
    rf"{_JOINED.pattern}(?!\s(?:what|when|where|whether|who|why|how|was|wann|wo|ob|wer|warum|wie|dass|quand|ou|si|qui|"
    r"pourquoi|comment|ce qu\w*|que|cuando|donde|quien|como|por que)\b)"
)
_CODE = re.compile(
    r"\b(?:functions?|scripts?|programs?|class(?:es)?|modules?|code|python|javascript|typescript|java|bash|shell|sql|"
    r"regex|api|parser|unit ?tests?|tests?|cli|endpoint|schema|funktion(?:en)?|skripte?|programme?|klasse|fonctions?|"
    r"programmes?|classe|funcion(?:es)?|programas?|clase)\b"
)
_FORMATS: Final[dict[Format, re.Pattern[str]]] = {
    "JSON": re.compile(
        r"\b(?:as|into|in|als|ins?|en|au format|como|en formato)\s(?:an?\s|valid\s|valides\s|un\s|ein(?:e)?\s|objeto\s|"
        r"objet\s)*json(?!\s?(?:file|lines?|schema|l\b|datei))\b"
    ),
    "CSV": re.compile(
        r"\b(?:as|into|als|en|au format|como|en formato|in)\s(?:a\s|an\s|un\s|eine\s)?csv(?!\s?(?:file|datei)\b)\b"
    ),
    "a Markdown table": re.compile(
        r"\bmarkdown[- ]?(?:table|tabelle)\b|\b(?:table|tableau)(?: en)? markdown\b|\btabla(?: en)? markdown\b"
    ),
    "a list": re.compile(
        r"\b(?:as|als|in|en|como|into)\s(?:an?\s|eine\s|einer\s|une\s|una\s)?(?:bullet(?:ed)?[- ](?:list|points?)|"
        r"bullets|numbered list|stichpunkten?|aufzahlung|nummerierte liste|liste a puces|liste numerotee|lista con "
        r"vinetas|lista numerada)\b"
    ),
}
_LIST = (
    r"(?:a|an) (?:json )?(?:list|array) (?:with|of)|(?:eine )?liste (?:mit|von)|(?:une )?liste (?:de|d'|avec)"
    r"|(?:una )?lista (?:de|con)"
)
_FILE = r"[\w./*-]*\.[a-z]\w{0,7}\b"
_FILE_NAMES = re.compile(rf"{_FILE}(?:(?:,| and| und| et| y| e)+ {_FILE})*")
_ABOUT_INPUT = re.compile(r"\b(?:is|are|was|which|that|stored|written|given|liegt|steht|ist)\s*$")


@dataclass(frozen=True, slots=True)
class Amount:
    """How many of something an answer is to have."""

    bound: Bound
    number: int
    of: str  # what is counted, in the words of the request

    def __str__(self) -> str:
        bound = "" if self.bound == "exactly" else f"{self.bound} "
        of = self.of.removesuffix("s") if self.number == 1 else self.of
        return f"{bound}{self.number} {of}"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request certainly says about the form of its answer."""

    items: Amount | None = None
    items_in_all: Amount | None = None  # of a number for each of several things
    items_for_each: tuple[Amount, str] | None = None  # a number for each thing of this name, however many there are
    lengths: tuple[Amount, ...] = ()  # in different units
    length_of_each: Amount | None = None  # of each of several texts
    format: Format | None = None
    code: bool = False  # it is about a program, so the answer is no prose
    several: bool = False  # it may ask for more than one thing
    one_text: bool = True  # all that it asks for is one text, which the lengths are about

    @classmethod
    def of(cls, request: str) -> "Wishes":
        """Read the first paragraph of a request, up to a quoted text. A long one or code says nothing certain."""
        text = folded(_own_words(request))
        code = _CODE.search(text) is not None
        if code or len(text) > MAX_INSTRUCTION:
            return cls(code=code)
        several = _JOINED.search(text) is not None
        one_text = not several or ("?" not in text and not _NEXT_THING.search(text))
        lengths = _lengths(text)
        if _EACH.search(text):
            each = lengths[0] if len(lengths) == 1 else None
            return cls(
                items_in_all=_items_in_all(text),
                items_for_each=_items_for_each(text),
                length_of_each=each,
                format=_format(text),
                several=several,
            )
        items = _items(text)
        if items is not None:
            lengths = tuple(length for length in lengths if length.of == "characters")
        return cls(items, lengths=lengths, format=_format(text), several=several, one_text=one_text)


def schema_for(request: str, name: str) -> dict[str, object] | None:
    """Return the JSON Schema that a request certainly sets for the file `name`: a list, or None."""
    text = instruction(request)
    at = text.find(PurePosixPath(name).name)
    if at < 0 or not name.endswith(".json"):
        return None
    behind = _FILE_NAMES.sub("FILES", folded(re.split(r"[.!?](?:\s|$)", text[at + len(name) :], maxsplit=1)[0]))
    # "a.json, and a list of the changes" wants another text
    is_list = re.match(rf"(?:[^,;]{{0,40}}?\b|\W*(?:as|als|comme|como)\s)(?:{_LIST})\b", behind)
    return {"type": "array", "minItems": 1} if is_list else None


def _own_words(request: str) -> str:
    # the first paragraph, up to a text, certainly says what is to be done
    text = instruction(request).strip()
    return re.split(r"\n\s*\n|:\s*\n|:\s{3,}", text, maxsplit=1)[0]


def _items(text: str) -> Amount | None:
    matches = [*_COUNT.finditer(text), *_POINTS.finditer(text)]
    return _amount(matches[0], matches[0]["item"]) if len(matches) == 1 else None


def _items_in_all(text: str) -> Amount | None:
    matches = [*_COUNT_OF_EACH.finditer(text)]
    if len(matches) != 1:
        return None
    each = _amount(matches[0], matches[0]["item"])
    return Amount("exactly", each.number * _number(matches[0]["wholes"]), each.of)


def _items_for_each(text: str) -> tuple[Amount, str] | None:
    matches = [*_COUNT_FOR_EACH.finditer(text)]
    return (_amount(matches[0], matches[0]["item"]), matches[0]["whole"]) if len(matches) == 1 else None


def _lengths(text: str) -> tuple[Amount, ...]:
    # none in a unit of which the text has several
    matches = [(match, next(unit for unit in _UNITS if match[unit])) for match in _LENGTH.finditer(text)]
    units = Counter(unit for _, unit in matches)
    lengths = (_length(match, unit) for match, unit in matches if units[unit] == 1)
    return tuple(filter(None, lengths))


def _length(match: re.Match[str], unit: Unit) -> Amount | None:
    before = match.string[: match.start()]
    is_phrase = match[unit].startswith("phrase") and match["in"] != "en" and not match["bound"]
    limits = match["in"] or match["bound"] or match["after"]
    if is_phrase or not limits or _OF_PARTS.search(before):
        return None
    amount = _amount(match, unit)
    if match["after"]:
        amount = Amount("at most", amount.number, unit)
    if amount.bound == "exactly":
        amount = Amount("at most" if unit == "sentences" or amount.number < 5 else "about", amount.number, unit)
    return amount


def _amount(match: re.Match[str], of: str) -> Amount:
    number = _number(match["number"])
    phrase = match.groupdict().get("bound") or ""
    bound: Bound = next((name for name, words in _BOUNDS.items() if re.fullmatch(words, phrase)), "exactly")
    return Amount(bound, number, of)


def _number(text: str) -> int:
    return _NUMBERS.get(text) or int(text)


def _format(text: str) -> Format | None:
    if "?" in text:  # the question may be about a text in this format
        return None
    formats = [
        name
        for name, pattern in _FORMATS.items()
        for match in pattern.finditer(text)
        if not _ABOUT_INPUT.search(text[: match.start()])
    ]
    return formats[0] if len(set(formats)) == 1 else None


LEAST_WORDS: Final = 8  # no language is recognised in a text with fewer words
LEAST_HITS: Final = 3  # frequent words that a text in the language has at least
LEAST_SHARE: Final = 0.15  # least share of frequent words; in prose it is about a half

_FREQUENT: Final = {
    "en": "the of and to is that it was for on are with as his they be at have this from or had by but what we when "
    "your can said there use each which their if will about many then them these some would into has more two could no "
    "been "
    "who its now than not you our an must only also",
    "de": "der die das und ist nicht ein eine zu den von mit sich auf fur dem des im auch es an als werden aus er hat "
    "dass sie nach wird bei einer um am sind noch wie einem uber einen so zum haben nur oder aber vor zur bis mehr "
    "durch wir "
    "ich kann wenn ihre sein wurde alle keine ihr",
    "fr": "le la les de des et est un une du dans que pour qui sur pas par au avec il ce se plus ne sont vous nous je "
    "cette "
    "ou mais ses son sa elle ont aux leur etre fait tout comme aussi bien peut meme ces votre notre tres deux",
    "es": "el la los las de y que en un una es se no por con para su al lo como mas pero sus le ya este si porque esta "
    "entre cuando muy sin sobre tambien hasta hay donde quien desde todo nos durante todos uno les ni contra otros ese "
    "eso ante ellos e esto antes algunos unos son del tu puede",
    "it": "il lo la gli le di e che un una per non sono con del della dei delle alla nel nella come piu ma anche si "
    "da al "
    "questo questa essere ha hanno suo sua loro ed dal dalla cui quando molto",
    "pt": "o a os as de e que um uma em do da dos das nao para com por se na no mais como mas ao foi ele seu sua ou "
    "quando "
    "muito nos ja esta eu tambem so pelo pela ate isso ela entre era depois sem mesmo aos seus",
    "nl": "de het een en van is dat op te in voor met zijn niet aan er ook als maar om bij dan nog naar uit over door "
    "wordt "
    "worden heeft hebben deze dit wij ze je was geen kan",
}
_WORDS: Final = {language: frozenset(text.split()) for language, text in _FREQUENT.items()}

# the languages that are recognised, by code
LANGUAGE_NAMES: Final = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
}

_NAMED: Final = {
    "en": "english|englische?[nrsm]?|anglaise?|ingles|inglesa|inglese",
    "de": "german|deutsche?[nrsm]?|allemande?|aleman|alemana|tedesco",
    "fr": "french|franzosische?[nrsm]?|francaise?|frances|francesa|francese",
    "es": "spanish|spanische?[nrsm]?|espagnole?|espanol|espanola|castellano|spagnolo",
    "it": "italian|italienische?[nrsm]?|italienne?|italiano|italiana",
    "pt": "portuguese|portugiesische?[nrsm]?|portugaise?|portugues|portuguesa",
    "nl": "dutch|niederlandische?[nrsm]?|neerlandaise?|neerlandes|holandes|hollandisch",
}
_ANY_NAMED = re.compile(rf"\b(?:{'|'.join(_NAMED.values())})\b")
_OTHERS = re.compile(
    r"\b(?:chinese|japanese|russian|latin|polish|turkish|arabic|hindi|korean|swedish|greek|bilingual\w*|"
    r"multilingual\w*|languages?|chinesisch|japanisch|russisch|latein\w*|polnisch|turkisch|sprachen?|zweisprachig\w*|"
    r"langues?|chinois|japonais|russe|bilingue|idiomas?|lenguas?|chino|japones|ruso|vocabular\w*|vokabel\w*|"
    r"vocabulaire)\b"
)
_NAME = "|".join(f"(?P<{code}>{names})" for code, names in _NAMED.items())
_TARGET = re.compile(
    rf"\b(?:(?:into|auf|ins|al|a la|vers l['\u2019]?|vers le)\s?(?:plain |simple |good )?(?:{_NAME})\b"
    rf"|(?P<loose>in|to|en|a)\s(?:plain |simple |good )?(?P<name>{'|'.join(_NAMED.values())})\b"
    r"(?=\s*(?:$|[.,;:!?)\n]|(?:and|und|et|y|please|bitte|with|mit|for|but|using|as|instead)\b)))"
)
_WRITTEN = re.compile(r"\b(?:written|is|are|was|were|which|that|text|letter|mail|email|file|geschriebene\w*|"
                      r"verfasste\w*|"
                      r"ecrite?s?|redigee?s?|escrit[oa]s?)\s*$")  # fmt: skip
# questions about words of a language, which may be asked in any language
_ABOUT_WORDS = re.compile(
    r"\b(?:how (?:do|would|can|to)\b.{0,20}\bsay|what does|what do|what is|mean(?:s|ing)?|called|words? for|phrases? "
    r"for|wie sagt man|was heisst|bedeutet|bedeutung|comment dit-on|que veut dire|signifie|como se dice|que significa|"
    r"order)\b"
)


def language_of(text: str) -> str | None:
    """Return the code of the language that a text certainly is in, else None."""
    words = re.findall(r"[^\W\d_]+", folded(text))
    if len(words) < LEAST_WORDS:
        return None
    hits = {language: sum(word in frequent for word in words) for language, frequent in _WORDS.items()}
    (best, most), (_, next_most) = sorted(hits.items(), key=lambda item: -item[1])[:2]
    certain = most >= LEAST_HITS and most >= LEAST_SHARE * len(words) and most >= 1.5 * next_most + 1
    return best if certain else None


def languages_wanted(request: str) -> tuple[str, ...]:
    """Return the codes of the languages that a request wants its answer in, in order; none if it names none.

    The language of a text that it has ("the text, which is in French") does not count.
    """
    text = folded(request)
    codes = []
    for match in _TARGET.finditer(text):
        if not _WRITTEN.search(text[: match.start()]):
            name = match["name"] or ""
            codes.append(next(code for code in LANGUAGE_NAMES if match[code] or re.fullmatch(_NAMED[code], name)))
    return tuple(dict.fromkeys(codes)) if not _ABOUT_WORDS.search(text) else ()


def has_words_of(language: str, text: str, besides: str) -> bool:
    """Return whether a text in the language `besides` may also contain text in `language`."""
    own = _WORDS[language] - _WORDS[besides]
    return sum(word in own for word in set(re.findall(r"[^\W\d_]+", folded(text)))) >= 2


def names_language(request: str) -> bool:
    """Return whether a request says anything about languages."""
    return any(pattern.search(folded(request)) for pattern in (_ANY_NAMED, _OTHERS))
