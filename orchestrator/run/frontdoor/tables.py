"""Compare what a text says of the rows of its own table with the table: that one is the cheapest, or the fastest.

A small model fills a table correctly and then reads it wrongly. Only what every reading of the table contradicts
counts, in English, German, French and Spanish.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.words import folded

_PRICE = r"pric|cost|total|amount|preis|kosten|betrag|prix|cout|montant|precio|coste|importe"
_TIME = r"deliver|time|duration|days|weeks|liefer|dauer|zeit|livraison|delai|duree|entrega|plazo|duracion"


@dataclass(frozen=True, slots=True)
class _Extreme:
    """A word for the row with the least or the greatest value of a column."""

    word: re.Pattern[str]
    column: re.Pattern[str]
    least: bool


_EXTREMES: Final = tuple(
    _Extreme(re.compile(rf"\b(?:{word})\b"), re.compile(rf"\b(?:{column})"), least)
    for word, column, least in (
        (
            r"cheapest|least expensive|most affordable|lowest price|gunstigste\w*|billigste\w*|preiswerteste\w*|"
            r"(?:le|la) moins chere?|mas barat[oa]",
            _PRICE,
            True,
        ),
        (r"most expensive|dearest|highest price|teuerste\w*|(?:le|la) plus chere?|mas car[oa]", _PRICE, False),
        (r"fastest|quickest|shortest|schnellste\w*|kurzeste\w*|(?:le|la) plus rapide|mas rapid[oa]", _TIME, True),
        (r"slowest|longest|langsamste\w*|langste\w*|(?:le|la) plus lente?|mas lent[oa]", _TIME, False),
    )
)
_HOURS: Final = {
    "minut": 1 / 60,
    "hour": 1, "stunde": 1, "heure": 1, "hora": 1,
    "day": 24, "tag": 24, "jour": 24, "dia": 24,
    "week": 168, "woche": 168, "semaine": 168, "semana": 168,
    "month": 720, "monat": 720, "mois": 720, "mes": 720,
    "year": 8760, "jahr": 8760, "annee": 8760, "ano": 8760,
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d+)?")
_UNCERTAIN = re.compile(
    r"\b(?:not|never|second\w*|third|next|among|if|unless|except|than|nicht|kein\w*|zweit\w*|unter|wenn|als|pas|deuxieme|"
    r"parmi|si|que|no|segund\w*|entre)\b|n['\u2019]t\b"
)
_LEAST_NAME: Final = 4  # letters of a word that names a row


def about_tables(answer: WrittenAnswer) -> Iterator[Doubt]:
    """Yield what a text says of a row of its own Markdown table that the table contradicts."""
    for name, text in answer.outputs.items():
        rows = [_cells(line) for line in text.splitlines() if line.count("|") > 1]
        if len(rows) < 4 or len({len(row) for row in rows}) > 1:
            continue
        header, body = rows[0], [row for row in rows[1:] if any(re.search(r"[^\W_]", cell) for cell in row)]
        prose = "\n".join(line for line in text.splitlines() if line.count("|") < 2)
        for sentence in re.split(r"(?<=[.!?])\s|\n", prose):
            if contradiction := _contradiction(sentence, header, body):
                yield Doubt(contradiction, name)


def _contradiction(sentence: str, header: list[str], body: list[list[str]]) -> str:
    text = folded(sentence)
    extremes = [(extreme, match[0]) for extreme in _EXTREMES if (match := extreme.word.search(text))]
    named = [row for row in body if any(word in text for word in _own_words(row, body))]
    if len(extremes) != 1 or len(named) != 1 or _UNCERTAIN.search(text):
        return ""
    ((extreme, word),), (row,) = extremes, named
    columns = [at for at, title in enumerate(header) if at and extreme.column.search(folded(title))]
    if len(columns) != 1:
        return ""
    (column,) = columns
    own = _values(row[column], header[column])
    # whichever of the numbers in the cells are meant
    better = [
        (max(values) if extreme.least else -min(values), other)
        for other in body
        if own and (values := _values(other[column], header[column])) and _is_before(values, own, least=extreme.least)
    ]
    if not better:
        return ""
    _, best = min(better, key=lambda item: item[0])
    word = next((own for own in re.findall(r"\w+", sentence) if folded(own) == word), word)  # with its accents
    return f"The answer calls {row[0]} the {word}; its own table has {best[column]} for {best[0].rstrip('.')}."


def _is_before(values: list[float], own: list[float], *, least: bool) -> bool:
    return max(values) < min(own) if least else min(values) > max(own)


def _own_words(row: list[str], body: list[list[str]]) -> set[str]:
    # words that name this row and no other
    words = {other[0]: set(re.findall(r"[^\W_]+", folded(other[0]))) for other in body}
    others = set[str]().union(*(words[name] for name in words if name != row[0]))
    return {word for word in words[row[0]] - others if len(word) >= _LEAST_NAME}


def _values(cell: str, title: str) -> list[float]:
    # numbers of a cell in hours or in the unit of the column; none if the cell has several units
    units = _units(cell) or _units(title) or {1.0}
    return [_number(match[0]) * unit for match in _NUMBER.finditer(cell) for unit in units if len(units) == 1]


def _units(text: str) -> set[float]:
    return {hours for unit, hours in _HOURS.items() if re.search(rf"\b{unit}", folded(text))}


def _number(text: str) -> float:
    whole = re.sub(r"[.,' ](?=\d{3}(?!\d))", "", text)
    return float(whole.replace(",", "."))


def _cells(line: str) -> list[str]:
    return [re.sub(r"[*_`]", "", cell).strip() for cell in line.strip().strip("|").split("|")]
