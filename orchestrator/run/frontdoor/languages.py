"""Recognise the language of a text by its most frequent words, and read which languages a request names."""

import re
from typing import Final

from orchestrator.run.frontdoor.words import folded

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
NAMES: Final = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
                "nl": "Dutch"}  # fmt: skip

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
            codes.append(next(code for code in NAMES if match[code] or re.fullmatch(_NAMED[code], match["name"] or "")))
    return tuple(dict.fromkeys(codes)) if not _ABOUT_WORDS.search(text) else ()


def has_words_of(language: str, text: str, besides: str) -> bool:
    """Return whether a text in the language `besides` may also contain text in `language`."""
    own = _WORDS[language] - _WORDS[besides]
    return sum(word in own for word in set(re.findall(r"[^\W\d_]+", folded(text)))) >= 2


def names_language(request: str) -> bool:
    """Return whether a request says anything about languages."""
    return any(pattern.search(folded(request)) for pattern in (_ANY_NAMED, _OTHERS))
