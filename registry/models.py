"""What a loaded registry is made of: models, roles, personas and defaults, checked and complete.

A model whose file is missing or broken, or whose chat template would lose words, is in the registry too, with the
reason in `unavailable`, so that it does not make the other models unusable. `Registry.why_not` says whether a role can
be used.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

from registry.call_syntax import REMOTE, CallSyntax, call_syntax
from registry.forms import Level, ResidencyTier, Tier
from registry.gguf import GgufHeader
from registry.memory import MemoryEstimate
from registry.options import DEFAULT_SAMPLING, Adapters, LoadOptions, SamplingOptions, StepContext
from registry.prompts import PromptSet, prompt_set
from registry.thinking import Thinking

T = TypeVar("T")
Maker = Literal["file", "user", "plan", "memory"]
"""Who made a persona: whoever wrote the registry's file, a user at run time, or the plan of a request."""
STEP_TIERS = frozenset("BC")
"""The tiers of the roles that do steps."""


LEAST_PLAN_QUALITY: Final = 0.8
"""A frontdoor of whose plans fewer are right is not asked for one. A wrong plan costs the answer and the time for it; a
right one saves at most time, or improves an answer that may have been right anyway. Measured with a worker of 1.5B:
with 22 % right plans, 3 of 25 answers were right instead of 11; with 72 %, 10 of 31 instead of 11."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model that an OpenAI-compatible server runs."""

    base_url: str
    """The address of the API, without a slash at the end."""
    model: str
    """The model's name on that server."""
    api_key_env: str | None
    """The environment variable that holds the API key; None if the server needs none."""
    timeout_seconds: float
    """A server that sends nothing for so long counts as failed."""
    native_tools: bool = True
    """Whether the server is given the tools that a client offers."""

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
        """Whether the API key would be sent unencrypted over a network."""
        return self.api_key_env is not None and self.base_url.startswith("http://") and not self.is_local


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model: either `file`, which is loaded here, or `remote`, which another server runs."""

    id: str
    file: Path | None
    remote: Endpoint | None = None
    embeds: bool = False
    """Whether it is the model of the role `embedder` or `reranker`, which computes with whole texts and writes none."""
    ranks: bool = False
    """Whether it is the model of the role `reranker`, which says how relevant texts are to a query."""
    aliases: tuple[str, ...] = ()
    """Other names of the model, which no other model, role or persona has."""
    description: str
    residency: ResidencyTier | Literal["remote"]
    options: LoadOptions
    """How the model is loaded, with the defaults of the registry and absolute file names; `threads` is a ceiling. Of a
    remote model, only `context` and `slots` have a meaning: the latter bounds the requests at a time."""
    numa: int | None = None
    """The NUMA node that the model is bound to."""
    instances: int = 1
    """On a machine with several NUMA nodes, how many engines of the model may run, each bound to a node of its own."""
    prompts: PromptSet = field(default_factory=lambda: prompt_set("general"))
    """The prompts that ship for models of its kind."""
    thinking: Thinking = "auto"
    """How much it thinks before it answers, where neither role nor request says so."""
    sampling: SamplingOptions = DEFAULT_SAMPLING
    """What keeps its answers from repeating themselves, where neither role nor request says so."""
    step_context: StepContext = "own"
    """Which files the steps of a planned request read that it does."""
    header: GgufHeader | None = None
    """What the file says of the model; None for a remote one and for a file that cannot be read."""
    memory: MemoryEstimate | None = None
    """What an engine takes, with the model that drafts for it; None where there is no header."""
    unavailable: str | None = None
    """Why it cannot be used: its file, its chat template or its API key; None if it can."""
    adapters: tuple[str, ...] = ()
    """The files of the adapters that its roles use. An engine loads them with the model."""

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
        """How many tokens prompt and answer may have; None for a remote model, whose tokens its server counts."""
        return None if self.remote is not None else self.context

    @property
    def calls(self) -> CallSyntax | None:
        """How it writes calls of tools; None where it is not known to be given tools by its chat template.

        Another server reads the calls of its models by itself, and `remote` writes them as `REMOTE` says.
        """
        if self.remote is not None:
            return REMOTE if self.remote.native_tools else None
        return None if self.header is None else call_syntax(self.header.chat_template)

    @property
    def why_not(self) -> str | None:
        """Why the model cannot be used, or None if it can."""
        if self.unavailable is not None:
            return f"model {self.id}: {self.unavailable}"
        if self.residency == "cold" and self.remote is not None:
            return f"model {self.id} is cold: it is known but not used; accepted: an entry without residency"
        if self.residency == "cold":
            return f"model {self.id} is cold: it is known but not loaded; accepted: residency warm or hot"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry:
    """One kind of work: the model that does it, its system prompt, and how it samples."""

    name: str
    model: str
    """The id of the model."""
    tier: Tier
    system: str
    """The system prompt: its own, or the one that ships for the role's model."""
    description: str
    level: Level | None
    """The role's place in the order of escalation; None if no role escalates to it."""
    escalates_to: str | None
    """The role that takes over when this one keeps failing, or None."""
    persona: str | None
    """The persona of attempts for which no other one is chosen, or None."""
    lora: Adapters = ()
    """The adapters that its model uses for this role, with absolute file names, beside those of the model itself."""
    unavailable: str | None = None
    """Why its adapters cannot be used, or None."""
    temperature: float
    top_p: float
    max_tokens: int
    in_plans: bool = True
    """Whether the frontdoor may give it to the steps that it plans."""
    has_own_system: bool = True
    """Whether the registry's file gives the system prompt."""
    thinking: Thinking | None = None
    """How much the model thinks before it answers in this role; None: as the model's entry says."""
    sampling: SamplingOptions | None = None
    """What keeps answers from repeating themselves in this role; None: as the model's entry says."""
    plan_quality: float | None = None
    """Which share of the plans that the role writes is right, as measured; None if that was not measured."""

    @classmethod
    def plain(
        cls, name: str, model: str, tier: Tier, level: Level | None, description: str, max_tokens: int
    ) -> "RoleEntry":
        """Return a role without options of its own, which has no system prompt before `with_shipped_prompts` gives one.

        Its answers are greedy, and no role takes over from it.
        """
        return cls(
            name=name,
            model=model,
            tier=tier,
            system="",
            description=description,
            level=level,
            escalates_to=None,
            persona=None,
            temperature=0.0,
            top_p=1.0,
            max_tokens=max_tokens,
            has_own_system=False,
        )


