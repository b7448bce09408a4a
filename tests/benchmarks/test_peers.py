"""The benchmark of whole tasks beside peers: tasks, rows and results, and real systems on the embedded model."""

import asyncio
import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import page, results
from benchmarks.engine.peers import Peers
from benchmarks.peers import __main__ as commands
from benchmarks.peers import growth, report
from benchmarks.peers import run as running
from benchmarks.peers.__main__ import FOLDER, LOCK, ROOT, SYSTEMS, main
from benchmarks.peers.rows import CacheState, GrowthRow, OwnFigures, PeerRow, append, read, read_published
from benchmarks.peers.run import PeerPlan, measure
from benchmarks.peers.suite import (
    NOT_COMPARED,
    SUITE,
    PeerWorkload,
    discovered_width,
    find,
    has_needless_order,
    has_use_for_barriers,
    with_barriers,
)
from benchmarks.peers.systems import AGENT, DISCOVER, GREEDY, LANGGRAPH, OURS, WAVES, default_python
from benchmarks.peers.trace import CallTrace, ModelCall
from orchestrator.bench.critical_path.workloads import Document, workloads
from orchestrator.task.analysis import analyze_task
from tests.orchestrator.bench.test_critical_path import row as own_row

STAMP: Mapping[str, Any] = {"machine": {"processor": "p", "cores": 2}, "threads": 1}
HERE = "p with 2 cores"


def small(ratio: float) -> Document:
    """Return a document in which barriers and `discover` change something, and a fan-out is known only at run time."""
    text = {"type": "string", "minLength": 4, "maxLength": 4}
    listed = {"type": "array", "minItems": 2, "maxItems": 2, "items": text}
    plan: list[Document] = [
        {"id": "S1", "action": "Write.", "outputs": ["a.json"], "output_schema": text},
        {"id": "S2", "action": "List.", "outputs": ["b.json"], "output_schema": listed, "depends_on": ["S1"]},
        {"id": "S3", "action": "Go on.", "outputs": ["c.json"], "output_schema": text, "inputs": ["a.json"]},
        {"id": "S4", "action": "Go on.", "outputs": ["d.json"], "output_schema": text, "inputs": ["c.json"]},
        {"id": "S5", "action": "Note.", "outputs": ["e"], "output_schema": text, "foreach": "b.json"},
        {"id": "S6", "action": "Join.", "outputs": ["f.json"], "output_schema": text, "inputs": ["d.json", "e"]},
    ]
    steps = [{"actor": "worker", "run_gates": False, **step} for step in plan]
    return {"objective": "A small task", "plan": {"steps": steps}}


SMALL = PeerWorkload("small", "a small task", small)


def peer_row(system: str, number: int, seconds: float, state: CacheState = "cold", workload: str = "shared") -> PeerRow:
    """Return the row of a system, with a report if it is ours."""
    own = own_row(seconds, number + 1) if system == OURS else None
    return PeerRow(
        model="smollm2",
        workload=workload,
        number=number,
        product="p",
        machine=HERE,
        system=system,
        state=state,
        seconds=seconds,
        tokens=10,
        prompt_tokens=20,
        own=None if own is None else OwnFigures.of(own),
        run=own,
    )


def plan_of(folder: Path, systems: tuple[str, ...], **changes: Any) -> PeerPlan:
    """Return a plan of one round of the small task."""
    plan = PeerPlan(
        folder=folder,
        server=Peers.under(FOLDER).server,
        python=default_python(FOLDER),
        systems=systems,
        workloads=(SMALL,),
        rounds=1,
        threads=1,
        file=folder / "rows.jsonl",
        stamp=STAMP,
        product="p",
        deadline=math.inf,
        tell=lambda line: None,
        settled_seconds=0.1,
    )
    return replace(plan, **changes)


def test_every_round_has_a_task_of_its_own_that_is_the_same_each_time() -> None:
    for workload in SUITE:
        first, second, again = (workload.task(number, 1.4) for number in (0, 1, 0))
        assert first == again
        texts = [(one.plan.steps[0].action, [text.value for text in one.inputs]) for one in (first, second)]
        assert texts[0][0] != texts[1][0]
        assert all(one != other for one, other in zip(texts[0][1], texts[1][1], strict=True))
        assert [analyze_task(one).waves for one in (first, second)] == [analyze_task(first).waves] * 2


