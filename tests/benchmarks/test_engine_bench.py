"""What the engine's benchmark computes without a model: texts, loads, bounds, comparisons, cells."""

import dataclasses
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engine.bound import StepTimes, agreed, best_speedup, by_lookup, by_model, drafted
from benchmarks.engine.cells import EMBEDDED, PREFIXES, WIDTHS, Cell, State, all_cells, chosen, groups, trial_cells
from benchmarks.engine.chain import cycle, mistaken, walk
from benchmarks.engine.measure import in_turn, measure
from benchmarks.engine.models import DRAFTS, LARGE, SMALL
from benchmarks.engine.names import EXAMPLE, OURS, POOLED, SERIAL, SERVER, SYSTEMS, speculating
from benchmarks.engine.paired import Ratio, Rounds, ratio
from benchmarks.engine.run import ROUNDS
from benchmarks.engine.start import takes_part
from benchmarks.engine.system import BenchmarkPrompt, Measured, RequestLoad
from benchmarks.engine.words import COUNT, FIRST, LEAST_VOCABULARY, merges, text_of, tokens_of
from benchmarks.engine.workload import common, copy_prompt, free_prompt, loads, task_load
from tests.benchmarks.engine_rows import row

FOLLOWING = cycle(1)
WORDS = st.integers(FIRST, FIRST + COUNT - 1)
SECONDS = st.floats(1e-4, 1e4)


# Texts


@given(st.lists(WORDS, max_size=20))
def test_texts_and_tokens_are_the_same_thing(tokens: list[int]) -> None:
    assert list(tokens_of(text_of(tokens))) == tokens


def test_every_merge_makes_a_token_of_its_own() -> None:
    made = [left + right for left, right in merges()]
    assert len(set(made)) == len(made) == LEAST_VOCABULARY - 256 - 3


def test_the_words_follow_each_other_in_one_cycle() -> None:
    seen = walk(FOLLOWING, FIRST, COUNT)
    assert sorted(seen) == list(range(FIRST, FIRST + COUNT))
    assert seen[-1] == FIRST


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_draft_model_is_wrong_after_just_that_share_of_words(share: float) -> None:
    wrong = mistaken(FOLLOWING, share, 2)
    assert (wrong != FOLLOWING).sum() == round(share * COUNT)
    assert sorted(wrong) == list(range(COUNT))


def test_the_models_have_about_the_parameters_they_are_called_after() -> None:
    for model, wanted in ((SMALL, 150e6), (LARGE, 500e6)):
        shape = model.shape
        key_value = shape.width // shape.heads * shape.kv_heads
        layer = 2 * shape.width * (shape.width + key_value) + 3 * shape.width * shape.feed_forward
        assert 2 * shape.vocabulary * shape.width + shape.layers * layer == pytest.approx(wanted, rel=0.03)
    assert all(draft.shape.layers == LARGE.active_layers for draft in DRAFTS.values())


# Loads


CELLS = st.builds(
    Cell,
    model=st.just("150m"),
    width=st.integers(1, 5),
    prefix=st.integers(0, 9),
    own=st.integers(1, 9),
    answer=st.just(3),
)


@given(CELLS, st.integers(0, 3))
def test_loads_have_the_tokens_of_their_cell_and_share_a_prefix_only(cell: Cell, number: int) -> None:
    found = loads(cell, FOLLOWING, number)
    assert found == loads(cell, FOLLOWING, number)
    assert tuple(found) == cell.states
    for load in found.values():
        assert [len(prompt.tokens) for prompt in load.prompts] == [cell.prefix + cell.own] * cell.width
        assert len({prompt.tokens[: cell.prefix] for load in found.values() for prompt in load.prompts}) == 1
        assert load.texts is not None
        for prompt, text in zip(load.prompts, load.texts, strict=True):
            assert tokens_of("".join(message.content for message in prompt.messages)) == prompt.tokens
            assert tokens_of(text) == walk(FOLLOWING, prompt.tokens[-1], cell.answer)


