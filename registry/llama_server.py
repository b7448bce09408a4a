"""Translate options of llama-server, from command lines and preset files, into registry terms. Pure.

Options that a registry cannot express are listed with the reason.
"""

import configparser
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.registry.errors import file_error
from orchestrator.registry.memory import CACHE_TYPES
from orchestrator.registry.options import MAX_CONTEXT, MAX_SLOTS, MAX_THREADS

AUTOMATIC_SLOTS: Final = 4  # llama-server's default, also for negative numbers; these slots share one KV cache
MOST_DRAFTED: Final = 64
MACRO: Final = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")  # of llama-swap; an undefined one stays in the value

_CPU: Final = "models run on the CPU here"
SERVER: Final = "is about the server and not about the model; `orchestrator config show` lists what the daemon has"
SAMPLING: Final = "belongs to a role (temperature, top_p, max_tokens) or to the request"
_SAMPLING_KEYS: Final = "belongs into `sampling:` of the model or of a role, with `_` for `-`"
_ALWAYS: Final = "is always so here"
_DRAFTING: Final = "how many tokens are drafted is decided by what pays; only the most of them (draft-max) is taken"
_LOOKUP: Final = "how many tokens have to match, and how many follow, is `prompt_lookup: {ngram: N, k: N}` of the model"
_THINKING: Final = (
    "how much a model thinks is `thinking: auto | on | off | low | medium | high | TOKENS` of it or a role"
)
_PICTURES: Final = "pictures are no inputs here"
_ENGINE: Final = "is chosen by the engine"
_TRAINED: Final = "the context is at most what the model was trained with"
# Short and older names, and the names used here.
_NAMES: Final[Mapping[str, str]] = {
    "m": "model",
    "mu": "model-url",
    "hf": "hf-repo",
    "hfr": "hf-repo",
    "hff": "hf-file",
    "c": "ctx-size",
    "np": "parallel",
    "t": "threads",
    "ctk": "cache-type-k",
    "ctv": "cache-type-v",
    "fa": "flash-attn",
    "md": "model-draft",
    "hfd": "hf-repo-draft",
    "hfrd": "hf-repo-draft",
    "draft": "draft-max",
    "draft-n": "draft-max",
    "draft-n-min": "draft-min",
    "spec-draft-model": "model-draft",
    "spec-draft-hf": "hf-repo-draft",
    "spec-draft-hf-repo": "hf-repo-draft",
    "spec-draft-n-max": "draft-max",
    "spec-draft-n-min": "draft-min",
    "spec-draft-ngl": "gpu-layers-draft",
    "spec-draft-device": "device-draft",
    "devd": "device-draft",
    "a": "alias",
    "kvu": "kv-unified",
    "embeddings": "embedding",
    "tb": "threads-batch",
    "ngl": "gpu-layers",
    "n-gpu-layers": "gpu-layers",
    "ngld": "gpu-layers-draft",
    "n-gpu-layers-draft": "gpu-layers-draft",
    "cd": "ctx-size-draft",
    "td": "threads-draft",
    "b": "batch-size",
    "batch": "batch-size",
    "ub": "ubatch-size",
    "ubatch": "ubatch-size",
    "lm": "load-mode",
    "hft": "hf-token",
    "typical-p": "typical",
    "cram": "cache-ram",
    "sps": "slot-prompt-similarity",
    "rea": "reasoning",
    "think": "reasoning",
    "think-budget": "reasoning-budget",
    "n": "predict",
    "n-predict": "predict",
    "temperature": "temp",
    "s": "seed",
    "cb": "cont-batching",
    "mm": "mmproj",
    "ts": "tensor-split",
    "sm": "split-mode",
    "mg": "main-gpu",
    "dev": "device",
    "ot": "override-tensor",
    "ncmoe": "n-cpu-moe",
    "cmoe": "cpu-moe",
    "rerank": "reranking",
    "v": "verbose",
    "n-parallel": "parallel",
}
# Options without a value on a command line.
_FLAGS: Final = frozenset(
    "mlock mmap no-mmap embedding kv-unified no-kv-unified jinja no-jinja cont-batching no-cont-batching reranking "
    "verbose metrics props slots no-slots no-webui webui no-warmup warmup check-tensors cpu-moe no-kv-offload "
    "kv-offload no-context-shift context-shift swa-full log-disable verbose-prompt no-mmproj no-perf perf "
    "offline load-on-startup".split()
)
_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        "gpu-layers gpu-layers-draft tensor-split split-mode main-gpu device device-draft override-tensor n-cpu-moe "
        "cpu-moe no-kv-offload kv-offload".split(),
        _CPU,
    ),
    **dict.fromkeys(
        "host port path timeout api-key api-key-file ssl-key-file ssl-cert-file threads-http metrics props slots "
        "no-slots no-webui webui verbose log-file log-disable log-verbosity log-colors log-timestamps api-prefix "
        "offline sleep-idle-seconds models-max models-dir models-preset stop-timeout perf no-perf".split(),
        SERVER,
    ),
    **dict.fromkeys(
        "temp top-p seed predict samplers".split(),
        SAMPLING,
    ),
    **dict.fromkeys(
        "top-n-sigma top-nsigma dynatemp-range dynatemp-exp ignore-eos logit-bias grammar json-schema".split(),
        "is no option of a model here; requests have `logit_bias` and schemas",
    ),
    **dict.fromkeys(
        "repeat-penalty repeat-last-n presence-penalty frequency-penalty dry-multiplier dry-base dry-allowed-length "
        "dry-penalty-last-n dry-sequence-breaker top-k min-p mirostat xtc-probability xtc-threshold".split(),
        _SAMPLING_KEYS,
    ),
    **dict.fromkeys("jinja cont-batching no-context-shift".split(), _ALWAYS),
    **dict.fromkeys("batch-size ubatch-size warmup no-warmup swa-full".split(), _ENGINE),
    **dict.fromkeys("draft-min draft-p-min ctx-size-draft threads-draft cache-type-k-draft".split(), _DRAFTING),
    **dict.fromkeys("rope-scaling rope-scale rope-freq-base rope-freq-scale yarn-orig-ctx".split(), _TRAINED),
    **dict.fromkeys(
        "slot-save-path cache-reuse cache-ram keep".split(), "what prompts have in common is kept by itself"
    ),
    **dict.fromkeys(
        "chat-template chat-template-file chat-template-kwargs".split(), "the file's own chat template is used"
    ),
    "typical": "is `typical_p` in `sampling:` of the model or of a role",
    "mirostat-lr": "is `mirostat_eta` in `sampling:` of the model or of a role",
    "mirostat-ent": "is `mirostat_tau` in `sampling:` of the model or of a role",
    "threads-batch": "one number of threads serves prompts and answers",
    "numa": "a model is bound to a node by `numa: NODE`, or runs on several by `instances: N`",
    "model-url": "`orchestrator models get URL` downloads it, and `models add FILE` adds it",
    "hf-token": "`HF_TOKEN` in the environment is the token of the hub",
    "hf-file": "names a file of a repository (hf-repo), and there is none",
    "reranking": "a model that ranks texts gets the role `reranker`",
    "pooling": "is what the file says",
    "context-shift": "a text that outgrows its context ends; it is never shortened in silence",
    "no-jinja": "chat templates are always rendered as they are",
}
# For options that are not in `_REASONS`; the first match counts.
_REASONS_BY_START: Final[Mapping[str, str]] = {
    "spec-ngram-": _LOOKUP,
    "lookup-cache-": _LOOKUP,
    "spec-": _DRAFTING,
    "draft-": _DRAFTING,
    "reasoning": _THINKING,
    "mmproj": _PICTURES,
    "image-": _PICTURES,
    "video-": _PICTURES,
    "yarn-": _TRAINED,
    "cpu-": _ENGINE,
    "prio": _ENGINE,
    "poll": _ENGINE,
    "log-": SERVER,
    "ui": SERVER,
    "webui": SERVER,
    "cors-": SERVER,
    "models-": SERVER,
    "mcp-": SERVER,
}


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


