"""Read what a clause of a request, or the action of a step, makes: a summary, a list of dishes, a comparison.

The verb shows it ("Summarize a.md" makes a summary), or the object ("Write a limerick about a cat"). Another text is
about it if it has a related word, such as "the summaries". A small model may write actions about nothing, so the words
of all actions are compared with those of the request.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Final

from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.wishes import language_of
from orchestrator.run.frontdoor.words import STOP_WORDS, concept, folded, related, words

# concepts of verbs whose object is what they are about, not what they make
CHANGING: Final = frozenset(
    "summarize translate compare check explain describe classify correct improve count rate convert sort answer".split()
)
# verbs that say nothing about what is made
MAKING: Final = frozenset(
    """
    write make create produce generate find name give tell say show put save store prepare compose develop build do
    implement provide return decide identify determine add use calculate compute
    schreib schreibe schreiben erstelle erstellen mache finde nenne gib sag zeige speichere verfasse bestimme berechne
    ecris ecrire cree creer fais trouve nomme donne dis montre mets enregistre redige calcule
    escribe escribir crea crear haz encuentra nombra da di muestra pon guarda redacta calcula
    """.split()
)

LEAST_LOST: Final = 3  # words that have to be lost at least
LEAST_SHARE: Final = 0.5  # share of the words that has to be lost; 1 of 500 correct plans loses more
# words of courtesy and procedure around the subject of a request, or for its files
_AROUND: Final = frozenset(
    """
    want need like would should could can look looking take time urgent help thanks thank hello hey hi kindly let lets
    let's i'm read go through next finally first last done keep short ones result results following here there have has
    had not just only nothing else also too apart each own task everything something anything enough whatever yourself
    itself open load collect gather copy put call save saved store see follow finish out asked waiting boss preparing
    talk tomorrow hold against folder full new
    first second third fourth fifth sixth seventh eighth ninth tenth four five six seven eight nine ten
    january february march april may june july august september october november december
    brauche mochte will soll kannst konntest danke hallo hier alles etwas nur noch auch bitte mir
    veux voudrais faut besoin merci bonjour ici tout quelque seulement aussi moi
    quiero necesito gracias hola aqui todo algo solo tambien
    """.split()
)

_NAME = re.compile(r"[\w./*-]*\.[A-Za-z]\w{0,7}\b|\{each\}|\bP[1-9]\d*\b")
_ABOUT = re.compile(
    r"\b(?:of|in|into|from|about|for|on|with|by|to|as|that|which|von|vom|aus|in|im|ins|uber|fur|mit|zu|nach|als|der|des|"
    r"de|du|des|dans|en|sur|pour|avec|vers|a|au|para|sobre|con|por|del|al|como)\b"
)
_BREAK = re.compile(
    r"[.!?;:]+(?=\s|$)|\n+|,\s*(?!\w+[.]\w)|\b(?:and|then|und|dann|danach|anschliessend|et|puis|ensuite|y|luego|despues)\b"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a request that orders something. `start` and `end` are offsets in the request."""

    start: int
    end: int
    makes: tuple[str, ...]  # folded words, at least one


def made_by(text: str) -> tuple[str, ...]:
    """Return folded words for what an imperative sentence makes; none if it only says how to do something."""
    plain = folded(_NAME.sub(" . ", text))
    spoken = [word for word in words(plain) if word not in _POLITE]
    if not spoken:
        return ()
    verb = "summarize" if spoken[0] in _FASS and "zusammen" in spoken else concept(spoken[0])
    if verb in CHANGING:
        return (verb, *_converted(plain)) if verb == "convert" else (verb,)
    head = plain[plain.find(spoken[0]) + len(spoken[0]) :]
    stop = next((match.start() for match in _ABOUT.finditer(head) if words(head[: match.start()])), len(head))
    pieces = (piece for piece in head[:stop].split(" . ") if words(piece))  # "Give a.md a score" names the file first
    objects = [word for word in words(next(pieces, "")) if word not in STOP_WORDS and len(word) > 1]
    named = () if spoken[0] in MAKING or spoken[0] in STOP_WORDS else (verb,)
    return tuple(dict.fromkeys((*named, *objects)))


def _converted(plain: str) -> list[str]:
    # "Turn the notes into a list" makes a list
    match = _INTO.search(plain)
    if match is None:
        return []
    behind = dropwhile(lambda word: word in STOP_WORDS, words(match[1]))
    named = takewhile(lambda word: _ABOUT.fullmatch(word) is None, behind)
    return [part for word in named if word not in STOP_WORDS for part in word.split("-") if len(part) > 1]


_INTO: Final = re.compile(r"\b(?:into|to|zu|in|en|a)\b(.*)", re.DOTALL)
_FASS: Final = frozenset("fass fasse fassen fasst".split())
_POLITE: Final = frozenset(
    "please bitte merci first next finally also zuerst zuletzt auch d'abord enfin aussi primero tambien finalmente can "
    "could you kannst du peux tu puedes and und et y then dann puis luego".split()
)


def clauses_of(request: str) -> tuple[Clause, ...]:
    """Return the clauses of a request that make something, in order."""
    return tuple(_clauses(request))


def _clauses(request: str) -> Iterator[Clause]:
    plain = folded(request) if len(folded(request)) == len(request) else request.lower()
    start = 0
    for end, behind in (*((match.start(), match.end()) for match in _BREAK.finditer(plain)), (len(plain), len(plain))):
        if makes := made_by(request[start:end]):
            yield Clause(start, end, makes)
        start = behind


def speaks_of(text: str, made: Iterable[str]) -> bool:
    """Return whether a text has a word that is related to one of the words `made`."""
    spoken = [word for word in words(_NAME.sub(" ", text)) if word not in STOP_WORDS]
    return any(related(word, product) for product in made for word in spoken)


def lost_words(request: str, names: Collection[str], actions: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a request that no action has, if these are most of its words; else nothing.

    `names` are those of files and outputs, which actions may leave out. Actions in another language than the request
    cannot be compared with it.
    """
    spoken, text = " ".join(actions), instruction(request)
    language = language_of(text)
    if language not in (None, "en") and language_of(spoken) != language:
        return ()
    if language_of(spoken) not in (None, language or "en"):
        return ()
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    stems = words(" ".join(names).replace("_", " ").replace("-", " ").replace(".", " "))
    needed = [word for word in dict.fromkeys(words(text)) if _says_something(word) and not _has(stems, word)]
    written = words(spoken)
    lost = tuple(word for word in needed if not _has(written, word))
    return lost if len(lost) >= LEAST_LOST and len(lost) > LEAST_SHARE * len(needed) else ()


def _says_something(word: str) -> bool:
    return len(word) > 2 and word not in STOP_WORDS | MAKING | _AROUND


def _has(spoken: Collection[str], word: str) -> bool:
    return any(related(word, term) for term in spoken)