def test_waves_and_discover_are_for_the_tasks_that_they_change() -> None:
    assert [one.name for one in SUITE if has_use_for_barriers(one.task(0, 1.4))] == [
        "irregular",
        "irregular-24",
    ]
    assert [one.name for one in SUITE if has_needless_order(one.task(0, 1.4))] == ["ordered"]
    assert has_use_for_barriers(SMALL.task(0, 1.0))
    assert has_needless_order(SMALL.task(0, 1.0))
    (ordered,) = find(("ordered",))
    assert analyze_task(ordered.task(0, 1.4)).width == 1
    assert discovered_width(ordered.task(0, 1.4)) == 8


def test_with_barriers_a_step_waits_for_the_whole_wave_before_it() -> None:
    for workload in (*SUITE, SMALL):
        task = workload.task(0, 1.4)
        waves, graph = analyze_task(task).waves, analyze_task(with_barriers(task))
        assert graph.waves == waves
        for before, wave in pairwise(waves):
            assert all(set(before) <= set(graph.before[name]) for name in wave)


def test_a_name_that_is_no_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one.name for one in find(("deep", "shared"))] == ["shared", "deep"]
    with pytest.raises(SystemExit, match="there is no workload 'sharde'; accepted: shared, "):
        main(["list", "--workloads", "sharde"])
    main(["list"])
    listed = capsys.readouterr().out
    assert all(one.name in listed for one in SUITE)


@given(st.integers(1, 7), st.randoms(use_true_random=False))
def test_the_width_is_that_of_the_most_calls_that_can_run_at_once(count: int, draw: random.Random) -> None:
    before = {at: [one for one in range(at) if draw.random() < 0.3] for at in range(count)}
    calls = [ModelCall(str(at), tuple(map(str, before[at])), "", "", 1, 1) for at in before]
    reach: dict[int, set[int]] = {}
    for at in before:
        reach[at] = set(before[at]).union(*(reach[one] for one in before[at]))

    def apart(some: tuple[int, ...]) -> bool:
        return all(one not in reach[other] and other not in reach[one] for one, other in combinations(some, 2))

    most = max(size for size in range(1, count + 1) if any(map(apart, combinations(range(count), size))))
    assert CallTrace(tuple(calls)).width == most


def test_rows_are_read_again_but_for_torn_lines_and_other_machines(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert read(file, STAMP) == ([], [])
    kept = peer_row(OURS, 0, 1.5)
    grown = GrowthRow(10, 0.1, "p", HERE)
    append(file, STAMP, replace(kept, machine=""), grown)
    append(file, {**STAMP, "threads": 2}, peer_row(OURS, 1, 9.0))
    with file.open("a", encoding="utf-8") as target:
        target.write('{"stamp": {"thre')
    assert read(file, STAMP) == ([kept], [grown])


def test_published_rows_are_read_as_they_were_measured_but_for_what_is_not_published(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert read_published(file, STAMP) == ([], []), "nothing was published yet"
    rows, grown = [peer_row(OURS, 0, 1.5), peer_row(LANGGRAPH, 0, 2.5, "warm")], [GrowthRow(10, 0.1, "p", HERE)]
    results.write(file, report.document(rows, grown, STAMP, {}, {}))
    assert read_published(file, STAMP) == ([replace(row, run=None) for row in rows], grown)
    other = {**STAMP, "machine": {"processor": "q", "cores": 4}}
    assert read_published(file, other) == read_published(file, STAMP), "they are told to be of the first machine"
    assert read_published(file, {**STAMP, "threads": 2}) == ([], [])
    document = json.loads(file.read_text(encoding="utf-8"))
    for row in (*document["rows"], *document["growth"]):
        del row["machine"]
    file.write_text(json.dumps(document), encoding="utf-8")
    assert read_published(file, other) == ([replace(row, run=None) for row in rows], grown), "as they once were written"


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"machine": {"processor": "p", "cores": 2}, "threads": 1, "rows": [{}]}']
)
def test_a_file_that_holds_other_results_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"results\.json: it is no result of this benchmark: "):
        read_published(file, STAMP)
    report_of = ["report", "--models", "embedded", "--folder", str(tmp_path), "--results", str(file), "--published"]
    with pytest.raises(SystemExit, match="without --published it is not read"):
        main(report_of)


def test_what_another_machine_has_measured_whole_is_not_measured_again(tmp_path: Path) -> None:
    (deep,) = find(("deep",))
    rows = [replace(peer_row(OURS, number, 1.0, workload="deep"), machine="q with 4 cores") for number in range(5)]
    plan = plan_of(tmp_path, (OURS,), workloads=(deep,), rounds=5, known=rows)
    assert plan.left("smollm2", deep) == []
    assert plan.left("150m", deep) == [0, 1, 2, 3, 4]
    begun = replace(plan, known=[*rows[:4], peer_row(OURS, 2, 1.0, workload="deep")])
    assert begun.left("smollm2", deep) == [0, 1, 3, 4], "rounds of two machines are not mixed"


