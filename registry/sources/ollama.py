"""Find a model that Ollama has on this machine. Ollama stores GGUF files, which are used in place."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from orchestrator.registry.sources.contract import SourceError

FORM: Final = "ollama:NAME or ollama:NAME:TAG, as `ollama list` prints it"
MODEL: Final = "application/vnd.ollama.image.model"
USUAL_PLACE: Final = ("registry.ollama.ai", "library")  # default host and owner
SERVICE_FOLDER: Final = Path("/usr/share/ollama/.ollama/models")  # of Ollama as a system service
_NAME: Final = re.compile(r"ollama:(?P<name>[\w.-]+(?:/[\w.-]+){0,2})(?::(?P<tag>[\w.-]+))?")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")


def find_in_ollama(written: str) -> Path:
    """Return the GGUF file of the model `ollama:NAME[:TAG]`. Raises SourceError."""
    match = _NAME.fullmatch(written)
    if match is None:
        raise SourceError(written, "does not name a model of Ollama", FORM)
    tag = match["tag"] or "latest"
    folders = _folders()
    for folder in folders:
        manifest = folder / "manifests" / Path(*_place(match["name"])) / tag
        if _readable(manifest):
            return _blob(written, folder, manifest)
    names = sorted({name for folder in folders for name in _names(folder)})
    where = " and ".join(map(str, folders))
    raise SourceError(written, f"Ollama has no such model in {where}", ", ".join(names) or "`ollama pull` first")


def _folders() -> list[Path]:
    if stated := os.environ.get("OLLAMA_MODELS"):
        return [Path(stated).expanduser()]
    return [Path.home() / ".ollama" / "models", SERVICE_FOLDER]


def _place(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("/"))
    return USUAL_PLACE[: 3 - len(parts)] + parts


def _readable(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the folder of another user may not be readable
        return False


def _names(folder: Path) -> list[str]:
    manifests = folder / "manifests"
    try:
        places = [path.relative_to(manifests).parts for path in manifests.glob("*/*/*/*") if path.is_file()]
    except OSError:
        return []
    return [_short_name(parts) for parts in places]


def _short_name(parts: tuple[str, ...]) -> str:
    # A manifest HOST/OWNER/NAME/TAG without the default host and owner.
    *place, tag = parts
    for usual in USUAL_PLACE:
        if place[0] != usual:
            break
        place = place[1:]
    return f"ollama:{'/'.join(place)}:{tag}"


def _blob(written: str, folder: Path, manifest: Path) -> Path:
    try:
        document: Any = json.loads(manifest.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(str(manifest), f"cannot be read: {error}", "a manifest of Ollama") from error
    layers = document.get("layers", ()) if isinstance(document, dict) else ()
    models = [layer for layer in layers if isinstance(layer, dict) and layer.get("mediaType") == MODEL]
    match = _DIGEST.fullmatch(str(models[0].get("digest"))) if len(models) == 1 else None
    if match is None:
        raise SourceError(written, f"{manifest} names no model in one GGUF file", "another model")
    blob = folder / "blobs" / f"sha256-{match[1]}"
    if not _readable(blob):
        raise SourceError(written, f"its file {blob} is not there or may not be read", f"`ollama pull {written[7:]}`")
    return blob
