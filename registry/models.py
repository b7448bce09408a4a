"""What a loaded registry is made of: models, roles, personas and defaults, checked and complete.

A model whose file is missing or broken stays in the registry with the reason in `unavailable`, so that one absent
file does not take everything else down; whoever is about to use it asks `Registry.why_not` first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from registry.forms import CacheType, Level, Residency, Switch, Tier
from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate


@dataclass(frozen=True, slots=True)
class Speculation:
    """Draft tokens come from the model of the role `draft`, at most `k` in one step."""

    draft: str
    k: int


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Draft tokens are copied from where the last `ngram` tokens occurred before, at most `k` in one step."""

    ngram: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model. `context` is in tokens of one sequence, `slots` in sequences at a time, `threads` a ceiling.

    `exact` asks for the same greedy tokens alone and in company, at some cost in prefill; `experts` is how many of a
    mixture are used, None for as many as the model was made with. `speculation`, `prompt_lookup` and `numa` are
    checked and then refused until an engine acts on them, so they are None. Exactly one of `header` and `unavailable`
    (the reason why there is no header) is set. `memory` is an estimate.
    """

    id: str
    file: Path
    description: str
    residency: Residency
    context: int
    slots: int
    threads: int | None
    kv_type_k: CacheType
    kv_type_v: CacheType
    flash_attention: Switch
    mlock: bool
    mmap: bool
    numa: int | None
    exact: bool
    experts: int | None
    speculation: Speculation | None
    prompt_lookup: PromptLookup | None
    header: GgufHeader | None
    memory: MemoryEstimate | None
    unavailable: str | None

    @property
    def why_not(self) -> str | None:
        """Why the model cannot be asked for anything, or None if it can."""
        if self.unavailable is not None:
            return f"model {self.id}: {self.unavailable}"
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
    """What the registry says of all models together. `memory` is their budget in bytes, or None for what is free."""

    memory: int | None


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry read from `path`. All names that its entries mention exist in it."""

    path: Path
    models: Mapping[str, ModelEntry]
    roles: Mapping[str, RoleEntry]
    personas: Mapping[str, Persona]
    defaults: Defaults

    def why_not(self, role: str) -> str | None:
        """Return why `role` cannot work in this installation, or None if it can."""
        return self.models[self.roles[role].model].why_not

    @property
    def usable_roles(self) -> frozenset[str]:
        """The roles whose model can be used."""
        return frozenset(role for role in self.roles if self.why_not(role) is None)

    @property
    def usable_models(self) -> frozenset[str]:
        """The models whose file is there, could be read, and may be loaded."""
        return frozenset(model.id for model in self.models.values() if model.why_not is None)
