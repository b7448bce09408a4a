"""What shapes an answer besides its prompt, with real engines: token for token what llama.cpp's samplers choose."""

import asyncio
import ctypes
import json
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import pytest_asyncio

import tests.orchestrator.engine.llama_reference as lib
from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.client.engine import Completion, Engine, TextPiece
from orchestrator.engine.contract import EngineSpec, Generation, Message, TokenLogprob
from orchestrator.engine.errors import BadGrammar, BadPrompt, BadRequest
from orchestrator.engine.llama import Llama, Logits
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.registry.options import PromptLookupOptions, SamplingOptions

pytestmark = pytest.mark.asyncio(loop_scope="module")

TINY = str(Path(__file__).parents[3] / "registry" / "tiny" / "small.gguf")
QUESTION = "Task: Summarize the text: Zilthir is a ship. Its owner is Renzer. Zilthir is a ship."
PENALTIES = SamplingOptions(repeat_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2, repeat_last_n=64)


def ask(text: str = QUESTION, *more: Message, **options: Any) -> Generation:
    return Generation(messages=(Message("user", text), *more), **{"max_tokens": 40, **options})


def spec(**options: Any) -> EngineSpec:
    settings = {"file": TINY, "context": 512, "slots": 4, "threads": 1, "batch_invariant": True, "hung_seconds": 60}
    return EngineSpec(**{**settings, **options})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    async with await Engine.start(spec()) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def drafting() -> AsyncIterator[Engine]:
    """An engine that verifies drafts in every step."""
    async with await Engine.start(spec(prompt_lookup=PromptLookupOptions(2, 6), always_draft=True)) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roomy() -> AsyncIterator[Engine]:
    """An engine for long answers."""
    async with await Engine.start(spec(slots=1, context=2048, beyond_training=True)) as started:
        yield started


@pytest.fixture(scope="module")
def llama() -> Llama:
    return Llama(spec(slots=1))


def chosen_by_llama(llama: Llama, request: Generation, samplers: Sequence[Any]) -> tuple[list[int], list[Logits]]:
    """Return the tokens that a chain of llama.cpp's samplers chooses, without end tokens, and the logits of each."""
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for sampler in samplers:
        lib.llama_sampler_chain_add(chain, sampler)
    prompt = PromptTemplate(llama.vocab, llama.chat_template()).tokens(request.messages)
    llama.clear()
    llama.batch.clear()
    llama.batch.add(0, 0, prompt, 1)
    tokens: list[int] = []
    rows: list[Logits] = []
    while len(tokens) < (request.max_tokens or 0):
        row = llama.decode()[0].copy()
        data = (lib.llama_token_data * len(row))(*((n, float(one), 0.0) for n, one in enumerate(row)))
        candidates = lib.llama_token_data_array(data=data, size=len(row), selected=-1, sorted=False)
        lib.llama_sampler_apply(chain, ctypes.byref(candidates))
        token = candidates.data[candidates.selected].id
        if token in llama.vocab.end:
            break
        lib.llama_sampler_accept(chain, token)
        tokens.append(token)
        rows.append(row)
        llama.batch.clear()
        llama.batch.add_one(0, len(prompt) + len(tokens) - 1, token)
    lib.llama_sampler_free(chain)
    return tokens, rows


def text_of(llama: Llama, tokens: Sequence[int]) -> str:
    return b"".join(map(llama.vocab.piece, tokens)).decode("utf-8", "replace")


def ids_of(tokens: Sequence[TokenLogprob]) -> list[int]:
    return [one.id for one in tokens]


@pytest.mark.parametrize("bias", [(), ((20, 5.0), (31, -100.0), (40, 3.5))], ids=["plain", "biased"])
@pytest.mark.parametrize("sampling", [SamplingOptions(), PENALTIES], ids=["free", "penalised"])
async def test_at_temperature_0_every_token_is_llama_cpp_s(
    engine: Engine,
    drafting: Engine,
    llama: Llama,
    bias: tuple[tuple[int | str, float], ...],
    sampling: SamplingOptions,
) -> None:
    request = ask(logit_bias=bias, sampling=sampling, logprobs=3)
    array = (lib.llama_logit_bias * len(bias))(*bias)
    samplers = [
        lib.llama_sampler_init_logit_bias(llama.vocab.size, len(bias), array),
        lib.llama_sampler_init_penalties(
            llama.vocab.size, 64, sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty
        ),
        lib.llama_sampler_init_greedy(),
    ]
    tokens, rows = chosen_by_llama(llama, request, samplers)
    for one in (engine, drafting):
        done = await one.generate(request)
        assert done.text == text_of(llama, tokens)
        assert ids_of(done.logprobs) == tokens
        for said, row in zip(done.logprobs, rows, strict=True):
            chances = row.astype(np.float64) - row.max()
            chances -= np.log(np.exp(chances).sum())
            assert said.logprob == pytest.approx(chances[said.id], abs=0.02)
            assert said.top[0].logprob == pytest.approx(chances.max(), abs=0.02)
            assert len(said.top) == 3
    assert (await drafting.stats()).drafted > 0


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(top_k=5),
        SamplingOptions(min_p=0.1, typical_p=0.9),
        SamplingOptions(mirostat=1, mirostat_tau=3.0),
        SamplingOptions(mirostat=2, mirostat_tau=3.0),
    ],
    ids=["top_k", "min_p", "mirostat 1", "mirostat 2"],
)
async def test_a_seed_gives_the_same_text_with_and_without_drafts(
    engine: Engine, drafting: Engine, sampling: SamplingOptions
) -> None:
    for seed in range(3):
        request = ask(temperature=1.3, seed=seed, sampling=sampling)
        assert (await engine.generate(request)).text == (await drafting.generate(request)).text


