"""Predictions: kinds of steps, what is typical of them, coarser keys where little is known, and ranges."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import KnownRates, known_rates
from orchestrator.run.journal.journal import Journal
from orchestrator.run.record.report import misprediction
from orchestrator.run.record.view import AttemptRow
from orchestrator.task.analysis import StepGraph, analyze_task
from orchestrator.task.events import (
    AttemptCancelled,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanKey,
    RoleRates,
    RunAccepted,
    RunFinished,
    Usage,
)
from orchestrator.task.modes import Mode
from orchestrator.task.prediction import (
    CALL,
    CALL_SECONDS,
    MOST_KEYS,
    PACED_RUNS,
    RATED_GENERATIONS,
    EarlierRun,
    MeasuredGeneration,
    RateTable,
    kind_of,
    least_characters,
    lost_beside,
    pace_of,
    path_range,
    plan_key,
    predict_plan,
    predict_step,
    size_class,
)
from orchestrator.task.taskir.models import Step, TaskIR
from orchestrator.task.taskir.parse import task_from

DEFAULTS = RoleRates()


def step(number: int = 1, **fields: Any) -> Step:
    return Step.model_validate({"id": f"S{number}", "actor": "worker", "action": "a", "outputs": [], **fields})


def generation(
    prompt: int = 300, output: int = 100, *, slower: float = 1.0, role: str = "worker", **more: Any
) -> MeasuredGeneration:
    """A generation by a role that reads 1,000 tokens a second and writes 50, on a machine so many times slower."""
    return MeasuredGeneration(role, "small", prompt, 0, output, slower * prompt / 1000, slower * output / 50, **more)


def rates_of(newest_first: Iterable[MeasuredGeneration]) -> dict[str, RoleRates]:
    """Return what is typical of these generations, put into a table of their own."""
    table = RateTable()
    for row in reversed([*newest_first]):
        table.add(row)
    return table.rates()


def seconds(newest_first: list[MeasuredGeneration], asked: Step | None = None, input_bytes: int | None = None) -> float:
    return predict_step(asked or step(), rates_of(newest_first), input_bytes).seconds


def graph_of(*steps: dict[str, Any]) -> StepGraph:
    plan = [{"id": f"S{at}", "actor": "worker", "action": "a", **fields} for at, fields in enumerate(steps, start=1)]
    return analyze_task(task_from({"objective": "o", "plan": {"steps": plan}}), files=["a.txt"])


# Kinds


def text_of(length: int) -> dict[str, Any]:
    return {"type": "string", "minLength": length, "maxLength": length}


def test_kinds_tell_apart_what_takes_different_times() -> None:
    assert kind_of(step()) == "text"
    assert kind_of(step(max_tokens=100)) == "text of up to 128 tokens"
    assert kind_of(step(kind="repl")) == "repl"
    assert kind_of(step(tools=["list_files"])) == "text with tools"
    assert kind_of(step(kind="tool", tools=["list_files"])) == "tool"
    assert kind_of(step(kind="tool", tools=["list_files"], arguments={})) == CALL
    lengths = [kind_of(step(output_schema=text_of(length))) for length in (60, 62, 120, 400)]
    assert lengths[0] == lengths[1] == "JSON of 64 characters"
    assert len(set(lengths)) == 3


@pytest.mark.parametrize(
    ("schema", "length"),
    [
        ({"enum": ["yes", "no"]}, 2),
        (text_of(60), 62),
        ({"type": "array", "minItems": 3, "items": text_of(6)}, 2 + 3 * 9),
        ({"type": "object", "required": ["ab"], "properties": {"ab": {"type": "integer"}}}, 2 + 6 + 1),
        ({"anyOf": [text_of(9), {"type": "null"}]}, 1),
        ({"type": ["string", "null"]}, 2),
        ({"$ref": "#"}, 1),
        (True, 1),
    ],
)
def test_the_shortest_answer_that_a_schema_accepts(schema: Any, length: int) -> None:
    assert least_characters(schema) == length


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
names = st.sampled_from(["type", "enum", "anyOf", "items", "required", "properties", "minItems", "minLength"])


@given(st.dictionaries(names, json_values, max_size=5))
def test_no_schema_is_too_odd_to_be_measured(schema: dict[str, Any]) -> None:
    assert least_characters(schema) >= 0


@given(st.integers(0, 1 << 40), st.sampled_from([0.5, 1.0, 2.0]))
@example((1 << 33) + 1, 0.5)
def test_a_size_lies_in_the_class_that_ends_at_or_above_it(amount: int, octaves: float) -> None:
    end = size_class(amount, octaves)
    assert amount <= end
    assert end == 0 or end < amount * 2**octaves * 1.5
    assert size_class(end, octaves) == end or octaves < 1, "the end of a class is in it"


# What is typical

odd = st.one_of(
    st.builds(generation, st.integers(0, 10**6), st.integers(0, 10**6), slower=st.floats(1e-3, 1e3)),
    st.builds(
        MeasuredGeneration,
        st.just("worker"),
        st.just("small"),
        st.integers(-10, 10**9),
        st.integers(-10, 10**9),
        st.integers(-10, 10**9),
        st.floats(),
        st.floats(),
        st.floats(),
        st.floats(),
        st.sampled_from(["", "R1", "R2", "R3"]),
        st.sampled_from(["", "text", "repl"]),
        st.none() | st.integers(0, 10**9),
        st.floats(),
    ),
)


@given(st.lists(odd, max_size=50), st.integers(1, 50))
def test_after_any_past_the_next_generations_set_it_right(past: list[MeasuredGeneration], tokens: int) -> None:
    predicted = predict_step(step(), rates_of(past), 10)
    assert all(math.isfinite(value) and value >= 0 for value in (predicted.seconds, *predicted.range))
    good = [generation(3 * tokens, tokens, kind="text", input_bytes=10)] * RATED_GENERATIONS
    for size in (10, None):
        assert seconds([*good, *past], input_bytes=size) == pytest.approx(3 * tokens / 1000 + tokens / 50)


@given(st.integers(1, 100))
def test_a_busy_hour_is_outvoted_by_more_good_generations_than_bad_ones(slower: int) -> None:
    bad = [generation(slower=10.0 * slower)] * (RATED_GENERATIONS // 2 - 1)
    good = [generation()] * (RATED_GENERATIONS // 2 + 1)
    assert seconds([*good, *bad]) == seconds([*bad, *good]) == pytest.approx(0.3 + 2.0)


def test_generations_of_a_few_tokens_do_not_tell_how_fast_long_ones_are() -> None:
    answer = MeasuredGeneration("worker", "small", 30, 0, 1, 0.03, 1e-6)
    assert rates_of([answer, answer, generation()])["worker"].decode_rate == 50.0


def test_what_was_not_measured_is_as_by_default() -> None:
    nothing = MeasuredGeneration("worker", "remote", 0, 0, 0, 0.0, 0.0)
    told = rates_of([nothing, generation(role="coder")])
    assert (told["worker"].prefill_rate, told["worker"].prompt_tokens) == (DEFAULTS.prefill_rate, 0)
    assert (told["coder"].decode_rate, told["coder"].generations) == (50.0, 1)
    assert predict_step(step(actor="nobody"), told).generations == 0
    assert predict_step(step(kind="tool", tools=["list_files"], arguments={}), told).seconds == CALL_SECONDS
    assert predict_step(step(max_tokens=5), told).decode_seconds == 0.0


def test_what_others_computed_meanwhile_does_not_count_but_what_is_not_the_model_does() -> None:
    """It took 2.3 s beside others and would have taken 1.15 s alone, and then half a second of gates."""
    crowded = generation(alone_seconds=1.15, packed_seconds=0.23, other_seconds=0.5)
    predicted = predict_step(step(), rates_of([crowded]))
    assert predicted.alone_seconds == pytest.approx(1.15)
    assert predicted.seconds == pytest.approx(1.65)
    assert predicted.packed_seconds == pytest.approx(0.23)
    assert predicted.effort.alone == pytest.approx(1.65)


def test_a_finer_key_counts_from_two_generations_on_and_a_coarser_one_before() -> None:
    long, short = (text_of(length) for length in (400, 30))
    kinds = {kind_of(step(output_schema=schema)): schema for schema in (long, short)}
    rows = [generation(0, length, kind=kind, input_bytes=100) for kind, length in zip(kinds, (200, 20), strict=True)]
    asked = step(output_schema=long)
    assert predict_step(asked, rates_of(rows), 100).basis == "worker", "the mean of two very different ones"
    twice = rates_of([*rows, *rows])
    found = predict_step(asked, twice, 100)
    assert (found.output_tokens, found.generations) == (200, 2)
    assert found.basis == f"worker: {kind_of(asked)}, reading up to 256 bytes"
    assert predict_step(asked, twice, 10**6).basis == f"worker: {kind_of(asked)}", "nothing so large was read before"
    assert predict_step(asked, twice).basis == f"worker: {kind_of(asked)}"
    assert predict_step(step(), twice).basis == "worker"
    often = rates_of([*rows] * 8)
    assert predict_step(asked, often).spread < predict_step(step(), often).spread / 2


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), max_size=300))
def test_the_rates_of_a_run_stay_few(drawn: list[tuple[int, int]]) -> None:
    rows = [generation(kind=f"kind {kind}", input_bytes=1 << size) for kind, size in drawn]
    rates = rates_of(rows)
    assert len(rates) <= MOST_KEYS + 1
    assert all(one.generations >= 2 for key, one in rates.items() if ": " in key)


@given(st.lists(st.lists(odd, max_size=6), max_size=8))
def test_rates_that_are_kept_up_to_date_are_those_of_all_generations(added: list[list[MeasuredGeneration]]) -> None:
    table = RateTable()
    so_far: list[MeasuredGeneration] = []
    for some in added:
        for one in some:
            table.add(one)
        so_far = [*reversed(some), *so_far]
        assert table.rates() == rates_of(so_far)


async def test_what_is_known_follows_the_journal(tmp_path: Path) -> None:
    """A generation counts once, from the end of its attempt on, however often and in which order it is read."""
    registry = load_registry(find_registry())

    def started(run: str) -> list[Event]:
        begun = AttemptStarted(
            at=1.0, step="S1", number=1, role="worker", persona=None, model="tiny-large", reason="the default"
        )
        generated = AttemptGenerated(at=3.5, step="S1", number=1, usage=Usage(300, 0, 100, 0.0, 0.5, 1.0))
        return [RunAccepted(at=0.0, run=run, mode="as-planned", request="Say hello."), begun, generated]

    with Journal.open(tmp_path) as journal:
        known = KnownRates(journal)
        assert known.read(registry) == {}
        for run in ("A", "B", "C"):
            await journal.append(run, started(run))
        assert known.read(registry) == {}, "gates may still check what was generated"
        await journal.append("B", [AttemptSucceeded(at=5.0, step="S1", number=1, outputs={})])
        rates = known.read(registry)["worker"]
        assert (rates.generations, rates.other_seconds) == (1, 2.5)
        await journal.append("A", [AttemptCancelled(at=6.0, step="S1", number=1)])
        await journal.append("D", started("D"))
        assert known.read(registry)["worker"].generations == 2
        await journal.append("C", [RunFinished(at=7.0, status="cancelled")])
        await journal.append("D", [AttemptSucceeded(at=8.0, step="S1", number=1, outputs={})])
        assert known.read(registry)["worker"].generations == 4
        assert known.read(registry) == KnownRates(journal).read(registry)
        assert known.read(_with_model(registry, "worker", "tiny-small")) == {}, "another model may be much faster"
        assert known.read(registry)["worker"].generations == 4


def _with_model(registry: Registry, role: str, model: str) -> Registry:
    return replace(registry, roles={**registry.roles, role: replace(registry.roles[role], model=model)})


async def test_only_generations_on_the_roles_model_count_and_their_time_in_a_queue_does_not(tmp_path: Path) -> None:
    async def did(count: int, usage: Usage, model: str = "tiny-large") -> None:
        for _ in range(count):
            attempt = len(numbers) + 1
            numbers.append(attempt)
            started = AttemptStarted(
                at=2.0, step="S1", number=attempt, role="worker", persona=None, model=model, reason="the default"
            )
            generated = AttemptGenerated(at=3.0, step="S1", number=attempt, usage=usage)
            await journal.append(
                "R", [started, generated, AttemptSucceeded(at=3.0, step="S1", number=attempt, outputs={})]
            )

    numbers: list[int] = []
    with Journal.open(tmp_path) as journal:
        await journal.append("R", [RunAccepted(at=1.0, run="R", mode="as-planned", request="Say hello.")])
        await did(60, Usage(300, 0, 100, prefill_seconds=300.0, decode_seconds=2000.0))
        await did(
            RATED_GENERATIONS, Usage(300, 200, 100, queued_seconds=900.0, prefill_seconds=0.1, decode_seconds=2.0)
        )
        await did(RATED_GENERATIONS, Usage(300, 0, 100, prefill_seconds=60.0, decode_seconds=60.0), model="another")
        (rates,) = known_rates(journal, load_registry(find_registry())).values()
    assert (rates.prefill_rate, rates.decode_rate) == (1000.0, 50.0)
    assert (rates.prompt_tokens, rates.output_tokens, rates.generations) == (100, 100, RATED_GENERATIONS)


# Plans

RATES = {"worker": RoleRates(1000.0, 100.0, 100.0, 90.0, packing=0.25, other_seconds=0.1, generations=9, spread=0.2)}
"""A generation takes 1 s alone."""


def test_steps_of_one_wave_take_engine_time_from_each_other_and_a_chain_does_not() -> None:
    wide = graph_of(
        *({"outputs": [f"a{at}"]} for at in range(5)), {"inputs": [f"a{at}" for at in range(5)], "outputs": ["b"]}
    )
    predicted = predict_plan(wide, RATES)
    assert predicted["S1"].seconds == pytest.approx(1.1 + 4 * 0.25)
    assert predicted["S6"].seconds == pytest.approx(1.1)
    assert predict_plan(wide, RATES, mode="serial")["S1"].seconds == pytest.approx(1.1)


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 1.0)), max_size=8))
def test_beside_others_nobody_is_faster_and_all_end_within_the_sum(drawn: list[tuple[float, float]]) -> None:
    base = predict_step(step(), RATES)
    some = [type(base)(alone, 0.0, alone, 0.0, alone * packing, 0.0, 0.0, 0.0, 0.5, 1, "") for alone, packing in drawn]
    lost = dict(lost_beside(some, [str(at) for at in range(len(some))]))
    for at, one in enumerate(some):
        others = [other for index, other in enumerate(some) if index != at]
        parts = [other.packed_seconds / other.alone_seconds if other.alone_seconds else 0.0 for other in others]
        slowly = sum(part * min(one.seconds, other.seconds) for part, other in zip(parts, others, strict=True))
        assert lost[str(at)] == pytest.approx(slowly, abs=1e-9)


def test_what_a_step_reads_is_known_from_texts_files_and_the_answers_before() -> None:
    graph = graph_of(
        {"inputs": ["a.txt"], "outputs": ["b"], "output_schema": text_of(60)}, {"inputs": ["b"], "outputs": ["c"]}
    )
    rows = [generation(0, 20, kind="JSON of 64 characters", input_bytes=1000)] * 2
    rows += [generation(10, 50, kind="text", input_bytes=80)] * 2
    predicted = predict_plan(graph, rates_of(rows), {"a.txt": 900})
    assert predicted["S1"].basis == "worker: JSON of 64 characters, reading up to 1024 bytes"
    assert predicted["S2"].basis == "worker: text, reading up to 256 bytes", "20 tokens are about 80 bytes"
    assert predict_plan(graph, rates_of(rows))["S1"].basis == "worker: JSON of 64 characters", "nobody knows the file"


@given(st.integers(0, 10**6), st.floats(0.05, 0.6), st.floats(0.0, 1.0), st.integers(1, 6))
def test_a_range_is_around_the_prediction_and_the_same_again(
    seed: int, spread: float, common: float, length: int
) -> None:
    graph = graph_of(*({"outputs": [f"a{at}"], "inputs": [f"a{at - 1}"] if at else []} for at in range(length)))
    rates = {"worker": RoleRates(spread=spread, common=common, generations=100)}
    predicted = predict_plan(graph, rates)
    low, high = path_range(graph.before, graph.order, predicted, seed)
    assert low < sum(one.seconds for one in predicted.values()) < high
    assert (low, high) == path_range(graph.before, graph.order, predicted, seed)


def test_ranges_hold_what_is_drawn_from_the_same_distribution_and_chains_are_surer_than_steps() -> None:
    """Runs differ from each other (0.2) and the steps of a run too (0.3); 32 generations of eight runs are known."""
    draw = Random(1)  # noqa: S311 - no secret
    chain = graph_of(*({"outputs": [f"a{at}"], "inputs": [f"a{at - 1}"] if at else []} for at in range(8)))
    held, tried = 0, 60
    for _ in range(tried):
        rows = []
        for run in range(8):
            slow = draw.gauss(0, 0.2)
            rows += [
                generation(slower=math.exp(slow + draw.gauss(0, 0.3)), run=f"R{run}", kind="text") for _ in range(4)
            ]
        predicted = predict_plan(chain, rates_of(rows))
        low, high = path_range(chain.before, chain.order, predicted)
        slow = draw.gauss(0, 0.2)
        held += low <= sum(2.3 * math.exp(slow + draw.gauss(0, 0.3)) for _ in range(8)) <= high
        one = predicted["S1"]
        assert high / low < (one.range[1] / one.range[0]) ** 1.5
    assert held >= 0.75 * tried


# The pace of plans


def key_of(task: TaskIR, sizes: dict[str, int] | None = None) -> PlanKey:
    graph = analyze_task(task, files=["a.txt", "b.txt"])
    key = plan_key(graph, task, RATES, sizes or {}, "as-planned")
    assert key is not None
    return key


def two_steps(action: str = "a", reads: str = "a.txt", second: str = "worker", **more: Any) -> TaskIR:
    steps = [
        {"id": "S1", "actor": "worker", "action": action, "inputs": [reads], "outputs": ["one"]},
        {"id": "S2", "actor": second, "action": "b", "inputs": ["one"], "outputs": ["two"]},
    ]
    return task_from({"objective": "o", "plan": {"steps": steps}, **more})


def test_plans_of_one_shape_may_have_other_texts_but_no_other_steps() -> None:
    first, other = key_of(two_steps()), key_of(two_steps("something else"))
    assert first.shape == other.shape
    assert first.content != other.content
    assert key_of(two_steps(task_id="again")) == first, "the id of a task says nothing of how long it takes"
    assert key_of(two_steps(second="coder")).shape != first.shape
    assert key_of(two_steps(), {"a.txt": 100}).shape == key_of(two_steps(), {"a.txt": 120}).shape
    assert key_of(two_steps(), {"a.txt": 100}).shape != key_of(two_steps(), {"a.txt": 9000}).shape
    assert first.predicted_seconds == pytest.approx(2.2)


KEY = PlanKey("shape", "this", 1.0)


@given(
    past=st.lists(st.sampled_from([EarlierRun("that", 1.0, 9.0), EarlierRun("that", 1.0, 0.1)]), max_size=12),
    took=st.floats(0.1, 10.0),
)
def test_whatever_was_before_some_runs_that_took_alike_set_the_pace(past: list[EarlierRun], took: float) -> None:
    newest_first = [*[EarlierRun(f"{at}", 2.0, 2.0 * took) for at in range(PACED_RUNS)], *past]
    assert pace_of(KEY, newest_first) == pytest.approx(took)


def test_a_task_that_was_run_before_is_compared_with_others_that_were() -> None:
    newest_first = [
        one for at in range(PACED_RUNS) for one in (EarlierRun(f"{at}", 1.0, 2.0), EarlierRun(f"{at}", 1.0, 6.0))
    ]
    assert pace_of(KEY, newest_first) == 6.0, "nobody has run this before"
    assert pace_of(KEY, [EarlierRun("this", 1.0, 6.0), *newest_first]) == 2.0
    assert pace_of(KEY, [EarlierRun("this", 1.0, 6.0)]) == 6.0, "there is nothing else to compare with"


def test_a_run_that_was_predicted_by_assumptions_says_nothing_of_the_pace_but_that_the_task_was_run() -> None:
    task = two_steps()
    graph = analyze_task(task, files=["a.txt", "b.txt"])
    key = plan_key(graph, task, {}, {}, "as-planned")
    assert key is not None
    assert key.predicted_seconds == 0.0
    assert pace_of(KEY, [EarlierRun("this", 0.0, 60.0)]) == 1.0
    again = [EarlierRun("that", 1.0, 2.0), EarlierRun("that", 0.0, 60.0), EarlierRun("other", 1.0, 6.0)]
    assert pace_of(KEY, again) == 6.0, "a first run is compared with first runs"
    assert pace_of(KEY, [*again, EarlierRun("this", 0.0, 60.0)]) == 2.0


@pytest.mark.parametrize("odd", [0.0, -1.0, 1e12, math.inf])
def test_odd_times_say_nothing(odd: float) -> None:
    assert pace_of(KEY, [EarlierRun("that", 1.0, odd), EarlierRun("that", odd if odd <= 0 else 0.0, 1.0)]) == 1.0
    assert pace_of(None, [EarlierRun("that", 1.0, 5.0)]) == 1.0
    assert pace_of(KEY, []) == 1.0


async def test_the_journal_tells_how_long_runs_of_a_shape_took(tmp_path: Path) -> None:
    """Runs that failed, or have another shape, are none of them, nor is time before the first attempt."""

    async def ran(run: str, seconds: float, status: Literal["done", "failed"] = "done", shape: str = "shape") -> None:
        await journal.append(
            run,
            [
                RunAccepted(at=1.0, run=run, mode="serial", request="x", plan_key=PlanKey(shape, run, 2.0)),
                *(
                    AttemptStarted(
                        at=50.0 + at, step=f"S{at}", number=1, role="worker", persona=None, model="m", reason="r"
                    )
                    for at in range(2)
                ),
                AttemptSucceeded(at=50.0 + seconds, step="S1", number=1, outputs={}),
                RunFinished(at=99.0, status=status),
            ],
        )

    with Journal.open(tmp_path) as journal:
        await ran("R1", 3.0)
        await ran("R2", 4.0, "failed")
        await ran("R3", 5.0, shape="other")
        await ran("R4", 6.0)
        await journal.append("R5", [RunAccepted(at=1.0, run="R5", mode="serial", request="x", plan_key=KEY)])
        assert journal.earlier_runs("shape") == [EarlierRun("R4", 2.0, 6.0), EarlierRun("R1", 2.0, 3.0)]
        assert journal.earlier_runs("unknown") == []

        work: list[int] = []  # one for each 20 instructions of SQLite's virtual machine
        journal._store._connection.set_progress_handler(lambda: work.append(1), 20)
        journal.earlier_runs("shape")
        before = len(work)
        for number in range(100):
            await ran(f"other-{number}", 5.0, shape="other")
        work.clear()
        journal.earlier_runs("shape")
        assert len(work) <= before + 1, "other runs make it no slower, as it is waited for before each run begins"


def test_a_pace_lengthens_what_is_expected_of_each_step_and_not_what_it_computes() -> None:
    graph = graph_of({"outputs": ["x"]}, {"inputs": ["x"], "outputs": ["y"]})
    modes: tuple[Mode, ...] = ("as-planned", "serial")
    for mode in modes:
        once, thrice = predict_plan(graph, RATES, {}, mode), predict_plan(graph, RATES, {}, mode, 3.0)
        for name, one in once.items():
            assert thrice[name].seconds == pytest.approx(3 * one.seconds)
            assert thrice[name].effort == one.effort


# Why a prediction was wrong


def attempt(
    number: int = 1, started: float = 0.0, finished: float | None = 1.1, outcome: str = "done", **usage: Any
) -> AttemptRow:
    given: dict[str, Any] = {"prompt_tokens": 100, "output_tokens": 90, "prefill_seconds": 0.1, "decode_seconds": 0.9}
    given |= usage
    return AttemptRow(number, "worker", None, "m", started, "r", finished, outcome, usage=Usage(**given))


def test_a_prediction_that_is_about_right_needs_no_reason() -> None:
    predicted = predict_step(step(), RATES)
    assert predicted.seconds == pytest.approx(1.1)
    assert misprediction("S1", predicted, 1.5, [attempt(finished=1.5)]) is None
    assert misprediction("S1", predicted, 1.0, [attempt(finished=1.0)]) is None


@pytest.mark.parametrize(
    ("attempts", "why"),
    [
        ([attempt(finished=6.1, queued_seconds=5.0)], "it waited for a slot"),
        ([attempt(finished=6.1, output_tokens=590, decode_seconds=5.9)], "it wrote 590 tokens, 90 were expected"),
        ([attempt(finished=6.1, prompt_tokens=5100, prefill_seconds=5.1)], "5100 tokens of its prompt were not in the"),
        ([attempt(finished=6.1, decode_seconds=5.9)], "the model was slower than usual"),
        ([attempt(finished=6.1, decode_seconds=5.9, alone_seconds=1.0)], "more was computed at the same time"),
        ([attempt(finished=6.1)], "gates, tools and what else is not the model took longer"),
        ([attempt(finished=5.0), attempt(2, started=5.0, finished=6.1)], "it was tried 2 times"),
        ([attempt(finished=None, outcome="interrupted"), attempt(2, 5.0, 6.1)], "a restart interrupted it"),
        ([attempt(finished=0.3, output_tokens=9, decode_seconds=0.09)], "it wrote 9 tokens, 90 were expected"),
    ],
)
def test_the_main_cause_of_a_wrong_prediction_comes_first(attempts: list[AttemptRow], why: str) -> None:
    ended = attempts[-1].finished
    assert ended is not None
    found = misprediction("S1", predict_step(step(), RATES), ended, attempts)
    assert found is not None
    assert found.causes[0].why.startswith(why)
    assert not found.assumed
    late = found.seconds - found.predicted_seconds
    assert abs(found.causes[0].seconds - late) <= 0.2 * abs(late)


def test_an_assumption_that_was_wrong_is_called_one() -> None:
    found = misprediction("S1", predict_step(step(), {}), 100.0, [attempt(finished=100.0)])
    assert found is not None
    assert found.assumed
    assert "assumed" in found.causes[-1].why


def test_what_a_restart_took_is_not_said_of_an_assumption() -> None:
    attempts = [attempt(finished=None, outcome="interrupted"), attempt(2, 90.0, 100.0)]
    found = misprediction("S1", predict_step(step(), {}), 100.0, attempts)
    assert found is not None
    seconds = {cause.why: cause.seconds for cause in found.causes}
    assert seconds.pop("a restart interrupted it") == 90.0
    assert max(seconds.values()) < 10.0
