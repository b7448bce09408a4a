"""Find models that are on this machine already: downloads, Python packages, Ollama, files."""

import glob
import os
import re
from itertools import chain, count
from pathlib import Path

from orchestrator.registry.compose import Candidate
from orchestrator.registry.gguf import PIECE, GgufHeader
from orchestrator.registry.measured import MeasuredShares
from orchestrator.registry.sources.catalogue import CatalogueEntry, read_catalogue
from orchestrator.registry.sources.contract import SourceError
from orchestrator.registry.sources.download import sha256_of
from orchestrator.registry.sources.hub import parse_name, quantisation_of
from orchestrator.registry.sources.ollama import find_in_ollama
from orchestrator.registry.sources.pypi import find_unpacked


def find_here(written: str, folder: Path) -> Path | None:
    """Return the file of the model that `written` names, as in `get_model`, or None if it would be downloaded.

    Files in the download folder can also be given by name, with or without `.gguf`. A copy of a catalogue model is
    found under any name, see `recognise`. The network is not used.
    """
    entry = read_catalogue().get(written)
    if entry is None:
        return _at_source(written, folder)
    copies = (file for file in models_in(folder) if _is_copy(file, entry))
    return _at_source(entry.source, folder) or next(copies, None)


def _at_source(source: str, folder: Path) -> Path | None:
    if source.startswith("hf:"):
        return _from_hub(source, folder)
    if source.startswith("pypi:"):
        return find_unpacked(source, folder)
    if source.startswith("ollama:"):
        try:
            return find_in_ollama(source)
        except SourceError:
            return None
    path = Path(source).expanduser()
    if path.is_file():
        return path.absolute()
    return next((file for file in models_in(folder) if source in (file.name, file.stem)), None)


def models_in(folder: Path) -> list[Path]:
    """Return the GGUF files below a folder in order of path; of a split model only the first piece."""
    return [path for path in sorted(folder.rglob("*.gguf")) if path.is_file() and _is_first(path)]


def link_model(file: Path, name: str, folder: Path) -> Path | None:
    """Link a model from elsewhere into a folder, by one symbolic link per piece.

    Return the link, or None if the folder has the model already. A link is called `name`, with a number if that is
    taken. Raises OSError.
    """
    if any(path.resolve() == file.resolve() for path in models_in(folder)):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    if (piece := PIECE.fullmatch(file.name)) is not None:
        for sibling in sorted(file.parent.glob(f"{glob.escape(piece['stem'])}-?????-of-{piece['count']}.gguf")):
            (folder / sibling.name).symlink_to(sibling.absolute())
        return folder / file.name
    stem = re.sub(r"[^\w.-]+", "-", name.removesuffix(".gguf"))
    names = chain((stem,), (f"{stem}-{number}" for number in count(2)))
    link = next(path for candidate in names if not os.path.lexists(path := folder / f"{candidate}.gguf"))
    link.symlink_to(file.absolute())
    return link


def known_models(folder: Path) -> dict[Path, tuple[str, CatalogueEntry]]:
    """Return the catalogue's models that are on this machine: short name and entry by file."""
    rows = ((find_here(name, folder), name, entry) for name, entry in read_catalogue().items())
    return {file: (name, entry) for file, name, entry in rows if file is not None}


def recognise(file: Path) -> tuple[str, CatalogueEntry] | None:
    """Return the short name and the entry of the catalogue model that a file is a copy of, or None.

    This needs the exact file in the catalogue, and adapters or measurements of it. A file is read as a whole only if
    its size matches.
    """
    copies = ((name, entry) for name, entry in read_catalogue().items() if _is_copy(file, entry))
    return next(copies, None)


def catalogue_entry(file: Path) -> CatalogueEntry | None:
    """Return the entry of the catalogue model that a file is a copy of, as `recognise` does."""
    recognised = recognise(file)
    return None if recognised is None else recognised[1]


def _is_copy(file: Path, entry: CatalogueEntry) -> bool:
    # Reading a large file takes a minute, so only models for which the catalogue has more than roles are looked for.
    exact = entry.gguf if entry.adapters or entry.measured is not None else None
    try:
        return exact is not None and file.stat().st_size == exact.bytes and (sha256_of(file),) == exact.digests
    except OSError:
        return False


def as_candidate(
    id: str, file: Path, header: GgufHeader, listed: CatalogueEntry | None, measured: MeasuredShares | None = None
) -> Candidate:
    """Return a model for a new registry, with what the catalogue says about it.

    The adapters of the entry are for its exact file, if it states that.
    """
    if listed is None:
        return Candidate(id=id, file=file, header=header, measured=measured)
    shares = measured or listed.measured
    return Candidate(id=id, file=file, header=header, known_for=listed.roles, adapters=listed.adapters, measured=shares)


def _from_hub(source: str, folder: Path) -> Path | None:
    named = parse_name(source)
    if named is None:
        return None
    files = models_in(folder / named.repo)
    if named.file is not None:
        return next((file for file in files if file.name == Path(named.file).name), None)
    if named.quantisation is None:
        return files[0] if len(files) == 1 else None
    return next((file for file in files if quantisation_of(file.name) == named.quantisation.upper()), None)


def _is_first(path: Path) -> bool:
    piece = PIECE.fullmatch(path.name)
    return piece is None or int(piece["number"]) == 1
