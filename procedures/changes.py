"""Compute what the engine itself writes, before it is written: files, and entries of the registry.

The same function makes the plan's diff and the change itself, so a plan shows exactly what will be done.
"""

import difflib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.procedures.durable import BeforeWrite, remove_file, replace_file
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.resources import PathResource
from orchestrator.registry.edit import add_model, change_model, change_role, give_role, remove_model
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import registry_from
from orchestrator.registry.strict_yaml import parse_text

MAX_SHOWN: Final = 1 << 20  # larger files are not shown line by line
MAX_DIFF_LINES: Final = 400
CONTEXT_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class FileChange:
    path: Path
    after: bytes | Path | None  # the new content, or a file that has it; None: the file is removed
    mode: int | None = None  # None: as before, and 0644 for a new file
    secret: bool = False

    @property
    def resource(self) -> PathResource:
        """The file, or the first of its folders that does not exist yet."""
        missing = [folder for folder in self.path.parents if not os.path.lexists(folder)]
        # the file is replaced as a whole, so a checkpoint may share a large one
        return PathResource(missing[-1] if missing else self.path, secret=self.secret, written="as a whole")


@dataclass(slots=True)
class Files:
    """The files as they are; in a plan, as they will be after the earlier steps."""

    planned: dict[Path, bytes | Path | None] = field(default_factory=dict)

    def read(self, path: Path) -> bytes | None:
        """Return the content of a file, or None if there is none. Raises StepFailed if it cannot be read."""
        if path in self.planned:
            content = self.planned[path]
            return self.read(content) if isinstance(content, Path) else content
        try:
            with path.open("rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StepFailed(f"{path}: {error.strerror}") from error

    def exists(self, path: Path) -> bool:
        return self.planned[path] is not None if path in self.planned else os.path.lexists(path)

    def size(self, path: Path) -> int:
        """Return the planned size of a file in bytes; 0 if there is none."""
        if path in self.planned:
            content = self.planned[path]
            return self.size(content) if isinstance(content, Path) else len(content or b"")
        return path.stat().st_size if path.is_file() else 0


def registry_change(arguments: Mapping[str, Any], registry: Path, files: Files) -> FileChange:
    """Return a step's change of the registry's file. Raises StepFailed if the file would not load."""
    before = files.read(registry)
    if before is None:
        raise StepFailed(f"{registry}: there is no such registry; `orchestrator init` writes one")
    try:
        after = before
        if (new := arguments.get("add_model")) is not None:
            if not isinstance(new["entry"], Mapping):
                raise StepFailed(f"the entry of {new['id']} is {new['entry']!r}; accepted: keys and values")
            after = add_model(after, registry, new["id"], new["entry"])
        if (changed := arguments.get("set_model")) is not None:
            if not isinstance(changed["values"], Mapping):
                raise StepFailed(f"the values of {changed['id']} are {changed['values']!r}; accepted: keys and values")
            after = change_model(after, registry, changed["id"], changed["values"])
        after = _with_roles(after, arguments, registry)
        if (removed := arguments.get("remove_model")) is not None:
            after = remove_model(after, registry, removed)
        registry_from(parse_text(after, registry))
    except RegistryError as error:
        raise StepFailed(str(error)) from error
    return FileChange(registry, after)


def _with_roles(registry: bytes, arguments: Mapping[str, Any], path: Path) -> bytes:
    if (requested := arguments.get("give_role")) is not None:
        registry = give_role(registry, path, requested["role"], requested["model"], requested.get("tier") or "C")
    if (changed := arguments.get("set_role")) is not None:
        if not isinstance(changed["values"], Mapping):
            raise StepFailed(f"the values of {changed['role']} are {changed['values']!r}; accepted: keys and values")
        registry = change_role(registry, path, changed["role"], changed["values"])
    return registry


def file_change(arguments: Mapping[str, Any], files: Files) -> FileChange:
    """Return the change of a file_write step. Raises StepFailed."""
    path = absolute(arguments["path"])
    mode = None if arguments.get("mode") is None else int(arguments["mode"], 8)
    secret = bool(arguments.get("secret"))
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise StepFailed(f"{path} is no file, and only files are written; accepted: a file, or a name that is free")
    if arguments.get("remove"):
        return FileChange(path, None, None, secret)
    if (source := arguments.get("copy_of")) is not None:
        copied = absolute(source)
        if not files.exists(copied):
            raise StepFailed(f"{copied}: there is no such file to copy")
        return FileChange(path, copied, mode, secret)
    content = arguments["content"]
    return FileChange(path, (content if isinstance(content, str) else str(content)).encode(), mode, secret)


def absolute(path: object) -> Path:
    """Return an absolute, normalised path. Raises StepFailed for a relative or empty one."""
    text = str(path)
    if not text.strip():
        raise StepFailed("a path is empty; accepted: an absolute path, or one that begins with ~/")
    try:
        absolute_path = Path(text).expanduser()
    except RuntimeError as error:
        raise StepFailed(f"{text}: there is no such user with a home") from error
    if not absolute_path.is_absolute():
        raise StepFailed(f"{text} is a relative path; accepted: an absolute path, or one that begins with ~/")
    return Path(os.path.normpath(absolute_path))


def write_change(change: FileChange, before_write: BeforeWrite) -> None:
    """Make the change, durably. Raises StepFailed."""
    path = change.path
    try:
        if change.after is None:
            remove_file(path, before_write)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        status = path.stat() if path.exists() else None
        if status is not None and not status.st_mode & 0o222:
            raise StepFailed(f"{path} is read-only")
        mode = change.mode if change.mode is not None else stat.S_IMODE(status.st_mode) if status else 0o644
        owner = (status.st_uid, status.st_gid) if status else None
        replace_file(path, change.after, mode, before_write, owner)
    except OSError as error:
        raise StepFailed(f"{path}: {error.strerror}") from error


def digest_after(change: FileChange) -> str:
    """Return the SHA-256 of the new content, `absent`, or for a copy its source with size and time."""
    if change.after is None:
        return "absent"
    if isinstance(change.after, bytes):
        return hashlib.sha256(change.after).hexdigest()
    if not change.after.exists():
        return f"copy of {change.after}"
    status = change.after.stat()
    return f"copy of {change.after}: {status.st_size} bytes of {status.st_mtime_ns}"


def show_change(change: FileChange, files: Files) -> str:
    """Return a unified diff, or one line if the lines cannot be shown."""
    path, exists = change.path, files.exists(change.path)
    verb = "remove" if change.after is None else "change" if exists else "create"
    if change.after is None and not exists:
        return f"{path}: is not there, so nothing is removed"
    if change.secret:
        return f"{verb} {path} (its content is secret)"
    if isinstance(change.after, Path):
        return f"{verb} {path}: a copy of {change.after} ({files.size(change.after):,} bytes)"
    if max(files.size(path), len(change.after or b"")) > MAX_SHOWN:
        return f"{verb} {path} ({files.size(path):,} bytes before, {len(change.after or b''):,} after)"
    before, after = files.read(path) or b"", change.after or b""
    if before == after and exists and change.after is not None:
        return f"{path}: stays as it is"
    try:
        lines = list(_diff(path, before.decode(), after.decode(), exists, change.after is not None))
    except UnicodeDecodeError:
        return f"{verb} {path} ({len(before):,} bytes before, {len(after):,} after)"
    if len(lines) > MAX_DIFF_LINES:
        lines = [*lines[:MAX_DIFF_LINES], f"… {len(lines) - MAX_DIFF_LINES} more lines"]
    return "\n".join(lines)


def _diff(path: Path, before: str, after: str, existed: bool, stays: bool) -> Iterator[str]:
    old, new = str(path) if existed else "/dev/null", str(path) if stays else "/dev/null"
    return difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="", n=CONTEXT_LINES)
