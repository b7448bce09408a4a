"""Copy what a step is going to change, and put it back byte for byte.

A checkpoint is a folder with a manifest and the copied bytes. It gets its name when it is complete, so an incomplete
one is never used. Putting back can be repeated, so the next process completes what a killed one started.
"""

import filecmp
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.files import sync_folder
from orchestrator.procedures.durable import (
    LARGE,
    BeforeWrite,
    How,
    file_digest,
    make_private_folder,
    no_fault,
    share_file,
    unfinished,
)
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.resources import (
    DatabaseResource,
    PathResource,
    Resource,
    RowsResource,
    resource_from_json,
    resource_to_json,
)
from orchestrator.procedures.rows import (
    copy_database,
    copy_rows,
    digest_database,
    digest_rows,
    restore_database,
    restore_rows,
)

MANIFEST: Final = "manifest.json"
HASHED: Final = 64 << 20  # larger files are compared by size and modification time: hashing them would take long


@dataclass(frozen=True, slots=True)
class KeptFile:
    name: str  # relative to the path of the resource; empty for that itself
    kind: Literal["file", "folder", "link"]
    mode: int
    owner: tuple[int, int]
    modified_ns: int
    size: int = 0
    target: str = ""  # of a link
    data: str = ""  # name of the copy in the checkpoint
    how: How | Literal[""] = ""


def take(resources: Sequence[Resource], folder: Path, before_write: BeforeWrite = no_fault) -> str:
    """Copy the resources into the new folder `folder`, durably, and return the SHA-256 of its manifest.

    Raises StepFailed for what cannot be copied, and then leaves nothing behind.
    """
    building = unfinished(folder)
    shutil.rmtree(building, ignore_errors=True)
    try:
        before_write(f"checkpoint {folder.name}")
        make_private_folder(building)
        entries = [_copied(resource, building, str(index)) for index, resource in enumerate(resources)]
        text = json.dumps(entries, sort_keys=True).encode()
        with (building / MANIFEST).open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(building)
        before_write(f"name checkpoint {folder.name}")
        building.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(building, ignore_errors=True)
        raise StepFailed(f"a checkpoint cannot be made: {_reason(error)}") from error
    return hashlib.sha256(text).hexdigest()


