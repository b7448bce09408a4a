"""Small models of the catalogue's architectures share prefixes, keep, draft and store: this changes no text."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from benchmarks.current_models import CURRENT, write_current
from benchmarks.stand_ins import STAND_INS
from orchestrator.engine.contract import EngineSpec, SystemPrompt
from orchestrator.engine.llama import Llama, MtpHead
from orchestrator.registry.architectures import why_no_drafts, why_no_mtp
from orchestrator.registry.gguf import read_header
from orchestrator.registry.memory import estimate
from orchestrator.registry.options import MtpOptions, PromptLookupOptions
from tests.orchestrator.engine.driven_loop import driven_loop
from tests.orchestrator.engine.shared_texts import (
    CONTEXT,
    MESSAGE_END,
    Loaded,
    Step,
    check_alone,
    check_document_outlasts,
    check_story,
    computed,
    life,
    prefills_of_a_fan_out,
    spec_of,
    stored_in,
    stories,
    text,
)

PERSONA = "the quick brown fox jumps over the lazy dog and runs away " * 3
NAMES = [*CURRENT]
# Those whose cells can be cut anywhere, so that each sequence may have a stream of its own.
CUTTABLE = ["gemma4", "gemma4-moe", "gpt-oss", "minimax-m2", "glm-dsa"]

of_each = pytest.mark.parametrize("model", NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("current")
    for name in NAMES:
        write_current(models / f"{name}.gguf", name)
    return models


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Llama]:
    """Of each model, one that computes each text by itself."""
    return {name: Llama(spec_of(folder, name, slots=1)) for name in NAMES}


def drafts(folder: Path, name: str) -> dict[str, Any]:
    """Return the options of a model that drafts in all ways that it can."""
    header = read_header(folder / f"{name}.gguf")
    if why_no_drafts(header.architecture):
        return {}
    lookup = {"prompt_lookup": PromptLookupOptions(ngram=1, k=8), "always_draft": True}
    return lookup if why_no_mtp(header.architecture, header.mtp_heads) else lookup | {"mtp": MtpOptions()}


@pytest.fixture(scope="module")
def pools(folder: Path, alone: dict[str, Llama]) -> dict[str, Loaded]:
    """Models that draft where they can, and whose sequences have one pool of cells."""
    loaded = {}
    for name in NAMES:
        spec = spec_of(folder, name, cells=CONTEXT, **drafts(folder, name))
        loaded[name] = Llama(spec), spec, alone[name]
    return loaded


@pytest.fixture(scope="module")
def streams(folder: Path, alone: dict[str, Llama]) -> dict[str, Loaded]:
    specs = {name: spec_of(folder, name, split=True, **drafts(folder, name)) for name in CUTTABLE}
    return {name: (Llama(spec), spec, alone[name]) for name, spec in specs.items()}


def test_each_architecture_of_the_catalogue_has_one(folder: Path) -> None:
    dense = {"qwen2"}  # computed like `llama`, but for biases
    assert {read_header(folder / f"{name}.gguf").architecture for name in NAMES} == {
        model.architecture for model in STAND_INS.values()
    } - dense


@of_each
def test_the_estimate_of_the_cache_is_what_llama_cpp_allocates(
    folder: Path, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    header = read_header(folder / f"{model}.gguf")
    options: dict[str, Any] = {"context": 4096, "slots": 4, "cells": 16_384, "beyond_training": True}
    mtp = None if why_no_mtp(header.architecture, header.mtp_heads) else MtpOptions()
    spec = EngineSpec(file=str(folder / f"{model}.gguf"), threads=1, flash_attention="off", mtp=mtp, **options)
    llama = Llama(spec)
    if mtp is not None:
        llama.log.verbose = True
        MtpHead(llama, rows=8)
    sizes = re.findall(r"(?:KV|RS|state) buffer size = +([0-9.]+) MiB", capfd.readouterr().err)
    assert estimate(header, spec).kv_cache == pytest.approx(sum(map(float, sizes)) * 2**20, rel=0.01)


@of_each
@given(actions=stories)
def test_whatever_happens_all_texts_are_those_that_are_computed_from_their_starts(
    pools: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    check_story(pools[model], actions)


@pytest.mark.parametrize("model", CUTTABLE)
@given(actions=stories)
def test_whatever_happens_in_streams_all_texts_are_those_that_are_computed_from_their_starts(
    streams: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    check_story(streams[model], actions)


@of_each
def test_a_new_prefix_is_computed_once_for_more_requests_than_slots(pools: dict[str, Loaded], model: str) -> None:
    first, again = prefills_of_a_fan_out(pools[model])
    assert first == 5 + 150 + 8 * 10
    assert again <= 8 * 10, "a later request finds the prefix, too"


@of_each
def test_the_next_turn_computes_no_earlier_message_again(pools: dict[str, Loaded], model: str) -> None:
    llama, spec, alone = pools[model]
    llama.clear()
    prompt = (*text(1, 60), *MESSAGE_END, *text(200, 60))
    with driven_loop(llama, spec) as parent:
        _, (first,) = computed(parent, prompt)
        turn = (*prompt, *(token.id for token in first.logprobs), *MESSAGE_END, *text(300, 20))
        count, (second,) = computed(parent, turn)
    assert count <= len(turn) - len(prompt)
    check_alone(alone, turn, second)


@of_each
async def test_the_next_engine_computes_no_system_prompt_again_and_says_the_same(
    folder: Path, tmp_path: Path, model: str
) -> None:
    spec = spec_of(folder, model, system_prompts=(SystemPrompt(PERSONA),), **stored_in(tmp_path))
    first, before = await life(spec, PERSONA)
    second, after = await life(spec, PERSONA)
    assert (before.restored_prefixes, after.restored_prefixes) == (0, 1)
    assert [done.text for done in second] == [done.text for done in first]


@of_each
async def test_the_next_engine_computes_no_document_again_for_another_task(
    folder: Path, tmp_path: Path, model: str
) -> None:
    await check_document_outlasts(spec_of(folder, model, **stored_in(tmp_path)), PERSONA)
