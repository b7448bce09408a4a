"""Compare words of requests and of plans, in English, German, French and Spanish.

Plans are often in English for requests in another language. So verbs that mean the same in these languages have one
concept, and words with a common beginning are related: `Summarize` and `summaries`, `Übersetze` and `Übersetzung`.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_ELIDED = re.compile(r"^(?:[ldjmnstc]|qu)['\u2019]")
LEAST_COMMON: Final = 4  # words with fewer first characters in common are not related

# beginnings of words, without accents, by meaning
_CONCEPTS: Final = {
    "summarize": "summar zusammenfass zusammengefasst resum synthes shorten kurz condens",
    "translate": "translat ubersetz tradu traduz",
    "compare": "compar vergleich",
    "check": "check verif pruf uberpruf kontroll control revis comprueb comprob review relis",
    "explain": "expla explic expliqu erklar erlauter",
    "describe": "describ descri decri decriv beschreib",
    "list": "list auflist enumer liste lister",
    "classify": "classif classer klassifizier einordn clasific categor kategor",
    "extract": "extract extrai extrae extrahier",
    "correct": "correct corrig corrij korrig correg fix proofread",
    "improve": "improv verbesser amelior mejor",
    "count": "count zahl compt cuent contar",
    "answer": "answer beantwort repon respon respuest antwort",
    "rate": "rate rating bewert evalu not(?:e|er|ez)$ punt",
    "convert": "convert konvert umwandl transform turn$",
    "sort": "sort ordn tri(?:e|er|ez)$ orden",
    "report": "report bericht rapport informe",
    "title": "title titl titel titre titul uberschrift",
    "letter": "letter brief lettre carta",
    "test": "test prueb",
    "draft": "draft entwurf entwirf brouillon borrador",
}
_CONCEPT = {name: re.compile(rf"(?:{'|'.join(stems.split())})") for name, stems in _CONCEPTS.items()}

# words without accents that say nothing about the subject of a sentence
STOP_WORDS: Final = frozenset(
    """
    a an the this that these those it its them they their he she his her i me my we us our you your and or but then than
    of in on at to from for with by as into about after before each every all any some one two three both is are was be
    do does not no if so which who what when how please file files text texts step write make create produce give
    der die das den dem des ein eine einen einem einer und oder aber dann danach von vom im in an am auf zu zum zur aus
    fur mit bei als uber nach vor jede jeden jeder jedes alle ist sind nicht kein keine wenn so was wer wie bitte datei
    dateien text texte schreib schreibe erstelle mache gib
    le la les l un une des du de d et ou mais puis ensuite dans en a au aux pour avec par sur comme chaque tout tous
    toutes est sont ne pas si qui que quoi ce cet cette ces fichier fichiers texte textes ecris fais cree donne
    el los las una unos unas y o pero luego despues del al por para con sobre como cada todo todos todas es son no que
    se lo este esta estos estas archivo archivos texto textos escribe haz crea da
    """.split()
)


def folded(text: str) -> str:
    """Return a text in lower case and without accents."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def words(text: str) -> list[str]:
    """Return the words of a text, folded, in order."""
    return [_ELIDED.sub("", word) for word in _WORD.findall(folded(text))]


@lru_cache(maxsize=4096)
def concept(word: str) -> str:
    """Return what a folded word means in any of the languages; the word itself if it is in no list."""
    return next((name for name, beginning in _CONCEPT.items() if beginning.match(word)), word)


def related(first: str, second: str) -> bool:
    """Return whether two folded words have the same concept, or differ only in their endings."""
    if concept(first) == concept(second):
        return True
    shorter = min(len(first), len(second))
    common = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), shorter)
    return common >= LEAST_COMMON and common >= shorter - 2
