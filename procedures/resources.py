"""Say what a step changes: paths of files and folders, rows of a table, whole databases."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class PathResource:
    """A file, or a folder with all that is in it. It may not exist, which is then what a rollback restores."""

    path: Path
    secret: bool = False
    """Whether the content is secret. It is then copied as any other, but never hashed or shown."""
    written: Literal["in place", "as a whole", "once"] = "in place"
    """How files are written to. Where they are only replaced as a whole, renamed or removed, a checkpoint shares large
    ones by hard links instead of copying them, and where each is written only once, all."""
    shared: bool = False
    """Whether others add files meanwhile. Putting back then restores what is missing or changed, and removes none."""

    @property
    def folder(self) -> Path:
        """The folder that is locked while the resource is changed."""
        return self.path.parent

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class RowsResource:
    """The rows of a table for which the SQL condition `where` holds; all of them if it is empty."""

    database: Path
    table: str
    where: str = ""
    shared: bool = False
    """Whether others add rows meanwhile. Putting back then restores what is missing, and changes nothing else."""

    @property
    def folder(self) -> Path:
        """The folder that is locked while the resource is changed."""
        return self.database.parent

    def __str__(self) -> str:
        return f"{self.database}: rows of {self.table}" + (f" where {self.where}" if self.where else "")


@dataclass(frozen=True, slots=True)
class DatabaseResource:
    """A whole SQLite database, its schema included."""

    database: Path
    lock: Path | None = None
    """A file that whoever uses the database keeps locked. It is copied and put back only while nobody does."""

    @property
    def folder(self) -> Path:
        """The folder that is locked while the resource is changed."""
        return self.database.parent

    def __str__(self) -> str:
        return f"{self.database}: the database"


Resource = PathResource | RowsResource | DatabaseResource
_KINDS: dict[str, type[PathResource] | type[RowsResource] | type[DatabaseResource]] = {
    "path": PathResource,
    "rows": RowsResource,
    "database": DatabaseResource,
}


def place_of(resource: Resource) -> Path:
    """Return the path of a resource: its own, or that of its database."""
    return resource.path if isinstance(resource, PathResource) else resource.database


def resource_to_json(resource: Resource) -> dict[str, Any]:
    """Return a resource as JSON has it."""
    kind = next(name for name, one in _KINDS.items() if isinstance(resource, one))
    fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(resource).items()}
    return {"kind": kind, **fields}


def resource_from_json(data: dict[str, Any]) -> Resource:
    """Return the resource that `resource_to_json` has written."""
    fields: dict[str, Any] = {
        key: Path(value) if key in ("path", "database", "lock") and value is not None else value
        for key, value in data.items()
        if key != "kind"
    }
    return _KINDS[data["kind"]](**fields)
