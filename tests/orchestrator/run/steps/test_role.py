from dataclasses import replace
from types import MappingProxyType

from orchestrator.engine.contract import Generation, Message
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.options import Lora, SamplingOptions
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.role import ResolvedRole, resolve_model, resolve_role, with_options
from orchestrator.task.events import RunOptions

HELLO = (Message("user", "hello"),)


def test_a_role_is_resolved_with_all_that_the_registry_says_of_it() -> None:
    registry = load_registry(find_registry(None))
    entry = registry.roles["coder"]
    persona = next(iter(registry.personas))
    found = resolve_role(registry, "coder", persona, priority="batch")
    assert found == ResolvedRole(
        name="coder",
        model=entry.model,
        system=entry.system,
        persona=registry.personas[persona].text,
        prompts=prompt_set("tiny"),
        context=registry.models[entry.model].context,
        max_tokens=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        priority="batch",
    )
    other = next(name for name in registry.usable_models if name != entry.model)
    assert resolve_role(registry, "coder", model=other).model == other


def test_a_roles_adapters_are_for_its_own_model_only() -> None:
    lora, registry = (Lora("/plans.gguf", 0.5),), load_registry(find_registry(None))
    entry = replace(registry.roles["coder"], lora=lora)
    other = next(name for name in registry.usable_models if name != entry.model)
    roles = MappingProxyType({**registry.roles, "coder": entry})
    without = replace(registry, roles=roles)
    assert resolve_role(without, "coder").lora == (), "the model is not loaded with them"
    model = replace(registry.models[entry.model], adapters=("/plans.gguf",))
    registry = replace(without, models=MappingProxyType({**registry.models, entry.model: model}))
    found = resolve_role(registry, "coder")
    assert (found.lora, found.request(HELLO).lora) == (lora, lora)
    assert resolve_role(registry, "coder", model=other).lora == ()
    assert resolve_model(registry, entry.model).lora == ()


def test_a_run_may_ask_its_roles_in_its_own_way() -> None:
    role = ResolvedRole(model="m", temperature=0.2, top_p=0.8, sampling=SamplingOptions(mirostat=2))
    assert with_options(role, RunOptions(seed=7, thinking="low")) == role
    found = with_options(role, RunOptions(temperature=0.0, top_p=0.9)).request(HELLO)
    assert (found.temperature, found.top_p, found.sampling.mirostat) == (0.0, 0.9, 0)
    assert with_options(role, RunOptions(temperature=1.0)).request(HELLO).sampling.mirostat == 2


def test_free_text_is_kept_from_repeating_itself_and_structure_is_not() -> None:
    registry = load_registry(find_registry(None))
    entry = registry.roles["coder"]
    of_model, of_role = SamplingOptions(dry_multiplier=0.8), SamplingOptions(repeat_penalty=1.1)
    model = replace(registry.models[entry.model], sampling=of_model)
    registry = replace(registry, models=MappingProxyType({**registry.models, entry.model: model}))
    assert resolve_role(registry, "coder").sampling == of_model
    assert resolve_model(registry, entry.model).sampling == of_model
    roles = MappingProxyType({**registry.roles, "coder": replace(entry, sampling=of_role)})
    role = resolve_role(replace(registry, roles=roles), "coder")
    assert role.sampling == role.request(HELLO).sampling == of_role
    assert role.request(HELLO, schema={"type": "array"}).sampling == SamplingOptions()
    assert role.request(HELLO, schema={"type": "array"}, sampling=of_model).sampling == of_model


def test_a_schema_ends_the_penalties_and_not_the_choice_of_tokens() -> None:
    sampling = SamplingOptions(top_k=20, min_p=0.1, repeat_penalty=1.2, dry_multiplier=0.8)
    role = ResolvedRole(model="m", temperature=0.5, top_p=0.9, sampling=sampling)
    assert role.request(HELLO, schema={}).sampling == SamplingOptions(top_k=20, min_p=0.1)
    mirostat = ResolvedRole(model="m", temperature=0.5, top_p=0.9, sampling=SamplingOptions(mirostat=2))
    assert mirostat.request(HELLO).problem() is None


def test_a_request_is_the_roles_where_nothing_else_is_asked_for() -> None:
    role = ResolvedRole(model="m", max_tokens=40, temperature=0.5, top_p=0.9, priority="batch")
    plain = Generation(messages=HELLO, max_tokens=40, temperature=0.5, top_p=0.9, priority="batch")
    assert role.request(HELLO) == plain
    assert role.request(HELLO, max_tokens=7, seed=3).max_tokens == 7
    assert ResolvedRole(model="m").request(HELLO) == Generation(messages=HELLO)