def _option_name(written: str) -> str:
    # A preset file may write it with or without dashes, short, or as a variable.
    name = written.strip().lstrip("-")
    if name.startswith("LLAMA_ARG_"):
        name = name.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
    return _NAMES.get(name, name)


def _flag(key: str, value: str | None) -> str | None:
    # In a preset file, a flag that is off means its opposite, or no option.
    if key not in _FLAGS or value is None or value.strip().lower() not in ("false", "off", "0", "no", "disabled"):
        return key
    opposite = key.removeprefix("no-") if key.startswith("no-") else f"no-{key}"
    return opposite if opposite in _FLAGS else None


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
        elif key in _FLAGS or index >= len(words) or _is_option(words[index]):
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
    values = dict(pairs)
    for key, value in pairs:
        try:
            if not _take(model, key, (value or "").strip(), path.absolute().parent):
                shown = key if value is None else f"{key} {value}"
                servers.not_taken.append(NotTaken(model.where, shown, _why_not_taken(key)))
        except ValueError as error:
            servers.not_taken.append(NotTaken(model.where, f"{key} {value}", str(error)))
    if file := values.get("hf-file"):
        if model.hub is None:
            servers.not_taken.append(NotTaken(model.where, f"hf-file {file}", _why_not_taken("hf-file")))
        else:
            model.hub = f"hf:{model.hub.removeprefix('hf:').partition(':')[0]}/{file}"
    if model.file is None and model.hub is None:
        servers.not_taken.append(NotTaken(model.where, "is not taken", "it names no model"))
        return False
    if model.draft_tokens is not None and model.draft is None and model.draft_hub is None and not model.lookup:
        reason = "nothing drafts: there is no draft model (model-draft), and spec-type names no ngram"
        servers.not_taken.append(NotTaken(model.where, f"draft-max {model.draft_tokens}", reason))
    _slots(model, values, servers)
    return True


