"""EAGLE-3 heads read states of three layers, have a vocabulary of their own, and fit one model."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.heads.eagle import EAGLE_LAYERS, random_eagle, write_eagle
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.errors import ModelLoadFailed
from orchestrator.engine.llama import EagleHead, Llama
from orchestrator.registry.architectures import LAYER_INPUTS
from orchestrator.registry.gguf import read_header
from orchestrator.registry.options import EagleOptions
from tests.orchestrator.engine.headed_models import (
    DRAFTED,
    LARGE,
    Headed,
    answered,
    asks,
    with_eagle_head,
    with_mtp_head,
)

HAND_OVER = """
import sys
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
llama = Llama(EngineSpec(file=sys.argv[1], context=64, slots=1, threads=1))
llama.hand_over((0, 1))
llama.batch.clear()
llama.batch.add_one(0, 0, 5)
llama.decode()
print(llama.states().shape == (1, 2 * llama.embedding))
"""


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Headed:
    return with_eagle_head(tmp_path_factory.mktemp("eagle"))


def states_of(llama: Llama, *chunks: tuple[int, int, list[int], int]) -> Any:
    """Compute chunks, each a sequence, a position, tokens and a number of outputs, and return the states."""
    llama.batch.clear()
    for seq, position, tokens, outputs in chunks:
        llama.batch.add(seq, position, tokens, outputs)
    llama.decode()
    return llama.states().copy()


@pytest.mark.parametrize("layout", [{"batch_invariant": True}, {"split": False}, {"split": True}])
def test_a_state_is_the_input_of_the_layers_for_the_token_of_each_output(
    headed: Headed, layout: dict[str, bool]
) -> None:
    llama = Llama(headed.spec({}, slots=2, **{"batch_invariant": False, **layout}))
    llama.hand_over((0, *EAGLE_LAYERS))
    texts = ([5, 9, 2, 17, 30, 8], [21, 3, 44, 5, 9, 7])
    alone = []
    for tokens in texts:
        alone.append(states_of(llama, (0, 0, tokens, 6)))
        llama.clear()
    together = states_of(llama, (1, 0, texts[1], 3), (0, 0, texts[0], 2))
    assert together.shape == (5, 4 * LARGE.width)
    assert np.allclose(together, np.concatenate((alone[1][-3:], alone[0][-2:])), atol=0.02)
    embedding = together[:, : LARGE.width]
    assert not np.allclose(embedding[0], embedding[1], atol=0.02)
    assert np.allclose(embedding[1], embedding[3], atol=0.002) == (texts[1][-2] == texts[0][-2])


def test_states_are_handed_over_in_every_layout_of_the_cache(headed: Headed) -> None:
    spec = headed.spec({}, slots=2, batch_invariant=False)
    llama = Llama(spec)
    llama.hand_over(EAGLE_LAYERS)
    before = states_of(llama, (0, 0, [5, 9, 2], 2))
    llama.set_layout(spec, split=not llama.split)
    assert np.allclose(states_of(llama, (0, 0, [5, 9, 2], 2)), before, atol=0.02)
    llama.set_attention(spec, "off" if llama.flash_attention != "off" else "on")
    assert np.allclose(states_of(llama, (0, 0, [5, 9, 2], 2)), before, atol=0.02)


def test_the_encoder_joins_three_layers_of_each_sequence(headed: Headed) -> None:
    spec = headed.spec(headed.random, slots=2)
    head = EagleHead(spec, Llama(spec), 8)
    joins = random_eagle(LARGE.width, LARGE.hidden, len(DRAFTED))["fc"]
    rows = np.random.default_rng(1).normal(0, 1, (21, 3 * LARGE.width)).astype(np.float32)
    parts = head.encode([rows[:1], rows[1:18], rows[18:]])  # more rows than the head encodes at once
    assert [len(part) for part in parts] == [1, 17, 3]
    encoded = np.concatenate(parts)
    assert np.corrcoef(encoded.ravel(), (rows @ joins.T).ravel())[0, 1] > 0.999
    head.batch.clear()
    head.batch.add(0, 7, [5, 6, 7], 3)
    head.decode()
    assert np.array_equal(np.concatenate(head.encode([rows])), encoded), "it does not depend on what the head has read"


def test_a_head_drafts_only_tokens_of_its_own_vocabulary(headed: Headed) -> None:
    spec = headed.spec(headed.random, slots=1)
    head = EagleHead(spec, Llama(spec), 4)
    head.batch.clear()
    head.batch.add(0, 0, [5, 6], 2)
    logits, _ = head.decode()
    assert logits.shape == (2, LARGE.vocabulary)
    assert all(np.array_equal(np.flatnonzero(np.isfinite(row)), DRAFTED) for row in logits)


async def test_a_head_drafts_for_a_hybrid(recurrent_models: Path, tmp_path: Path) -> None:
    trunk = recurrent_models / "lfm2.gguf"
    header = read_header(trunk)
    head = random_eagle(header.embedding, 64, header.vocab_size)
    write_eagle(trunk, head, np.arange(header.vocab_size), (1, 2, 3), tmp_path / "head.gguf")
    spec = EngineSpec(file=str(trunk), context=256, slots=3, threads=1, hung_seconds=60, always_draft=True)
    requests = asks(3, max_tokens=24, ignore_end=True)
    plain, _ = await answered(spec, requests)
    drafted, stats = await answered(replace(spec, eagle=EagleOptions(str(tmp_path / "head.gguf"))), requests)
    assert drafted == plain
    assert stats.drafted > 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"target_hidden_size": 128}, "reads states of 128 numbers, and the model's have 192; accepted: a head that"),
        ({"layers": (1, 2, 5)}, "reads the layers (1, 2, 5), and the model has 5; accepted: a head that was trained"),
    ],
)
async def test_a_head_that_does_not_fit_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    width = options.get("target_hidden_size", LARGE.width)
    head = random_eagle(LARGE.width, LARGE.hidden, len(DRAFTED), read=width)
    file = tmp_path / "head.gguf"
    write_eagle(LARGE.shipped, head, DRAFTED, **{"layers": EAGLE_LAYERS, "target": file, **options})
    await refused(EngineSpec(file=str(LARGE.shipped), context=128, eagle=EagleOptions(str(file))), problem)


async def test_a_file_that_is_no_head_for_the_model_is_refused(headed: Headed, models: Path) -> None:
    model, other = str(LARGE.shipped), str(models / "quantised.gguf")
    spec = EngineSpec(file=model, context=128, eagle=EagleOptions(other))
    await refused(spec, "the EAGLE-3 head is of architecture llama; accepted: eagle3")
    await refused(headed.spec(headed.random, file=other), "the EAGLE-3 head ")


async def refused(spec: EngineSpec, problem: str) -> None:
    with pytest.raises(ModelLoadFailed) as caught:
        await Engine.start(spec)
    assert caught.value.kind == "settings"
    assert problem in str(caught.value)


async def test_without_its_file_the_model_answers_and_says_why(headed: Headed, tmp_path: Path) -> None:
    absent, broken = tmp_path / "absent.gguf", tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and nothing else")
    plain, _ = await answered(headed.spec({}, slots=1), asks(1))
    for file, reason in ((absent, "there is no such file"), (broken, "cannot be used")):
        said, stats = await answered(headed.spec({"eagle": EagleOptions(str(file))}, slots=1), asks(1))
        assert said == plain
        assert f"off: the EAGLE-3 head {file} cannot be used" in stats.speculation
        assert reason in stats.speculation


async def test_an_architecture_whose_states_are_not_handed_over_drafts_nothing(headed: Headed, tmp_path: Path) -> None:
    model = with_mtp_head(tmp_path).file
    _, stats = await answered(headed.spec(headed.trained, file=str(model), slots=1), asks(1))
    assert "llama.cpp does not hand over the inputs of the layers of glm4moe" in stats.speculation


def test_llama_cpp_hands_over_the_inputs_of_these_architectures(
    models: Path, recurrent_models: Path, windowed_models: Path, tmp_path: Path
) -> None:
    """It aborts for the others, so the table decides."""
    files = [
        models / "quantised.gguf",
        *(recurrent_models / f"{name}.gguf" for name in ("lfm2", "lfm2-moe", "jamba")),
        windowed_models / "windowed.gguf",
    ]
    runs = {file: subprocess.Popen([sys.executable, "-c", HAND_OVER, file], stdout=subprocess.PIPE) for file in files}
    says = {read_header(file).architecture: run.communicate()[0] == b"True\n" for file, run in runs.items()}
    assert says == {name: name in LAYER_INPUTS for name in ("llama", "lfm2", "lfm2moe", "jamba", "granite_swa")}
