"""Download files into a folder.

Interrupted transfers are resumed. Free space is checked before a transfer, and the hash (or else the size) after it. An
incomplete file is called `NAME.part`, and `NAME.part.etag` has the version of the remote file. A file gets its own name
only when it is complete and correct.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2

from orchestrator.registry.memory import size as format_size
from orchestrator.registry.sources.contract import DownloadProgress, NoProgress, RemoteFile, SourceError

TIMEOUT: Final = httpx2.Timeout(60.0, connect=20.0)
NOT_SATISFIABLE: Final = 416
REFUSED: Final = (401, 403)
_WHY: Final = {
    401: "the server requires authentication (401)",
    403: "the server does not allow it (403)",
    404: "there is no such file (404)",
    429: "the server has had too many requests (429)",
}
_LATER: Final = "the same command again, later"
_ACCEPTED: Final = {401: "a file that needs no account", 403: "a file that everybody may have", 404: "another address"}


def download(
    files: Sequence[RemoteFile], folder: Path, progress: DownloadProgress | None = None, *, besides: int = 0
) -> tuple[Path, ...]:
    """Download all files into `folder`, which is created if need be, and return their paths in order.

    Complete files are not transferred again. `besides` are bytes that the caller needs on the same disk afterwards.
    Raises SourceError; the next call resumes a partial file.
    """
    progress = progress or NoProgress()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(str(folder), f"cannot be created: {error.strerror}", "a folder for models") from error
    with httpx2.Client(follow_redirects=True, timeout=TIMEOUT) as client:
        incomplete = [file for file in files if not _is_complete(client, folder / file.name, file)]
        _check_disk(incomplete, folder, besides)
        for file in incomplete:
            with _explained(file, folder):
                _transfer(client, file, folder / file.name, progress)
    return tuple(folder / file.name for file in files)


def how_checked(file: RemoteFile, size: int | None = None) -> str:
    """Return a clause that says what a complete file was compared with. `size` is from the server."""
    if file.sha256 is not None:
        return "its SHA-256 is right"
    if file.size is not None or size is not None:
        return "its size is what the server states, and no hash of it is known"
    return "neither its size nor a hash of it is known"


def why_not_written(error: OSError) -> tuple[str, str]:
    """Return what is wrong when a file cannot be written, and what would be accepted."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full", "the same command again once there is room, or a folder on a disk with more"
    return f"cannot be written: {error.strerror}", "a folder that can be written"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def missing_bytes(files: Iterable[RemoteFile], folder: Path) -> int:
    """Return how many bytes of the files are not in `folder` yet, as far as their sizes are known."""
    return sum(max(0, (file.size or 0) - _size(_part(folder / file.name))) for file in files)


def _check_disk(files: Sequence[RemoteFile], folder: Path, besides: int = 0) -> None:
    needed, free = missing_bytes(files, folder) + (besides if files else 0), shutil.disk_usage(folder).free
    if needed > free:
        message = f"the disk has {format_size(free)} free, and {format_size(needed)} are needed"
        raise SourceError(str(folder), message, "a folder on a disk with more room, or a smaller model")


def _is_complete(client: httpx2.Client, path: Path, file: RemoteFile) -> bool:
    # Without hash and size, the server is asked for the size. Raises SourceError if a different file has the name.
    if not path.is_file():
        return False
    if file.sha256 is not None:
        same = file.size in (None, path.stat().st_size) and sha256_of(path) == file.sha256
    else:
        with _explained(file, path.parent):
            same = path.stat().st_size == (_stated_size(client, file) if file.size is None else file.size)
    if same:
        return True
    raise SourceError(str(path), "there is another file of this name, which is left alone", "another folder")


def _stated_size(client: httpx2.Client, file: RemoteFile) -> int | None:
    # Not all servers answer HEAD, and an address may be signed for GET alone.
    with client.stream("GET", file.url, headers={**file.headers, "Accept-Encoding": "identity"}) as response:
        response.raise_for_status()
        return _total(response, 0)


