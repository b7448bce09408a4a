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

from registry.forms import Level, Residency, Tier
from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate
from registry.options import LoadOptions

T = TypeVar("T")
STEP_TIERS = frozenset("BC")
"""The tiers of the roles that do steps."""


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
    """One model: either `file`, which is loaded here, or `remote`, which another server runs."""

    id: str
    file: Path | None
    remote: Endpoint | None = None
    embeds: bool = False
    """Whether it is the model of the role `embedder`, which makes vectors of texts and writes none."""
    description: str
    residency: Residency | Literal["remote"]
    options: LoadOptions
    """How the model is loaded, with the defaults of the registry and absolute file names; `threads` is a ceiling. Of a
    remote model, only `context` and `slots` have a meaning: the latter bounds the requests at a time."""
    numa: int | None = None
    """The NUMA node that the model is bound to."""
    instances: int = 1
    """On a machine with several NUMA nodes, how many engines of the model may run, each bound to a node of its own."""
    header: GgufHeader | None = None
    """What the file says of the model; None for a remote one and where `unavailable` says why there is none."""
    memory: MemoryEstimate | None = None
    """What an engine takes, with the model that drafts for it; None where there is no header."""
    unavailable: str | None = None
    """Why the file cannot be read or the API key is missing, or None."""

    @property
    def context(self) -> int:
        """How many tokens one sequence may have, prompt and answer together."""
        assert self.options.context is not None, "a registry's entry always has a context"
        return self.options.context

    @property
    def slots(self) -> int:
        """How many sequences are generated at a time."""
        return self.options.slots

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
