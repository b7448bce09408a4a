"""Find models that are already on this machine: in the folder of downloads, in Python packages, in Ollama, as files."""

import re
from pathlib import Path
from typing import Final

from registry.sources.catalogue import CatalogueEntry, read_catalogue
from registry.sources.contract import SourceError
from registry.sources.hub import parse_name, quantisation_of
from registry.sources.ollama import find_in_ollama
from registry.sources.pypi import find_unpacked

_PIECE: Final = re.compile(r"-(?P<number>\d{5})-of-\d{5}\.gguf\Z")


def find_here(written: str, folder: Path) -> Path | None:
    """Return the file of the model that `written` names, as `get_model` takes it, or None if it would be downloaded.

    Files in `folder`, where downloads go, can also be given by their names, with or without `.gguf`. The network is
    not used.
    """
    entry = read_catalogue().get(written)
    source = written if entry is None else entry.source
    if source.startswith("hf:"):
        return _from_hub(source, folder)
    if source.startswith("pypi:"):
        return find_unpacked(source, folder)
    if source.startswith("ollama:"):
        try:
            return find_in_ollama(source)
        except SourceError:
            return None
    path = Path(written).expanduser()
    if path.is_file():
        return path.absolute()
    return next((file for file in models_in(folder) if written in (file.name, file.stem)), None)


def models_in(folder: Path) -> list[Path]:
    """Return the GGUF files below a folder in order of path. Of a split model only the first piece is returned."""
    return [path for path in sorted(folder.rglob("*.gguf")) if path.is_file() and _is_first(path)]


def known_models(folder: Path) -> dict[Path, tuple[str, CatalogueEntry]]:
    """Return the models of the catalogue that are on this machine: by file, the short name and the entry of each."""
    found = ((find_here(name, folder), name, entry) for name, entry in read_catalogue().items())
    return {file: (name, entry) for file, name, entry in found if file is not None}


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
    piece = _PIECE.search(path.name)
    return piece is None or int(piece["number"]) == 1