def restore(folder: Path, digest: str, before_write: BeforeWrite = no_fault) -> None:
    """Put back everything in the checkpoint `folder`, whose `digest` `take` returned. May be repeated.

    Raises StepFailed.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(text).hexdigest() != digest:
            raise StepFailed(f"{folder}: the checkpoint is not what was written, so nothing is put back from it")
        for index, entry in enumerate(json.loads(text)):
            resource = resource_from_json(entry["resource"])
            try:
                _restore(resource, entry, folder, str(index), before_write)
            except OSError:  # as on a file system that became read-only before anything was changed
                if not _is_as_kept(resource, entry, folder / str(index)):
                    raise
    except OSError as error:
        raise StepFailed(f"a checkpoint cannot be put back: {_reason(error)}") from error


def discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def fingerprint(resource: Resource) -> str:
    """Return a text that changes with the resource, constant for shared ones. Raises StepFailed."""
    match resource:
        case RowsResource(shared=True) | PathResource(shared=True):
            return "shared"
        case RowsResource():
            return digest_rows(resource)
        case DatabaseResource():
            return digest_database(resource)
        case PathResource():
            digest = hashlib.sha256()
            try:
                for entry in _walk(resource.path):
                    printed = _print_of(entry, resource.path / entry.name, secret=resource.secret)
                    digest.update(json.dumps(printed).encode())
            except OSError as error:
                raise StepFailed(f"{resource.path}: {_reason(error)}") from error
            return digest.hexdigest() if os.path.lexists(resource.path) else "absent"


def fingerprints(resources: Sequence[Resource]) -> dict[str, str]:
    """By the description of each resource."""
    return {str(resource): fingerprint(resource) for resource in resources}


def _print_of(entry: KeptFile, path: Path, *, secret: bool) -> list[object]:
    identity: list[object] = [entry.name, entry.kind, entry.mode, entry.target]
    if entry.kind != "file":
        return identity
    if secret or entry.size > HASHED:
        return [*identity, entry.size, entry.modified_ns]
    return [*identity, entry.size, file_digest(path)]


def _copied(resource: Resource, folder: Path, name: str) -> dict[str, Any]:
    described = {"resource": resource_to_json(resource)}
    match resource:
        case RowsResource():
            return {**described, "present": copy_rows(resource, folder / name)}
        case DatabaseResource():
            return {**described, "present": copy_database(resource, folder / name)}
        case PathResource():
            data = folder / name
            data.mkdir()
            entries = []
            for number, entry in enumerate(_walk(resource.path)):
                if entry.kind == "file":
                    link = resource.written == "once" or (resource.written == "as a whole" and entry.size >= LARGE)
                    how = share_file(resource.path / entry.name, data / str(number), link=link)
                    entries.append({**asdict(entry), "data": str(number), "how": how})
                else:
                    entries.append(asdict(entry))
            sync_folder(data)
            return {**described, "present": bool(entries), "entries": entries}


def _restore(resource: Resource, entry: Mapping[str, Any], folder: Path, name: str, before_write: BeforeWrite) -> None:
    match resource:
        case RowsResource():
            if entry["present"]:
                restore_rows(resource, folder / name, before_write)
        case DatabaseResource():
            if entry["present"]:
                restore_database(resource, folder / name, before_write)
            else:
                for suffix in ("", "-wal", "-shm", "-journal"):
                    before_write(f"remove {resource.database.name}{suffix}")
                    resource.database.with_name(resource.database.name + suffix).unlink(missing_ok=True)
        case PathResource():
            _restore_path(resource, _kept_files(entry), folder / name, before_write)


def _is_as_kept(resource: Resource, entry: Mapping[str, Any], data: Path) -> bool:
    # always False for rows and databases
    if not isinstance(resource, PathResource):
        return False
    files, present = _kept_files(entry), {file.name: file for file in _walk(resource.path)}
    if not resource.shared and len(present) != len(files):
        return False
    for file in files:
        if present.get(file.name) != replace(file, data="", how=""):
            return False
        if file.kind == "file" and not _is_same(resource.path / file.name, file, data / file.data):
            return False
    return True


def _kept_files(entry: Mapping[str, Any]) -> list[KeptFile]:
    return [KeptFile(**{**fields, "owner": tuple(fields["owner"])}) for fields in entry["entries"]]


def _restore_path(resource: PathResource, files: Sequence[KeptFile], data: Path, before_write: BeforeWrite) -> None:
    path, by_name = resource.path, {entry.name: entry for entry in files}
    unfinished(path).unlink(missing_ok=True)
    for entry in reversed(list(_walk(path))):  # what is in a folder comes before the folder
        is_extra = entry.name not in by_name and not resource.shared
        if is_extra or (entry.name in by_name and by_name[entry.name].kind != entry.kind):
            _remove(path / entry.name, entry, before_write)
    for entry in files:
        _restore_entry(path / entry.name, entry, data, before_write)
    for entry in reversed(files):  # what is written into a folder changes its time
        if entry.kind == "folder" and not resource.shared:
            os.utime(path / entry.name, ns=(entry.modified_ns, entry.modified_ns))
            sync_folder(path / entry.name)
    if path.parent.is_dir():
        sync_folder(path.parent)


def _remove(path: Path, entry: KeptFile, before_write: BeforeWrite) -> None:
    before_write(f"remove {path.name}")
    if entry.kind == "folder":
        path.rmdir()
    else:
        path.unlink()


def _restore_entry(path: Path, entry: KeptFile, data: Path, before_write: BeforeWrite) -> None:
    match entry.kind:
        case "folder":
            if not path.is_dir():
                before_write(f"make {path.name}")
                path.mkdir(parents=True)
            _own(path, entry)
            path.chmod(entry.mode)
        case "link":
            if not path.is_symlink() or os.readlink(path) != entry.target:
                before_write(f"link {path.name}")
                fresh = unfinished(path)
                fresh.unlink(missing_ok=True)
                fresh.symlink_to(entry.target)
                fresh.replace(path)
        case "file":
            if not _is_same(path, entry, data / entry.data):
                _restore_file(path, entry, data / entry.data, before_write)


def _is_same(path: Path, entry: KeptFile, copy: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if stat.S_IMODE(status.st_mode) != entry.mode or status.st_mtime_ns != entry.modified_ns:
        return False
    if (status.st_uid, status.st_gid) != entry.owner and os.geteuid() == 0:
        return False
    if os.path.samefile(path, copy):
        return True
    filecmp.clear_cache()  # it takes files for unchanged by size and time, which a program can set
    return status.st_size == entry.size and filecmp.cmp(path, copy, shallow=False)


def _restore_file(path: Path, entry: KeptFile, copy: Path, before_write: BeforeWrite) -> None:
    if copy.stat().st_size != entry.size:
        raise StepFailed(f"{copy}: the copy of {path} has another size than it had")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = unfinished(path)
    fresh.unlink(missing_ok=True)
    before_write(f"restore {path.name}")
    share_file(copy, fresh, link=entry.how == "link")
    _own(fresh, entry)
    fresh.chmod(entry.mode)
    os.utime(fresh, ns=(entry.modified_ns, entry.modified_ns))
    before_write(f"name {path.name}")
    fresh.replace(path)


def _own(path: Path, entry: KeptFile) -> None:
    if os.geteuid() == 0:
        os.chown(path, *entry.owner)


def _walk(path: Path) -> Iterator[KeptFile]:
    # a folder comes before what is in it
    if not os.path.lexists(path):
        return
    yield (first := _entry(path, ""))
    if first.kind != "folder":
        return
    pending = [""]
    while pending:
        name = pending.pop()
        with os.scandir(path / name) as scan:
            inner = sorted(scan, key=lambda item: item.name)
        for item in inner:
            entry = _entry(Path(item.path), f"{name}/{item.name}" if name else item.name)
            yield entry
            if entry.kind == "folder":
                pending.append(entry.name)


def _entry(path: Path, name: str) -> KeptFile:
    status = path.lstat()
    common = (stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), status.st_mtime_ns)
    if stat.S_ISDIR(status.st_mode):
        return KeptFile(name, "folder", *common)
    if stat.S_ISLNK(status.st_mode):
        return KeptFile(name, "link", *common, target=os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        return KeptFile(name, "file", *common, size=status.st_size)
    raise StepFailed(f"{path} is a device, a pipe or a socket, which no checkpoint holds; accepted: files and folders")


def _reason(error: OSError) -> str:
    return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
