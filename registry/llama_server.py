"""Translate options of llama-server, from command lines and preset files, into registry terms.

Options that a registry cannot express are listed with the reason. `server_options.yaml` has names and reasons.
"""

import configparser
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.registry.errors import file_error
from orchestrator.registry.memory import CACHE_TYPES
from orchestrator.registry.options import MAX_CONTEXT, MAX_SLOTS, MAX_THREADS

AUTOMATIC_SLOTS: Final = 4  # llama-server's default, also for negative numbers; these slots share one KV cache
MOST_DRAFTED: Final = 64
MACRO: Final = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")  # of llama-swap; an undefined one stays in the value

_TABLES: Final = Path(__file__).with_name("server_options.yaml")


@cache
def tables() -> dict[str, Any]:
    """Return the content of `server_options.yaml`."""
    content: dict[str, Any] = yaml.safe_load(_TABLES.read_text(encoding="utf-8"))
    return content


@cache
def _names() -> Mapping[str, str]:
    # The name used here, by every other name of an option.
    return {other: name for name, others in tables()["llama-server"]["other_names"].items() for other in others.split()}


@cache
def _flags() -> frozenset[str]:
    return frozenset(tables()["llama-server"]["flags"].split())


@cache
def _reasons() -> Mapping[str, str]:
    rows = tables()["llama-server"]["not_taken"]
    return {option: row["reason"] for row in rows for option in row["options"].split()}


