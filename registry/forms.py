"""Validate the form of `model_registry.yaml` and of the personas file, key by key.

Only `registry.load` and the checks use these classes. They mirror the YAML; `registry.load` turns them into the entries
that the rest of the program uses.
"""

import json
import logging
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar

from annotated_types import Len
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import ErrorDetails, PydanticCustomError

from orchestrator.registry.errors import RegistryError, RegistryProblem, nearest
from orchestrator.registry.options import (
    DEFAULT_SAMPLING,
    MAX_CONTEXT,
    Adapters,
    ContextTokens,
    FileName,
    LoadOptions,
    SamplingOptions,
    SlotCount,
    StepContext,
    about,
    described,
    shared_fields,
)
from orchestrator.registry.persona import NAME, NAME_RULE
from orchestrator.registry.strict_yaml import KeyPath, YamlDocument
from orchestrator.registry.thinking import THINKING_WORDS, Thinking

log = logging.getLogger(__name__)

GENERALIST: Final = "generalist"  # answers whole requests, if they get no plan
EMBEDDER: Final = "embedder"  # its model makes vectors of texts
RERANKER: Final = "reranker"  # its model rates the relevance of texts to a query (a cross-encoder)
Name = Annotated[str, StringConstraints(pattern=NAME)]
Text = Annotated[str, StringConstraints(max_length=20_000)]
HEAD: Final = "head"  # names the machine of the daemon in `nodes`
ALIAS: Final = r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$"
# Unlike a model's own name it may have ':' and '/', as names elsewhere do: `qwen3:8b`.
Alias = Annotated[str, StringConstraints(pattern=ALIAS)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
ResidencyTier = Literal["hot", "warm", "cold"]
Tier = Literal["A", "B", "C", "D"]
Level = Literal["B1", "B2", "B3"]
Temperature = Annotated[float, Field(ge=0, le=5)]
TopP = Annotated[float, Field(gt=0, le=1)]
MaxTokens = Annotated[int, Field(ge=1, le=MAX_CONTEXT)]
MaxReplans = Annotated[int, Field(ge=0, le=8)]
# For roles that state none; any other role then has tier C, like the worker.
USUAL_TIERS: Final[dict[str, Tier]] = {
    "frontdoor": "A",
    "coder": "B",
    "architect": "B",
    "judge": "B",
    "draft": "D",
    EMBEDDER: "D",
    RERANKER: "D",
}

_NOT_REPEATED: Final = (("base_url",), ("api_key_env",))  # a secret may stand there by mistake
# Keys of models and of `defaults` in earlier versions, which still work.
_OLD_KEYS: Final = {"exact": "batch_invariant"}
_SWITCHES: Final = ("flash_attention", "thinking")  # keys with the words `on` and `off` as values
_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

# Descriptions of several keys.
OF_MODELS: Final = "for models that do not say"
OF_ROLES: Final = "for roles that do not say"
WITHOUT: Final = "without it, that of `defaults`"


def _bytes(value: object) -> object:
    # `12 GiB` as a number of bytes.
    if isinstance(value, str) and (match := re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT]iB|B)", value.strip())):
        return int(float(match[1]) * _UNITS[match[2]])
    return value


Bytes = Annotated[int, Field(ge=1 << 20), BeforeValidator(_bytes)]
BytesOrNone = Annotated[int, Field(ge=0), BeforeValidator(_bytes)]


def _thinking(value: object) -> object:
    # One message instead of one for each type of the union.
    if value in THINKING_WORDS or (type(value) is int and 0 <= value <= MAX_CONTEXT):
        return value
    raise PydanticCustomError("thinking", f"{', '.join(THINKING_WORDS)} or a number of tokens, up to {MAX_CONTEXT}")


ThinkingSetting = Annotated[Thinking, BeforeValidator(_thinking)]


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """How many engines of a model run on a cluster."""

    min: Annotated[int, Field(ge=1, le=1024)] = described(1, "as soon as it is loaded")
    max: Annotated[int, Field(ge=1, le=1024)] = described(1024, "when many requests wait")


def _replicas(value: object) -> object:
    return {"min": value, "max": value} if type(value) is int else value