def test_every_round_and_every_state_has_new_prompts() -> None:
    cell = Cell(model="150m", width=3, prefix=20, own=20, answer=3)
    rounds = [loads(cell, FOLLOWING, number) for number in range(3)]
    owns = [prompt.tokens[20:] for found in rounds for load in found.values() for prompt in load.prompts]
    assert len(set(owns)) == len(owns) == 18
    assert len({found["cold"].prompts[0].tokens[:20] for found in rounds}) == 3


@given(st.randoms(use_true_random=False))
def test_a_text_to_be_copied_stands_in_the_prompt_but_for_some_words(rng: random.Random) -> None:
    prompt = copy_prompt(FOLLOWING, rng, 128)
    answer = walk(FOLLOWING, prompt[-1], 126)
    same = sum(left == right for left, right in zip(prompt[1:], answer, strict=False))
    assert len(prompt) == 128
    assert 126 - same == round(0.05 * 127)


@given(st.integers(0, 10**9))
def test_the_prompt_of_a_free_task_misleads(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (no secrets)
    prompt = free_prompt(FOLLOWING, rng, 128, 112)
    text = (prompt[-1], *walk(FOLLOWING, prompt[-1], 112))
    pairs, triples = (set(zip(*(text[start:] for start in range(size)), strict=False)) for size in (2, 3))
    assert len(prompt) == 128
    assert len(pairs & set(itertools.pairwise(prompt))) >= 10
    assert not triples & set(zip(prompt, prompt[1:], prompt[2:], strict=False))


def test_what_prompts_have_in_common_leaves_each_a_token() -> None:
    assert common(((1, 2, 3), (1, 2, 4))) == 2
    assert common(((1, 2), (1, 2, 4))) == 1
    assert common(((1, 2),)) == 0


# Bounds


def test_a_drafter_that_is_always_right_makes_k_plus_one_tokens_a_step() -> None:
    answer = walk(FOLLOWING, FIRST, 21)
    assert drafted(answer, by_model(FOLLOWING), 4) == [0, 4, 4, 4, 4]
    times = StepTimes((1.0, 1.0, 1.0, 1.0, 1.0), 0.0)
    assert best_speedup([answer], [lambda: by_model(FOLLOWING)], times) == pytest.approx(21 / 5)


def test_a_drafter_that_is_never_right_does_no_harm_to_the_bound() -> None:
    answer = walk(FOLLOWING, FIRST, 21)
    useless = by_model(mistaken(FOLLOWING, 1.0, 3))
    assert len(drafted(answer, useless, 4)) == 21
    assert best_speedup([answer], [lambda: useless], StepTimes((1.0, 1.5, 2.0), 0.1)) == 1.0


@pytest.mark.parametrize("most", [1, 3, 8])
def test_tokens_a_step_are_those_of_the_acceptance_rate(most: int) -> None:
    """Leviathan et al. 2023, equation 1."""
    agreement = 0.6
    answer = walk(FOLLOWING, FIRST, 8000)
    steps = len(drafted(answer, by_model(mistaken(FOLLOWING, 1 - agreement, 4)), most))
    assert len(answer) / steps == pytest.approx((1 - agreement ** (most + 1)) / (1 - agreement), rel=0.05)


def test_lookup_finds_a_text_to_be_copied_and_nothing_in_words_that_are_all_new() -> None:
    copied, new = (task_load(_task(task), FOLLOWING, 0).prompts[0].tokens for task in ("copy", "free"))
    steps = {
        prompt: len(drafted(walk(FOLLOWING, prompt[-1], 112), by_lookup(prompt, 3), 8)) for prompt in (copied, new)
    }
    assert steps[copied] < 60
    assert steps[new] == 112


def _task(task: str) -> Cell:
    return next(cell for cell in all_cells() if cell.task == task and cell.width == 1)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_agreement_ends_at_the_first_difference(proposal: list[int], text: list[int]) -> None:
    count = agreed(tuple(proposal), tuple(text))
    assert proposal[:count] == text[:count]
    assert count == min(len(proposal), len(text)) or proposal[count] != text[count]


# Comparisons


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=20))
def test_ratios_are_paired_and_turn_round(pairs: list[tuple[float, float]]) -> None:
    tops, bottoms = zip(*pairs, strict=True)
    found, turned = ratio(tops, bottoms), ratio(bottoms, tops)
    assert min(t / b for t, b in pairs) <= found.median <= max(t / b for t, b in pairs)
    assert found.low <= found.high * (1 + 1e-9)
    assert turned.low == pytest.approx(1 / found.high, rel=1e-6)


