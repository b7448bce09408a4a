"""Resolve a role of the registry to all that a request to its model needs, and lay out the prompt of a step.

Steps, plans and chats share this. The order of a prompt is a contract: role's system prompt, persona, inputs in
document order, action. So siblings share the longest possible token prefix, which is computed once, and the embedded
models are trained on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict, Unpack, cast

from orchestrator.engine.contract import Generation, Infill, Message, Priority, SystemPrompt
from orchestrator.registry.call_syntax import CallSyntax
from orchestrator.registry.models import Registry
from orchestrator.registry.options import DEFAULT_SAMPLING, Adapters, SamplingOptions
from orchestrator.registry.prompts import PromptSet, prompt_set
from orchestrator.registry.thinking import THINKING_WORDS, Thinking
from orchestrator.task.events import Failure, RunOptions
from orchestrator.task.failures import demands, feedback


@dataclass(frozen=True, slots=True)
class StepInput:
    """A text that a step reads: an artifact, an input of the task or a file."""

    name: str
    text: str


def step_messages(system: str, persona: str, inputs: Sequence[StepInput], action: str) -> tuple[Message, Message]:
    """Return the system and the user message of a step. `persona` is its text, or empty for none."""
    instructions = f"{system}\n{persona}" if persona else system
    blocks = [f"[{item.name}]\n{item.text.strip()}\n\n" for item in inputs]
    return Message("system", instructions), Message("user", "".join(blocks) + f"{TASK} {action}")


TASK = "Task:"
# Before the reason why an earlier answer was refused.
FAILED_BEFORE = "The previous answer failed:"
# Words to ask for in place of a token. English has about 0.75, but models write more than they are asked for.
WORDS_A_TOKEN: Final = 0.5
# Characters of the previous answer in a prompt; the first that fits counts.
PREVIOUS_LENGTHS: Final = (4_000, 1_000, 0)


def plan_messages(system: str, files: Iterable[str], request: str, cores: int = 0) -> tuple[Message, Message]:
    """Return the messages that ask the frontdoor for a plan. The request may refer to `files`.

    With `cores`, they say how many cores the machine has.
    """
    listed = ", ".join(files)
    files_line = f"Files: {listed}\n" if listed else ""
    cores_line = f"Cores: {cores}\n" if cores else ""
    return Message("system", system), Message("user", f"{files_line}{cores_line}Request: {request}")


def after_failure(action: str, evidence: Iterable[str]) -> str:
    """Return `action` with the reasons of earlier failures, so that no retry repeats the same greedy prompt."""
    return "\n".join([action, *(f"{FAILED_BEFORE} {text}" for text in evidence)])


def with_evidence(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str = "") -> str:
    """Return the action with the evidence of earlier failures, for the next prompt.

    `previous` is the answer that failed last. Embedded models are not shown it, since they were not trained on it.
    """
    if not prompts.shorter:
        return after_failure(action, feedback(failures))
    # Small models repeat an answer that a prompt shows or speaks of, and do what it asks for. So an answer is not
    # mentioned if the next one can be asked for what it lacked. After a cut-off one, it is asked to be short, and
    # shorter each time.
    mentioned = [failure for failure in failures if failure.cut_at is None and not failure.demand]
    prompt = "\n".join((_with_previous(action, mentioned, prompts, previous), *demands(failures)))
    cut = [failure.cut_at for failure in failures if failure.cut_at is not None]
    if not cut:
        return prompt
    words = max(1, round(WORDS_A_TOKEN * cut[0] / 2 ** len(cut)))
    return f"{prompt}\n{prompts.shorter.format(words=words)}"


def shortened(answer: str, length: int) -> str:
    """Cut the middle out of an answer of more than about `length` characters."""
    if len(answer) <= length:
        return answer
    if not length:
        return ""
    head, tail = answer[: length // 2], answer[-length // 2 :]
    return "\n".join((head.rpartition("\n")[0] or head, "[…]", tail.partition("\n")[2] or tail))


def shown_previous(answer: str) -> str:
    """Return what a step that acts is shown of the previous answer: its turns need the room."""
    return shortened(answer, PREVIOUS_LENGTHS[1])


def _with_previous(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str) -> str:
    evidence = feedback(failures)
    if not evidence or not previous.strip() or not prompts.listed_names:
        return after_failure(action, evidence)
    fence = "~~~~" if "```" in previous else "```"
    return "\n".join(
        [
            after_failure(action, evidence[:-1]),
            "",
            f"Your previous answer:\n{fence}\n{previous.strip()}\n{fence}",
            f"It failed: {evidence[-1]}",
            "Write the complete answer again, without this fault.",
        ]
    )


def after_flaw(request: str, flaw: str) -> str:
    return f"{request}\nThe previous plan failed: {flaw}"


def after_parts(request: str, plan: str, name: str, output: str) -> str:
    """Return `request` with the `plan` so far (JSON) and the `output` of part `name` that the rest needs."""
    return f"{request}\nDone: {plan}\n[{name}]\n{output.strip()}\nPlan the rest."


def system_messages(registry: Registry, model: str) -> tuple[SystemPrompt, ...]:
    """Return all system messages that steps' prompts for `model` may start with, and their adapters."""
    # One for each role of the model, without a persona and with each persona.
    roles = [role for role in registry.roles.values() if role.model == model and role.system]
    personas = ["", *(persona.text for persona in registry.personas.values())]
    # The frontdoor's (tier A) is computed ahead: every request in words starts with it.
    prompts = (
        SystemPrompt(
            step_messages(role.system, text, (), "")[0].content, role.lora, ahead=role.tier == "A" and not text
        )
        for role in roles
        for text in personas
    )
    return tuple(dict.fromkeys(prompts))


