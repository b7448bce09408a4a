"""Find procedures: the user's own, then those that ship with the program."""

import os
from collections.abc import Iterator, Mapping, Sequence
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
        """Raises UnknownProcedure, ProcedureInvalid."""
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


def read_named(path: Path) -> "Procedure":
    """Read a procedure whose file has to be named after it. Raises ProcedureInvalid."""
    procedure: Procedure = resolve_name(READ)(path)
    if procedure.id != path.stem:
        raise ProcedureInvalid(procedure.problem(("id",), f"is {procedure.id}", f"the name of the file, {path.stem}"))
    return procedure