def test_an_interval_is_that_of_the_t_distribution() -> None:
    found = ratio([math.exp(value) for value in (0.0, 0.1, 0.2, 0.3, 0.4)], [1.0] * 5)
    reach = 2.776 * np.std([0.0, 0.1, 0.2, 0.3, 0.4], ddof=1) / math.sqrt(5)
    assert found.low == pytest.approx(math.exp(0.2 - reach))
    assert found.high == pytest.approx(math.exp(0.2 + reach))


@pytest.mark.parametrize(("tops", "bottoms"), [([], []), ([1.0], [1.0, 2.0])])
def test_rounds_without_partners_are_refused(tops: list[float], bottoms: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        ratio(tops, bottoms)


@given(st.lists(SECONDS, min_size=5, max_size=20), st.floats(0, 0.2))
def test_a_ratio_is_known_by_its_interval_alone(series: list[float], noise: float) -> None:
    found = ratio([value * math.exp(noise * (-1) ** place) for place, value in enumerate(series)], series)
    assert found.known == (found.high <= 1.06 * found.low)
    assert not ratio([1.0], [1.0]).known


@given(st.integers(0, 40), st.floats(0, 1000), st.lists(st.booleans()))
def test_rounds_end_when_all_is_known_or_the_time_is_up(number: int, seconds: float, known: list[bool]) -> None:
    rounds = Rounds(least=5, most=30, seconds=100)
    ratios = [Ratio(1.0, 1.0, 1.01 if sure else 1.5, number) for sure in known]
    enough = rounds.enough(number, seconds, ratios)
    assert enough == (number >= 5 and (number >= 30 or seconds >= 100 or all(known)))
    assert ROUNDS.least >= 5


class Scripted:
    """Takes as long as it is told to, round by round."""

    def __init__(self, name: str, *seconds: float) -> None:
        self.name, self._seconds = name, itertools.cycle(seconds)

    async def run(self, load: RequestLoad) -> Measured:
        return Measured(seconds=next(self._seconds), tokens=load.answer)

    async def close(self) -> None:
        """Nothing to free."""


@pytest.mark.parametrize(("noise", "count"), [(0.001, 5), (0.3, 12)])
async def test_noise_is_met_with_rounds(noise: float, count: int) -> None:
    systems = [Scripted(OURS, 1.0), Scripted(SERVER, 2.0, 2.0 + noise)]
    cell = Cell(model="150m", width=1, own=8, answer=4)
    found = await measure(cell, systems, lambda _: {"cold": RequestLoad(prompts=(), answer=4)}, Rounds(5, 12), print)
    assert [len(each.seconds) for each in found] == [count, count]


async def test_further_rounds_follow_those_before_and_there_are_none_when_all_is_known() -> None:
    asked: list[int] = []

    def loads_of(number: int) -> dict[State, RequestLoad]:
        asked.append(number)
        return {"cold": RequestLoad(prompts=(), answer=4)}

    before = [row(OURS, 1.0), dataclasses.replace(row(SERVER, 2.0), seconds=(2.0, 2.6, 2.0, 2.6, 2.0))]
    systems = [Scripted(OURS, 1.0), Scripted(SERVER, 2.6, 2.0)]
    cell = Cell(model="150m", width=1, own=8, answer=4)
    found = await measure(cell, systems, loads_of, Rounds(5, 9), print, before)
    assert {each.system: len(each.seconds) for each in found} == {OURS: 4, SERVER: 4}
    assert asked == [-1, -1, *(number for number in range(5, 9) for _ in systems)]
    (later,) = (each for each in found if each.system == SERVER)
    assert before[1].then(later).seconds == (2.0, 2.6, 2.0, 2.6, 2.0, 2.0, 2.6, 2.0, 2.6)
    asked.clear()
    assert await measure(cell, systems, loads_of, Rounds(5, 9), print, [row(OURS, 1.0), row(SERVER, 2.0)]) == []
    assert asked == [-1, -1]


@given(st.integers(1, 8))
def test_every_system_begins_in_turn(count: int) -> None:
    systems: list[Any] = list(range(count))
    orders: list[list[Any]] = [in_turn(systems, number) for number in range(count)]
    assert [order[0] for order in orders] == systems
    assert all(sorted(order) == systems for order in orders)


# Cells


def test_the_benchmark_has_every_cell_once_but_the_largest() -> None:
    cells = all_cells()
    assert len({cell.name for cell in cells}) == len(cells)
    plain = {(cell.model, cell.width, cell.prefix) for cell in cells if not cell.task and cell.model != EMBEDDED}
    for model in ("150m-hybrid", "150m-windowed"):
        sizes = [(1, 0, "turn"), (1, 0, "1x0"), (16, 0, "16x0"), (16, 1000, "16x1000")]
        named = [(cell.width, cell.prefix, cell.name.split("/")[1]) for cell in cells if cell.model == model]
        assert sorted(named) == sorted(sizes)
    left_out = {(model, width, prefix) for model in ("150m", "500m") for width in WIDTHS for prefix in PREFIXES} - plain
    assert left_out == {("500m", 64, 1024)}


async def test_the_example_server_gets_a_part_of_the_loads_that_would_take_it_minutes() -> None:
    cells = {cell.name: cell for cell in all_cells()}
    parts = {
        (cell.name, system, state): cell.requests(system, state)
        for cell in cells.values()
        for system in SYSTEMS
        for state in cell.states
        if cell.requests(system, state) != cell.width
    }
    assert parts == {("150m/64x1024", EXAMPLE, "cold"): 16, ("500m/16x1024", EXAMPLE, "cold"): 4}
    systems = [Counting(OURS), Counting(EXAMPLE)]
    prompts = tuple(BenchmarkPrompt((), "", (number,)) for number in range(16))
    load = RequestLoad(prompts=prompts, answer=4, texts=tuple("abcdefghijklmnop"))
    found = await measure(cells["500m/16x1024"], systems, lambda _: {"cold": load, "warm": load}, Rounds(1, 1), print)
    assert [system.asked for system in systems] == [[(16, 16), (16, 16)], [(4, 4), (16, 16)]]
    assert {(each.system, each.state): each.requests for each in found} == {
        (OURS, "cold"): 16,
        (OURS, "warm"): 16,
        (EXAMPLE, "cold"): 4,
        (EXAMPLE, "warm"): 16,
    }


class Counting:
    """Remembers how many prompts and how many known answers it got in each round."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[int, int]] = []

    async def run(self, load: RequestLoad) -> Measured:
        if load.texts is not None:
            self.asked.append((len(load.prompts), len(load.texts)))
        return Measured(seconds=1.0, tokens=load.answer)

    async def close(self) -> None:
        """Nothing to free."""


def test_groups_hold_every_cell_and_mix_no_models_or_widths() -> None:
    for cells in (all_cells(), trial_cells()):
        found = groups(cells)
        assert sorted(cell.name for group in found for cell in group) == sorted(cell.name for cell in cells)
        assert all(len({(cell.model, cell.task, cell.task or cell.width) for cell in group}) == 1 for group in found)


def test_cells_are_chosen_by_pattern() -> None:
    cells = all_cells()
    assert {cell.name for cell in chosen(cells, ["*/16x1024"])} == {"150m/16x1024", "500m/16x1024"}
    assert chosen(cells, []) == cells


def test_between_the_widths_only_one_after_the_other_is_compared() -> None:
    between, other = (Cell(model="150m", width=width, own=8, answer=4) for width in (2, 4))
    assert [takes_part(system, between) for system in (OURS, SERIAL, SERVER, POOLED)] == [True, True, False, False]
    assert takes_part(SERVER, other)


@pytest.mark.parametrize(("width", "served"), [(1, True), (4, True), (16, False)])
def test_kinds_of_speculation_need_no_other_peer_than_llama_server(width: int, served: bool) -> None:
    cell = Cell(model="500m", width=width, own=8, answer=4, task="copy")
    names = (OURS, speculating(OURS, "lookup"), SERVER, speculating(SERVER, "draft", "its settings"), SERIAL, EXAMPLE)
    assert [takes_part(name, cell) for name in names] == [True, True, served, served, False, False]
