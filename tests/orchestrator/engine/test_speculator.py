"""What is drafted, and what is learned of it, beside a real model that is never asked."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.heads.compose import headed
from benchmarks.tiny.sizes import SIZES
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama, as_tokens
from orchestrator.engine.speculation.draft_model import DraftModel
from orchestrator.engine.speculation.speculator import Speculator, make_speculator
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.registry.options import MtpOptions, PromptLookupOptions, SpeculationOptions

POINTS = Points((1, 2, 3, 4), (1.0, 1.8, 2.6, 3.4))
DEAR = StepCostModel(POINTS, POINTS, 0.8, 0.0)
"""Drafts have to be nearly all right to pay."""
FREE = StepCostModel(Points((1, 2), (1.0, 1.0)), Points((1, 2), (1.0, 1.0)), 1e-9, 0.0)
TEXT = list(range(40, 100))


@pytest.fixture
def speculator(models: Path) -> Speculator:
    file = str(models / "quantised.gguf")
    spec = EngineSpec(
        file=file, context=512, slots=1, threads=1, prompt_lookup=PromptLookupOptions(3, 8), flash_attention="on"
    )
    return made(spec)


def made(spec: EngineSpec) -> Speculator:
    speculator = make_speculator(Llama(spec), spec, lambda _seconds: None)
    assert speculator is not None
    return speculator


def sequence_with(prompt: list[int], max_tokens: int = 400) -> Sequence:
    request = Generation(messages=(Message("user", "copy it"),))
    return Sequence(1, request, as_tokens(prompt), max_tokens=max_tokens, stops=(), grammar=None, stream=False)


def decoded(speculator: Speculator, sequence: Sequence, text: list[int]) -> list[int]:
    """Let it say a text, a token a step, for as long as nothing is drafted; return what is drafted then."""
    for token in text:
        (drafted,) = speculator.propose([sequence], DEAR, 8)
        if len(drafted):
            return [int(guess) for guess in drafted]
        sequence.output.append(token)
        speculator.observe(sequence, 0, 0)
    return []


def test_copying_is_noticed_where_only_good_drafts_pay(speculator: Speculator) -> None:
    drafted = decoded(speculator, sequence_with(TEXT), TEXT)
    assert len(drafted) > 0
    assert set(drafted) < set(TEXT)


def test_proposals_that_turned_out_wrong_are_not_drafted(speculator: Speculator) -> None:
    misleading = [token for start in TEXT for token in (start, start + 1, 7)]
    assert decoded(speculator, sequence_with(misleading), TEXT) == []


def test_a_few_steps_without_drafts_show_what_drafts_save(speculator: Speculator) -> None:
    cheap = StepCostModel(Points((1, 2, 9), (1.0, 1.01, 1.1)), Points((1, 2, 9), (1.0, 1.01, 1.1)), 0.01, 0.0)
    sequence = sequence_with(TEXT * 3)
    sequence.output.extend(TEXT)
    lengths = []
    for token in TEXT * 2:
        (drafted,) = speculator.propose([sequence], cheap, 8)
        lengths.append(len(drafted))
        sequence.output.append(token)
        if len(drafted):
            speculator.observe(sequence, len(drafted), len(drafted))
            speculator.record(cheap, [sequence.length], len(drafted), len(drafted), 1.1)
    assert [index for index, length in enumerate(lengths) if not length] == [32, 33, 66, 67, 100, 101]


def test_expensive_drafts_that_would_probably_be_accepted_are_probed(speculator: Speculator) -> None:
    dearest = StepCostModel(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1000.0)), 999.0, 0.0)
    sequence = sequence_with(TEXT * 3)
    sequence.output.extend(TEXT)
    lengths = []
    for token in TEXT * 5:
        (drafted,) = speculator.propose([sequence], dearest, 8)
        lengths.append(len(drafted))
        sequence.output.append(token)
        speculator.observe(sequence, len(drafted), len(drafted))
    tried = [index for index, length in enumerate(lengths) if length]
    assert len(tried) == 2 * (len(lengths) // 128)
    assert {lengths[index] for index in tried} == {3}
    assert tried[1] == tried[0] + 1


def test_drafts_that_would_be_wrong_are_not_tried(models: Path) -> None:
    file = str(models / "quantised.gguf")
    spec = EngineSpec(
        file=file, context=2048, slots=1, threads=1, prompt_lookup=PromptLookupOptions(3, 8), flash_attention="on"
    )
    speculator = made(spec)
    dearest = StepCostModel(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1000.0)), 999.0, 0.0)
    text = range(40, 400)
    sequence = sequence_with([token for start in text for token in (start, start + 1, 7)])
    for token in text:
        (drafted,) = speculator.propose([sequence], dearest, 8)
        assert not len(drafted)
        sequence.output.append(token)
        speculator.observe(sequence, 0, 0)


def test_a_text_is_read_once_by_the_draft_model(models: Path) -> None:
    file = str(models / "quantised.gguf")
    spec = EngineSpec(
        file=file, context=512, slots=1, threads=1, speculation=SpeculationOptions(file, 4), flash_attention="on"
    )
    draft = DraftModel(spec, Llama(spec), lambda _seconds: None)
    sequence = sequence_with(TEXT * 3)
    sequence.enter(0, 0)
    sequence.output.append(TEXT[0])
    assert 0.0 < draft.catch_up_seconds(sequence_with(TEXT[:9])) < draft.catch_up_seconds(sequence)
    (guessed,) = draft.propose([sequence], [4])
    assert draft.catch_up_seconds(sequence) == 0.0
    sequence.output.extend(map(int, guessed))
    assert draft.catch_up_seconds(sequence) == 0.0, "it guessed that itself"
    sequence.output.extend(TEXT)
    other = sequence_with(TEXT * 3)  # in another place, where nothing was read
    other.enter(1, 0)
    assert 0.0 < draft.catch_up_seconds(sequence) < draft.catch_up_seconds(other)


def test_a_head_is_not_followed_while_its_drafts_do_not_pay(tmp_path: Path) -> None:
    """States are taken up again for the last step of a pause, and the head drafts from there."""
    file = str(headed("large", tmp_path))
    spec = EngineSpec(file=file, context=2048, slots=1, threads=1, mtp=MtpOptions(), flash_attention="on")
    speculator = made(spec)
    dearest = StepCostModel(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1000.0)), 999.0, 0.0)
    sequence = sequence_with(TEXT, max_tokens=2000)
    sequence.seq = 0
    states = np.ones((1, SIZES["large"].width), np.float32)
    followed, drafted = [], []
    for step in range(1500):
        (draft,) = speculator.propose([sequence], dearest if step < 900 else FREE, 8)
        sequence.output.append(TEXT[step % len(TEXT)])
        if speculator.wants_states:
            followed.append(step)
            speculator.follow(sequence, states)
        speculator.observe(sequence, len(draft), 0)
        if len(draft) and step >= 900:
            drafted.append(step)
            break
    assert len([step for step in followed if step < 900]) < 90
    assert drafted
    assert drafted[0] - 1 in followed