def _transfer(client: httpx2.Client, file: RemoteFile, path: Path, progress: DownloadProgress) -> None:
    part = _part(path)
    if _size(part) and file.size is not None and _size(part) >= file.size:
        _finish(file, file.size, part, path, progress)  # all of it was transferred, but not checked
        return
    with _response(client, file, part) as (response, begins_at):
        response.raise_for_status()
        total = _total(response, begins_at) if file.size is None else file.size
        if file.size is None and total is not None:
            _check_disk([RemoteFile(url=file.url, name=file.name, size=total)], path.parent)
        _remember_version(part, response)
        progress.begin(file.name, total, begins_at)
        with part.open("ab" if begins_at else "wb") as target:
            for chunk in response.iter_raw():
                target.write(chunk)
                progress.advance(len(chunk))
            target.flush()
            os.fsync(target.fileno())
    if total is not None and _size(part) < total:
        message = f"the transfer broke off after {format_size(_size(part))} of {format_size(total)}"
        raise SourceError(file.url, message, "the same command again, which continues from there")
    _finish(file, total, part, path, progress)


@contextmanager
def _response(client: httpx2.Client, file: RemoteFile, part: Path) -> Iterator[tuple[httpx2.Response, int]]:
    """Yield the server's answer, and the offset of its first byte in the file: 0 unless it continues a part."""
    have, version = _size(part), _version(part)
    # A part of unknown version is only continued if the hash of the whole file will show whether it fits.
    resumable = have > 0 and (version is not None or file.sha256 is not None)
    headers = dict(file.headers)
    headers["Accept-Encoding"] = "identity"
    if resumable:
        headers["Range"] = f"bytes={have}-"
        if version is not None:
            headers["If-Range"] = version
    with client.stream("GET", file.url, headers=headers) as response:
        if response.status_code != NOT_SATISFIABLE:
            yield response, have if response.status_code == httpx2.codes.PARTIAL_CONTENT else 0
            return
    _forget(part)  # the remote file is shorter than the part here, so it has changed
    with client.stream("GET", file.url, headers={**file.headers, "Accept-Encoding": "identity"}) as response:
        yield response, 0


def _finish(file: RemoteFile, size: int | None, part: Path, path: Path, progress: DownloadProgress) -> None:
    # A wrong file is deleted, because resuming could not repair it.
    if size is not None and _size(part) != size:
        message = f"{format_size(_size(part))} came, and the source says {format_size(size)}"
        _forget(part)
        raise SourceError(file.url, f"{message}; it was deleted", "the same command again")
    if not _size(part):
        _forget(part)
        raise SourceError(file.url, "is an empty file, which was not kept", "a GGUF model")
    if file.sha256 is not None and (digest := sha256_of(part)) != file.sha256:
        _forget(part)
        message = f"what came has the SHA-256 {digest} instead of {file.sha256}; it was deleted"
        raise SourceError(file.url, message, "the same command again; if that is no better, another source")
    part.replace(path)
    _forget(part)
    progress.end(how_checked(file, size))


@contextmanager
def _explained(file: RemoteFile, folder: Path) -> Iterator[None]:
    again = "the same command again, which continues from there"
    try:
        yield
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        accepted = (file.if_refused if status in REFUSED else "") or _ACCEPTED.get(status, _LATER)
        raise SourceError(file.url, _WHY.get(status, f"the server answers {status}"), accepted) from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise SourceError(file.url, f"the server cannot be reached: {error}", "a network connection") from error
    except httpx2.InvalidURL as error:
        raise SourceError(file.url, f"is no address: {error}", "such as https://example.org/model.gguf") from error
    except httpx2.HTTPError as error:
        message = f"the transfer broke off: {str(error) or type(error).__name__}"
        raise SourceError(file.url, message, again) from error
    except OSError as error:
        raise SourceError(str(folder / file.name), *why_not_written(error)) from error


def _total(response: httpx2.Response, begins_at: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return begins_at + int(length) if length.isdigit() else None


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _version(part: Path) -> str | None:
    try:
        return _version_file(part).read_text(encoding="ascii") or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _remember_version(part: Path, response: httpx2.Response) -> None:
    # Only a strong ETag guarantees that the bytes are the same (RFC 9110, 8.8.1).
    etag = response.headers.get("ETag", "")
    if etag.startswith('"') and etag.isascii():
        _version_file(part).write_text(etag, encoding="ascii")
    else:
        _version_file(part).unlink(missing_ok=True)


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