class RequestOptions(TypedDict, total=False):
    """The fields of a `Generation` about which a role says nothing."""

    prompt: str | tuple[int, ...] | None
    infill: Infill | None
    limits_thoughts: bool
    template_arguments: Mapping[str, bool | int | float | str | None]
    logit_bias: tuple[tuple[int | str, float], ...]
    logprobs: int | None
    prompt_logprobs: int | None
    min_tokens: int
    ignore_end: bool
    continues: bool
    seed: int | None
    stop: tuple[str, ...]
    stop_tokens: tuple[int, ...]
    grammar: str | None
    deadline_seconds: float | None
    slack: float
    fit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRole:
    """A role, or a model that is asked without one, with all that the registry says about how to ask it.

    Engines know no registry: they get the `Generation` that `request` makes.
    """

    name: str = ""  # in the registry; empty for a model without a role
    model: str  # the id in the registry
    system: str = ""
    persona: str = ""  # added to the system prompt; empty for none
    # For models of this kind: tools, code, summaries.
    prompts: PromptSet = field(default_factory=lambda: prompt_set("general"))
    context: int | None = None  # tokens of one sequence; None if only the model's server knows
    max_tokens: int | None = None  # of an answer without a limit of its own; None for as many as fit into the context
    temperature: float = 0.0
    top_p: float = 1.0
    sampling: SamplingOptions = DEFAULT_SAMPLING  # also what keeps free text from repeating itself
    # Empty on another model than the role's own, for which the adapters were made.
    lora: Adapters = ()
    thinking: Thinking = "auto"
    # How the model writes calls of tools that its chat template lists; None if unknown.
    calls: CallSyntax | None = None
    # Models are loaded for interactive requests before batch ones.
    priority: Priority = "interactive"

    def request(
        self,
        messages: tuple[Message, ...],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        sampling: SamplingOptions | None = None,
        schema: dict[str, object] | bool | None = None,
        thinking: Thinking | None = None,
        **options: Unpack[RequestOptions],
    ) -> Generation:
        """Return a `Generation`. Missing values are the role's, but with a `schema` without its penalties."""
        if sampling is None:
            # What a schema asks for repeats its keys and signs by right.
            sampling = self.sampling if schema is None else self.sampling.without_penalties()
        if top_p is None:
            top_p = 1.0 if sampling.mirostat else self.top_p
        return Generation(
            messages=messages,
            role=self.name,
            max_tokens=max_tokens or self.max_tokens,
            temperature=self.temperature if temperature is None else temperature,
            top_p=top_p,
            sampling=sampling,
            schema=schema,
            lora=self.lora,
            priority=self.priority,
            thinking=self.thinking if thinking is None else thinking,
            **options,
        )


def resolve_role(
    registry: Registry,
    role: str,
    persona: str | None = None,
    model: str | None = None,
    priority: Priority = "interactive",
    thinking: str = "",
) -> ResolvedRole:
    """Return the role with a persona, on `model` or the role's own model. All names must be in the registry.

    `thinking` is as in the registry; empty for the registry's value.
    """
    entry, model_id = registry.roles[role], model or registry.roles[role].model
    # A role that was removed during a run keeps its model, which is then loaded without the role's adapters.
    fits = model_id == entry.model and {adapter.file for adapter in entry.lora} <= set(
        registry.models[model_id].adapters
    )
    return ResolvedRole(
        name=role,
        model=model_id,
        system=registry.system(role, model_id),
        persona=registry.personas[persona].text if persona is not None else "",
        prompts=registry.models[model_id].prompts,
        context=registry.models[model_id].countable_context,
        max_tokens=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        sampling=registry.models[model_id].sampling if entry.sampling is None else entry.sampling,
        lora=entry.lora if fits else (),
        calls=registry.models[model_id].calls,
        thinking=next(
            level
            for level in (_thinking(thinking), entry.thinking, registry.models[model_id].thinking)
            if level is not None
        ),
        priority=priority,
    )


def with_options(role: ResolvedRole, options: RunOptions) -> ResolvedRole:
    """Return the role with the options of a run, except `thinking`, which `resolve_role` takes."""
    if options.temperature is not None:
        role = replace(role, temperature=options.temperature)
    if options.top_p is not None:
        # Mirostat chooses among all tokens, so a `top_p` replaces it.
        role = replace(role, top_p=options.top_p, sampling=replace(role.sampling, mirostat=0))
    return role


def _thinking(text: str) -> Thinking | None:
    if text.isdecimal():
        return int(text)
    return cast(Thinking, text) if text in THINKING_WORDS else None


def resolve_model(registry: Registry, model: str) -> ResolvedRole:
    """Return a model without a role: no system prompt, temperature 0, the registry's default `max_tokens`."""
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
