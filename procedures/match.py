"""Find the procedure that a request in words asks for, and its inputs. Deterministic; no model is asked.

It has to be sure, since most requests are about something else: the request begins with a word of the procedure's id,
has all of them, and every other word of it is a value of an input, or says nothing, or is in the procedure's own words.
So "remove the model small" is the procedure remove-model, and "write a script that removes a model" is none.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from procedures.errors import ProcedureError
from procedures.forms import InputForm, Procedure
from procedures.library import Library
from procedures.plan import check_inputs

MAX_WORDS: Final = 60
"""A longer request is no order to do one thing."""
_TOKEN: Final = re.compile(r'"([^"]*)"|`([^`]*)`|(\S+)')
_BACK_UP: Final = re.compile(r"\bback(?:s|ing|ed)?[ -]+up\b", re.IGNORECASE)
_SAYS_NOTHING: Final = frozenset(
    "a all also an and any are as at be by called execute for from i in including into is it its me my named now of "
    "old older on our please procedure run start than that the their them then this to us use used using want we which "
    "with would you your".split()
)
_SYNONYMS: Final = {
    "delete": "remove",
    "erase": "remove",
    "uninstall": "remove",
    "download": "get",
    "fetch": "get",
    "install": "get",
    "pull": "get",
    "verify": "check",
    "examine": "check",
    "validate": "check",
    "measure": "benchmark",
    "renew": "rotate",
    "clean": "vacuum",
    "purge": "vacuum",
    "tune": "autotune",
}
_JOINS: Final = frozenset({"and", "its", "with", "also", "including"})
_NAMES: Final = frozenset({"called", "named", "as"})


@dataclass(frozen=True, slots=True)
class Match:
    """A procedure that a request asks for."""

    procedure: str
    inputs: Mapping[str, Any]
    """As they were given in words; those that were left out have their defaults."""


@dataclass(slots=True)
class _Word:
    """One word of a request."""

    text: str
    quoted: bool
    root: str
    """The word in the form in which words are compared."""
    taken: bool = False
    """Whether it belongs to a value."""


def find_procedure(request: str, library: Library, files: Collection[str] = ()) -> Match | None:
    """Return the procedure that a request asks for, with its inputs; None where none is meant, or more than one is.

    `files` are the names that the request may refer to otherwise: one that has such a name in it is about that file.
    """
    names = library.files()
    words = _words(request, names)
    if not words or len(words) > MAX_WORDS or any(word.text in files for word in words):
        return None
    roots = {word.root for word in words}
    named = [(name, ids) for name in names if (ids := _roots_of(name)) <= roots]
    named.sort(key=lambda one: -len(one[1]))
    found = [match for name, _ in named if (match := _matched(name, _words(request, names), library)) is not None]
    if len(found) > 1 and len(_roots_of(found[0].procedure)) == len(_roots_of(found[1].procedure)):
        return None
    return found[0] if found else None


def possible_procedures(request: str, library: Library, files: Collection[str] = ()) -> list[str]:
    """Return the procedures that a request may ask for: it begins with a word of the id, and has all of them.

    What its other words mean is left to whoever is asked which of the procedures is meant, or none.
    """
    names = library.files()
    words = _words(request, names)
    if not words or len(words) > MAX_WORDS or any(word.text in files for word in words):
        return []
    roots = {word.root for word in words}
    return [name for name in names if (ids := _roots_of(name)) <= roots and _begins_with(words, ids)]


def _begins_with(words: list[_Word], ids: frozenset[str]) -> bool:
    """Return whether the first word that says something is one of these."""
    first = next((word for word in words if word.root in ids or word.text.lower() not in _SAYS_NOTHING), None)
    return first is not None and first.root in ids


def _matched(name: str, words: list[_Word], library: Library) -> Match | None:
    ids = _roots_of(name)
    if not _begins_with(words, ids):
        return None
    try:
        procedure = library.procedure(name)
        inputs = _Inputs(procedure, words, ids).found()
        if inputs is None:
            return None
        check_inputs(procedure, inputs)
    except ProcedureError:
        return None
    return Match(name, inputs)


class _Inputs:
    """Takes the values of a procedure's inputs from the words of a request."""

    def __init__(self, procedure: Procedure, words: list[_Word], ids: frozenset[str]) -> None:
        self._form = procedure.form
        self._words = words
        self._ids = ids
        described = f"{self._form.description} {self._form.category} {' '.join(self._form.inputs)}"
        self._own = ids | _roots_of(described.replace("_", " "))
        self._values: dict[str, Any] = {}

    def found(self) -> dict[str, Any] | None:
        """Return the values by name; None if a word is left that nothing explains, or an input is missing."""
        self._stated()
        for name, entry in self._form.inputs.items():
            if name not in self._values and entry.type != "secret" and (value := self._typed(name, entry)) is not None:
                self._values[name] = value
        missing = [
            name
            for name, entry in self._form.inputs.items()
            if name not in self._values and entry.default is None and not entry.optional
        ]
        left = list(self._unexplained())
        if len(missing) == 1 and len(left) == 1 and self._form.inputs[missing[0]].type == "string":
            self._values[missing.pop()] = left.pop().text
        return None if missing or left else self._values

    def _stated(self) -> None:
        """Take what is said as NAME=VALUE."""
        for word in self._words:
            name, sign, value = word.text.partition("=")
            if sign and name in self._form.inputs and self._form.inputs[name].type != "secret":
                self._values[name], word.taken = value, True

    def _typed(self, name: str, entry: InputForm) -> Any:
        match entry.type:
            case "boolean":
                return True if self._is_asked_for(name) else None
            case "integer" | "number":
                return self._beside(name, lambda word: re.fullmatch(r"\d+(\.\d+)?", word.text) is not None)
            case "path":
                return self._first(lambda word: word.text.startswith(("/", "~/")))
            case "string" if entry.choices:
                return self._first(lambda word: word.text in entry.choices)
            case "string":
                return self._after(name)
        return None

    def _is_asked_for(self, name: str) -> bool:
        """Return whether the words of a boolean input are there, the last of them after one such as `and its`."""
        wanted = [_root(part) for part in name.split("_")]
        places = [place for place, word in enumerate(self._words) if word.root == wanted[-1] and not word.taken]
        said = {word.root for word in self._words}
        joined = any(_JOINS & {word.text.lower() for word in self._words[max(0, at - 2) : at]} for at in places)
        return joined and set(wanted) <= said

    def _beside(self, name: str, accepted: Any) -> str | None:
        """Return the word before or after the name of an input that is accepted as its value."""
        for place, word in enumerate(self._words):
            if word.root != _root(name):
                continue
            for at in (place - 1, place + 1):
                if 0 <= at < len(self._words) and not self._words[at].taken and accepted(self._words[at]):
                    return self._take(self._words[at])
        return None

    def _first(self, accepted: Any) -> str | None:
        return next((self._take(word) for word in self._words if not word.taken and accepted(word)), None)

    def _after(self, name: str) -> str | None:
        """Return the word after the name of an input, or for the input `id` the one after a word such as `called`."""
        before = _NAMES if name == "id" else frozenset({_root(name)})
        for word, following in zip(self._words, self._words[1:], strict=False):
            is_before = word.text.lower() in before if name == "id" else word.root in before and not word.quoted
            if is_before and not following.taken and (following.quoted or not self._is_explained(following)):
                return self._take(following)
        return None

    def _take(self, word: _Word) -> str:
        word.taken = True
        return word.text

    def _is_explained(self, word: _Word) -> bool:
        return not word.quoted and (word.root in self._own or word.text.lower() in _SAYS_NOTHING)

    def _unexplained(self) -> Iterator[_Word]:
        return (word for word in self._words if not word.taken and not self._is_explained(word))


def _words(request: str, names: Collection[str]) -> list[_Word]:
    """Return the words of a request. The name of a procedure is the words that it is made of."""
    words = []
    for quoted, ticked, plain in _TOKEN.findall(_BACK_UP.sub("backup", request)):
        text = quoted or ticked or plain.strip("'").rstrip(".,;:!?'")
        if plain and text in names:
            words += [_Word(part, False, _root(part)) for part in text.split("-")]
        elif text:
            words.append(_Word(text, bool(quoted or ticked), _root(text)))
    return words


def _roots_of(text: str) -> frozenset[str]:
    """Return the words of an id or a description in the form in which words are compared."""
    return frozenset(_root(word) for word in re.findall(r"[a-z]+", text.lower()))


def _root(word: str) -> str:
    """Return a word in lower case, without the s of a plural or a verb, and one of several that mean the same."""
    lower = word.lower()
    lower = _SYNONYMS.get(lower, lower)
    if len(lower) > 3 and lower.endswith("s") and not lower.endswith("ss"):
        lower = lower[:-1]
    return _SYNONYMS.get(lower, lower)
