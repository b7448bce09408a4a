"""What a loaded registry is made of: models, roles, personas and defaults, checked and complete.

A model whose file is missing or broken stays in the registry with the reason in `unavailable`, so that one absent
file does not take everything else down; whoever is about to use it asks `Registry.why_not` first.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from registry.forms import CacheType, Level, Residency, Switch, Tier
from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate

T = TypeVar("T")
STEP_TIERS = frozenset("BC")
"""The tiers of the roles that do steps."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Draft tokens come from the model of the role `draft`, which is in `file`, at most `k` in one step."""

    draft: str
    file: Path
    k: int


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Draft tokens are copied from where the last `ngram` tokens occurred before, at most `k` in one step."""

    ngram: int
    k: int


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank weights in `file` that are added to the model's own, times `scale`."""

    file: Path
    scale: float


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible API under `base_url` (without a slash at the end) that knows a model as `model`.

    The environment variable `api_key_env` holds its key; None: it wants none. A server that sends nothing for
    `timeout_seconds` counts as failed.
    """

    base_url: str
    model: str
    api_key_env: str | None
    timeout_seconds: float

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def sends_key_in_clear(self) -> bool:
        """Whether others on the network can read the key."""
        return self.api_key_env is not None and self.base_url.startswith("http://") and not self.is_local


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model. `context` is in tokens of one sequence, `slots` in sequences at a time, `threads` a ceiling.

    `batch_invariant` asks for greedy tokens that do not depend on what else is in the batch, at some cost in prefill;
    `split` gives each sequence KV cells of its own (None: unless there are `cells`), and otherwise they share `cells`
    (None: slots x context); `experts` is how many of a mixture are used, None for as many as the model was made with;
    `lora` are adapters that all its text is made with. `numa` binds the model to a node; where a machine has several
    nodes, up to `instances` of it run, one bound to each. Exactly one of `header` and `unavailable` (the reason why
    there is no header) is set. `memory` is an estimate, of the model and of the one that drafts for it. The model of
    the role `embedder` `embeds`: it makes vectors of texts and writes none.

    A model that another server runs has `remote` instead of `file`, and neither header nor memory: `context` is what
    the registry says, `slots` bounds the requests, and what else describes a model that is loaded here has no meaning.
    """

    id: str
    file: Path | None
    remote: Endpoint | None = None
    embeds: bool = False
    description: str
    residency: Residency | Literal["remote"]
    context: int
    slots: int
    threads: int | None
    kv_type_k: CacheType
    kv_type_v: CacheType
    flash_attention: Switch
    mlock: bool
    mmap: bool
    numa: int | None
    instances: int
    batch_invariant: bool
    split: bool | None
    cells: int | None
    experts: int | None
    speculation: Speculation | None
    prompt_lookup: PromptLookup | None
    lora: tuple[Lora, ...]
    header: GgufHeader | None
    memory: MemoryEstimate | None
    unavailable: str | None

    @property
    def countable_context(self) -> int | None:
        """How many tokens prompt and answer may have; None where nobody here can count them, but only its server."""
        return None if self.remote is not None else self.context

    @property
    def why_not(self) -> str | None:
        """Why the model cannot be asked for anything, or None if it can."""
        if self.unavailable is not None:
            return f"model {self.id}: {self.unavailable}"
        if self.residency == "cold" and self.remote is not None:
            return f"model {self.id} is cold: it is known but not used; accepted: an entry without residency"
        if self.residency == "cold":
            return f"model {self.id} is cold: it is known but not loaded; accepted: residency warm or hot"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry:
    """One kind of work: the model that does it, its system prompt, and how it samples.

    `escalates_to` names the role that takes over when this one keeps failing; a role that can be escalated to has a
    `level`. `persona` is the default one.
    """

    name: str
    model: str
    tier: Tier
    system: str
    description: str
    level: Level | None
    escalates_to: str | None
    persona: str | None
    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Persona:
    """How work is done: `text` is added to the system prompt of a role."""

    name: str
    text: str
    description: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the registry says of all models together. `memory` is their budget in bytes, or None for what is free.

    `max_replans` is how often one plan may go on, with more steps, after a step of it is done. A model that is not HOT
    is unloaded when nobody has used it for `idle_unload_seconds`. `batch_invariant` holds for models whose entries do
    not say.
    """

    memory: int | None
    max_replans: int
    idle_unload_seconds: float
    batch_invariant: bool


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry read from `path`. All names that its entries mention exist in it."""

    path: Path
    models: Mapping[str, ModelEntry]
    roles: Mapping[str, RoleEntry]
    personas: Mapping[str, Persona]
    defaults: Defaults

    def beside(self, former: "Registry") -> "Registry":
        """Return this registry with the entries that only `former` has, for whoever may still name them."""
        return replace(
            self,
            models=MappingProxyType({**self.models, **_missing(former.models, self.models)}),
            roles=MappingProxyType({**self.roles, **_missing(former.roles, self.roles)}),
            personas=MappingProxyType({**self.personas, **_missing(former.personas, self.personas)}),
        )

    def why_not(self, role: str) -> str | None:
        """Return why `role` cannot work in this installation, or None if it can."""
        return self.models[self.roles[role].model].why_not

    @property
    def usable_roles(self) -> frozenset[str]:
        """The roles whose model can be used."""
        return frozenset(role for role in self.roles if self.why_not(role) is None)

    @property
    def step_roles(self) -> tuple[str, ...]:
        """The roles that steps may have, in the registry's order: those that do work, with a model that is there."""
        return tuple(
            name for name, role in self.roles.items() if role.tier in STEP_TIERS and self.why_not(name) is None
        )

    @property
    def usable_models(self) -> frozenset[str]:
        """The models whose file is there, could be read, and may be loaded."""
        return frozenset(model.id for model in self.models.values() if model.why_not is None)


def _missing(former: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    return {name: entry for name, entry in former.items() if name not in now}
