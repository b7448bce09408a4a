"""Find procedures: those that ship with the program, and the user's own, which come first."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from procedures.errors import ProcedureInvalid, UnknownProcedure
from procedures.forms import Procedure, read_procedure

SHIPPED: Final = Path(__file__).resolve().parent / "library"
SUFFIX: Final = ".yaml"


class Library:
    """The procedures in some folders. The file of a procedure has its id as its name; the first folder wins."""

    def __init__(self, folders: Sequence[Path] = (SHIPPED,)) -> None:
        self._folders = tuple(folders)

    def files(self) -> dict[str, Path]:
        """Return the files of all procedures, by id."""
        found: dict[str, Path] = {}
        for folder in self._folders:
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                found.setdefault(path.stem, path)
        return dict(sorted(found.items()))

    def procedure(self, name: str) -> Procedure:
        """Return the procedure with this id. Raises UnknownProcedure, ProcedureInvalid."""
        files = self.files()
        if name not in files:
            raise UnknownProcedure(name, files)
        return read_named(files[name])

    def procedures(self) -> Iterator[Procedure | ProcedureInvalid]:
        """Yield each procedure, or the error for one whose file cannot be used."""
        for path in self.files().values():
            try:
                yield read_named(path)
            except ProcedureInvalid as error:
                yield error


def read_named(path: Path) -> Procedure:
    """Read the file of a procedure, which has to be named after it. Raises ProcedureInvalid."""
    procedure = read_procedure(path)
    if procedure.id != path.stem:
        raise ProcedureInvalid(procedure.problem(("id",), f"is {procedure.id}", f"the name of the file, {path.stem}"))
    return procedure
