"""What an engine says of its cache and its steps while it works, with a pool of cells and with streams."""

from pathlib import Path

import pytest

from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.llama import Llama
from orchestrator.registry.options import PromptLookupOptions
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

TOKENS = 24


def request(role: str, first: int) -> Generation:
    """Return a request whose prompt starts with another token."""
    prompt = (first, *range(40, 60))
    return Generation(prompt=prompt, role=role, max_tokens=TOKENS, ignore_end=True)


@pytest.mark.parametrize("split", [False, True])
def test_cells_belong_to_roles_and_to_finished_prompts(models: Path, split: bool) -> None:
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, threads=1, split=split)
    llama = Llama(spec)
    assert llama.split is split
    with driven_loop(llama, spec, Parent.ask_stats) as parent:
        for role, first in (("worker", 5), ("worker", 6), ("coder", 7)):
            parent.submit(request(role, first))
        while True:
            stats = parent.next_stats().stats
            assert sum(stats.cells_by_role.values()) + stats.finished_cells <= stats.used_cells <= stats.cells
            if stats.running == 3:
                break
        assert set(stats.cells_by_role) == {"worker", "coder"}
        assert stats.cells_by_role["worker"] == 2 * stats.cells_by_role["coder"] >= 2 * 21
        while stats.running or stats.prefilling:
            stats = parent.next_stats().stats if stats.step_times is None else parent.stats().stats
        assert stats.cells_by_role == {}
        assert stats.finished_cells == 3 * 21
        times = stats.step_times
        assert times is not None
        assert 1 <= times.width == times.tokens <= 3
        assert times.seconds > 0
        assert times.decode[0] == times.verify[0]


@pytest.mark.parametrize("split", [False, True])
def test_stats_are_told_after_every_step_with_refused_drafts(models: Path, split: bool) -> None:
    lookup = PromptLookupOptions(ngram=1, k=8)
    spec = EngineSpec(
        file=str(models / "quantised.gguf"),
        context=256,
        slots=4,
        threads=1,
        split=split,
        prompt_lookup=lookup,
        always_draft=True,
    )
    with driven_loop(Llama(spec), spec, Parent.ask_stats) as parent:
        parent.submit(Generation(prompt=(5, *range(40, 60)) * 3, role="worker", max_tokens=64, ignore_end=True))
        parent.finished()
        stats = parent.stats().stats
    assert stats.refused_drafts > 0


def test_an_engine_that_has_computed_nothing_has_costs_and_no_step(models: Path) -> None:
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, threads=1)
    with driven_loop(Llama(spec), spec) as parent:
        stats = parent.stats().stats
        assert (stats.cells_by_role, stats.finished_cells) == ({}, 0)
        assert stats.step_times is not None
        assert (stats.step_times.width, stats.step_times.seconds) == (0, 0.0)
