"""The trainer's tokenizer and llama.cpp give the same ids for the shipped models."""

from collections.abc import Iterator

import pytest

from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import SIZES, TOKENIZER_FILE
from benchmarks.tiny.tokenizer import SPECIAL_TOKENS, VOCABULARY_SIZE, Tokenizer, split_words
from orchestrator.bench.families.words import seeded
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama

STRINGS = 2_000
ODD = (
    "\t \n\r\v\f  \u3000\xa0\u2028",
    "ÄÖÜßéñøłčşİıǆ",
    "日本語テキスト漢字한국어",
    "👍🏽👩‍👩‍👧🇩🇪☃",
    "١٢٣४५६Ⅷ½²①",
    "'s't're've'm'll'd'S",
    "<|end|><|user|><|begin|>",
    "_-.,:;!?()[]{}\"'`#*+~\\/|<>@€$%&=^°",
    "\u0301\u0308\u200b\u200d\ufeff\x00\x01\x7f\x85",
    "العربيةעבריתไทยहिन्दी",
)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789     \n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(TOKENIZER_FILE)


def strings() -> Iterator[str]:
    """Training texts, and runs of odd characters among plain ones."""
    rng = seeded("strings")
    for index in range(STRINGS):
        if index % 4 == 0:
            yield corpus.text_of(corpus.draw(rng, "train"))
        elif index % 4 == 1:
            yield "".join(
                chr(rng.choice((rng.randrange(1, 0xD800), rng.randrange(0xE000, 0x20000)))) for _ in range(12)
            )
        else:
            alphabet = LETTERS + rng.choice(ODD) * 3
            yield "".join(rng.choice(alphabet) * rng.choice((1, 1, 1, 2, 5)) for _ in range(rng.randint(1, 40)))


def load(name: str) -> Llama:
    return Llama(EngineSpec(file=str(SIZES[name].shipped), context=64, slots=1))


def test_llama_cpp_agrees_on_thousands_of_strings(tokenizer: Tokenizer) -> None:
    model = load("draft")
    different = [text for text in strings() if model.vocab.tokenize(text, special=False) != tokenizer.encode(text)]
    assert not different, different[:5]


def test_all_models_share_the_tokenizer(tokenizer: Tokenizer) -> None:
    text = " ".join(tokenizer.tokens)
    for name in SIZES:
        assert load(name).vocab.tokenize(text, special=False) == tokenizer.encode(text)


def test_llama_cpp_spells_the_tokens_alike(tokenizer: Tokenizer) -> None:
    model = load("draft")
    assert model.vocab.size == VOCABULARY_SIZE
    assert [model.vocab.text(i) for i in range(len(SPECIAL_TOKENS))] == list(SPECIAL_TOKENS)
    assert all(model.vocab.piece(i).decode(errors="replace") == tokenizer.decode([i]) for i in range(VOCABULARY_SIZE))


def test_decoding_gives_the_text_back(tokenizer: Tokenizer) -> None:
    for text in ODD:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert "".join(split_words(text)) == text


def test_content_never_gives_special_tokens(tokenizer: Tokenizer) -> None:
    assert min(tokenizer.encode("".join(SPECIAL_TOKENS))) >= len(SPECIAL_TOKENS)


def test_vocabulary_is_full_and_digits_stand_alone(tokenizer: Tokenizer) -> None:
    assert len(set(tokenizer.tokens)) == VOCABULARY_SIZE
    assert not [token for token in tokenizer.tokens if len(token) > 1 and any(c.isdigit() for c in token)]