_STRICT: Final = ConfigDict(extra="forbid", strict=True)


class Form(BaseModel):
    """The base of the forms: unknown keys are refused, and no value is converted to another type."""

    model_config = ConfigDict(frozen=True, **_STRICT)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options, other than `LoadOptions`, of a model's entry in the file and, unchanged, in a loaded registry."""

    description: Text = described("", "a note for lists of models")
    aliases: Annotated[tuple[Alias, ...], Field(max_length=100)] = described(
        (), "other names, for clients of the API and hints of tasks; unique among models, roles and personas"
    )
    numa: Annotated[int, Field(ge=0, le=1023)] | None = described(None, "the NUMA node that the model is bound to")
    instances: Annotated[int, Field(ge=1, le=64)] = described(
        1, "engines of the model on this machine, each bound to its own NUMA node"
    )
    nodes: Annotated[tuple[NodeName, ...], Field(max_length=1000)] = described(
        (), f"the machines of a cluster that may run it, by name; `{HEAD}` is that of the daemon; empty: all"
    )
    replicas: Annotated[ReplicaLimits | None, BeforeValidator(_replicas)] = described(
        None, "engines of the model on all machines of a cluster; a number alone is both"
    )
    sampling: SamplingOptions = described(DEFAULT_SAMPLING, "if neither the role nor the request says")
    step_context: StepContext = described(
        "own",
        "what steps of a plan in words read in addition to their own files: own: nothing; sources: what the outputs"
        " they join were made from; shared: all files of the request",
    )


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """An OpenAI-compatible server, and how it is asked for a model."""

    base_url: Annotated[str, StringConstraints(max_length=2048)] | None = described(None, "where its API is")
    model: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = described(
        None, "what the server calls the model"
    )
    api_key_env: str | None = described(None, "the environment variable that holds the API key, never the key")
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = described(120.0, "a longer silence counts as a failure")
    native_tools: bool = described(
        True,
        "whether it gets a client's tools and returns the calls; one that refuses tools is noticed, so false is for one"
        " that ignores them: then the prompt describes the tools",
    )


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class ServerForm(ServerOptions):
    """An OpenAI-compatible server that runs the model."""

    slots: SlotCount | None = described(
        None, "requests that it gets at a time; without it, as many as the model's entry has"
    )


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class ModelForm(LoadOptions, ModelOptions, ServerOptions):
    """One model: a `file` that llama.cpp loads here, or `backend: openai` for one that only other servers run.

    Either may have `servers`; with `backend: openai` a single one may stand in the entry itself.
    """

    # A dataclass, unlike the other forms, to inherit the load options.
    file: FileName | None = described(None, "a GGUF file, relative to the registry's; of a split model the first piece")
    backend: Literal["llama.cpp", "openai"] = described("llama.cpp", "openai: only other servers run it")
    servers: Annotated[tuple[ServerForm, ...], Field(max_length=100)] = described(
        (), "OpenAI-compatible servers that run it"
    )
    residency: ResidencyTier | None = described(
        None, "loaded at the start (hot), on demand (warm) or never (cold); without it, that of `defaults`"
    )
    prompts: Literal["general", "tiny"] | None = described(
        None, "the set of prompts that roles without `system` get; without it, chosen by the file"
    )
    thinking: ThinkingSetting | None = described(
        None,
        "how much it reasons before it answers, if neither the role nor the request says: on or off, an effort, or the"
        " most tokens; auto, as without it: as its chat template says",
    )
    tuned: Text = described("", "a note without effect")

    @property
    def all_servers(self) -> tuple[ServerForm, ...]:
        """The servers that run the model, also the one in the entry itself."""
        if self.backend == "llama.cpp" or self.base_url is None:
            return self.servers
        return (ServerForm(**shared_fields(ServerOptions, self)), *self.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """What a role's entry holds in the file and, unchanged, in a loaded registry."""

    model: Name = field(metadata=about("the model that plays the role, by its name in `models`"))
    description: Text = described("", "what the role is for, which the frontdoor reads, too")
    in_plans: bool = described(True, "the frontdoor may plan steps with it; a TaskIR document may name it anyway")
    level: Level | None = described(
        None, "where it stands among those that roles escalate to; without it, no role does"
    )
    escalates_to: Name | None = described(
        None, "the role of a higher level that takes over when this one keeps failing"
    )
    persona: Name | None = described(None, "its persona, if the step names none")
    # Absolute files in a loaded registry.
    lora: Annotated[Adapters, Len(1, 8)] = described((), "adapters for this role, in addition to its model's own")
    thinking: ThinkingSetting | None = described(None, "without it, as the model's entry says")
    sampling: SamplingOptions | None = described(None, "without it, as the model's entry says")
    plan_quality: Annotated[float, Field(ge=0.0, le=1.0)] | None = described(
        None, "of the frontdoor: the measured share of correct plans, as `bench model` counts them"
    )
    plans_by_cores: bool = described(
        False, "prompts for plans say how many cores the machine has; for adapters that are trained on that"
    )


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class RoleForm(RoleOptions):
    """What a role does, and with which model."""

    tier: Tier | None = described(
        None,
        "A: plans; B: specialists that do steps; C: workers that do steps; D: no steps, as drafting and embedding;"
        f" without it, {', '.join(f'{tier} for {role}' for role, tier in USUAL_TIERS.items())}, and C for any other",
    )
    system: Text | None = described(None, "its system prompt; without it, the one that ships for its kind")
    temperature: Temperature | None = described(None, WITHOUT)
    top_p: TopP | None = described(None, WITHOUT)
    max_tokens: MaxTokens | None = described(None, f"of an answer; {WITHOUT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The settings for all models or runs."""

    memory: Bytes | None = described(None, "bytes, as 8 GiB, for all models together; without it, what is free")
    prompt_cache: BytesOrNone = described(
        2 << 30, "bytes, as 2 GiB, on the disk for the KV cells of prompts of all models; 0 stores none"
    )
    max_replans: MaxReplans = described(2, "continuations of one plan")
    idle_unload_seconds: Annotated[float, Field(gt=0, le=31_536_000)] = described(
        900.0, "after which a model that is not hot is unloaded"
    )
    batch_invariant: bool = described(False, OF_MODELS)
    llama_library: FileName | None = described(
        None, f"{OF_MODELS}; without it, ORCHESTRATOR_LLAMA_LIBRARY or the installed build"
    )
    max_tokens: MaxTokens = described(1024, "of an answer without another limit")


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class DefaultsForm(Defaults):
    """Settings for all models or runs, and what entries of models and roles hold if they do not say otherwise."""

    residency: ResidencyTier = described("warm", OF_MODELS)
    context: ContextTokens = described(4096, OF_MODELS)
    slots: SlotCount = described(4, OF_MODELS)
    temperature: Temperature = described(0.0, OF_ROLES)
    top_p: TopP = described(1.0, OF_ROLES)


class RegistryForm(Form):
    """The whole of `model_registry.yaml`."""

    models: Annotated[dict[Name, ModelForm], Field(min_length=1, max_length=1000, description="by name")]
    roles: Annotated[dict[Name, RoleForm], Field(min_length=1, max_length=1000, description="by name")]
    defaults: DefaultsForm = Field(default=DefaultsForm(), description="for all models and roles")
    personas: FileName | None = Field(
        default=None, description="the file of the personas, relative to this one; without it, those that ship"
    )

    @property
    def embedder(self) -> str | None:
        """The model of the role `embedder`, if llama.cpp loads it here."""
        return self._loaded_model(EMBEDDER)

    @property
    def reranker(self) -> str | None:
        """The model of the role `reranker`, if llama.cpp loads it here."""
        return self._loaded_model(RERANKER)

    def _loaded_model(self, role: str) -> str | None:
        model = self.roles[role].model if role in self.roles else None
        return model if model in self.models and self.models[model].backend == "llama.cpp" else None


class PersonaForm(Form):
    """A text that is added to a system prompt."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=4000)] = Field(description="what is added")
    description: Text = Field(default="", description="when it fits")


class PersonasForm(Form):
    """The whole of a personas file."""

    personas: Annotated[dict[Name, PersonaForm], Field(max_length=1000, description="by name")]


F = TypeVar("F", bound=Form)


def read_form(form: type[F], document: YamlDocument) -> F:
    """Validate a parsed file. Raises RegistryError with every problem, each at its line."""
    data = {} if document.data is None else document.data
    try:
        # As JSON, because only from JSON does pydantic's strict mode make dataclasses and tuples.
        return form.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        details = error.errors(include_url=False)
        places = [detail["loc"] for detail in details]
        raise RegistryError(
            *(_problem(form, document, detail) for detail in details if not _is_consequence(detail, places))
        ) from error


def _is_consequence(detail: ErrorDetails, places: Sequence[tuple[int | str, ...]]) -> bool:
    # A list counts as too short without its entries that have problems.
    depth = len(detail["loc"])
    return detail["type"] == "too_short" and any(
        len(place) > depth and place[:depth] == detail["loc"] for place in places
    )


def with_new_keys(document: YamlDocument) -> YamlDocument:
    """Return a registry file with the current names of keys; for old names a warning is logged once per place."""
    if not isinstance(document.data, dict):
        return document
    lines = dict(document.lines)

    def renewed(options: object, *place: str) -> object:
        if not isinstance(options, dict):
            return options
        names = {key: new for key in options if (new := _OLD_KEYS.get(key)) is not None and new not in options}
        for old, new in names.items():
            lines[*place, new] = lines[*place, old]
            _warn_once(document.problem((*place, old), f"is called {new} now; the old name is still understood"))
        options = {**options, **words(options)}
        return {names.get(key, key): value for key, value in options.items()}

    def words(options: dict[Any, Any]) -> dict[str, str]:
        # YAML 1.1 reads a bare `on` or `off` as a truth value; for these keys they are words.
        return {key: "on" if options[key] else "off" for key in _SWITCHES if isinstance(options.get(key), bool)}

    data = dict(document.data)
    if "defaults" in data:
        data["defaults"] = renewed(data["defaults"], "defaults")
    if isinstance(models := data.get("models"), dict):
        data["models"] = {name: renewed(options, "models", name) for name, options in models.items()}
    if isinstance(roles := data.get("roles"), dict):
        data["roles"] = {
            name: {**role, **words(role)} if isinstance(role, dict) else role for name, role in roles.items()
        }
    return replace(document, data=data, lines=lines)


@cache
def _warn_once(problem: RegistryProblem) -> None:
    log.warning("%s", problem)


def usual_tier(role: str) -> Tier:
    return USUAL_TIERS.get(role, "C")


def _problem(form: type[Form], document: YamlDocument, detail: Any) -> RegistryProblem:  # pydantic's ErrorDetails
    place: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return document.problem(place, "unknown key", nearest(str(place[-1]), _keys_at(form, place[:-1])))
    if detail["type"] == "missing":
        return document.problem(place, "is required")
    if detail["loc"] and detail["loc"][-1] == "[key]":
        return document.problem(place, "is no name", NAME_RULE)
    if detail["type"] in ("model_type", "dict_type", "dataclass_type"):
        return document.problem(place, f"is {_shown(detail['input'])}", _described(form, place))
    message = detail["msg"].removeprefix("Input should be ")
    if detail["type"] == "string_pattern_mismatch":
        message = f"a text that matches {detail['ctx']['pattern']}"
    if place[-1:] in _NOT_REPEATED:
        return document.problem(place, "has a value of the wrong form", message)
    return document.problem(place, f"is {_shown(detail['input'])}", message)


def _described(form: type[Form], place: KeyPath) -> str:
    keys = _keys_at(form, place)
    return f"keys among {', '.join(keys)}" if keys else "a mapping of names"


def _keys_at(form: object, place: KeyPath) -> list[str]:
    arguments = [part for part in typing.get_args(form) if part not in (type(None), ...)]
    if typing.get_origin(form) in (dict, tuple):
        return _keys_at(arguments[-1], place[1:]) if place else []
    if arguments:  # X | None
        return _keys_at(arguments[0], place)
    if not isinstance(form, type):
        return []
    fields = typing.get_type_hints(form) if issubclass(form, Form) or is_dataclass(form) else {}
    fields.pop("model_config", None)
    if not place:
        return list(fields)
    return _keys_at(fields.get(str(place[0])), place[1:])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
