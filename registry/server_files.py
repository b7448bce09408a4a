"""Read how other programs run llama.cpp's server: llama-swap's `config.yaml` and llama-server's preset files.

Pure except for `read_servers` and `header_of`, which read files.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.registry.errors import GgufError, file_error
from orchestrator.registry.forms import ALIAS
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.llama_server import (
    MACRO,
    NotTaken,
    ServedModel,
    Servers,
    options_of_command,
    read_presets,
    tables,
    take_options,
)
from orchestrator.registry.persona import NAME

MOST_BYTES: Final = 1 << 20  # of a text with its macros replaced
MOST_MACRO_STEPS: Final = 20  # depth of macros inside macros


def read_llama_swap(text: str, path: Path) -> Servers:
    """Return the models of a configuration of llama-swap. Raises RegistryError."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise file_error(path, f"is no YAML: {' '.join(str(error).split())}", "llama-swap's config.yaml") from error
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict) or not models:
        raise file_error(path, "has no models", "llama-swap's config.yaml, or llama-server's preset file")
    servers = Servers()
    shared, preload = _mapping(document.get("macros")), _preloaded(document)
    for key in document:
        if key not in ("models", "macros", "hooks"):
            servers.leave_out(str(key), "is not taken", _why_not_taken("not_taken", str(key)))
    for name, entry in models.items():
        where = f"models.{name}"
        if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str):
            servers.leave_out(where, "is not taken", "it has no command (cmd)")
            continue
        macros = {**shared, **_mapping(entry.get("macros")), "MODEL_ID": str(name)}
        model = ServedModel(id=str(name), where=where, hot=str(name) in preload)
        if _of_command(model, entry["cmd"], macros, path, servers):
            _of_entry(model, entry, servers)
            servers.models.append(model)
    return servers


def _of_command(model: ServedModel, command: str, macros: Mapping[str, str], path: Path, servers: Servers) -> bool:
    lines = (line for line in _expanded(command, macros).splitlines() if not line.lstrip().startswith("#"))
    try:
        words = shlex.split(" ".join(line.rstrip().removesuffix("\\") for line in lines))
    except ValueError as error:
        servers.leave_out(model.where, "is not taken", f"its command cannot be split: {error}")
        return False
    start = next((index for index, word in enumerate(words) if "llama-server" in Path(word).name), None)
    if start is None:  # without llama-server the model cannot be taken
        program = Path(words[0]).name if words else "nothing"
        accepted = "it is another server: an entry with `backend: openai` and its address can use it"
        servers.leave_out(model.where, f"runs {program} and not llama-server", accepted)
        return False
    return take_options(model, options_of_command(words[start + 1 :]), path, servers)


def _of_entry(model: ServedModel, entry: Mapping[str, Any], servers: Servers) -> None:
    for key, value in entry.items():
        if key == "aliases" and isinstance(value, list):
            model.aliases += [str(alias) for alias in value]
        elif key == "ttl" and isinstance(value, int | float) and not isinstance(value, bool):
            model.idle_seconds = float(value) if value > 0 else None
        elif key in ("name", "description") and isinstance(value, str):
            model.options.setdefault("description", value)
        elif key not in ("cmd", "macros", "aliases", "ttl", "name", "description"):
            servers.leave_out(model.where, str(key), _why_not_taken("not_taken_of_model", key))


def _why_not_taken(section: str, key: str) -> str:
    reasons: Mapping[str, str] = tables()["llama-swap"][section]
    return reasons.get(key, reasons["*"])


def _preloaded(document: Mapping[str, Any]) -> frozenset[str]:
    start = _plain(_plain(document.get("hooks")).get("on_startup"))
    names = start.get("preload")
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _plain(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mapping(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in _plain(value).items()}


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    for _ in range(MOST_MACRO_STEPS):
        # Unknown macros, such as ${PORT}, stay.
        replaced = MACRO.sub(lambda match: macros.get(match[1], match[0]).strip(), text)
        if replaced == text or len(replaced) > MOST_BYTES:
            break
        text = replaced
    return text


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