async def test_biases_of_texts_are_for_all_of_their_tokens(engine: Engine, llama: Llama) -> None:
    usual = await engine.generate(ask(logprobs=0))
    word = text_of(llama, ids_of(usual.logprobs)[:1])
    (token,) = llama.vocab.tokenize(word, special=False)[-1:]
    without = await engine.generate(ask(logit_bias=((word, -math.inf),), logprobs=0))
    assert token not in ids_of(without.logprobs)
    with pytest.raises(BadRequest, match="logit_bias names the token 1000000; accepted: 0 to"):
        await engine.generate(ask(logit_bias=((1000000, 1.0),)))
    everything = tuple((token, -math.inf) for token in range(1024))
    if llama.vocab.size <= len(everything):
        with pytest.raises(BadRequest, match="rules every token"):
            await engine.generate(ask(logit_bias=everything[: llama.vocab.size]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"logit_bias": ((1, 101.0),)}, "logit_bias of 1 is 101.0; accepted: -100 to 100"),
        ({"logprobs": 21}, "logprobs is 21; accepted: 0 to 20"),
        ({"min_tokens": 50}, "min_tokens is 50; accepted: 0 to max_tokens"),
        ({"continues": True}, "accepted: one of the assistant's that calls no tool"),
        ({"sampling": SamplingOptions(top_k=-1)}, "top_k is -1; accepted: 0 to"),
        ({"sampling": SamplingOptions(mirostat=2, top_k=4)}, "mirostat chooses by itself what top_k chooses"),
        ({"sampling": SamplingOptions(mirostat=2), "top_p": 0.9}, "what top_p chooses; accepted: no top_p"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(engine: Engine, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        await engine.generate(ask(**options))


async def test_an_answer_is_as_long_as_it_has_to_be(engine: Engine) -> None:
    usual = await engine.generate(ask(max_tokens=100))
    assert usual.finish == "stop"
    length = usual.usage.output_tokens
    longer = await engine.generate(ask(max_tokens=100, min_tokens=length + 5))
    assert longer.usage.output_tokens >= length + 5
    assert longer.text.startswith(usual.text)
    endless = await engine.generate(ask(max_tokens=100, ignore_end=True))
    assert (endless.finish, endless.usage.output_tokens) == ("length", 100)
    forced = await engine.generate(ask(grammar='root ::= "ab"', ignore_end=True, min_tokens=20, max_tokens=40))
    assert (forced.text, forced.finish) == ("ab", "stop"), "a grammar that is complete ends the text"


async def test_stop_strings_count_only_behind_the_least_tokens(engine: Engine) -> None:
    usual = await engine.generate(ask(logprobs=0))
    third = usual.text.index(" ", usual.text.index(" ") + 1)
    stop = usual.text[third - 2 : third]
    assert (await engine.generate(ask(stop=("never", stop)))).text == usual.text[: usual.text.index(stop)]
    late = await engine.generate(ask(stop=(stop,), min_tokens=12, logprobs=0))
    assert stop in late.text
    assert len(late.logprobs) >= 12


async def streamed(engine: Engine, request: Generation) -> tuple[Completion, list[str]]:
    pieces: list[str] = []
    return await engine.generate(request, pieces.append), pieces


async def test_logprobs_come_with_the_text_that_their_tokens_make(engine: Engine) -> None:
    usual = await engine.generate(ask())
    words = usual.text.split()
    stops: list[tuple[str, ...]] = [(), (words[2][-1] + " " + words[3][:1],), (words[4][1:],)]
    for stop in stops:
        done, pieces = await streamed(engine, ask(stop=stop, logprobs=2))
        assert "".join(pieces) == done.text
        assert b"".join(one.data for one in done.logprobs).decode() == done.text, "no part of a stop string is listed"
        sent: list[TokenLogprob] = []
        for piece in pieces:
            assert isinstance(piece, TextPiece)
            sent += piece.logprobs
            assert b"".join(one.data for one in sent).decode().startswith("".join(pieces)[:1])
        assert tuple(sent) == done.logprobs[: len(sent)]
    plain, pieces = await streamed(engine, ask())
    assert plain.logprobs == ()
    assert not any(isinstance(piece, TextPiece) for piece in pieces)


async def test_logprobs_are_of_the_model_and_not_of_what_changes_its_choice(engine: Engine) -> None:
    (usual,) = (await engine.generate(ask(logprobs=1, max_tokens=1))).logprobs
    for request in (
        ask(logprobs=1, max_tokens=1, logit_bias=((usual.id, -5.0),)),
        ask(logprobs=1, max_tokens=1, temperature=2.0, seed=3, sampling=SamplingOptions(top_k=50)),
        ask(logprobs=1, max_tokens=1, grammar='root ::= "{" [a-z]+'),
    ):
        (changed,) = (await engine.generate(request)).logprobs
        assert changed.top[0].id == usual.id
        assert changed.top[0].logprob == pytest.approx(usual.logprob, abs=1e-3)
        assert changed.logprob <= usual.logprob + 1e-3


async def test_several_answers_to_a_prompt_compute_it_once(engine: Engine) -> None:
    text = "Task: Summarize the text: " + " ".join(f"Ship {n} sails to port {n}." for n in range(20))
    before = await engine.stats()
    requests = [ask(text, temperature=1.0, seed=seed, max_tokens=8) for seed in range(4)]
    answers = await asyncio.gather(*map(engine.generate, requests))
    after = await engine.stats()
    prompt = answers[0].usage.prompt_tokens
    assert prompt > 60
    assert after.prefill_tokens - before.prefill_tokens < 1.5 * prompt
    assert min(one.usage.cached_tokens for one in answers) < prompt / 2


async def test_a_message_of_the_assistant_is_continued(engine: Engine, llama: Llama) -> None:
    usual = (await engine.generate(ask())).text
    begun = usual[: usual.index(" ", 5)]
    rest = await engine.generate(ask(QUESTION, Message("assistant", begun), continues=True))
    assert (begun + rest.text).startswith(usual)
    prompt = "".join(
        segment.text
        for segment in PromptTemplate(llama.vocab, llama.chat_template()).segments(
            (Message("user", "a"), Message("assistant", "b c ")), continued=True
        )
    )
    assert prompt.endswith("b c "), "nothing follows, and white space stays"
    other = await engine.generate(ask(QUESTION, Message("assistant", begun)))
    assert other.usage.prompt_tokens > rest.usage.prompt_tokens


async def test_a_template_that_leaves_the_last_message_out_cannot_continue_it(tmp_path: Path) -> None:
    template = "{% for message in messages if message.role == 'user' %}{{ message.content }}{% endfor %}>"
    write_llama(tmp_path / "odd.gguf", ModelShape(chat_template=template))
    async with await Engine.start(spec(file=str(tmp_path / "odd.gguf"), slots=1)) as engine:
        with pytest.raises(BadPrompt, match="leaves the last message out"):
            await engine.generate(ask("a", Message("assistant", "b"), continues=True))


ALL_SEVENS = {"type": "array", "items": {"const": 7}, "minItems": 300, "maxItems": 300}
ANY_NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 200, "maxItems": 200}
PAIRS = {"type": "array", "items": {"const": [0, 0]}, "minItems": 120, "maxItems": 120}
CONSTANT = {"const": "ab" * 400}
ONLY_X = {"type": "string", "pattern": "^x{700}$"}
FREE_LIST = {"type": "array", "items": {"const": 7}, "minItems": 2, "maxItems": 5000}


@pytest.mark.parametrize("schema", [ALL_SEVENS, ANY_NUMBERS, PAIRS, CONSTANT, ONLY_X], ids=str)
async def test_a_repetition_that_the_schema_wants_is_no_reason_to_end(roomy: Engine, schema: dict[str, Any]) -> None:
    done = await roomy.generate(ask(schema=schema, max_tokens=1900, logit_bias=((",", 50.0),)))
    assert done.finish == "stop"
    jsonschema.validate(json.loads(done.text), schema)


async def test_a_repetition_that_could_end_is_cut_and_never_counts_as_the_end(engine: Engine) -> None:
    for request in (
        ask(schema=FREE_LIST, logit_bias=((",", 90.0),), max_tokens=450),
        ask(grammar='root ::= "a"+ "Z"', logit_bias=(("Z", -100.0),), max_tokens=450),
    ):
        done = await engine.generate(request)
        assert done.finish == "repetition"
        assert done.usage.output_tokens < 450


async def test_a_grammar_that_no_token_continues_is_an_error(engine: Engine) -> None:
    with pytest.raises(BadGrammar):
        await engine.generate(ask(grammar='root ::= "ab"', logit_bias=tuple((n, -math.inf) for n in range(1024))))
