"""The engine's benchmark on real systems, with a model of no size: what it measures is right and is kept."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.engine import rows
from benchmarks.engine.__main__ import main
from benchmarks.engine.cells import TRIAL_HEADED, Cell, HeadCell
from benchmarks.engine.chats import Chats
from benchmarks.engine.measure import WrongAnswer, measure
from benchmarks.engine.models import TRIAL
from benchmarks.engine.names import HEADS, METHODS, OURS, POOLED, SERIAL, SERVER, SPLIT, speculating
from benchmarks.engine.paired import Rounds
from benchmarks.engine.peers import Peers
from benchmarks.engine.run import BenchmarkPlan, run
from benchmarks.engine.start import TINY, Place
from benchmarks.engine.system import SystemSetup
from benchmarks.engine.systems.serial import Serial
from benchmarks.engine.systems.served import Answered, Served, ServerFailed, free_port, serve
from benchmarks.engine.workload import loads
from tests.orchestrator.engine.llama_builds import copied

CELL = Cell(model="trial", width=3, prefix=20, own=6, answer=4)
STAMP = {"threads": 1}
ONCE = Rounds(1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model."""
    found = tmp_path_factory.mktemp("bench")
    TRIAL.write(found / "models")
    return found


def plan(
    folder: Path, told: list[str], systems: tuple[str, ...] = (OURS, SERIAL, POOLED, SPLIT), **options: object
) -> BenchmarkPlan:
    """Return a plan for one cell, with all systems that need no server unless others are given."""
    place = Place(folder, Peers.under(folder), systems)
    kept = {"stamp": STAMP, "engine": "this one", "file": folder / "rows.jsonl"}
    settings = {"cells": (CELL,), "rounds": Rounds(2, 2), **kept, **options}
    return BenchmarkPlan(place=place, tell=told.append, **settings)  # type: ignore[arg-type]


async def test_a_cell_is_measured_and_kept(folder: Path) -> None:
    told: list[str] = []
    assert await run(plan(folder, told, seconds=0.0)) == [CELL]
    assert await run(plan(folder, told)) == []
    found = rows.read(folder / "rows.jsonl", STAMP, [CELL])[CELL.name].rows
    measured = {(row.system, row.state): row for row in found}
    assert set(measured) == {(system, state) for system in (OURS, SERIAL, POOLED, SPLIT) for state in ("cold", "warm")}
    assert {(row.tokens, len(row.seconds)) for row in found} == {(CELL.width * CELL.answer, 2)}
    assert all(value > 0 for row in found for value in row.seconds)
    assert measured[OURS, "cold"].llama_seconds > 0
    assert measured[OURS, "cold"].own_seconds > 0


@pytest.mark.parametrize("method", HEADS)
async def test_a_head_is_measured_with_its_drafts_and_without(tmp_path: Path, method: str) -> None:
    cell = HeadCell(model=TRIAL_HEADED[method], width=2, own=352, answer=4)
    told: list[str] = []
    assert await run(plan(tmp_path, told, cells=(cell,), file=tmp_path / "rows.jsonl")) == []
    found = rows.read(tmp_path / "rows.jsonl", STAMP, [cell])[cell.name].rows
    assert {(row.cell, row.system, row.tokens) for row in found} == {
        (f"{method}/2", OURS, 8),
        (f"{method}/2", speculating(OURS, method), 8),
    }


