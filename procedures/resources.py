"""Describe what a step changes: files and folders, rows of a table, whole databases."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class PathResource:
    """A file, or a folder with its contents. A rollback also restores that it did not exist."""

    path: Path
    # copied, but never hashed or shown
    secret: bool = False
    # How files are written. A checkpoint hard-links large files if they are replaced as a whole, and all files if each
    # is written once.
    written: Literal["in place", "as a whole", "once"] = "in place"
    # others add files meanwhile: putting back restores what is missing or changed, and removes nothing
    shared: bool = False

    @property
    def folder(self) -> Path:
        """The folder that is locked while the resource is changed."""
        return self.path.parent

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class RowsResource:
    """The rows that match the SQL condition `where`; all if it is empty."""

    database: Path
    table: str
    where: str = ""
    # others add rows meanwhile: putting back restores what is missing, and changes nothing else
    shared: bool = False

    @property
    def folder(self) -> Path:
        return self.database.parent

    def __str__(self) -> str:
        return f"{self.database}: rows of {self.table}" + (f" where {self.where}" if self.where else "")


@dataclass(frozen=True, slots=True)
class DatabaseResource:
    """A whole SQLite database with its schema."""

    database: Path
    # users of the database keep this file locked; it is copied and put back only while there are none
    lock: Path | None = None

    @property
    def folder(self) -> Path:
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
    """The resource's own path, or that of its database."""
    return resource.path if isinstance(resource, PathResource) else resource.database


def resource_to_json(resource: Resource) -> dict[str, Any]:
    kind = next(name for name, form in _KINDS.items() if isinstance(resource, form))
    fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(resource).items()}
    return {"kind": kind, **fields}


def resource_from_json(data: dict[str, Any]) -> Resource:
    fields: dict[str, Any] = {
        key: Path(value) if key in ("path", "database", "lock") and value is not None else value
        for key, value in data.items()
        if key != "kind"
    }
    return _KINDS[data["kind"]](**fields)
