"""An update makes plans with an advantage likelier, and learns nothing from tokens that the grammar forces."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.memrl.parl.allowed import allowed_tokens, packed, unpacked
from orchestrator.run.frontdoor.compact import plan_schema
from tests.memrl.parl.adapters import TINY

MODEL = TINY / "large.gguf"
VOCABULARY = 1024


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")


def test_the_grammar_forces_the_beginning_of_a_plan() -> None:
    grammar = schema_grammar(plan_schema(("worker", "coder")))
    with allowed_tokens(MODEL) as allowed:
        quote = allowed.along('root ::= "a" "b"', [])
        assert quote == ()
        (first,) = allowed.along(grammar, [_token(allowed, grammar)])
        assert 0 < unpacked(first, VOCABULARY).sum() < 20
        with pytest.raises(ValueError, match="does not allow token 1 at place 0"):
            allowed.along(grammar, [1])


def _token(allowed: Any, grammar: str) -> int:
    # a token with which a plan can begin
    for token in range(5, 1024):
        try:
            allowed.along(grammar, [token])
        except ValueError:
            continue
        return token
    raise AssertionError("a plan has to begin with something")


def test_an_advantage_makes_an_answer_likelier(torch: Any) -> None:
    from orchestrator.memrl.parl.grpo import GrpoSettings, SampledRow, update
    from orchestrator.memrl.parl.lora import copied, lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    network = with_lora(load_network(MODEL), 4, 8.0, seed=1)
    optimizer = torch.optim.AdamW(lora_parameters(network).values(), lr=1e-3)
    prompt, good, bad = (0, 3, 40, 41, 42), (50, 60), (51, 61)
    choices = (packed([50, 51], VOCABULARY), packed([60, 61, 62], VOCABULARY))
    rows = [SampledRow(prompt, good, choices, 1.0), SampledRow(prompt, bad, choices, -1.0)]

    def likelihood(tokens: tuple[int, ...]) -> float:
        with torch.no_grad():
            scores = network(torch.tensor([[*prompt, *tokens]])).log_softmax(-1)[0]
        return float(sum(scores[len(prompt) - 1 + at, token] for at, token in enumerate(tokens)))

    before, reference = likelihood(good) - likelihood(bad), copied(network)
    figures = [update(network, optimizer, rows, GrpoSettings(), reference) for _ in range(3)]
    assert likelihood(good) - likelihood(bad) > before
    assert figures[0].free_tokens == 4
    assert figures[0].kl == pytest.approx(0, abs=1e-6)
    assert figures[-1].kl > 0


def test_an_answer_that_was_sampled_twice_counts_twice(torch: Any) -> None:
    from orchestrator.memrl.parl.grpo import GrpoSettings, SampledRow, update
    from orchestrator.memrl.parl.lora import copied, lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    choices = (packed([50, 51], VOCABULARY), packed([60, 61, 62], VOCABULARY))
    other = SampledRow((0, 3, 40), (51, 61), choices, -2.0)

    def learned(rows: list[Any]) -> Any:
        network = with_lora(load_network(MODEL), 4, 8.0, seed=1)
        optimizer = torch.optim.SGD(lora_parameters(network).values(), lr=1.0)
        figures = update(network, optimizer, rows, GrpoSettings(epochs=1), copied(network))
        assert figures.free_tokens == 6
        return torch.cat([weight.detach().flatten() for weight in lora_parameters(network).values()])

    once, twice = (
        [SampledRow((0, 3, 40), (50, 60), choices, 1.0, count) for _ in range(2 // count)] for count in (1, 2)
    )
    assert torch.allclose(learned([*once, other]), learned([*twice, other]), atol=1e-6)


def test_rows_that_begin_alike_are_computed_as_if_alone(torch: Any) -> None:
    from orchestrator.memrl.parl.lora import lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    network = with_lora(load_network(MODEL), 4, 8.0, seed=1)
    prefix, rows = [0, 3, 40, 41, 42, 43], [[50, 60, 61], [51, 61, 62], [50, 60, 63]]
    learning = [*lora_parameters(network).values()]
    results = []
    for states in (
        network.states(torch.tensor([[*prefix, *row] for row in rows]))[:, len(prefix) :],
        network.states_after(torch.tensor(prefix), torch.tensor(rows)),
        network.states_after(torch.tensor(prefix[:1]), torch.tensor([[*prefix[1:], *row] for row in rows]))[:, 5:],
        network.states_after(torch.tensor([], dtype=int), torch.tensor([[*prefix, *row] for row in rows]))[:, 6:],
    ):
        gradients = torch.autograd.grad(states.square().sum(), learning)
        results.append((states, torch.cat([gradient.flatten() for gradient in gradients])))
    alone, *together = results
    for states, gradients in together:
        assert torch.allclose(states, alone[0], atol=1e-4)
        assert torch.allclose(gradients, alone[1], rtol=1e-3, atol=1e-4 * float(alone[1].abs().max()))


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.lists(st.integers(0, 2), min_size=1)),
        max_size=40,
    )
)
def test_each_row_shares_only_what_its_pass_begins_with(prompts: list[tuple[list[int], list[int]]]) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.grpo import ROWS, SampledRow, grouped

    rows = [SampledRow(tuple(prompt), tuple(tokens), (), 1.0) for prompt, tokens in prompts]
    passes = [*grouped(rows)]
    assert sorted(rows, key=repr) == sorted((row for group, _ in passes for row in group), key=repr)
    for group, places in passes:
        assert len(group) <= ROWS
        assert len({row.prompt[:places] for row in group}) == 1
        assert all(places < len(row.prompt) for row in group)
    computed = sum(places + len(group) * max(row.length - places for row in group) for group, places in passes)
    assert computed <= sum(row.length for row in rows)


def test_forced_tokens_teach_nothing(torch: Any) -> None:
    from orchestrator.memrl.parl.grpo import GrpoSettings, SampledRow, update
    from orchestrator.memrl.parl.lora import copied, lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    network = with_lora(load_network(MODEL), 4, 8.0, seed=1)
    weights = copied(network)
    optimizer = torch.optim.AdamW(lora_parameters(network).values(), lr=1e-3)
    forced = (packed([50], VOCABULARY), packed([60], VOCABULARY))
    figures = update(network, optimizer, [SampledRow((0, 3), (50, 60), forced, 1.0)], GrpoSettings(), weights)
    assert figures.free_tokens == 0
    assert all(torch.equal(weight, weights[name]) for name, weight in lora_parameters(network).items())


def test_an_answer_that_is_imitated_gets_likelier(torch: Any) -> None:
    from orchestrator.memrl.parl.grpo import SampledRow, imitate
    from orchestrator.memrl.parl.lora import lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    network = with_lora(load_network(MODEL), 4, 8.0, seed=1)
    optimizer = torch.optim.AdamW(lora_parameters(network).values(), lr=1e-3)
    choices = (packed([50, 51], VOCABULARY), packed([60, 61, 62], VOCABULARY))
    rows = [SampledRow((0, 3, 40, at), (50, 60), choices, 1.0) for at in range(20)]
    likelihoods = [imitate(network, optimizer, rows) for _ in range(4)]
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[0] < likelihoods[-1] < 0
    assert imitate(network, optimizer, []) == 0.0