@dataclass(frozen=True, slots=True)
class Persona:
    """A way to do the work of any role: `text` is added to the role's system prompt."""

    name: str
    text: str
    description: str
    maker: Maker = "file"
    retired: bool = False
    """Whether it is kept only for runs that name it already."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings of the registry that concern all models or runs together."""

    memory: int | None
    """How many bytes all models together may take; None for what is free."""
    max_replans: int
    """How often one plan may be extended with more steps after one of its steps is done."""
    idle_unload_seconds: float
    """A model that is not HOT is unloaded when it has not been used for so long."""
    batch_invariant: bool
    """The option of that name for models whose entries do not give it."""
    max_tokens: int
    """The most tokens of an answer where neither the request nor a role limits it."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that was read from `path`. Every name that an entry refers to exists in it."""

    path: Path
    models: Mapping[str, ModelEntry]
    roles: Mapping[str, RoleEntry]
    personas: Mapping[str, Persona]
    defaults: Defaults

    def beside(self, former: "Registry") -> "Registry":
        """Return this registry with those entries of `former` that it lacks, for runs that may still refer to them."""
        return replace(
            self,
            models=MappingProxyType({**self.models, **_missing(former.models, self.models)}),
            roles=MappingProxyType({**self.roles, **_missing(former.roles, self.roles)}),
            personas=MappingProxyType({**self.personas, **_missing(former.personas, self.personas)}),
        )

    def with_personas(self, made: Iterable[Persona]) -> "Registry":
        """Return this registry with these personas for those that were made at run time. Those of its file win."""
        own = {name: one for name, one in self.personas.items() if one.maker == "file"}
        return replace(self, personas=MappingProxyType({**own, **{one.name: one for one in made}, **own}))

    @property
    def personas_in_use(self) -> dict[str, Persona]:
        """The personas that are not retired, by name."""
        return {name: one for name, one in self.personas.items() if not one.retired}

    def model_named(self, name: str) -> str | None:
        """Return the id of the model that has this id or this alias, or None if there is none."""
        if name in self.models:
            return name
        return next((model.id for model in self.models.values() if name in model.aliases), None)

    @property
    def usable_names(self) -> frozenset[str]:
        """The ids and aliases of the models that can be used."""
        return frozenset(name for id in self.usable_models for name in (id, *self.models[id].aliases))

    def system(self, role: str, model: str) -> str:
        """Return the system prompt of a role when this model plays it, which may be another one than the role's own."""
        entry = self.roles[role]
        if entry.has_own_system or model == entry.model or model not in self.models:
            return entry.system
        return self.models[model].prompts.system(role, entry.tier, self._described_plan_roles)

    def with_shipped_prompts(self) -> "Registry":
        """Return the registry in which roles without a system prompt of their own have the ones that ship."""
        described = self._described_plan_roles
        roles = {
            name: role
            if role.has_own_system
            else replace(role, system=self.models[role.model].prompts.system(name, role.tier, described))
            for name, role in self.roles.items()
        }
        return replace(self, roles=MappingProxyType(roles))

    @property
    def _described_plan_roles(self) -> dict[str, str]:
        return {name: self.roles[name].description for name in self.plan_roles}

    def why_not(self, role: str) -> str | None:
        """Return why `role` cannot be used in this installation, or None if it can."""
        entry = self.roles[role]
        if entry.unavailable is not None:
            return f"role {role}: {entry.unavailable}"
        return self.models[entry.model].why_not

    @property
    def usable_roles(self) -> frozenset[str]:
        """The roles whose model can be used."""
        return frozenset(role for role in self.roles if self.why_not(role) is None)

    @property
    def step_roles(self) -> tuple[str, ...]:
        """The roles that steps may have, in the registry's order: those of tier B or C whose model can be used."""
        return tuple(
            name for name, role in self.roles.items() if role.tier in STEP_TIERS and self.why_not(name) is None
        )

    @property
    def plan_roles(self) -> tuple[str, ...]:
        """The roles of `step_roles` that the frontdoor may give to steps: those with `in_plans`, or all if none has."""
        return tuple(name for name in self.step_roles if self.roles[name].in_plans) or self.step_roles

    @property
    def usable_models(self) -> frozenset[str]:
        """The ids of the models that can be used."""
        return frozenset(model.id for model in self.models.values() if model.why_not is None)


def _missing(former: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    return {name: entry for name, entry in former.items() if name not in now}
