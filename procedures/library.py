"""Find procedures: the user's own, then those that ship with the program, and which of them a request may mean.

Every request passes this, so it imports little.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from orchestrator.procedures.errors import ProcedureInvalid, UnknownProcedure
from orchestrator.service.configuration import ProcedureSettings, procedures_folder

if TYPE_CHECKING:
    from orchestrator.procedures.forms import Procedure

# Imported only to read one, since the names of all are looked at for every request
READ: Final = "orchestrator.procedures.forms:read_procedure"
SHIPPED: Final = Path(__file__).resolve().parent / "library"
SUFFIX: Final = ".yaml"
MAX_WORDS: Final = 60  # longer requests are no order to do one thing
_TOKEN: Final = re.compile(r'"([^"]*)"|`([^`]*)`|(\S+)')
_BACK_UP: Final = re.compile(r"\bback(?:s|ing|ed)?[ -]+up\b", re.IGNORECASE)
SAYS_NOTHING: Final = frozenset(
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


def library_of(settings: ProcedureSettings, environ: Mapping[str, str] = os.environ) -> "Library":
    """Return the user's own procedures and those that ship."""
    return Library((procedures_folder(settings, environ), SHIPPED))


class Library:
    """The procedures in some folders, in files named after their ids. The first folder wins."""

    def __init__(self, folders: Sequence[Path] = (SHIPPED,)) -> None:
        self._folders = tuple(folders)

    def files(self) -> dict[str, Path]:
        """By procedure id."""
        files: dict[str, Path] = {}
        for folder in self._folders:
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                files.setdefault(path.stem, path)
        return dict(sorted(files.items()))

    def procedure(self, name: str) -> "Procedure":
        """Return the procedure with this name. Raises UnknownProcedure, ProcedureInvalid."""
        files = self.files()
        if name not in files:
            raise UnknownProcedure(name, files)
        return read_named(files[name])

    def procedures(self) -> "Iterator[Procedure | ProcedureInvalid]":
        """Yield each procedure, or the error if its file cannot be used."""
        for path in self.files().values():
            try:
                yield read_named(path)
            except ProcedureInvalid as error:
                yield error

    def possible(self, request: str, files: Collection[str] = ()) -> list[str]:
        """Return the ids that a request may mean: it starts with one of their words and has all.

        A request with one of the names `files` is about that file, and means none. Whoever is asked to choose one of
        them, or none, decides what the other words mean.
        """
        names = self.files()
        words = words_of(request, names)
        if not words or len(words) > MAX_WORDS or any(word.text in files for word in words):
            return []
        roots = {word.root for word in words}
        return [name for name in names if (ids := roots_of(name)) <= roots and _begins_with(words, ids)]


def read_named(path: Path) -> "Procedure":
    """Read a procedure whose file has to be named after it. Raises ProcedureInvalid."""
    procedure: Procedure = resolve_name(READ)(path)
    if procedure.id != path.stem:
        raise ProcedureInvalid(procedure.problem(("id",), f"is {procedure.id}", f"the name of the file, {path.stem}"))
    return procedure


@dataclass(slots=True)
class Word:
    text: str
    quoted: bool
    root: str  # the normalised form for comparison
    is_value: bool = False  # is part of a value


def _begins_with(words: list[Word], ids: frozenset[str]) -> bool:
    # the first word that is no filler
    first = next((word for word in words if word.root in ids or word.text.lower() not in SAYS_NOTHING), None)
    return first is not None and first.root in ids


def words_of(request: str, names: Collection[str]) -> list[Word]:
    # the name of a procedure counts as its words
    words = []
    for quoted, ticked, plain in _TOKEN.findall(_BACK_UP.sub("backup", request)):
        text = quoted or ticked or plain.strip("'").rstrip(".,;:!?'")
        if plain and text in names:
            words += [Word(part, False, root_of(part)) for part in text.split("-")]
        elif text:
            words.append(Word(text, bool(quoted or ticked), root_of(text)))
    return words


def roots_of(text: str) -> frozenset[str]:
    return frozenset(root_of(word) for word in re.findall(r"[a-z]+", text.lower()))


def root_of(word: str) -> str:
    # lower case, without plural s, the same for synonyms
    lower = word.lower()
    lower = _SYNONYMS.get(lower, lower)
    if len(lower) > 3 and lower.endswith("s") and not lower.endswith("ss"):
        lower = lower[:-1]
    return _SYNONYMS.get(lower, lower)