@pytest.mark.slow
def test_measuring_goes_on_from_published_rows_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(commands, "_say", told.append)
    file = tmp_path / "results.json"
    stamp = report.stamp(1, [OURS])
    results.write(file, report.document(rounds_of(OURS, 1.0), [GrowthRow(10, 0.5)], stamp, {}, {}))
    main(["report", "--models", "embedded", "--systems", OURS, "--folder", str(tmp_path), "--results", str(file)])
    assert "smollm2" not in told[0]
    again = ["report", "--published", "--models", "embedded", "--systems", OURS, "--folder", str(tmp_path)]
    main([*again, "--results", str(file)])
    assert "smollm2    shared       cold  ours                 1.02" in told[1]
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert (len(kept["rows"]), kept["growth"][0]["seconds"]) == (5, 0.5)


def test_a_ratio_compares_rounds_with_the_same_number() -> None:
    rows = [peer_row(OURS, 0, 1.0), peer_row(GREEDY, 0, 2.0), peer_row(GREEDY, 1, 50.0), peer_row(OURS, 2, 1.0)]
    found = report.ratio_of(rows, "smollm2", "shared", "cold", GREEDY)
    assert found is not None
    assert (found.median, found.rounds) == (2.0, 1)
    assert report.ratio_of(rows, "smollm2", "shared", "warm", GREEDY) is None


def rounds_of(system: str, seconds: float, workload: str = "shared") -> list[PeerRow]:
    """Return five rounds of a system."""
    return [peer_row(system, at, seconds * (1 + 0.01 * at), workload=workload) for at in range(5)]


def test_goals_are_met_by_the_interval_and_missed_with_the_place_named() -> None:
    rows = [*rounds_of(OURS, 1.0), *rounds_of(LANGGRAPH, 4.0), *rounds_of(GREEDY, 2.0), *rounds_of(AGENT, 3.0)]
    found = {goal.name: goal for goal in report.goals(rows, [GrowthRow(10, 0.02), GrowthRow(1000, 5.0)])}
    long = found["LangGraph, greedy executor ÷ ours, 16 share 1,000 tokens, cold"]
    assert (long.met, long.value, long.reached, long.cells) == (False, 2.0, 1, 2)
    assert long.where == "smollm2, shared, cold, greedy executor"
    assert found["LangGraph, greedy executor ÷ ours, shared prefix, cold"].met
    assert not found["one agent ÷ ours, 16 longer notes"].met, "what was not measured is not met"
    own = found["our own time per step, ms"]
    assert (own.met, own.value, own.where) == (False, 5.0, "1000 steps")


def test_the_table_has_a_line_for_each_workload() -> None:
    rows = [
        *rounds_of(OURS, 1.0),
        *rounds_of(GREEDY, 2.0),
        *rounds_of(OURS, 1.0, "deep"),
        *rounds_of(AGENT, 1.0, "deep"),
    ]
    found = json.loads(json.dumps(report.document(rows, [], STAMP, {}, {"smollm2": ["wide-4"], "150m": []})))
    assert found["left"] == {"smollm2": ["wide-4"]}
    table = "\n".join(page.peer_table(found))
    assert "| shared: 16 steps read one document of 1,000 tokens |  |  | 2.00 (2.00 to 2.00) |  |  | 0.50 |" in table
    assert "| deep: a chain of 20 steps | 1.00 (1.00 to 1.00) |" in table
    assert "smollm2 on p with 2 cores.\n\nNot measured yet with smollm2: wide-4.\n" in table
    table = table.partition("\nNot measured yet")[0]
    rows += [replace(row, machine="q with 4 cores") for row in rounds_of(OURS, 1.0, "wide-4")]
    rows += [replace(row, machine="q with 4 cores") for row in rounds_of(AGENT, 1.5, "wide-4")]
    both = "\n".join(page.peer_table(report.document(rows, [], STAMP, {}, {})))
    assert both.startswith(table), "each machine has a table of its own"
    assert "| wide-4: 4 short notes and their summary | 1.50 (1.50 to 1.50) |" in both.removeprefix(table)
    assert "smollm2 on q with 4 cores.\n" in both


def test_the_picture_is_one_svg_that_needs_nothing_else() -> None:
    assert report.picture(rounds_of(GREEDY, 1.0, "irregular")) is None
    drawn = report.picture(rounds_of(OURS, 1.0, "irregular"))
    assert drawn is not None
    assert drawn.startswith("<svg xmlns='http://www.w3.org/2000/svg'")
    assert "S2&lt;b&gt;" in drawn
    assert drawn.count("http") == 1


