"""What is drafted, and what is learned of it, beside a real model that is never asked."""

from pathlib import Path

import pytest

from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.curve import Curve, Points
from orchestrator.engine.drafting import Drafts
from orchestrator.engine.llama import Llama, as_tokens
from orchestrator.engine.sequence import Sequence

POINTS = Points((1, 2, 3, 4), (1.0, 1.8, 2.6, 3.4))
DEAR = Curve(POINTS, POINTS, 0.8, 0.0)
"""Drafts have to be nearly all right to pay."""
TEXT = list(range(40, 100))


@pytest.fixture
def drafts(models: Path) -> Drafts:
    file = str(models / "quantised.gguf")
    spec = EngineSpec(file=file, context=512, slots=1, threads=1, prompt_lookup=(3, 8), flash_attention="on")
    return Drafts(Llama(spec), spec, None)


def sequence_with(prompt: list[int]) -> Sequence:
    request = Generation(messages=(("user", "copy it"),))
    return Sequence(1, request, as_tokens(prompt), answer=400, stops=(), grammar=None, stream=False)


def decoded(drafts: Drafts, sequence: Sequence, text: list[int]) -> list[int]:
    """Let it say a text, a token a step, for as long as nothing is drafted; return what is drafted then."""
    for token in text:
        (drafted,) = drafts.propose([sequence], DEAR, 8)
        if len(drafted):
            return [int(guess) for guess in drafted]
        sequence.output.append(token)
        drafts.observe(sequence, 0, 0)
    return []


def test_copying_is_noticed_where_only_good_drafts_pay(drafts: Drafts) -> None:
    drafted = decoded(drafts, sequence_with(TEXT), TEXT)
    assert len(drafted) > 0
    assert set(drafted) < set(TEXT)


def test_what_was_found_and_was_wrong_is_not_drafted(drafts: Drafts) -> None:
    misleading = [token for start in TEXT for token in (start, start + 1, 7)]
    assert decoded(drafts, sequence_with(misleading), TEXT) == []