@pytest.mark.slow
async def test_an_undecided_cell_gets_further_rounds_of_those_systems(folder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    once, kept = tmp_path / "once.jsonl", tmp_path / "rows.jsonl"
    assert await run(plan(folder, told, file=once)) == []
    first = rows.read(once, STAMP, [CELL])
    seconds = {OURS: (1.0, 1.0), SERIAL: (9.0, 0.1)}  # of these two, either may be the faster one
    before = [dataclasses.replace(row, seconds=seconds.get(row.system, (9.0, 9.0))) for row in first[CELL.name].rows]
    assert await run(plan(folder, told, file=kept, before={CELL.name: before}, rounds=Rounds(2, 4))) == []
    found = {(row.system, row.state): row for row in rows.read(kept, STAMP, [CELL])[CELL.name].rows}
    lengths = {system: {len(row.seconds) for (name, _), row in found.items() if name == system} for system, _ in found}
    assert lengths == {OURS: {4}, SERIAL: {4}, POOLED: {2}, SPLIT: {2}}
    assert found[SERIAL, "warm"].seconds[:2] == (9.0, 0.1)
    (ours,) = (row for row in before if (row.system, row.state) == (OURS, "cold"))
    assert found[OURS, "cold"].llama_seconds > ours.llama_seconds


@pytest.mark.slow
async def test_what_drafts_could_bring_at_best_is_reported_for_all_rounds(folder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    cell = Cell(model="trial", width=1, own=40, answer=24, task="copy")
    once, kept = tmp_path / "once.jsonl", tmp_path / "rows.jsonl"
    systems = (OURS, SERIAL)
    assert await run(plan(folder, told, systems, cells=(cell,), file=once)) == []
    drafting = {speculating(OURS, method) for method in METHODS}
    first = rows.read(once, STAMP, [cell])[cell.name].rows
    assert {row.system for row in first if row.bound is not None} == drafting
    noisy = [dataclasses.replace(row, seconds=(1.0, 9.0 if row.system == OURS else 0.1), bound=None) for row in first]
    options = {"cells": (cell,), "file": kept, "before": {cell.name: noisy}, "rounds": Rounds(2, 4)}
    assert await run(plan(folder, told, systems, **options)) == []
    found = rows.read(kept, STAMP, [cell])[cell.name].rows
    assert {len(row.seconds) for row in found} == {4}
    assert {row.system for row in found if row.bound is not None} == drafting


@pytest.mark.slow
def test_builds_of_llama_cpp_are_compared_in_pairs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builds = [copied(folder / name) for name in ("one", "two")]
    named = [argument for build in builds for argument in ("--library", str(build))]
    run = ["run", "--trial", "--folder", str(folder), "--cells", "trial/3x0", "--rounds", "2", *named]
    main(run)
    main(run)
    once, again = capsys.readouterr().out.split("0 of 1 cells are finished already\n")[1].split("1 of 1 cells")
    assert "trial/3x0" in once
    assert f"ours: {builds[0]}/libllama.so\nours, library 2: {builds[1]}/libllama.so\n" in again
    of_first, of_second = (line.split() for line in again.splitlines() if line.startswith("trial/3x0"))
    assert "library" not in of_first
    assert re.search(r"\d\.\d{3} \(\d\.\d{3}-\d+\.\d{3}\)", " ".join(of_second)), "how much faster the first one is"
    (kept,) = (folder / "libraries-trial.jsonl").read_text().splitlines()
    assert {(row["system"], len(row["seconds"])) for row in json.loads(kept)["rows"]} == {
        ("ours", 2),
        ("ours, library 2", 2),
    }


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("run", "--library", "build"), "at least two"),
        (("run", "--library", "build", "--library", "build/libllama.so"), "each one once"),
        (("run", "--library", "build", "--library", "nowhere"), "nowhere: there is no such file"),
        (("run", "--library", "build", "--library", "b", "--suite", "user-path"), "of the suite engine"),
        (("all", "--library", "build", "--library", "b"), "list, run and report"),
    ],
)
def test_a_comparison_of_builds_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], refused: str
) -> None:
    copied(tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=refused):
        main(arguments)


async def test_a_system_that_says_something_else_is_found_out(folder: Path) -> None:
    setup = SystemSetup(model=TRIAL.file(folder / "models"), width=3, context=CELL.context, threads=1, folder=folder)
    serial = await Serial.start(setup)
    wrong = {
        state: dataclasses.replace(load, texts=("dobu",) * CELL.width)
        for state, load in loads(CELL, TRIAL.following, 0).items()
    }
    with pytest.raises(WrongAnswer, match=r"one after the other says '.*'; the model says 'dobu'"):
        await measure(CELL, [serial], lambda _: wrong, ONCE, print)
    other = {
        state: dataclasses.replace(load, prompts=tuple(dataclasses.replace(p, text=" dobu") for p in load.prompts))
        for state, load in loads(CELL, TRIAL.following, 0).items()
    }
    with pytest.raises(WrongAnswer, match=r"makes \(1, 1, 1\) tokens of prompts of \(26, 26, 26\)"):
        await measure(CELL, [serial], lambda _: other, ONCE, print)
    await serial.close()


async def test_a_server_that_fails_is_left_out_and_reported(folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    process = await serve(command, port=port, health="/", log=folder / "log")
    broken = Served(SERVER, f"http://127.0.0.1:{port}/", process, lambda *_: {}, lambda _: Answered("", 0, 0))
    setup = SystemSetup(model=TRIAL.file(folder / "models"), width=3, context=CELL.context, threads=1, folder=folder)
    serial = await Serial.start(setup)
    told: list[str] = []
    try:
        found = await measure(CELL, [broken, serial], lambda n: loads(CELL, TRIAL.following, n), ONCE, told.append)
    finally:
        await broken.close()
        await serial.close()
    assert {row.system for row in found} == {SERIAL}
    assert len(told) == 1
    assert "left out of trial/3x20: llama-server: HTTPStatusError" in told[0]


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with pytest.raises(ServerFailed, match=r"ended with code 1; .*log says:\nno such model"):
        await serve(command, port=free_port(), health="/", log=tmp_path / "log")


@pytest.mark.skipif(not TINY.exists(), reason=f"{TINY} is not there")
def test_chats_have_the_tokens_of_the_model_and_share_their_beginning() -> None:
    cell = Cell(model="tiny-large", width=3, own=352, answer=4)
    chats = Chats.of(TINY)
    load = chats.load(cell, 0)
    assert load == chats.load(cell, 0)
    assert len({prompt.tokens for prompt in load.prompts}) == 3
    assert all(load.shared < len(prompt.tokens) <= cell.own for prompt in load.prompts)
    assert load.shared > 0
    text = "".join(chats.vocabulary.text(token) for token in load.prompts[0].tokens)
    assert text == load.prompts[0].text
    assert all(message.content in text for message in load.prompts[0].messages)