def _why_not_taken(key: str) -> str:
    reasons = _reasons()
    starts = (f"{key[:length]}*" for length in range(len(key), 0, -1))  # the longest first
    return next((reasons[name] for name in (key, *starts) if name in reasons), "is not an option that a registry knows")


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Something in the file that the registry does not take over, and the reason."""

    where: str
    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.reason}"


@dataclass(slots=True, kw_only=True)
class ServedModel:
    """A model as a server runs it, in the terms of a registry."""

    id: str
    where: str  # place in the file
    file: Path | None = None
    hub: str | None = None  # `hf:OWNER/REPO...` instead of a file
    draft: Path | None = None  # file of the draft model
    draft_hub: str | None = None
    draft_tokens: int | None = None  # at most, per step
    lookup: bool = False  # drafts come from the sequence itself
    options: dict[str, object] = field(default_factory=dict)  # the rest of the entry, in registry terms
    aliases: list[str] = field(default_factory=list)
    embeds: bool = False
    hot: bool = False  # loaded at the server's start
    idle_seconds: float | None = None  # until it is unloaded; None if not stated


@dataclass(slots=True)
class Servers:
    models: list[ServedModel] = field(default_factory=list)
    not_taken: list[NotTaken] = field(default_factory=list)

    def leave_out(self, where: str, option: str, reason: str) -> None:
        self.not_taken.append(NotTaken(where, option, reason))


def _option_name(written: str) -> str:
    # A preset file may write it with or without dashes, short, or as a variable.
    name = written.strip().lstrip("-")
    if name.startswith("LLAMA_ARG_"):
        name = name.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
    return _names().get(name, name)


def _flag(key: str, value: str | None) -> str | None:
    # In a preset file, a flag that is off means its opposite, or no option.
    if key not in _flags() or value is None or value.strip().lower() not in ("false", "off", "0", "no", "disabled"):
        return key
    opposite = key.removeprefix("no-") if key.startswith("no-") else f"no-{key}"
    return opposite if opposite in _flags() else None


Pair = tuple[str, str | None]


def options_of_command(words: Sequence[str]) -> list[Pair]:
    """Return the options of a command line without the program, with their values; None for no value."""
    pairs: list[Pair] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            pairs.append((word, None))
            continue
        name, equals, inline = word.partition("=")
        key = _option_name(name)
        if equals:
            pairs.append((key, inline))
        elif key in _flags() or index >= len(words) or _is_option(words[index]):
            pairs.append((key, None))
        elif key == "lora-scaled" and index + 1 < len(words) and not _is_option(words[index + 1]):
            pairs.append((key, f"{words[index]}:{words[index + 1]}"))
            index += 2
        else:
            pairs.append((key, words[index]))
            index += 1
    return pairs


def _is_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def take_options(model: ServedModel, pairs: Sequence[Pair], path: Path, servers: Servers) -> bool:
    """Add the options of a server to `model`, and rejected ones to `servers`. Return whether they name a model.

    Relative paths start from the folder of the file at `path`.
    """
    values, where = dict(pairs), model.where
    for key, value in pairs:
        try:
            if not _take(model, key, (value or "").strip(), path.absolute().parent):
                servers.leave_out(where, key if value is None else f"{key} {value}", _why_not_taken(key))
        except ValueError as error:
            servers.leave_out(where, f"{key} {value}", str(error))
    if file := values.get("hf-file"):
        if model.hub is None:
            servers.leave_out(where, f"hf-file {file}", _why_not_taken("hf-file"))
        else:
            model.hub = f"hf:{model.hub.removeprefix('hf:').partition(':')[0]}/{file}"
    if model.file is None and model.hub is None:
        servers.leave_out(where, "is not taken", "it names no model")
        return False
    if model.draft_tokens is not None and model.draft is None and model.draft_hub is None and not model.lookup:
        reason = "nothing drafts: there is no draft model (model-draft), and spec-type names no ngram"
        servers.leave_out(where, f"draft-max {model.draft_tokens}", reason)
    _slots(model, values, servers)
    return True


def _take(model: ServedModel, key: str, value: str, folder: Path) -> bool:
    # Returns whether a registry can say it. Raises ValueError for a bad value.
    if key in _FIELDS:
        field_name, read = _FIELDS[key]
        setattr(model, field_name, read(value, folder))
    elif key in _OPTIONS:
        options = _OPTIONS[key](value)
        model.options |= options or {}
        return options is not None
    elif key == "alias":
        model.aliases += _listed(value)
    elif key == "spec-type":
        _take_draft_types(model, value)
    elif key in ("lora", "lora-scaled"):
        adapters = model.options.setdefault("lora", [])
        assert isinstance(adapters, list), "only this function sets it"
        adapters += [_adapter(item, folder) for item in _listed(value)]
    else:
        return key in _LATER
    return True


def _take_draft_types(model: ServedModel, value: str) -> None:
    kinds = {kind.strip() for kind in value.split(",")}
    model.lookup = any(kind.startswith("ngram-") for kind in kinds)
    if unknown := sorted(kind for kind in kinds - {"none", "draft-simple"} if not kind.startswith("ngram-")):
        raise ValueError(f"{', '.join(unknown)} is not there: a draft model drafts, or the text itself (ngram)")


def _listed(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _slots(model: ServedModel, values: Mapping[str, str | None], servers: Servers) -> None:
    # llama-server's -c is for all slots together, the registry's context for one. Slots that share a cache may each use
    # all of it: that is `cells`.
    try:
        size = int(values.get("ctx-size") or 0)
        parallel = int(values.get("parallel") or -1)
    except ValueError:
        servers.leave_out(model.where, "ctx-size or parallel", "is no whole number")
        return
    slots = parallel if parallel > 0 else AUTOMATIC_SLOTS
    shared = parallel <= 0 or "kv-unified" in values
    if slots > MAX_SLOTS:
        servers.leave_out(model.where, f"parallel {slots}", f"{MAX_SLOTS} slots are the most, and taken")
        slots = MAX_SLOTS
    model.options["slots"] = slots
    if size <= 0:
        return  # as long as the model was trained for, which only its file says
    context = size if shared else size // slots
    if context > MAX_CONTEXT:
        reason = f"{MAX_CONTEXT:,} tokens a slot are the most, and taken"
        servers.leave_out(model.where, f"ctx-size {size}", reason)
        context = MAX_CONTEXT
    if context < 64:
        servers.leave_out(model.where, f"ctx-size {size}", f"leaves {context} tokens a slot")
        return
    model.options["context"] = context
    if shared and slots > 1:
        model.options["cells"] = context


def _path(value: str, folder: Path) -> Path:
    if not value or MACRO.search(value):
        raise ValueError("a macro in it is not defined" if value else "no file is named")
    return folder / Path(value).expanduser()


def _number(value: str, most: int) -> int:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value) <= most:
        raise ValueError(f"accepted: 1 to {most}")
    return int(value)


def _among(accepted: Collection[str], value: str) -> str:
    if value not in accepted:
        raise ValueError(f"accepted: {', '.join(accepted)}")
    return value


def _adapter(value: str, folder: Path) -> dict[str, object]:
    name, _, scale = value.rpartition(":")
    try:
        return {"file": str(_path(name, folder)), "scale": float(scale)}
    except ValueError:  # without a scale; the name may have a colon
        return {"file": str(_path(value, folder))}


def _threads(value: str) -> dict[str, object]:
    # A negative number leaves it to the server, as no number does here.
    return {} if value.startswith("-") else {"threads": _number(value, MAX_THREADS)}


def _flash_attention(value: str) -> dict[str, object]:
    words = {"": "on", "1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}
    mode = words.get(value.lower(), value.lower())
    if mode not in ("on", "off", "auto"):
        raise ValueError("accepted: on, off or auto")
    return {"flash_attention": mode}


def _experts(value: str) -> dict[str, object] | None:
    match = re.fullmatch(r"[\w.-]+\.expert_used_count=int:(\d{1,4})", value)
    return None if match is None else {"experts": int(match[1])}


_MLOCK: Final[Mapping[str, object]] = {"mlock": True}
_NO_MMAP: Final[Mapping[str, object]] = {"mmap": False}
_LOAD_MODES: Final[Mapping[str, Mapping[str, object]]] = {
    "auto": {},
    "none": _NO_MMAP,
    "mmap": {},
    "mlock": {**_NO_MMAP, **_MLOCK},
    "mmap+mlock": _MLOCK,
}
# Read together with others, or true anyway.
_LATER: Final = frozenset({"ctx-size", "parallel", "kv-unified", "no-kv-unified", "mmap", "hf-file"})
# The field of `ServedModel` for an option, and how its value is read.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str, Path], object]]]] = {
    "model": ("file", _path),
    "hf-repo": ("hub", lambda value, _: f"hf:{value}"),
    "model-draft": ("draft", _path),
    "hf-repo-draft": ("draft_hub", lambda value, _: f"hf:{value}"),
    "draft-max": ("draft_tokens", lambda value, _: _number(value, MOST_DRAFTED)),
    "embedding": ("embeds", lambda *_: True),
    "load-on-startup": ("hot", lambda *_: True),
}
# What an option becomes in the entry; None if a registry cannot say it.
_OPTIONS: Final[Mapping[str, Callable[[str], Mapping[str, object] | None]]] = {
    "threads": _threads,
    "cache-type-k": lambda value: {"kv_type_k": _among(CACHE_TYPES, value)},
    "cache-type-v": lambda value: {"kv_type_v": _among(CACHE_TYPES, value)},
    "flash-attn": _flash_attention,
    "load-mode": lambda value: _LOAD_MODES[_among(_LOAD_MODES, value)],
    "mlock": lambda _: _MLOCK,
    "no-mmap": lambda _: _NO_MMAP,
    "override-kv": _experts,
}


def read_presets(text: str, path: Path) -> Servers:
    """Return the models of a preset file, an INI file with a section for each. Raises RegistryError."""
    parser = configparser.ConfigParser(
        default_section="",  # [*], which is for all models, is merged below: options may be written in several ways
        interpolation=None,
        comment_prefixes=("#", ";"),
        inline_comment_prefixes=(" ;", " #"),
        delimiters=("=",),
        allow_no_value=True,
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keep upper case
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    try:
        parser.read_string("\n".join(lines[first:]))
    except configparser.Error as error:
        raise file_error(path, " ".join(str(error).split()), "a preset file of llama-server") from error
    if not parser.sections():
        raise file_error(path, "has no sections", "a preset file with a section for each model")
    servers = Servers()
    shared = _options_in(parser, "*") if parser.has_section("*") else {}
    for name in parser.sections():
        if name == "*":
            continue
        model, options = ServedModel(id=name, where=f"[{name}]"), shared | _options_in(parser, name)
        if not options.keys() & {"model", "hf-repo", "model-url"} and "/" in name:
            options = {"hf-repo": name, **options}
        pairs = [(flag, value) for key, value in options.items() if (flag := _flag(key, value)) is not None]
        if take_options(model, pairs, path, servers):
            servers.models.append(model)
    return servers


def _options_in(parser: configparser.ConfigParser, section: str) -> dict[str, str | None]:
    return {_option_name(key): value for key, value in parser[section].items()}
