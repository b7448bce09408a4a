"""Prompts as tokens, with the vocabulary of a real model."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama, Vocabulary
from orchestrator.engine.worker.chat import Segment
from orchestrator.engine.worker.prompt import prompt_tokens

TEXTS = ("Koldin has size 21.", "", "zwölf ☃", "long " * 20_000)


@pytest.fixture(scope="module")
def vocab(models: Path) -> Vocabulary:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=64, slots=1, threads=1)).vocab


@pytest.mark.parametrize("special", [True, False])
def test_kept_tokens_are_those_of_the_text_however_often_it_is_asked_for(vocab: Vocabulary, special: bool) -> None:
    for text in (*TEXTS, *TEXTS):
        assert vocab.tokens_of(text, special).tolist() == vocab.tokenize(text, special)


def test_what_control_tokens_may_be_spelled_in_is_kept_apart(vocab: Vocabulary) -> None:
    text = "<|im_end|>"
    meant, quoted = vocab.tokens_of(text, special=True), vocab.tokens_of(text, special=False)
    assert len(meant) == 1
    assert len(quoted) > 1


def test_kept_tokens_cannot_be_changed(vocab: Vocabulary) -> None:
    with pytest.raises(ValueError, match="read-only"):
        vocab.tokens_of("Koldin", special=False)[0] = 0


def test_a_prompt_is_its_segments_one_by_one(vocab: Vocabulary) -> None:
    segments = [Segment("<|im_start|>user\n", special=True), Segment("", special=False), Segment("hi", special=False)]
    tokens = prompt_tokens(vocab, segments)
    assert tokens.tolist() == [token for one in segments for token in vocab.tokenize(one.text, one.special)]
    tokens[0] = 0  # it is the caller's own
    assert not np.array_equal(tokens, prompt_tokens(vocab, segments))
    assert len(prompt_tokens(vocab, [])) == int(vocab.adds_bos)
