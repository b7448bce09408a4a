"""A training must not spoil the plans of requests that are unlike its own."""

from pathlib import Path

import pytest

from orchestrator.bench.real.requests import real_requests
from orchestrator.memrl.parl.natural import NaturalPlans, planned_correctly
from orchestrator.registry.load import load_registry
from orchestrator.registry.options import Lora
from orchestrator.registry.sources.catalogue import read_catalogue
from tests.orchestrator.cli.cli_command import smollm2


@pytest.mark.parametrize(("candidate", "spoiled"), [(50, False), (44, False), (43, False), (42, True), (0, True)])
def test_an_adapter_may_cost_one_plan_of_fifty(candidate: int, spoiled: bool) -> None:
    assert NaturalPlans(count=50, current=44, candidate=candidate).spoiled is spoiled


@pytest.mark.slow
def test_plans_are_counted_with_the_adapters_in_question(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    frontdoor = "{model: small, system: Plan the request as steps., max_tokens: 200}"
    path.write_text(f"models:\n  small: {{file: {smollm2()}}}\nroles:\n  frontdoor: {frontdoor}\n")
    base, requests, done = load_registry(path), real_requests("tuning")[:4], list[int]()
    adapter = Lora(file=str(read_catalogue()["smollm2-135m"].adapters["frontdoor"].path))
    right, bare = (
        planned_correctly(base, lora, requests, tmp_path / "logs", done.append, by_cores=False)
        for lora in ((adapter,), ())
    )
    assert bare < right
    assert done == [1, 2, 3, 4] * 2
