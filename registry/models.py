"""The parts of a loaded registry: models, roles, personas and defaults, checked and complete.

A model whose file is missing or broken, or whose chat template loses words, stays in the registry with the reason in
`unavailable`, so that it does not break the others. `Registry.why_not` says whether a role can be used.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

from orchestrator.files import Signatures
from orchestrator.registry.call_syntax import REMOTE, CallSyntax, call_syntax
from orchestrator.registry.forms import GENERALIST, Defaults, Level, ModelOptions, ResidencyTier, RoleOptions, Tier
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.memory import MemoryEstimate
from orchestrator.registry.options import LoadOptions
from orchestrator.registry.persona import Persona
from orchestrator.registry.prompts import PromptSet, prompt_set
from orchestrator.registry.thinking import Thinking

T = TypeVar("T")
STEP_TIERS = frozenset("BC")  # of roles that do steps


# A frontdoor with fewer correct plans is not asked for any. A wrong plan costs the answer and time; a right one only
# saves time or improves an answer. Measured with a worker of 1.5B: with 22 % right plans, 3 of 25 answers were right
# instead of 11; with 72 %, 10 of 31 instead of 11; with 80 %, 1 of 13 instead of 3.
LEAST_PLAN_QUALITY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model that an OpenAI-compatible server runs."""

    base_url: str  # of the API, without a slash at the end
    model: str  # its name on that server
    api_key_env: str | None  # environment variable with the API key; None without one
    timeout_seconds: float  # a longer silence counts as a failure
    native_tools: bool = True  # the server gets the tools of clients
    slots: int = 4  # requests that it gets at a time
    unavailable: str | None = None  # because of its API key

    @property
    def name(self) -> str:
        """What reports call the server: its host and port, and the path if that is not just the API's version."""
        return self.base_url.partition("://")[2].removesuffix("/v1")

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
class ModelEntry(ModelOptions):
    """One model: a `file`, which is loaded here, `servers` that run it elsewhere, or both."""

    id: str
    file: Path | None
    servers: tuple[Endpoint, ...] = ()
    embeds: bool = False  # has the role `embedder` or `reranker`, and writes no text
    ranks: bool = False  # has the role `reranker`
    residency: ResidencyTier | Literal["remote"]
    # Complete, with absolute file names; `threads` is a ceiling. Without a file only `context` counts.
    options: LoadOptions
    prompts: PromptSet = field(default_factory=lambda: prompt_set("general"))
    thinking: Thinking = "auto"  # unless role or request says otherwise
    header: GgufHeader | None = None  # None for a remote model and for an unreadable file
    memory: MemoryEstimate | None = None  # with its draft model; None without a header
    unavailable: str | None = None  # because of its file, chat template or API key
    adapters: tuple[str, ...] = ()  # files for its roles, loaded with the model

    @property
    def context(self) -> int:
        """Tokens per sequence, prompt and answer together."""
        assert self.options.context is not None, "a registry's entry always has a context"
        return self.options.context

    @property
    def slots(self) -> int:
        return self.options.slots

    @property
    def is_remote(self) -> bool:
        """Whether only other servers run it."""
        return self.file is None

    @property
    def countable_context(self) -> int | None:
        """As `context`; None if a server may compute the answer, which counts the tokens itself."""
        return None if self.servers else self.context

    @property
    def calls(self) -> CallSyntax | None:
        """How it writes tool calls; None if its chat template shows it no tools."""
        # Another server parses the calls itself, and `pool.remote` writes them as `REMOTE`.
        if self.is_remote:
            return REMOTE if any(server.native_tools for server in self.servers) else None
        return None if self.header is None else call_syntax(self.header.chat_template)

    @property
    def why_not(self) -> str | None:
        """Why the model cannot be used, or None."""
        if self.unavailable is not None:
            return f"model {self.id}: {self.unavailable}"
        if self.residency == "cold" and self.is_remote:
            return f"model {self.id} is cold: it is known but not used; accepted: an entry without residency"
        if self.residency == "cold":
            return f"model {self.id} is cold: it is known but not loaded; accepted: residency warm or hot"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry(RoleOptions):
    """One kind of work: the model that does it, its system prompt, and how it samples."""

    name: str
    tier: Tier
    system: str  # its own, or the shipped prompt
    has_own_system: bool = True  # `system` is from the registry's file
    temperature: float
    top_p: float
    max_tokens: int
    unavailable: str | None = None  # because of its adapters

    @classmethod
    def plain(
        cls, name: str, model: str, tier: Tier, level: Level | None, description: str, max_tokens: int
    ) -> "RoleEntry":
        """Return a greedy role without options and escalation; `with_shipped_prompts` gives it a system prompt."""
        return cls(
            name=name,
            model=model,
            tier=tier,
            system="",
            description=description,
            level=level,
            temperature=0.0,
            top_p=1.0,
            max_tokens=max_tokens,
            has_own_system=False,
        )


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that was read from `path`. Every name that an entry refers to exists in it."""

    path: Path
    models: Mapping[str, ModelEntry]
    roles: Mapping[str, RoleEntry]
    personas: Mapping[str, Persona]
    defaults: Defaults
    # Of its files before they were read; empty if a program made it. Two registries of the same content are equal.
    signatures: Signatures = field(default_factory=dict, compare=False, repr=False)

    def with_entries_of(self, former: "Registry") -> "Registry":
        """Return this registry plus missing entries of `former`, for runs that may still refer to them."""
        return replace(
            self,
            models=MappingProxyType({**self.models, **_missing(former.models, self.models)}),
            roles=MappingProxyType({**self.roles, **_missing(former.roles, self.roles)}),
            personas=MappingProxyType({**self.personas, **_missing(former.personas, self.personas)}),
        )

    def with_personas(self, added: Iterable[Persona]) -> "Registry":
        """Return this registry with `added` as the run-time personas. Those of its file win."""
        own = {name: persona for name, persona in self.personas.items() if persona.maker == "file"}
        return replace(self, personas=MappingProxyType({**own, **{persona.name: persona for persona in added}, **own}))

    @property
    def personas_in_use(self) -> dict[str, Persona]:
        """The personas that are not retired, by name."""
        return {name: persona for name, persona in self.personas.items() if not persona.retired}

    def model_named(self, name: str) -> str | None:
        """Return the id of the model with this id or alias, or None."""
        if name in self.models:
            return name
        return next((model.id for model in self.models.values() if name in model.aliases), None)

    @property
    def usable_names(self) -> frozenset[str]:
        """The ids and aliases of the usable models."""
        return frozenset(name for id in self.usable_models for name in (id, *self.models[id].aliases))

    def system(self, role: str, model: str) -> str:
        """Return the system prompt of a role played by this model, which may not be the role's own."""
        entry = self.roles[role]
        if entry.has_own_system or model == entry.model or model not in self.models:
            return entry.system
        return self.models[model].prompts.system(role, entry.tier, self._described_plan_roles)

    def with_shipped_prompts(self) -> "Registry":
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
        """Return why `role` cannot be used in this installation, or None."""
        entry = self.roles[role]
        if entry.unavailable is not None:
            return f"role {role}: {entry.unavailable}"
        return self.models[entry.model].why_not

    @property
    def usable_roles(self) -> frozenset[str]:
        return frozenset(role for role in self.roles if self.why_not(role) is None)

    @property
    def step_roles(self) -> tuple[str, ...]:
        """The usable roles of tier B or C, in the registry's order."""
        return tuple(
            name for name, role in self.roles.items() if role.tier in STEP_TIERS and self.why_not(name) is None
        )

    @property
    def plan_roles(self) -> tuple[str, ...]:
        """The `step_roles` for the frontdoor's plans: those with `in_plans`, or all if none has it."""
        return tuple(name for name in self.step_roles if self.roles[name].in_plans) or self.step_roles

    @property
    def answering_roles(self) -> tuple[str, ...]:
        """The `step_roles` for a whole request without a plan: the generalist, those of plans by tier, then others."""
        first = [GENERALIST] if GENERALIST in self.step_roles else []
        workers = [name for name in self.plan_roles if self.roles[name].tier == "C"]
        return tuple(dict.fromkeys((*first, *workers, *self.plan_roles, *self.step_roles)))

    @property
    def usable_models(self) -> frozenset[str]:
        return frozenset(model.id for model in self.models.values() if model.why_not is None)


def _missing(former: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    return {name: entry for name, entry in former.items() if name not in now}