def test_the_lock_pins_what_the_extra_names() -> None:
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=str.lower)
    assert all(line.count("==") == 1 and "://" not in line for line in lines)
    assert {"langgraph", "langchain-openai"} <= {line.partition("==")[0] for line in lines}


def test_our_own_part_of_a_small_task_is_measured() -> None:
    found = growth.measure(12)
    assert found.steps == 12
    assert found.per_step == pytest.approx(1000 * found.seconds / 12)


def run(plan: PeerPlan) -> list[PeerRow]:
    """Measure the embedded model, and return the rows that were kept."""
    asyncio.run(measure(plan, "embedded", ROOT / "registry" / "tiny" / "large.gguf"))
    return read(plan.file, STAMP)[0]


@pytest.mark.parametrize("others", [(AGENT,), pytest.param((AGENT, WAVES, DISCOVER), marks=pytest.mark.slow)])
def test_the_systems_that_need_nothing_else_do_the_same_work(tmp_path: Path, others: tuple[str, ...]) -> None:
    told: list[str] = []
    plan = plan_of(tmp_path, (OURS, *others), tell=told.append)
    rows = run(plan)
    expected = [(OURS, "cold"), (OURS, "warm"), *((other, "cold") for other in others)]
    assert [(row.system, row.state) for row in rows] == expected, told
    assert all(0.5 < row.tokens / rows[2].tokens < 2 for row in rows), "texts of a weak model differ a little"
    assert all(
        row.own is not None and row.run is not None and row.run.status == "done" for row in rows if row.system != AGENT
    )
    assert run(replace(plan, known=rows)) == rows, "what was measured is not measured again"
    late = replace(plan, rounds=2, known=rows, deadline=0.0)
    assert asyncio.run(measure(late, "embedded", ROOT / "registry" / "tiny" / "large.gguf")) == ["small"]


def test_a_task_that_is_wide_runs_in_a_cache_whose_sequences_share_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MOST_CELLS", 0)
    told: list[str] = []
    rows = run(plan_of(tmp_path, (OURS,), workloads=(replace(SMALL, warm=False),), tell=told.append))
    assert [(row.system, row.state) for row in rows] == [(OURS, "cold")], told
    (registry,) = tmp_path.glob("embedded-*.registry.yaml")
    (model,) = json.loads(registry.read_text(encoding="utf-8"))["models"].values()
    assert model["cells"] >= model["context"]


@pytest.mark.peers
def test_the_served_systems_do_the_same_work(tmp_path: Path) -> None:
    told: list[str] = []
    rows = run(plan_of(tmp_path, (OURS, LANGGRAPH, GREEDY), tell=told.append))
    assert [(row.system, row.state) for row in rows] == [
        (system, state) for system in (OURS, LANGGRAPH, GREEDY) for state in ("cold", "warm")
    ], told
    served = rows[2:]
    assert {row.tokens for row in served} == {served[0].tokens}
    assert {row.prompt_tokens for row in served} == {served[0].prompt_tokens}
    assert 0.5 < rows[0].tokens / served[0].tokens < 2, "texts of a weak model differ a little"


@pytest.mark.slow
def test_a_peer_that_is_missing_is_named_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    with pytest.raises(SystemExit, match=r"llama-server, .*python is missing; .*build` makes it"):
        main(["run", "--folder", str(tmp_path), "--systems", *SYSTEMS])


def test_each_workload_of_the_product_is_compared_or_has_a_reason_why_not() -> None:
    assert set(workloads()) - {one.name for one in SUITE} == set(NOT_COMPARED)


def test_a_generated_model_does_only_the_tasks_that_tell_of_its_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[str]] = {}

    async def note(plan: PeerPlan, model: str, file: Path) -> list[str]:
        asked[model] = [one.name for one in plan.workloads]
        return []

    monkeypatch.setattr(commands, "measure", note)
    monkeypatch.setattr(commands, "_code", lambda: "as it is")  # a hash of all code takes seconds
    monkeypatch.setattr(commands, "_file", lambda options, name: tmp_path / name)
    common = ["run", "--folder", str(tmp_path), "--systems", OURS, "--trial"]
    main([*common, "--models", "smollm2", "150m"])
    assert asked == {"smollm2": [one.name for one in SUITE], "150m": [one.name for one in SUITE if one.generated]}
    main([*common, "--models", "500m", "--workloads", "deep"])
    assert asked["500m"] == ["deep"]
