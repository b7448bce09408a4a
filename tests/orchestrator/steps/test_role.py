from orchestrator.engine.contract import Generation, Message
from orchestrator.steps.role import ResolvedRole, resolve_role
from registry.load import find_registry, load_registry

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
        context=registry.models[entry.model].context,
        max_tokens=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        priority="batch",
    )
    other = next(name for name in registry.usable_models if name != entry.model)
    assert resolve_role(registry, "coder", model=other).model == other


def test_a_request_is_the_roles_where_nothing_else_is_asked_for() -> None:
    role = ResolvedRole(model="m", max_tokens=40, temperature=0.5, top_p=0.9, priority="batch")
    plain = Generation(messages=HELLO, max_tokens=40, temperature=0.5, top_p=0.9, priority="batch")
    assert role.request(HELLO) == plain
    assert role.request(HELLO, max_tokens=7, seed=3).max_tokens == 7
    assert ResolvedRole(model="m").request(HELLO) == Generation(messages=HELLO)