def _why_not_taken(key: str) -> str:
    by_start = next((reason for start, reason in _REASONS_BY_START.items() if key.startswith(start)), None)
    return _REASONS.get(key) or by_start or "is not an option that a registry knows"


def _take(model: ServedModel, key: str, value: str, folder: Path) -> bool:
    # Returns whether a registry can say it. Raises ValueError for a bad value.
    if key == "override-kv":
        return _experts(model, value)
    if key in _LATER:
        return True
    taker = _TAKERS.get(key)
    if taker is not None:
        taker(model, value, folder)
    return taker is not None


def _take_model(model: ServedModel, value: str, folder: Path) -> None:
    model.file = _path(value, folder)


def _take_hub(model: ServedModel, value: str, _: Path) -> None:
    model.hub = f"hf:{value}"


def _take_draft(model: ServedModel, value: str, folder: Path) -> None:
    model.draft = _path(value, folder)


def _take_draft_hub(model: ServedModel, value: str, _: Path) -> None:
    model.draft_hub = f"hf:{value}"


def _take_draft_tokens(model: ServedModel, value: str, _: Path) -> None:
    model.draft_tokens = _number(value, MOST_DRAFTED)


def _take_draft_types(model: ServedModel, value: str, _: Path) -> None:
    kinds = {kind.strip() for kind in value.split(",")}
    model.lookup = any(kind.startswith("ngram-") for kind in kinds)
    if unknown := sorted(kind for kind in kinds - {"none", "draft-simple"} if not kind.startswith("ngram-")):
        raise ValueError(f"{', '.join(unknown)} is not there: a draft model drafts, or the text itself (ngram)")


def _take_load_mode(model: ServedModel, value: str, _: Path) -> None:
    if value not in (modes := ("auto", "none", "mmap", "mlock", "mmap+mlock")):
        raise ValueError(f"accepted: {', '.join(modes)}")
    if value in ("none", "mlock"):
        model.options["mmap"] = False
    if "mlock" in value:
        model.options["mlock"] = True


def _take_threads(model: ServedModel, value: str, _: Path) -> None:
    if not value.startswith("-"):  # a negative number leaves it to the server, as no number does here
        model.options["threads"] = _number(value, MAX_THREADS)


def _take_type(option: str) -> "Taker":
    def take(model: ServedModel, value: str, _: Path) -> None:
        if value not in CACHE_TYPES:
            raise ValueError(f"accepted: {', '.join(CACHE_TYPES)}")
        model.options[option] = value

    return take


