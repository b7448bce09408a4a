"""Find out by code whether a plan has lost what its request says: a small model may write actions about nothing."""

from collections.abc import Collection, Iterable
from typing import Final

from orchestrator.run.frontdoor.clauses import MAKING
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.wishes import language_of
from orchestrator.run.frontdoor.words import STOP_WORDS, related, words

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
