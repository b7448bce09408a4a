"""Resolve a role of the registry to all that a request to its model needs. Steps, plans and chats share it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.task.events import RunOptions
from registry.call_syntax import CallSyntax
from registry.models import Registry
from registry.options import DEFAULT_SAMPLING, Adapters, SamplingOptions
from registry.prompts import PromptSet, prompt_set
from registry.thinking import THINKING_WORDS, Thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRole:
    """A role, or a model that is asked without one, with everything that the registry says of how to ask it.

    It is made once for an attempt, a plan or a chat. An engine knows no registry: it gets the `Generation` that
    `request` makes.
    """

    name: str = ""
    """The role's name in the registry; empty for a model that is asked without a role."""
    model: str
    """The id of the model in the registry."""
    system: str = ""
    """The text of the role's system prompt."""
    persona: str = ""
    """The text that the persona adds to the system prompt; empty for none."""
    prompts: PromptSet = field(default_factory=lambda: prompt_set("general"))
    """The prompts that ship for models of this kind; those for tools, code and summaries come from here."""
    context: int | None = None
    """How many tokens one sequence of the model may have; None where only the model's server knows that."""
    max_tokens: int | None = None
    """The most tokens of an answer that has no limit of its own; None for as many as the context has room for."""
    temperature: float = 0.0
    top_p: float = 1.0
    sampling: SamplingOptions = DEFAULT_SAMPLING
    """Which tokens may be sampled, and what keeps free text from repeating itself. What a schema asks for repeats its
    keys and signs by right."""
    lora: Adapters = ()
    """The role's adapters; none on another model than the role's own, for which they were not made."""
    thinking: Thinking = "auto"
    """How much the model thinks before it answers."""
    calls: CallSyntax | None = None
    """How the model writes calls of tools that its chat template is given; None where that is not known."""
    priority: Priority = "interactive"
    """The class of whoever asks: models are loaded for interactive requests before those of a batch."""

    def request(
        self,
        messages: tuple[Message, ...],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        sampling: SamplingOptions | None = None,
        stop: tuple[str, ...] = (),
        schema: dict[str, object] | bool | None = None,
        seed: int | None = None,
        deadline_seconds: float | None = None,
        slack: float = 0.0,
        fit: int | None = None,
        thinking: Thinking | None = None,
        limits_thoughts: bool = False,
        template_arguments: Mapping[str, bool | int | float | str | None] | None = None,
    ) -> Generation:
        """Return the request to the model.

        `max_tokens`, `temperature`, `top_p`, `sampling` and `thinking` are the role's where they are not given; with a
        `schema`, however, without the role's penalties. The others are as in `Generation`.
        """
        usual = self.sampling if schema is None else self.sampling.without_penalties()
        chosen = usual if sampling is None else sampling
        usual_top_p = 1.0 if chosen.mirostat else self.top_p
        return Generation(
            messages=messages,
            role=self.name,
            max_tokens=max_tokens or self.max_tokens,
            temperature=self.temperature if temperature is None else temperature,
            top_p=usual_top_p if top_p is None else top_p,
            sampling=chosen,
            seed=seed,
            stop=stop,
            schema=schema,
            deadline_seconds=deadline_seconds,
            slack=slack,
            lora=self.lora,
            fit=fit,
            priority=self.priority,
            thinking=self.thinking if thinking is None else thinking,
            limits_thoughts=limits_thoughts,
            template_arguments=template_arguments or {},
        )


def resolve_role(
    registry: Registry,
    role: str,
    persona: str | None = None,
    model: str | None = None,
    priority: Priority = "interactive",
    thinking: str = "",
) -> ResolvedRole:
    """Return the role with a persona, on the role's own model unless another one is given.

    `thinking` is how much the model may think, as in the registry; empty for what that says.

    Role, persona and model are names that are known to be in the registry.
    """
    entry, chosen = registry.roles[role], model or registry.roles[role].model
    # A role that was removed while a run goes on keeps its model, which is then loaded without the role's adapters.
    fits = chosen == entry.model and {one.file for one in entry.lora} <= set(registry.models[chosen].adapters)
    return ResolvedRole(
        name=role,
        model=chosen,
        system=registry.system(role, chosen),
        persona=registry.personas[persona].text if persona is not None else "",
        prompts=registry.models[chosen].prompts,
        context=registry.models[chosen].countable_context,
        max_tokens=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        sampling=registry.models[chosen].sampling if entry.sampling is None else entry.sampling,
        lora=entry.lora if fits else (),
        calls=registry.models[chosen].calls,
        thinking=next(
            level
            for level in (_thinking(thinking), entry.thinking, registry.models[chosen].thinking)
            if level is not None
        ),
        priority=priority,
    )


def with_options(role: ResolvedRole, options: RunOptions) -> ResolvedRole:
    """Return the role as it is asked in a run with these options. `resolve_role` takes their `thinking`.

    Mirostat chooses among all tokens: a `top_p` takes its place.
    """
    if options.temperature is not None:
        role = replace(role, temperature=options.temperature)
    if options.top_p is not None:
        role = replace(role, top_p=options.top_p, sampling=replace(role.sampling, mirostat=0))
    return role


def _thinking(text: str) -> Thinking | None:
    """Return how much a text lets a model think; None for a text that says nothing."""
    if text.isdecimal():
        return int(text)
    return cast(Thinking, text) if text in THINKING_WORDS else None


def resolve_model(registry: Registry, model: str) -> ResolvedRole:
    """Return a model of the registry that is asked without a role: no system prompt, temperature 0.

    Its answers may have as many tokens as the registry's defaults say.
    """
    entry = registry.models[model]
    limit = registry.defaults.max_tokens
    return ResolvedRole(
        model=model,
        prompts=entry.prompts,
        context=entry.countable_context,
        max_tokens=limit,
        thinking=entry.thinking,
        sampling=entry.sampling,
        calls=entry.calls,
    )
