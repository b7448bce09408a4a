"""Drafted tokens never change what an engine says, on real processes with real (if ignorant) models."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast, get_args

import pytest
import pytest_asyncio

from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.errors import ModelLoadFailed
from orchestrator.engine.llama import Llama, Tokens, as_tokens
from orchestrator.engine.speculation.drafter import Beat, Drafter, Offer
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.registry.options import (
    DRAFTING,
    DraftMethod,
    DraftName,
    LoadOptions,
    PromptLookupOptions,
    SpeculationOptions,
)
from tests.orchestrator.engine.driven_loop import driven_loop

LOREM = "the quick brown fox jumps over the lazy dog and runs away "


def ask(text: str, **options: Any) -> Generation:
    return Generation(messages=(Message("user", text),), **{"max_tokens": 40, **options})


def spec_of(models: Path, **options: Any) -> EngineSpec:
    settings = {
        "context": 512,
        "slots": 4,
        "threads": 1,
        "batch_invariant": True,
        "hung_seconds": 60,
        "always_draft": True,
        **options,
    }
    return EngineSpec(file=str(models / "quantised.gguf"), **settings)


async def told(spec: EngineSpec, requests: list[Generation]) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        return await asyncio.gather(*map(engine.generate, requests)), await engine.stats()


COPY = 'root ::= "round and round it goes, " root'
"""A grammar that leaves nothing to choose: what is looked up is right, as with a model that copies."""
REQUESTS = [
    *(ask(f"{n} " + LOREM * (n % 4)) for n in range(9)),
    *(ask(f"warm {n} " + LOREM, temperature=0.7, top_p=0.9, seed=n) for n in range(4)),
    *(ask(f"by grammar {n}", grammar=COPY, max_tokens=60 + n) for n in range(4)),
    ask("another", grammar='root ::= ("over and " | "out, ")+', max_tokens=60),
    ask("stops", stop=("e",)),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(models: Path) -> list[Completion]:
    """The answers to REQUESTS without drafts, which are the same with any number of slots."""
    return (await told(spec_of(models), REQUESTS))[0]


@pytest.mark.parametrize("slots", [1, pytest.param(4, marks=pytest.mark.slow), 16])
async def test_prompt_lookup_changes_no_text(models: Path, plain: list[Completion], slots: int) -> None:
    drafted, stats = await told(spec_of(models, slots=slots, prompt_lookup=PromptLookupOptions(3, 8)), REQUESTS)
    assert [done.text for done in drafted] == [done.text for done in plain]
    assert [done.finish for done in drafted] == [done.finish for done in plain]
    assert 0 < stats.accepted <= stats.drafted
    assert stats.accepted + stats.refused_drafts <= stats.drafted
    usages = [done.usage for done in drafted]
    assert sum(usage.drafted_tokens for usage in usages) == stats.drafted
    assert sum(usage.accepted_tokens for usage in usages) == stats.accepted
    assert all(usage.accepted_tokens <= usage.output_tokens for usage in usages)
    assert not any(done.usage.drafted_tokens for done in plain)


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.slow), 5])
async def test_a_draft_model_changes_no_text(models: Path, plain: list[Completion], slots: int) -> None:
    same = str(models / "quantised.gguf")
    drafted, stats = await told(spec_of(models, slots=slots, speculation=SpeculationOptions(same, 5)), REQUESTS)
    assert [done.text for done in drafted] == [done.text for done in plain]
    assert stats.accepted > 0


async def test_a_draft_model_that_is_right_saves_most_steps(models: Path) -> None:
    requests = [ask(f"{n} " + LOREM * n, max_tokens=60) for n in range(4)]
    _, stats = await told(spec_of(models, speculation=SpeculationOptions(str(models / "quantised.gguf"), 5)), requests)
    assert stats.accepted > 0.7 * stats.drafted
    assert stats.decode_steps < 20


async def test_a_draft_model_that_is_always_wrong_changes_no_text(models: Path, tmp_path: Path) -> None:
    write_llama(tmp_path / "other.gguf", ModelShape(), seed=77)
    requests = [ask(f"{n} " + LOREM, max_tokens=120) for n in range(4)]
    plain, _ = await told(spec_of(models), requests)
    drafted, stats = await told(
        spec_of(models, speculation=SpeculationOptions(str(tmp_path / "other.gguf"), 4)), requests
    )
    assert [done.text for done in drafted] == [done.text for done in plain]
    assert stats.accepted < stats.drafted / 4


async def test_drafts_that_do_not_pay_are_given_up(models: Path) -> None:
    """A draft model as large as the model itself never pays. On a busy machine it takes longer to find that out."""
    spec = spec_of(models, speculation=SpeculationOptions(str(models / "quantised.gguf")), always_draft=False)
    begun = time.monotonic()
    async with await Engine.start(spec) as engine:
        for _ in range(20):
            before = await engine.stats()
            requests = (ask(f"{n} " + LOREM, max_tokens=150, ignore_end=True) for n in range(4))
            await asyncio.gather(*map(engine.generate, requests))
            stats = await engine.stats()
            if stats.drafted - before.drafted < (stats.output_tokens - before.output_tokens) / 10:
                break
        else:
            pytest.fail(f"the draft model is still used: {stats}")
    assert stats.drafted > 0
    assert 0 < stats.own_seconds + stats.llama_seconds < time.monotonic() - begun, "no time is counted twice"


@pytest.mark.parametrize("always_draft", [True, False])
async def test_drafts_beside_a_sequence_that_is_nearly_full_leave_it_room(models: Path, always_draft: bool) -> None:
    spec = spec_of(models, context=256, slots=2, prompt_lookup=PromptLookupOptions(3, 8), always_draft=always_draft)
    async with await Engine.start(spec) as engine:
        empty = await engine.count((Message("user", ""),))
        long = "x" * (256 - 12 - empty)
        said, repeats = list[str](), asyncio.Event()

        def listen(piece: str) -> None:
            said.append(piece)
            if len("".join(said)) > 40:  # by now it copies what it has said before
                repeats.set()

        copying = asyncio.create_task(engine.generate(ask("by grammar", grammar=COPY, max_tokens=None), listen))
        await repeats.wait()
        done = [await engine.generate(ask(long, max_tokens=None)), await copying]
    assert [one.usage.prompt_tokens + one.usage.output_tokens for one in done] == [256, 256]
    assert done[0].usage.output_tokens == 12


async def test_a_common_pool_drafts_too(models: Path) -> None:
    spec = spec_of(models, batch_invariant=False, split=False, prompt_lookup=PromptLookupOptions(3, 8))
    done, stats = await told(spec, REQUESTS)
    assert [one.usage.output_tokens for one in done[13:17]] == [60, 61, 62, 63]
    assert all(one.text == ("round and round it goes, " * 9)[: len(one.text)] for one in done[13:17])
    assert stats.accepted > 30


async def test_speculation_is_reported(models: Path) -> None:
    _, stats = await told(spec_of(models, prompt_lookup=PromptLookupOptions(2, 4)), [ask(LOREM, max_tokens=100)])
    assert stats.speculation.startswith(("on", "off"))
    _, stats = await told(spec_of(models), REQUESTS[:1])
    assert stats.speculation == "not set up"


async def test_a_draft_model_needs_the_same_vocabulary(models: Path, tmp_path: Path) -> None:
    write_llama(tmp_path / "larger.gguf", ModelShape(vocabulary=700))
    with pytest.raises(ModelLoadFailed, match="tokens"):
        await Engine.start(spec_of(models, speculation=SpeculationOptions(str(tmp_path / "larger.gguf"))))


@pytest.mark.parametrize("lookup", [None, PromptLookupOptions(3, 8)])
async def test_without_its_draft_model_it_goes_on_and_says_so(
    models: Path, plain: list[Completion], tmp_path: Path, lookup: PromptLookupOptions | None
) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    for draft, why in (("/nowhere/draft.gguf", "there is no such file"), (str(tmp_path / "broken.gguf"), "")):
        done, stats = await told(
            spec_of(models, speculation=SpeculationOptions(draft), prompt_lookup=lookup), REQUESTS[13:15]
        )
        assert [one.text for one in done] == [one.text for one in plain[13:15]]
        assert f"the draft model {draft} cannot be used: {why}" in stats.speculation
        assert (stats.drafted > 0) == (lookup is not None)
        assert stats.speculation.startswith("o" if lookup else "off: the draft model")


async def test_drafts_end_with_their_sequences(models: Path) -> None:
    spec = spec_of(
        models, prompt_lookup=PromptLookupOptions(3, 8), speculation=SpeculationOptions(str(models / "quantised.gguf"))
    )
    async with await Engine.start(spec) as engine:
        for _ in range(3):
            tasks = [asyncio.create_task(engine.generate(ask(f"{n} " + LOREM, max_tokens=200))) for n in range(8)]
            await asyncio.sleep(0.1)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, Completion) for one in done) >= 4
        stats = await engine.stats()
        assert (stats.running, stats.prefilling, stats.queued) == (0, 0, 0)


@dataclass(frozen=True, slots=True)
class EchoOptions:
    k: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoSpec(EngineSpec):
    """The options of an engine with those of one more drafting method."""

    echo: EchoOptions | None = None


class Echo(Drafter):
    """Drafts what followed the last token when it was in the answer before, else this token again."""

    def __init__(self, spec: EchoSpec, target: Llama, beat: Beat) -> None:
        assert spec.echo is not None
        self._k = spec.echo.k

    def accept(self, sequence: Sequence, most: int) -> Offer:
        return Offer(max(0, min(self._k, most)))

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        return [self._draft(sequence.output, length) for sequence, length in zip(sequences, lengths, strict=True)]

    def _draft(self, output: list[int], length: int) -> Tokens:
        *before, last = output
        follows = len(before) - before[::-1].index(last) if last in before else len(before)
        return as_tokens(output[follows : follows + length])


def test_a_drafting_method_is_a_drafter_and_a_row(
    models: Path, plain: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DRAFTING, cast("DraftName", "echo"), DraftMethod("echo", f"{__name__}:Echo"))
    spec = EchoSpec.of(spec_of(models), file=str(models / "quantised.gguf"), always_draft=True, echo=EchoOptions())
    with driven_loop(Llama(spec), spec) as parent:
        numbers = [parent.submit(request) for request in REQUESTS]
        texts = {done.seq: done.text for done in (parent.finished() for _ in numbers)}
        stats = parent.stats().stats
    assert [texts[number] for number in numbers] == [done.text for done in plain]
    assert 0 < stats.accepted < stats.drafted
    assert (
        EchoSpec(file="m", echo=EchoOptions(0)).problem() == "echo is EchoOptions(k=0); accepted: numbers of at least 1"
    )
    assert not spec.without_drafts().drafting


def test_every_drafting_method_has_an_option_and_a_drafter() -> None:
    assert tuple(DRAFTING) == get_args(DraftName)
    for method in DRAFTING.values():
        assert getattr(LoadOptions(), method.option) is None
        assert callable(resolve_name(method.drafter))
