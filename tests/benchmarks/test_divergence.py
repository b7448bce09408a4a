import math
from pathlib import Path

import pytest

from benchmarks.divergence import MODES, Divergence, compare, divergence, prompts
from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.contract import EngineSpec


def test_texts_are_compared_one_by_one() -> None:
    assert divergence(["abc", "abc", "", "abcd"], ["abc", "abx", "y", "ab"]) == Divergence(4, 3, 0, 2.0)
    assert divergence(["abc"], ["abc"]) == Divergence(1, 0, None, None)
    assert divergence([], []).share == 0
    assert math.isclose(divergence(["a", "b", "c"], ["a", "b", "x"]).share, 1 / 3)
    with pytest.raises(ValueError, match="shorter"):
        divergence(["a", "b"], ["a"])


def test_the_prompts_differ_and_some_begin_alike() -> None:
    texts = [request.messages[-1][1] for request in prompts()]
    assert len(set(texts)) == len(texts)
    assert len({text[:40] for text in texts}) < len(texts)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_batch_invariant_text_never_diverges_in_a_batch_or_with_drafts(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "model.gguf", ModelShape(weights="q8_0"))
    spec = EngineSpec(file=str(file), context=1024, slots=4, threads=1, step_costs=str(tmp_path), hung_seconds=120)
    found = await compare(spec, prompts()[::3])
    assert found.keys() == MODES.keys()
    assert all(result.differing == 0 for mode, result in found.items() if mode.startswith("batch_invariant"))
    assert all(result.texts == len(prompts()[::3]) for result in found.values())