def _take_flash_attention(model: ServedModel, value: str, _: Path) -> None:
    words = {"": "on", "1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}
    mode = words.get(value.lower(), value.lower())
    if mode not in ("on", "off", "auto"):
        raise ValueError("accepted: on, off or auto")
    model.options["flash_attention"] = mode


def _take_mlock(model: ServedModel, _: str, __: Path) -> None:
    model.options["mlock"] = True


def _take_no_mmap(model: ServedModel, _: str, __: Path) -> None:
    model.options["mmap"] = False


def _take_aliases(model: ServedModel, value: str, _: Path) -> None:
    model.aliases += [name.strip() for name in value.split(",") if name.strip()]


def _take_adapters(model: ServedModel, value: str, folder: Path) -> None:
    adapters = model.options.setdefault("lora", [])
    assert isinstance(adapters, list), "only this function sets it"
    adapters += [_adapter(item.strip(), folder) for item in value.split(",") if item.strip()]


def _take_embedding(model: ServedModel, _: str, __: Path) -> None:
    model.embeds = True


def _take_start(model: ServedModel, _: str, __: Path) -> None:
    model.hot = True


Taker = Callable[[ServedModel, str, Path], None]
# Read together with others, or true anyway.
_LATER: Final = frozenset({"ctx-size", "parallel", "kv-unified", "no-kv-unified", "mmap", "hf-file"})
_TAKERS: Final[Mapping[str, Taker]] = {
    "model": _take_model,
    "hf-repo": _take_hub,
    "model-draft": _take_draft,
    "hf-repo-draft": _take_draft_hub,
    "draft-max": _take_draft_tokens,
    "spec-type": _take_draft_types,
    "load-mode": _take_load_mode,
    "threads": _take_threads,
    "cache-type-k": _take_type("kv_type_k"),
    "cache-type-v": _take_type("kv_type_v"),
    "flash-attn": _take_flash_attention,
    "mlock": _take_mlock,
    "no-mmap": _take_no_mmap,
    "alias": _take_aliases,
    "lora": _take_adapters,
    "lora-scaled": _take_adapters,
    "embedding": _take_embedding,
    "load-on-startup": _take_start,
}


def _slots(model: ServedModel, values: Mapping[str, str | None], servers: Servers) -> None:
    # llama-server's -c is for all slots together, the registry's context for one. Slots that share a cache may each use
    # all of it: that is `cells`.
    try:
        size = int(values.get("ctx-size") or 0)
        parallel = int(values.get("parallel") or -1)
    except ValueError:
        servers.not_taken.append(NotTaken(model.where, "ctx-size or parallel", "is no whole number"))
        return
    slots = parallel if parallel > 0 else AUTOMATIC_SLOTS
    shared = parallel <= 0 or "kv-unified" in values
    if slots > MAX_SLOTS:
        servers.not_taken.append(
            NotTaken(model.where, f"parallel {slots}", f"{MAX_SLOTS} slots are the most, and taken")
        )
        slots = MAX_SLOTS
    model.options["slots"] = slots
    if size <= 0:
        return  # as long as the model was trained for, which only its file says
    context = size if shared else size // slots
    if context > MAX_CONTEXT:
        reason = f"{MAX_CONTEXT:,} tokens a slot are the most, and taken"
        servers.not_taken.append(NotTaken(model.where, f"ctx-size {size}", reason))
        context = MAX_CONTEXT
    if context < 64:
        servers.not_taken.append(NotTaken(model.where, f"ctx-size {size}", f"leaves {context} tokens a slot"))
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


def _adapter(value: str, folder: Path) -> dict[str, object]:
    name, colon, scale = value.rpartition(":")
    try:
        return {"file": str(_path(name, folder)), "scale": float(scale)} if colon else _whole(value, folder)
    except ValueError:
        return _whole(value, folder)


def _whole(value: str, folder: Path) -> dict[str, object]:
    return {"file": str(_path(value, folder))}


def _experts(model: ServedModel, value: str) -> bool:
    match = re.fullmatch(r"[\w.-]+\.expert_used_count=int:(\d{1,4})", value)
    if match is not None:
        model.options["experts"] = int(match[1])
    return match is not None


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
