"""Write the artifacts of a run into a folder that the user names, and never outside of it.

Files of the same names are replaced, each atomically; everything else in the folder stays. Links inside the folder are
not followed, neither for a file nor on the way to it.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from orchestrator.errors import InputError, OrchestratorError, Problem

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
INSIDE = FOLDER | os.O_NOFOLLOW


class ExportFailed(OrchestratorError):
    """An artifact could not be written; those before it are in place."""


def check_target(folder: Path) -> None:
    """Create `folder` if need be. Raises `InputError` if it cannot be written to, which is checked before a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, f"cannot be created: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(folder, "cannot be written to")


def export(folder: Path, artifacts: Mapping[str, bytes]) -> None:
    """Write each artifact to `folder/NAME`. Raises `ExportFailed`, naming the artifact that could not be written."""
    root = os.open(folder, FOLDER)
    try:
        for name, data in artifacts.items():
            try:
                _write(root, PurePosixPath(name), data)
            except OSError as error:
                raise ExportFailed(f"{folder / name}: cannot be written: {error.strerror}") from error
    finally:
        os.close(root)


def _refused(folder: Path, what: str) -> InputError:
    return InputError(Problem(f"--out {folder}", what, "a folder that can be written to, or a new one"))


def _write(root: int, name: PurePosixPath, data: bytes) -> None:
    """Write one file below the open folder `root`, in a temporary file first, then under its name."""
    if name.is_absolute() or not name.parts or ".." in name.parts:
        raise PermissionError(1, "its name leads out of the folder")
    folder = _enter(root, name.parts[:-1])
    temporary = f".{name.name[:100]}.{secrets.token_hex(6)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            os.rename(temporary, name.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _enter(root: int, parts: tuple[str, ...]) -> int:
    """Return an open folder below `root`, creating what is missing and following no link."""
    folder = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, dir_fd=folder)
            except FileExistsError:
                pass
            inner = os.open(part, INSIDE, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder
