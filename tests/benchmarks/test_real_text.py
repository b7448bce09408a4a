"""The benchmark of prompt lookup on real texts: its requests, how rounds become goals, and a round with our engine."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engine.names import OURS, SERVER, speculating
from benchmarks.engine.real_text import (
    EDITED_WORDS,
    KINDS,
    OurEngine,
    TextRow,
    beginning,
    drafting,
    goals,
    measure,
    tasks,
    with_mistakes,
)
from benchmarks.models import ModelShape, write_llama
from orchestrator.bench.families.words import seeded
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec
from orchestrator.registry.options import PromptLookupOptions

LOOKUP = speculating(OURS, "lookup")


def test_every_text_is_summarised_and_edited() -> None:
    asked = [*tasks()]
    texts = {task.text for task in asked}
    assert {"harbour", "garden", "bakery", "council"} < texts
    assert len(asked) == 2 * len(texts)
    assert len({task.prompt for task in asked}) == len(asked)
    assert asked[0].messages(1) != asked[0].messages(2), "no round finds its prompts in a cache"


@given(st.lists(st.lists(st.sampled_from(["word", "tree", "house"]), min_size=1, max_size=40), min_size=1, max_size=9))
def test_an_edited_text_is_whole_paragraphs(paragraphs: list[list[str]]) -> None:
    whole = [" ".join(words) for words in paragraphs]
    kept = beginning("\n\n".join(whole), EDITED_WORDS).split("\n\n")
    assert kept == whole[: len(kept)]
    assert len(kept) == 1 or sum(len(one.split()) for one in kept) <= EDITED_WORDS


def test_mistakes_swap_letters_within_words_and_are_the_same_each_time() -> None:
    text = " ".join(["harbour"] * 50 + ["a", "quay,"])
    wrong = with_mistakes(text, seeded("1"))
    assert wrong == with_mistakes(text, seeded("1")) != text
    pairs = [*zip(text.split(), wrong.split(), strict=True)]
    assert sum(one != other for one, other in pairs) == 3
    assert all(sorted(one) == sorted(other) and one[0] == other[0] for one, other in pairs)


def row(system: str, seconds: tuple[float, ...], accepted: int = 0) -> TextRow:
    tokens = (100,) * len(seconds)
    return TextRow(
        kind="edit",
        text="a",
        system=system,
        seconds=seconds,
        tokens=tokens,
        drafted=2 * accepted,
        accepted=accepted,
    )


def test_goals_compare_systems_round_by_round() -> None:
    rows = [row(OURS, (1.0, 2.0, 1.0)), row(LOOKUP, (0.5, 1.0, 0.5), 40), row(SERVER, (1.0, 1.0, 1.0))]
    (only,) = goals(rows)
    assert (only["name"], only["value"], only["met"]) == (f"edit: {LOOKUP} ÷ {OURS}", 2.0, True)
    assert not goals([row(OURS, (1.0,) * 5), row(LOOKUP, (1.1,) * 5)])[0]["met"]
    assert drafting(rows)[-1] == {"kind": "edit", "system": LOOKUP, "drafted": 80, "accepted": 40, "of_tokens": 0.1333}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real-text") / "model.gguf"
    write_llama(path, ModelShape())
    return path


async def test_a_round_is_measured_for_each_system(model: Path) -> None:
    spec = EngineSpec(file=str(model), context=8192, slots=1, threads=1, hung_seconds=60, beyond_training=True)
    looking = replace(spec, prompt_lookup=PromptLookupOptions())
    async with await Engine.start(spec) as plain, await Engine.start(looking) as other:
        systems = [OurEngine(OURS, plain), OurEngine(LOOKUP, other)]
        rows = await measure(systems, [*tasks()][:2], 1)
    kinds = {(one.system, one.kind) for one in rows}
    assert kinds == {(name, kind) for name in (OURS, LOOKUP) for kind in KINDS}
    assert all(len(one.seconds) == len(one.tokens) == 1 and one.tokens[0] > 0 for one in rows)
