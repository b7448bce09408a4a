"""Read how other programs run llama.cpp's server: llama-swap's `config.yaml` and llama-server's preset files.

Pure except for `read_servers` and `header_of`, which read files.
"""

import re
from pathlib import Path
from typing import Final

from orchestrator.registry.errors import GgufError, file_error
from orchestrator.registry.forms import ALIAS
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.llama_server import NotTaken, ServedModel, Servers, read_presets
from orchestrator.registry.llama_swap import read_llama_swap
from orchestrator.registry.names import NAME

MOST_BYTES: Final = 1 << 20


def read_servers(path: Path) -> Servers:
    """Read llama-swap's configuration or a preset file of llama-server. Raises RegistryError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise file_error(
            path, f"cannot be read: {error.strerror}", "llama-swap's config.yaml or a preset file"
        ) from error
    if len(raw) > MOST_BYTES:
        raise file_error(path, "is too large", f"at most {MOST_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise file_error(path, f"byte {error.start:,} is not UTF-8", "UTF-8 text") from error
    return read_presets(text, path) if _is_ini(text, path) else read_llama_swap(text, path)


def _is_ini(text: str, path: Path) -> bool:
    if path.suffix.lower() in (".yaml", ".yml"):
        return False
    first = next((line for line in map(str.strip, text.splitlines()) if line and line[0] not in "#;"), "")
    return path.suffix.lower() == ".ini" or first.startswith("[") or re.match(r"[\w-]+\s*=", first) is not None


def usable_id(written: str) -> str:
    """Return the registry name closest to a written one."""
    if re.fullmatch(NAME, written):
        return written
    last = re.sub(r"[^A-Za-z0-9_.-]+", "-", written.rpartition("/")[2])
    return last.strip("-._")[:64].rstrip("-._") or "model"


def usable_aliases(model: ServedModel, id: str) -> tuple[list[str], list[NotTaken]]:
    """Return the other names of a model, including the one in the file, and those that a registry rejects."""
    names = [name for name in dict.fromkeys((model.id, *model.aliases)) if name != id]
    bad = [name for name in names if not re.fullmatch(ALIAS, name)]
    rule = "letters, digits, '_', '.', ':', '/' and '-', up to 128 characters"
    return [name for name in names if name not in bad], [NotTaken(model.where, f"alias {name!r}", rule) for name in bad]


def header_of(file: Path) -> GgufHeader | None:
    """Return the header of a model's file, or None if it cannot be read."""
    try:
        return read_header(file)
    except GgufError:
        return None
