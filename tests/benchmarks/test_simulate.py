"""The simulator: machine files, what engines choose and answer, what bounds a task, and how a machine is measured."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import reduce
from math import ceil
from operator import getitem
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster.scaling import Load, scaling
from benchmarks.heads.compose import compose, head_file, read_head
from benchmarks.heads.eagle import eagle_file
from benchmarks.page import page
from benchmarks.peers.growth import WIDTH, chains
from benchmarks.results import with_states
from benchmarks.routing.rows import Row
from benchmarks.simulate.validate import (
    AdvisedTask,
    ValidationRow,
    advice_for,
    agents,
    document,
    goals_of,
    parts_of,
    servers,
    validate,
)
from benchmarks.tiny.sizes import SIZES
from orchestrator.bench.critical_path.workloads import deep, sample_text, task_of, workloads
from orchestrator.bench.simulate import measure, step_costs
from orchestrator.bench.simulate.clock import run_virtually
from orchestrator.bench.simulate.engines import (
    Behaviour,
    SimulatedAnswer,
    SimulatedDrafts,
    SimulatedEngine,
    StepLoad,
    model_info,
)
from orchestrator.bench.simulate.machine import (
    CONTINUED,
    RESOURCES,
    Drafts,
    Machine,
    MachineModel,
    Overheads,
    read_machine,
    to_text,
)
from orchestrator.bench.simulate.measure import CALLS, CHAIN, FAN, ROUNDS, Costs, Probe, Ran, drafts_of, fit, read_task
from orchestrator.bench.simulate.run import (
    UNKNOWN,
    Simulated,
    advise,
    answer_lengths,
    instance_of,
    interval_of,
    simulate,
    simulate_rounds,
)
from orchestrator.bench.simulate.step_costs import median_costs
from orchestrator.bench.simulate.vocabularies import vocabularies_of
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.engine.errors import PromptTooLong
from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.llama import vocabulary_of
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.options import (
    DraftName,
    EagleOptions,
    MtpOptions,
    PromptLookupOptions,
    SpeculationOptions,
)
from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import RunAccepted, Usage
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from
from orchestrator.task.taskir.validation import OutputSchema
from tests.orchestrator.cli.cli_command import make_command

REGISTRY = load_registry(find_registry(environment={}))
FAST = MachineModel(
    bytes=1 << 30, slots=16, step_seconds={1: 0.01, 16: 0.02}, prompt_token_seconds=0.001, load_seconds=5.0
)


def machine(**changes: Any) -> Machine:
    """Return a machine with one model."""
    return Machine(
        name="a test",
        sources=("made up",),
        cores=16,
        memory_bytes=1 << 34,
        models={"m": FAST.model_copy(update=changes)},
    )


def run(name: str, on: Machine, home: Path, seed: int = 0) -> Simulated:
    """Simulate a workload."""
    return simulate(workloads()[name].tasks[name], on, REGISTRY, home, seed)


def test_a_chain_takes_what_the_step_costs_say_and_no_schedule_helps(tmp_path: Path) -> None:
    found = run("deep", machine(), tmp_path / "home")
    path = found.report.critical_path
    assert found.report.status == "done"
    assert (path.bound, found.engines) == (pytest.approx(1.0, rel=0.01), 1)
    usages = [step.attempts[0].usage for step in found.report.steps]
    prompts = sum(FAST.costs.seconds(one.prompt_tokens - one.cached_tokens, 1) for one in usages)
    assert found.seconds == pytest.approx(sum(one.output_tokens - 2 for one in usages) * 0.01 + prompts, rel=0.01)
    assert found.steps == sum(one.output_tokens - 1 for one in usages), (
        "the end of a prompt brings the first token, and a grammar the last one"
    )


def test_slots_let_a_fan_out_run_together(tmp_path: Path) -> None:
    wide, narrow = (run("wide-16", machine(slots=slots), tmp_path / str(slots)) for slots in (16, 1))
    assert wide.seconds < narrow.seconds / 2
    assert narrow.report.critical_path.waiting_seconds > 0
    assert wide.report.critical_path.bound >= narrow.report.critical_path.serial_seconds / wide.seconds * 0.99


def test_readers_of_one_document_read_it_once(tmp_path: Path) -> None:
    found = run("shared", machine(), tmp_path / "home")
    usages = [step.attempts[0].usage for step in found.report.steps]
    assert sum(usage.cached_tokens > usage.prompt_tokens / 2 for usage in usages) == 15


def test_the_same_seed_gives_the_same_times(tmp_path: Path) -> None:
    first, again = (run("map-reduce", machine(), tmp_path / name) for name in ("one", "two"))
    assert first.seconds == again.seconds


def published_model(rate: float, size: int, *, batching: float) -> MachineModel:
    """Return a model of which only published figures are known.

    `rate` is its tokens per second alone, and `batching` how many times more 16 sequences make together: the weights
    of a dense model are read once for all of them, while a mixture of experts reads others for each.
    """
    first = 1 / rate
    further = (16 / batching - 1) / 15  # what each further sequence adds, as a part of a step of one
    steps = {size: first * (1 + further * (size - 1)) for size in (1, 2, 4, 8, 16)}
    return MachineModel(
        bytes=size,
        step_seconds=steps,
        prompt_token_seconds=1 / (10 * rate),
        cell_seconds=first * 1e-5,
    )


def test_a_machine_file_is_read_as_it_was_written_and_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    big = Machine(
        name="n", sources=("s",), cores=96, nodes=4, memory_bytes=1 << 40,
        models={"m": published_model(45.6, 20 << 30, batching=1.37)},
    )  # fmt: skip
    file.write_text(to_text(big), encoding="utf-8")
    assert read_machine(file) == big
    assert [len(node.cores) for node in big.topology.nodes] == [24] * 4
    costs = big.models["m"].costs
    assert costs.seconds(1, 1) == pytest.approx(1 / 45.6)
    assert 16 / costs.seconds(16, 16) == pytest.approx(1.37 * 45.6)
    broken = json.loads(to_text(big))
    broken["models"]["m"]["step_seconds"] = {"2": 0.1}
    file.write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(InputError, match="step of 1 sequence"):
        read_machine(file)
    with pytest.raises(InputError, match="No such file"):
        read_machine(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("cores",), "four", '/cores: "four" is refused; accepted: a whole number'),
        (("corse",), 4, "/corse: unknown field \"corse\"; accepted: 'cores'?"),
        (("models", "m", "step_seconds", "1"), -1, "/models/m/step_seconds/1: -1 is refused; accepted: above 0"),
        (("models", "m", "slotz"), 4, "/models/m/slotz: unknown field \"slotz\"; accepted: 'slots'?"),
        (("nodes",), 9, "/: 9 nodes cannot share 4 cores; accepted: up to a node for each core"),
        (("roles",), {"worker": "x"}, "/: roles name unknown models: x; accepted: m"),
    ],
)
def test_a_wrong_machine_file_is_refused_with_place_value_and_what_is_accepted(
    tmp_path: Path, place: tuple[str, ...], value: object, problem: str
) -> None:
    model = published_model(45.6, 1 << 30, batching=1.37)
    described = Machine(name="n", sources=("s",), cores=4, memory_bytes=1 << 40, models={"m": model})
    document = described.model_dump(mode="json")
    *path, key = place
    reduce(getitem, path, document)[key] = value
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_machine(file)
    assert str(refused.value).startswith(f"{file}: {problem}")


def test_a_machine_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text("{cores: 4}", encoding="utf-8")
    with pytest.raises(InputError, match=r"machine\.json: is no JSON: .* line 1 .*; accepted: a machine file"):
        read_machine(file)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 60, "maxLength": 60},
        {
            "type": "array",
            "minItems": 3,
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"enum": [2]}}},
        },
        {"anyOf": [{"type": "integer", "minimum": 7}, {"type": "null"}]},
        {"type": ["boolean", "null"]},
    ],
)
def test_simulated_answers_obey_their_schema(schema: dict[str, Any]) -> None:
    OutputSchema(schema).check(instance_of(schema))


# What engines choose


def engine_of(behaviour: Behaviour, slots: int, seconds: Callable[[StepLoad], float], tokens: int) -> SimulatedEngine:
    """Return an engine whose answers have so many tokens."""
    spec = EngineSpec(file="m", slots=slots, context=4096, threads=1)
    return SimulatedEngine(
        spec, model_info(spec, 0.0), seconds, lambda request: SimulatedAnswer("x", tokens), behaviour
    )


def run_together(
    behaviour: Behaviour, prompts: list[str], *, slots: int = 16, tokens: int = 20, late: float = 0.0
) -> tuple[SimulatedEngine, list[StepLoad], float]:
    """Ask an engine for answers to all prompts, of which the last one comes later; return what it did, and how long."""
    loads: list[StepLoad] = []
    costs = behaviour.costs or StepCostModel(ONE, ONE, 0.001, 0.0)

    def seconds(load: StepLoad) -> float:
        loads.append(load)
        return costs.seconds(load.tokens, load.sequences, load.cells)

    async def main() -> tuple[SimulatedEngine, float]:
        loop = asyncio.get_running_loop()
        engine = engine_of(behaviour, slots, seconds, tokens)

        async def ask(prompt: str, wait: float) -> None:
            await asyncio.sleep(wait)
            await engine.generate(Generation(messages=(Message("user", prompt),)))

        async with asyncio.TaskGroup() as group:
            for at, prompt in enumerate(prompts):
                group.create_task(ask(prompt, late if at == len(prompts) - 1 else 0.0))
        return engine, loop.time()

    engine, took = run_virtually(main)
    return engine, loads, took


ONE = Points((1, 4), (0.01, 0.012))
STEEP = Points((1, 2, 4), (0.01, 0.04, 0.08))


def test_as_many_sequences_decode_together_as_the_step_costs_favour() -> None:
    many = [f"prompt {at}" for at in range(4)]
    _, together, soon = run_together(Behaviour(costs=StepCostModel(ONE, ONE, 0.001, 0.0)), many)
    assert max(load.sequences for load in together if not load.prompt_tokens) == 4
    _, apart, late = run_together(Behaviour(costs=StepCostModel(STEEP, STEEP, 0.001, 0.0)), many)
    assert {load.sequences for load in apart if not load.prompt_tokens} == {1}, (
        "one at a time makes more tokens a second"
    )
    assert late > soon


def test_a_prompt_is_read_in_chunks_while_others_decode_and_apart_from_them_where_the_cache_is_split() -> None:
    prompts = ["short", "word " * 400]
    pooled, split = (
        run_together(Behaviour(costs=StepCostModel(ONE, ONE, 0.001, 0.0), split=apart), prompts, late=0.1)[1]
        for apart in (False, True)
    )
    chunks = [load.prompt_tokens for load in pooled if load.prompt_tokens > 1]
    assert (len(chunks), sum(chunks), max(chunks)) == (4, 400, 128)
    assert all(load.tokens == load.prompt_tokens + 1 for load in pooled if load.prompt_tokens > 1)
    assert all(load.prompt_tokens in (0, load.tokens) for load in split)
    assert len(split) > len(pooled)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("prompt", [10, 400])
def test_interactive_requests_take_at_most_twice_as_long_beside_a_batch_which_goes_on(split: bool, prompt: int) -> None:
    """They may be later by the steps, and the chunk of a prompt, that the batch has earned."""
    costs = StepCostModel(Points((1, 2, 16), (0.01, 0.015, 0.06)), Points((1, 2, 16), (0.01, 0.015, 0.06)), 0.004, 0.0)

    def ended(batch: int) -> list[float]:
        async def main() -> list[float]:
            engine = engine_of(
                Behaviour(costs=costs, split=split),
                16,
                lambda load: costs.seconds(load.tokens, load.sequences, load.cells),
                100,
            )

            async def ask(at: int) -> float:
                words = Message("user", f"{at} " + "word " * (prompt if at else 10))
                await engine.generate(Generation(messages=(words,), priority="batch" if at else "interactive"))
                return asyncio.get_running_loop().time()

            return await asyncio.gather(*map(ask, range(1 + batch)))

        times: list[float] = run_virtually(main)
        return times

    alone = ended(0)[0]
    interactive, *batch = ended(15)
    first_step = 15 * prompt * 0.004
    assert alone < interactive < 2 * alone + 0.1 + first_step
    batch_alone = 100 * costs.seconds(15, 15) + first_step
    assert max(batch) < batch_alone + alone, "no time is lost"


@pytest.mark.parametrize("split", [False, True])
def test_draft_tokens_that_are_accepted_save_steps_and_others_are_soon_given_up(split: bool) -> None:
    costs = StepCostModel(Points((1, 8), (0.01, 0.012)), Points((1, 8), (0.01, 0.012)), 0.001, 0.0)

    def drafting(acceptance: float) -> Behaviour:
        return Behaviour(costs=costs, split=split, drafting=SimulatedDrafts("lookup", 4, acceptance))

    plain, _, slow = run_together(Behaviour(costs=costs, split=split), ["a"], tokens=200)
    good, _, fast = run_together(drafting(0.95), ["a"], tokens=200)
    bad, _, rejected = run_together(drafting(0.0), ["a"], tokens=200)
    assert plain.drafted == 0
    assert good.accepted > 0.8 * good.drafted > 0
    assert good.steps < plain.steps / 2
    assert fast < slow / 2
    assert bad.accepted == 0
    assert bad.drafted < 4 * 100, "not in every step"
    assert rejected < 1.2 * slow


@pytest.mark.parametrize("source", ["mtp", "eagle", "draft"])
def test_the_speed_with_drafts_follows_from_acceptance_and_the_costs_of_steps(source: DraftName) -> None:
    verify = Points((1, 3), (0.01, 0.0105))
    costs = StepCostModel(Points((1, 16), (0.01, 0.02)), verify, 0.001, 0.0)
    drafts = SimulatedDrafts(source, 2, 0.7, token_seconds=0.001)
    plain = run_together(Behaviour(costs=costs), ["a"], tokens=2000)
    drafted = run_together(Behaviour(costs=costs, drafting=drafts), ["a"], tokens=2000)
    tokens, seconds = 1 + 0.7 + 0.7**2, 0.0105 + 2 * 0.001
    assert plain[2] / drafted[2] == pytest.approx(tokens * 0.01 / seconds, rel=0.06)


def test_nothing_is_drafted_where_it_would_not_pay() -> None:
    behaviour = Behaviour(costs=StepCostModel(STEEP, STEEP, 0.02, 0.0), drafting=SimulatedDrafts("lookup", 4, 1.0))
    assert run_together(behaviour, ["a"])[0].drafted == 0


def test_prompts_that_no_slot_holds_any_more_are_read_again_where_the_cache_is_split() -> None:
    tokens: dict[bool, list[int]] = {}
    for split in (False, True):
        behaviour = Behaviour(costs=StepCostModel(ONE, ONE, 0.001, 0.0), split=split)

        async def main(behaviour: Behaviour = behaviour) -> list[int]:
            engine = engine_of(behaviour, 2, lambda load: 0.01, 3)
            texts = [f"{name} " * 100 for name in ("a", "b", "c", "a")]
            asked = [await engine.generate(Generation(messages=(Message("user", text),))) for text in texts]
            return [one.usage.cached_tokens for one in asked]

        tokens[split] = run_virtually(main)
    assert tokens[False][-1] > 80
    assert tokens[True][-1] == 0


def test_short_beginnings_are_shared_in_a_pool_and_not_between_streams() -> None:
    """As in the real engine, where streams copy no prefix of fewer than 64 tokens in a context of 4,096."""
    prompts = [f"{'word ' * 40}{name}" for name in ("a d e", "b c")]
    for split, read in ((False, 45), (True, 85)):
        behaviour = Behaviour(costs=StepCostModel(ONE, ONE, 0.001, 0.0), split=split)
        _, loads, _ = run_together(behaviour, prompts, late=10.0)
        assert sum(load.prompt_tokens for load in loads) == read


def test_a_request_may_be_given_up_in_the_moment_in_which_its_answer_is_complete() -> None:
    errors: list[dict[str, Any]] = []

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))

        def seconds(load: StepLoad) -> float:
            loop.call_later(1.0, task.cancel)
            return 1.0

        engine = engine_of(Behaviour(), 1, seconds, 1)
        task = asyncio.create_task(engine.generate(Generation(messages=(Message("user", "a"),))))
        await asyncio.wait([task])
        return task.cancelled()

    assert run_virtually(main)
    assert not errors


def test_a_prompt_that_is_longer_than_the_context_is_refused() -> None:
    async def main() -> None:
        engine = engine_of(Behaviour(), 1, lambda load: 0.01, 3)
        await engine.generate(Generation(messages=(Message("user", "word " * 5000),)))

    with pytest.raises(PromptTooLong):
        run_virtually(main)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(1, 4), st.booleans(), st.integers(1, 30))
def test_every_answer_gets_its_tokens_and_the_shares_come_to_the_whole(
    words: list[int], slots: int, split: bool, tokens: int
) -> None:
    behaviour = Behaviour(
        costs=StepCostModel(ONE, ONE, 0.001, 0.0),
        split=split,
        drafting=SimulatedDrafts("lookup", 3, 0.5, offered=0.5),
    )
    usages: list[Usage] = []

    async def main() -> float:
        engine = engine_of(
            behaviour,
            slots,
            lambda load: StepCostModel(ONE, ONE, 0.001, 0.0).seconds(load.tokens, load.sequences),
            tokens,
        )

        async def ask(at: int, count: int) -> None:
            request = Generation(messages=(Message("user", f"{at} " + "word " * count),))
            usages.append((await engine.generate(request)).usage)

        async with asyncio.TaskGroup() as group:
            for at, count in enumerate(words):
                group.create_task(ask(at, count))
        return asyncio.get_running_loop().time()

    took = run_virtually(main)
    assert [one.output_tokens for one in usages] == [tokens] * len(words)
    assert sum(one.work_seconds for one in usages) == pytest.approx(took, rel=0.01)
    assert all(one.packed_seconds <= one.alone_seconds * (1 + 1e-9) for one in usages)


# Machines


def test_what_the_orchestrator_takes_itself_makes_a_chain_longer(tmp_path: Path) -> None:
    own = Overheads(commit_seconds=0.001, generation_seconds=0.02, waiting_seconds=0.03, call_seconds=0.005)
    plain, busy = (
        run("deep", machine().model_copy(update={"overheads": each}), tmp_path / name)
        for name, each in (("plain", Overheads()), ("busy", own))
    )
    later = busy.seconds - plain.seconds
    assert later == pytest.approx(20 * 0.05 + 21 * 0.001, rel=0.1)
    calls = simulate(CALLS, machine().model_copy(update={"overheads": own}), REGISTRY, tmp_path / "calls")
    assert calls.seconds > 30 * 0.005


def test_steps_that_begin_together_reach_the_engine_together(tmp_path: Path) -> None:
    busy = Overheads(generation_seconds=0.02)
    found = [
        run("wide-4", machine().model_copy(update={"overheads": own}), tmp_path / str(at)).steps
        for at, own in enumerate((Overheads(), busy))
    ]
    assert found[0] == found[1]


def test_prompts_take_the_share_that_the_file_says(tmp_path: Path) -> None:
    whole, half = (run("deep", machine(prompt_ratio=share), tmp_path / str(share)) for share in (1.0, 0.5))
    usages = [step.attempts[0].usage for step in whole.report.steps]
    prompts = sum(FAST.costs.seconds(one.prompt_tokens - one.cached_tokens, 1) for one in usages)
    assert whole.seconds - half.seconds == pytest.approx(prompts / 2, rel=0.01)


@pytest.mark.parametrize("name", ["map-reduce", "irregular"])
def test_answers_are_as_long_as_those_of_a_run(tmp_path: Path, name: str) -> None:
    task = workloads()[name].tasks[name]
    there = simulate(task, machine(answer_characters=2.1), REGISTRY, tmp_path / "there").report
    lengths = answer_lengths(task, there)
    here, guessed = (
        simulate(task, machine(), REGISTRY, tmp_path / str(at), lengths=each).report
        for at, each in enumerate((lengths, UNKNOWN))
    )
    tokens = [sorted(step.output_tokens for step in report.steps) for report in (there, here, guessed)]
    assert tokens[0] == tokens[1] != tokens[2]


def test_free_texts_are_as_long_as_those_of_a_run(tmp_path: Path) -> None:
    task = task_of(chains(4))
    lengths = {"": [3, 5, 7, 9]}
    found = simulate(task, machine(), REGISTRY, tmp_path / "home", lengths=lengths).report
    assert sorted(step.output_tokens for step in found.steps) == lengths[""]
    assert answer_lengths(task, found) == {"": [step.output_tokens for step in found.steps]}


@given(st.text(alphabet="ab ~", max_size=40), st.text(alphabet="ab ~", max_size=40), st.floats(0.5, 9))
def test_texts_that_begin_alike_have_tokens_that_do(text: str, end: str, word: float) -> None:
    tokenize = machine(word_tokens=word).models["m"].behaviour(0).tokenize
    short, long = tokenize(text), tokenize(f"{text} {end}")
    words = len(re.findall("[ab]{1,12}", text))
    assert len(short) == ceil(word * words + text.count("~") - 1e-9)
    assert common_prefix(short, long) >= len(short) - 1


def test_texts_have_the_tokens_of_a_model_that_the_registry_has() -> None:
    vocabularies = vocabularies_of(REGISTRY, ["tiny-large", "m"])
    assert vocabularies.keys() == {"tiny-large"}
    assert vocabularies_of(REGISTRY, ["tiny-large"])["tiny-large"] is vocabularies["tiny-large"]  # opened once
    text, answer = f"{sample_text(20)}: note12.json", f"~{CONTINUED}~~{CONTINUED[0]}"
    tokenize = FAST.behaviour(0, vocabularies["tiny-large"]).tokenize
    file = REGISTRY.models["tiny-large"].file
    assert file is not None
    with vocabulary_of(file) as vocabulary:
        tokens = vocabulary.tokenize(text, special=False)
    assert tokenize(text).tolist() == tokens
    assert len(tokens) > 20 * FAST.word_tokens + 8  # its words are rare ones
    assert len(tokenize(f"{text}{answer}{text}")) == 2 * len(tokens) + 3


def test_a_model_whose_file_is_no_model_has_no_vocabulary(tmp_path: Path) -> None:
    broken = replace(REGISTRY.models["tiny-large"], file=tmp_path / "broken.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    assert vocabularies_of(replace(REGISTRY, models={"m": broken}), ["m"]) == {}


@pytest.mark.parametrize("model", ["m", "tiny-large"])
@pytest.mark.parametrize("task", [task_of(deep(3)), task_of(chains(2 * WIDTH))], ids=["JSON", "free text"])
def test_answers_have_as_many_tokens_where_they_are_read_as_when_they_were_written(
    task: TaskIR, model: str, tmp_path: Path
) -> None:
    on = machine().model_copy(update={"models": {model: FAST}})
    (form,) = answer_lengths(task, simulate(task, on, REGISTRY, tmp_path / "any").report)
    short, long = (
        simulate(task, on, REGISTRY, tmp_path / str(tokens), lengths={form: [tokens]}).report.steps
        for tokens in (12, 40)
    )
    readers = {step.id for step in task.plan.steps if step.inputs}
    assert readers
    for less, more in zip(short, long, strict=True):
        assert more.prompt_tokens - less.prompt_tokens == (28 if less.id in readers else 0)


def test_later_rounds_find_prompts_in_the_caches(tmp_path: Path) -> None:
    task = workloads()["wide-4"].tasks["wide-4"]
    cold, *warm = simulate_rounds(task, machine(), REGISTRY, tmp_path / "home", 3)
    assert all(one.report.status == "done" for one in (cold, *warm))
    assert warm[0].seconds == pytest.approx(warm[1].seconds, rel=1e-6)
    assert warm[0].seconds < cold.seconds


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=4), st.floats(1e-4, 1.0), st.floats(0.0, 1e-3), st.booleans()
)
def test_twice_as_much_makes_no_step_slower_and_none_more_than_twice_as_fast(
    seconds: list[float], prompt: float, cell: float, verify: bool
) -> None:
    steps = dict(zip((1, 2, 8, 16), seconds, strict=False))
    model = MachineModel(
        bytes=1, step_seconds=steps, prompt_token_seconds=prompt, cell_seconds=cell, threads=2,
        verify_seconds=dict(steps) if verify else None,
    )  # fmt: skip
    for resource in RESOURCES:
        better = model.with_twice(resource)
        for size in (*steps, 40):
            was, now = (one.costs.seconds(size, size, 10 * size) for one in (model, better))
            assert was / 2 * (1 - 1e-9) <= now <= was * (1 + 1e-9)
    assert model.with_twice("memory").slots == 2 * model.slots
    both = model.with_twice("cores").with_twice("memory bandwidth")
    assert both.costs.seconds(1, 1) <= model.costs.seconds(1, 1) * (0.75 + 1e-9)


def test_what_bounds_a_task_is_what_more_of_helps_most(tmp_path: Path) -> None:
    """Steps that only read weights gain by bandwidth, steps that only compute by cores, and two slots by memory."""
    task = workloads()["wide-16"].tasks["wide-16"]
    flat = {1: 0.1, 16: 0.1}
    cases: dict[str | None, Machine] = {
        "memory bandwidth": machine(step_seconds=flat, prompt_token_seconds=1e-5),
        "cores": machine(step_seconds={1: 0.01, 16: 0.16}, prompt_token_seconds=0.01),
        "memory": machine(step_seconds={1: 0.01, 2: 0.0101, 16: 0.0115}, prompt_token_seconds=0.0025, slots=1),
        None: machine(step_seconds=flat, prompt_token_seconds=1e-5).model_copy(
            update={"overheads": Overheads(waiting_seconds=1000.0)}
        ),
    }
    for wanted, one in cases.items():
        home = tmp_path / str(wanted)
        told = advise(task, one, REGISTRY, home, simulate(task, one, REGISTRY, home / "known"))
        assert told.bound_by == wanted, told.in_words()
        assert told.in_words().startswith(f"it is bound by {wanted or 'the plan'}")
        assert set(told.ratios) == set(RESOURCES)


def test_an_interval_holds_95_of_100_runs() -> None:
    assert interval_of([float(at) for at in range(100)]) == (49.5, 2.0, 97.0)
    assert interval_of([3.0]) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_steps_take_no_more_calls_than_their_tokens_need(tmp_path: Path, count: int) -> None:
    """What a simulation costs goes by its steps and calls; how long one takes is told by `benchmarks.simulate`."""
    found = simulate(task_of(chains(count)), machine(), REGISTRY, tmp_path / "home")
    assert [step.state for step in found.report.steps] == ["done"] * count
    tokens = sum(step.output_tokens for step in found.report.steps)
    assert tokens / 16 <= found.steps <= tokens / 16 + 3 * count


# Measuring a machine


@pytest.mark.parametrize(
    ("options", "drafts"),
    [
        ({}, None),
        ({"prompt_lookup": PromptLookupOptions(3, 8)}, Drafts(source="lookup", k=8, acceptance=0.75, offered=0.5)),
        ({"mtp": MtpOptions(3)}, Drafts(source="mtp", k=3, acceptance=0.75, token_seconds=0.001)),
        ({"eagle": EagleOptions("e", 2)}, Drafts(source="eagle", k=2, acceptance=0.75, token_seconds=0.001)),
        (
            {"speculation": SpeculationOptions("d", 4)},
            Drafts(source="draft", k=4, acceptance=0.75, token_seconds=0.001),
        ),
    ],
)
def test_drafts_are_described_by_what_became_of_them(options: dict[str, Any], drafts: Drafts | None) -> None:
    stats = EngineStats(output_tokens=200, drafted=100, accepted=60, refused_drafts=20)
    costs = Costs(StepCostModel(ONE, ONE, 0.001, 0.0), False, 0.001)
    assert drafts_of(EngineSpec(file="m", **options), stats, costs) == drafts
    assert drafts_of(EngineSpec(file="m", **options), EngineStats(output_tokens=200), costs) is None


def test_what_a_draft_token_costs_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_costs, "TIMES", 1)
    size = SIZES["large"]
    compose(size.shipped, read_head(head_file(size.name)), tmp_path / "headed.gguf")
    spec = EngineSpec(file=str(tmp_path / "headed.gguf"), context=128, slots=1, threads=1)
    assert step_costs.costs_of(spec).draft_seconds == 0.0
    assert step_costs.costs_of(replace(spec, mtp=MtpOptions(3))).draft_seconds > 0.0
    eagle = replace(spec, file=str(size.shipped), eagle=EagleOptions(str(eagle_file(size.name))))
    assert step_costs.costs_of(eagle).draft_seconds > 0.0
    smaller = replace(spec, speculation=SpeculationOptions(str(SIZES["draft"].shipped)))
    assert step_costs.costs_of(smaller).draft_seconds > 0.0
    copying = replace(spec, prompt_lookup=PromptLookupOptions())
    assert step_costs.costs_of(copying).draft_seconds == 0.0


def as_measured(task: TaskIR, on: Machine, home: Path, rounds: int = ROUNDS) -> Ran:
    """Return what another simulated machine does as if it were a real one."""
    found = simulate_rounds(task, on, REGISTRY, home, rounds)
    spec = EngineSpec(file="m", slots=16)
    return Ran(tuple(one.report for one in found), spec, model_info(spec, 1.0), EngineStats(), 0.002)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "foreseen"),
    [(2, ("wide-16",)), pytest.param(ROUNDS, ("wide-16", "irregular", "deep"), marks=pytest.mark.slow)],
)
def test_a_machine_is_fitted_to_short_tasks_so_that_others_are_foreseen(
    tmp_path: Path, rounds: int, foreseen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "ROUNDS", rounds)
    curve = {1: 0.013, 4: 0.016, 16: 0.03}
    real = machine(step_seconds=curve, word_tokens=1.7, answer_characters=2.3, cell_seconds=1e-6).model_copy(
        update={"overheads": Overheads(commit_seconds=0.001, generation_seconds=0.002, waiting_seconds=0.004)}
    )
    isolated = {size: seconds / 1.3 for size, seconds in curve.items()}
    believed = machine(
        step_seconds=isolated, word_tokens=1.7, prompt_token_seconds=0.001 / 1.3, cell_seconds=1e-6 / 1.3
    )
    believed = believed.model_copy(update={"overheads": Overheads(commit_seconds=0.001, generation_seconds=0.002)})
    reading = read_task(1.4, 4096)
    tasks = (CHAIN, FAN, reading, CALLS)
    chained, fanned, read, called = (
        as_measured(task, real, tmp_path / f"real-{at}", rounds) for at, task in enumerate(tasks)
    )
    fitted = fit(believed, REGISTRY, tmp_path / "fit", [Probe(chained, fanned, read, reading)], called)
    for name in foreseen:
        there, here = (run(name, one, tmp_path / f"{name}-{at}") for at, one in enumerate((real, fitted)))
        assert here.seconds == pytest.approx(there.seconds, rel=0.08), name


def test_steps_take_the_median_of_several_measurements() -> None:
    short, long = Points((1, 2), (0.01, 0.012)), Points((1, 2, 4), (0.011, 0.02, 0.03))
    odd = Points((1, 2, 4), (0.1, 0.013, 0.03))
    found = median_costs([StepCostModel(one, one, one.seconds[0], 0.0, pads=True) for one in (short, long, odd)])
    assert found == StepCostModel(Points((1, 2), (0.011, 0.013)), Points((1, 2), (0.011, 0.013)), 0.011, 0.0, True)


def test_results_tell_each_workload_and_the_median_apart() -> None:
    rows = [
        ValidationRow("deep", state, "done", 20, 2.0, (1.9, 2.0, 2.2), simulated, 3.0)
        for state, simulated in (("cold", 2.1), ("warm", 2.5))
    ]
    found = {goal["name"]: goal for goal in goals_of(rows, 4.0)}
    assert found["deep, cold: simulated off measured, share"]["met"]
    assert not found["deep, warm: simulated off measured, share"]["met"]
    low, high = found["deep, warm: simulated off measured, share"]["interval"]
    assert low < 0.25 < high
    assert found["median over the workloads, cold"]["value"] == 0.05
    assert found["median, cold, the tokens of answers not known"]["value"] == 0.5
    assert found["seconds to simulate 1000 steps"]["met"]
    told = document(machine(), rows, ["wide-4"], 4.0, [], "command")
    assert [row["error"] for row in told["rows"]] == [0.05, 0.25]
    assert json.loads(json.dumps(told))["left"] == ["wide-4"]


def test_workloads_that_were_kept_are_told_also_when_no_time_is_left() -> None:
    row = ValidationRow("deep", "cold", "done", 20, 2.0, (2.0,), 2.1, 2.2, {"decode": (1.0, 1.1)}, 0.5)

    def keep(name: str, make: Callable[[], Row]) -> Row:
        return {"rows": [json.loads(json.dumps(asdict(row)))]} if name == "workload deep" else make()

    suite = [workloads()[name] for name in ("deep", "wide-4")]
    nowhere = Path("not needed")
    assert validate(machine(), REGISTRY, suite, 1, -1.0, lambda line: None, nowhere, keep) == ([row], ["wide-4"])


def test_a_row_says_which_part_of_the_time_differs(tmp_path: Path) -> None:
    slow, quick = (
        run("wide-4", machine(step_seconds={1: each, 16: each}), tmp_path / str(each)).report for each in (0.02, 0.01)
    )
    parts = parts_of(slow, quick)
    row = ValidationRow("wide-4", "cold", "done", 5, 2.0, (2.0,), 1.0, 1.0, parts, 1.5)
    assert parts["decode"][0] > 1.5 * parts["decode"][1]
    assert parts["answer tokens"][0] == parts["answer tokens"][1] > 0
    assert row.why.startswith("decode differs most: ")
    assert row.why.endswith("load 1.5")
    (told,) = document(machine(), [row], [], 1.0, [], "command")["rows"]
    assert msgspec.convert({name: told[name] for name in told if name not in ("error", "why")}, ValidationRow) == row


def test_agents_read_one_document_or_one_each_of_about_its_length() -> None:
    shared, own = (task_of(agents(3, shared=shared)) for shared in (True, False))
    assert [step.inputs for step in shared.plan.steps] == [("document",)] * 3
    assert len({step.inputs for step in own.plan.steps}) == len({one.value for one in own.inputs}) == 3


def test_the_examples_have_one_four_and_forty_eight_replicas_of_a_model() -> None:
    assert sorted(one.worker.instances for one in servers()) == [1, 4, 48]


def test_what_a_task_is_advised_on_a_machine_is_in_the_table_of_the_page(tmp_path: Path) -> None:
    advice = advice_for(machine(), REGISTRY, AdvisedTask("wide-4", workloads()["wide-4"].tasks["wide-4"], 2))
    told = page({"simulate": with_states(document(machine(), [], [], 1.0, [advice], "command"))})
    assert f"| {machine().name} | wide-4 | 1 | {advice['seconds']:.1f} |" in told


@pytest.mark.parametrize("source", get_args(DraftName))
def test_drafts_are_part_of_a_machine_file(tmp_path: Path, source: DraftName) -> None:
    file = tmp_path / "machine.json"
    drafts = Drafts(source=source, k=8, acceptance=0.6, offered=0.3)
    file.write_text(to_text(machine(drafts=drafts, verify_seconds={1: 0.01, 8: 0.012})), encoding="utf-8")
    known = read_machine(file).models["m"]
    assert known.drafts == drafts
    assert known.behaviour(1).drafting == SimulatedDrafts(source, 8, 0.6, 0.3)
    broken = machine().model_dump(mode="json")
    broken["models"]["m"]["verify_seconds"] = {"1": 0.02}
    file.write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(InputError, match="another time than step_seconds"):
        read_machine(file)


# Commands


def test_the_command_says_how_long_how_certain_and_what_to_buy(tmp_path: Path) -> None:
    cli = make_command(tmp_path / "home")
    file = tmp_path / "machine.json"
    file.write_text(to_text(machine()), encoding="utf-8")
    told = cli("bench", "simulate", "diamond", "--machine", str(file), "--runs", "3", "--json")
    assert told.code == 0, told.err
    low, high = told.json["seconds_interval"]
    assert low <= told.json["seconds"] <= high
    assert set(told.json["twice_as_much"]) == set(RESOURCES)
    assert "it is bound by" in " ".join(cli("bench", "simulate", "diamond", "--machine", str(file)).out.split())
    assert "--replay RUN" in cli("bench", "simulate", "--machine", str(file)).err
    assert "is no workload" in cli("bench", "simulate", "wider", "--machine", str(file)).err
    assert "step_seconds" in cli("bench", "machine", "--schema").out
    assert "has no such model" in cli("bench", "machine", "nobody").err


def test_a_task_with_files_is_simulated_with_those_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("Zilthir is a ship.")
    step = {"id": "S1", "actor": "worker", "action": "Go.", "inputs": ["a.txt"], "outputs": ["o.txt"]}
    inputs = [{"type": "path", "value": "a.txt"}]
    task = task_from({"objective": "o", "inputs": inputs, "plan": {"steps": [step]}})
    (tmp_path / "task.json").write_text(task.model_dump_json(exclude_unset=True))
    (tmp_path / "machine.json").write_text(to_text(machine()), encoding="utf-8")

    async def journal_run() -> None:
        with Journal.open(tmp_path / "home") as journal:
            folder = str(tmp_path / "texts")
            accepted = RunAccepted(at=0.0, run="R", mode="as-planned", task=task, directory=folder)
            await journal.append("R", [accepted])

    asyncio.run(journal_run())
    words = ("bench", "simulate", "--machine", str(tmp_path / "machine.json"), "--no-advice", "--json")
    cli = make_command(tmp_path / "home")
    told = cli(*words, str(tmp_path / "task.json"), "--dir", str(tmp_path / "texts"))
    assert (told.code, told.json["status"]) == (0, "done")
    assert cli(*words, str(tmp_path / "task.json")).code == 2
    again = cli(*words, "--replay", "R")
    assert (again.code, again.json["status"]) == (0, "done")
    measured = cli("bench", "critical-path", "--replay", "R", "--rounds", "1", "--no-serial", "--json")
    assert (measured.code, measured.json["summaries"][0]["statuses"]) == (0, {"done": 1}), measured.err
    (tmp_path / "texts").rename(tmp_path / "moved")
    refused = cli("bench", "critical-path", "--replay", "R", "--rounds", "1", "--no-serial")
    assert (refused.code, "texts: does not exist" in refused.err) == (2, True)


@pytest.mark.slow
def test_the_plan_of_a_run_is_measured_and_simulated_again(tmp_path: Path) -> None:
    cli = make_command(tmp_path / "home")
    task = tmp_path / "own.json"
    plan = workloads()["wide-4"].tasks["wide-4"].model_dump(mode="json", exclude_defaults=True)
    task.write_text(json.dumps(plan), encoding="utf-8")
    ran = cli("run", str(task), "--json")
    assert ran.code == 0, ran.err
    measured = cli("bench", "critical-path", "--replay", "last", "--rounds", "1", "--no-serial", "--json")
    assert measured.code == 0, measured.err
    (one,) = measured.json["summaries"]
    assert (one["task"], one["steps"], one["statuses"]) == (ran.json["run_id"], 5, {"done": 1})
    file = tmp_path / "machine.json"
    file.write_text(to_text(machine()), encoding="utf-8")
    told = cli("bench", "simulate", "--replay", "last", "--machine", str(file), "--no-advice", "--json")
    assert told.code == 0, told.err
    assert told.json["status"] == "done"
    assert (
        "there are no runs"
        in make_command(tmp_path / "empty")("bench", "simulate", "--replay", "last", "--machine", str(file)).err
    )


@pytest.mark.slow
def test_this_machine_is_measured_and_the_file_can_be_simulated(tmp_path: Path) -> None:
    cli = make_command(tmp_path / "home")
    told = cli("bench", "machine", "tiny-large")
    assert told.code == 0, told.err
    file = tmp_path / "machine.json"
    file.write_text(told.out, encoding="utf-8")
    found = read_machine(file)
    assert list(found.models) == ["tiny-large"]
    assert found.overheads.commit_seconds > 0
    simulated = cli("bench", "simulate", "wide-4", "--machine", str(file), "--json")
    assert simulated.json["status"] == "done"


def test_more_machines_do_more_at_once_and_what_a_machine_is_away_counts(tmp_path: Path) -> None:
    narrow = machine(slots=4)
    one, three = (
        run("wide-16", narrow.model_copy(update={"machines": count}), tmp_path / str(count)) for count in (1, 3)
    )
    far = narrow.model_copy(update={"machines": 3, "overheads": Overheads(away_seconds=5.0)})
    away = run("wide-16", far, tmp_path / "away")
    assert (one.engines, three.engines, away.engines) == (1, 3, 3)
    assert three.seconds < one.seconds / 1.3
    assert away.seconds > three.seconds + 1


def test_machines_that_run_the_same_have_throughput_for_each(tmp_path: Path) -> None:
    load = Load("two runs each", "wide-4", each=2)
    first, second = scaling(REGISTRY, Overheads(), (load,), (1, 2), lambda line: None)
    assert (first.machines, first.runs, first.steps, first.linear) == (1, 2, 10, 1.0)
    assert (second.machines, second.runs, second.steps) == (2, 4, 20)
    assert 0.8 < second.linear <= 1.2
    assert second.critical_path <= second.seconds + 1e-6  # times of events are rounded to a tenth of that
