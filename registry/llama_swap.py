"""Read llama-swap's `config.yaml`, whose entries are command lines of llama-server."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.registry.errors import file_error
from orchestrator.registry.llama_server import (
    MACRO,
    ServedModel,
    Servers,
    options_of_command,
    tables,
    take_options,
)

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
