"""The frontdoor is really trained: sampled by the real engine, run in the harness, learned from, exported, compared."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.errors import InputError
from orchestrator.memrl.parl.allowed import allowed_tokens
from orchestrator.memrl.parl.curves import ABOUT
from orchestrator.memrl.parl.engines import RealEngines
from orchestrator.memrl.parl.harness import FixedPlan, GreedyPolicy, Harness
from orchestrator.memrl.parl.history import rated_requests
from orchestrator.memrl.parl.machines import machines_for, other_worker
from orchestrator.memrl.parl.natural import NaturalPlans
from orchestrator.memrl.parl.requests import HELD_OUT, TRAINED, FamilyName, make_request
from orchestrator.memrl.parl.reward import RewardSettings, result_of, stage_over
from orchestrator.registry.gguf import read_adapter, read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.compact import Part, PlanStream, plan_schema, plan_text
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import load_report
from orchestrator.task.events import AttemptFailed, AttemptStarted, AttemptSucceeded, RatingGiven
from orchestrator.task.taskir.parse import task_from
from tests.memrl.parl.adapters import TINY
from tests.orchestrator.run_jobs import execute

TEXT = f"""\
models:
  large: {{file: {TINY}/large.gguf, threads: 1, context: 2048}}
  medium: {{file: {TINY}/medium.gguf, threads: 1, context: 2048}}
roles:
  frontdoor: {{model: large, tier: A}}
  worker: {{model: large, tier: C}}
"""


@pytest.fixture
def base(tmp_path: Path) -> Registry:
    path = tmp_path / "registry.yaml"
    path.write_text(TEXT)
    return load_registry(path)


def test_plans_are_run_by_the_harness_on_each_machine(base: Registry, tmp_path: Path) -> None:
    request = make_request("independent", 4, "harness")
    small, *_, large = machines_for(base)
    with RealEngines(base, tmp_path / "answers.jsonl") as engines:
        harness = Harness(base, engines, tmp_path)
        best = harness.best(request, small)
        assert (best.width, best.steps, best.used) == (4, 4, 4)
        assert harness.best(request, large).seconds < best.seconds
        one = Part(role="worker", action="Summarize the files.", inputs=tuple(request.files))
        narrow = harness.run(request, small, FixedPlan(plan_text([one])))
        assert narrow.result.width == 1
        assert narrow.result.score < best.score
        flawed = harness.run(request, small, FixedPlan('{"plan":[{"role":"nobody","action":"Do it."}]}'))
        assert (len(flawed.plans), flawed.result.steps) == (2, 1), "repaired once, then answered directly"
        greedy = harness.run(request, small, GreedyPolicy(engines, "large", ()))
        assert "Cores: 2" in greedy.plans[0].messages[-1].content
        untold = harness.run(request, small, GreedyPolicy(engines, "large", ()), by_cores=False)
        assert "Cores" not in untold.plans[0].messages[-1].content
    known = (tmp_path / "answers.jsonl").read_text()
    with RealEngines(base, tmp_path / "answers.jsonl") as engines:
        assert Harness(base, engines, tmp_path).best(request, small) == best
    assert (tmp_path / "answers.jsonl").read_text() == known, "frozen workers are asked once"


def test_the_machine_decides_how_wide_records_are_gathered(base: Registry, tmp_path: Path) -> None:
    request = make_request("gathered", 6, "harness")
    small, *_, large = machines_for(base)
    with RealEngines(base, tmp_path / "answers.jsonl") as engines:
        harness = Harness(base, engines, tmp_path)
        results = [
            [harness.run(request, machine, FixedPlan(plan)).result for plan in request.plans]
            for machine in (small, large)
        ]
        assert [(plan.score, plan.width) for plan in results[0]] == [(1.0, 1), (1.0, 6)], "both are right"
        assert results[0][0].seconds < results[0][1].seconds, "splitting takes longer on two cores"
        assert results[1][0].seconds > 1.5 * results[1][1].seconds
        assert harness.best(request, small).width == 1
        assert harness.best(request, large).width == 6


def test_a_step_is_needless_only_if_the_plan_runs_without_it(base: Registry, tmp_path: Path) -> None:
    machine = machines_for(base)[0]
    chained, independent = (make_request(family, 2, "harness") for family in ("chained", "independent"))
    with RealEngines(base, tmp_path / "answers.jsonl") as engines:
        harness = Harness(base, engines, tmp_path)
        refused = harness.run(chained, machine, FixedPlan("{}"))
        assert (refused.result.score, refused.result.steps) == (1.0, 1), "a direct answer is right"
        assert harness.removable_share(chained, machine, chained.plans[0]) == 0, "the second step reads the first"
        plan = json.loads(independent.plans[0])
        action, file = "Extract the names from {each}.", next(iter(independent.files))
        plan["plan"].append({"role": "worker", "action": action, "each": [file]})
        assert harness.removable_share(independent, machine, json.dumps(plan)) == pytest.approx(1 / 3)


def test_the_other_worker_understands_the_same_prompts(base: Registry) -> None:
    assert other_worker(base) == "medium"


def test_a_training_continues_after_its_last_update(base: Registry, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.train import IMITATED, Imitation, Training, TrainSettings, train

    machines, folder = machines_for(base)[:1], tmp_path / "training"
    few = Imitation(examples=6, rows=3, rounds=1)
    first = TrainSettings(updates=1, requests=2, group=4, imitation=few, reward=RewardSettings(stage=stage_over(1)))
    adapter = train(folder, base, machines, first)
    assert adapter is not None
    file = base.models["large"].file
    assert file is not None
    assert read_adapter(adapter, read_header(file)) > 0
    begun = Training(folder, file, first)
    assert train(folder, base, machines, replace(first, updates=3), is_over=lambda: True) is None
    longer = replace(first, updates=2, reward=RewardSettings(stage=stage_over(2)))
    train(folder, base, machines, longer)
    done = Training(folder, file, first)
    assert (begun.done, done.done) == (1, 2)
    assert done.points[:1] == begun.points
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / IMITATED, copy)
    imitated = Training(copy, file, first)
    assert (imitated.has_imitated, imitated.done) == (True, 0)
    assert 0 < imitated.seconds < begun.seconds < done.seconds, "imitation is a part of the training's time"
    page = (folder / "curves.html").read_text()
    assert "Training of the frontdoor" in page
    assert [name for name, about in ABOUT.items() if escape(about) not in page] == []
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page), "it works offline"
    with pytest.raises(InputError, match="a training with other settings"):
        train(folder, base, machines, replace(first, updates=2, requests=3))


def command(base: Registry, tmp_path: Path) -> list[str]:
    options = [
        "--updates=3",
        "--examples=8",
        "--requests=2",
        "--group=4",
        "--pairs=6",
        f"--folder={tmp_path / 'training'}",
        "--json",
    ]
    program = [sys.executable, "-m", "orchestrator", "--home", str(tmp_path / "home"), "--registry", str(base.path)]
    return [*program, "frontdoor", "train", *options]


def in_a_terminal(command: list[str]) -> tuple[bytes, str]:
    """Return what a command writes to a pipe, and what it shows in a terminal meanwhile."""
    terminal, end = pty.openpty()
    shown = bytearray()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(end)
        with os.fdopen(terminal, "rb", buffering=0) as screen, suppress(OSError):  # it ends with an error
            while part := screen.read(4096):
                shown += part
        assert process.stdout is not None
        written = process.stdout.read()
    assert process.returncode == 0, shown
    return written, shown.decode()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_is_killed_continues_and_is_compared(base: Registry, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    checkpoint = tmp_path / "training" / "checkpoint.pt"
    process = subprocess.Popen(
        command(base, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    points = torch.load(checkpoint, weights_only=True)["points"]
    written, shown = in_a_terminal(command(base, tmp_path))
    assert "updates" in shown
    assert "3/3" in shown, "the progress bar is full"
    report = json.loads(written)
    state = torch.load(checkpoint, weights_only=True)
    assert state["done"] == 3
    assert [point["stage"] for point in state["points"]] == [0.1, 0.05, 0.0]
    assert state["points"][: len(points)] == points
    assert report["complete"]
    assert report["requests"] == 6
    natural = NaturalPlans(**report["natural"])
    assert natural.count == 6
    assert report["promoted"] == report["better"] == (report["low"] > 0 and not natural.spoiled)
    role = load_registry(base.path).roles["frontdoor"]
    assert [each.file for each in role.lora] == ([report["adapter"]] if report["promoted"] else [])


def test_a_missing_extra_is_named(
    base: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from orchestrator.app import command_line
    from orchestrator.memrl.parl import train_command

    monkeypatch.setattr(train_command, "NEEDED", ("no_such_module",))
    monkeypatch.setattr(sys, "argv", ["orchestrator", *command(base, tmp_path)[3:]])
    with pytest.raises(SystemExit) as ended:
        command_line()()
    assert ended.value.code
    assert "pip install 'orchestrator[train]'" in capsys.readouterr().out


def test_a_plan_is_imitated_in_the_form_that_the_grammar_wants(base: Registry, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.train import reading_first

    file = base.models["large"].file
    assert file is not None
    families: tuple[FamilyName, ...] = (*TRAINED, HELD_OUT)
    with RealEngines(base, tmp_path / "answers.jsonl") as engines, allowed_tokens(file) as allowed:
        for request in (make_request(family, 3, "form") for family in families):
            files = sorted(request.files)
            free = schema_grammar(plan_schema(("worker",)))
            listed = schema_grammar(plan_schema(("worker",), listed=Listed.of(request.text, files)))
            for plan in request.plans:
                allowed.along(free, engines.text_tokens("large", plan))
                tokens = engines.text_tokens("large", reading_first(plan))
                assert len(allowed.along(listed, tokens)) == len(tokens)
                assert len([*PlanStream().feed(reading_first(plan))]) == plan.count('"role"')


async def test_the_cost_of_a_plan_is_the_time_in_the_journal(base: Registry, tmp_path: Path) -> None:
    folder, home = tmp_path / "mine", tmp_path / "home"
    request = make_request("gathered", 4, "clock")
    folder.mkdir()
    for name, text in request.files.items():
        (folder / name).write_text(text)
    steps = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": f"Summarize {name}.",
            "inputs": [name],
            "outputs": [f"t{number}"],
        }
        for number, name in enumerate(request.files)
    ]
    join = {"id": "S9", "actor": "worker", "action": "Merge the records.", "inputs": ["t0", "t1", "t2", "t3"]}
    task = task_from({"objective": "a test", "plan": {"steps": [*steps, {**join, "outputs": ["all"]}]}})
    async with Orchestrator.open(home, base, Ports(follows_registry=False)) as orchestrator:
        run = await execute(orchestrator, Job(None, task, folder, "as-planned"))
    with JournalReader.open_to_read(home) as journal:
        report = load_report(journal, run)
        started: dict[str, float] = {}
        ended: dict[str, float] = {}
        for _, event in journal.events(run):
            if isinstance(event, AttemptStarted):
                started.setdefault(event.step, event.at)
            elif isinstance(event, AttemptSucceeded | AttemptFailed):
                ended[event.step] = event.at
        texts = [journal.get(result.digest).decode() for result in report.results]
    assert report.status == "done"
    seconds = {step: ended[step] - start for step, start in started.items()}
    longest = max(seconds[f"S{number}"] for number in range(4)) + seconds["S9"]
    plan = result_of(report, request.check(texts))
    assert plan.seconds == report.critical_path.seconds == pytest.approx(longest)
    assert plan.serial_seconds == report.critical_path.serial_seconds
    assert (plan.width, plan.steps, plan.used, plan.score) == (4, 5, 5, 1.0)


def test_a_training_learns_from_the_requests_that_it_is_given(base: Registry, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.train import Imitation, TrainSettings, train

    request, scores = make_request("independent", 2, "own"), list[float]()

    def check(answers: Sequence[str]) -> float:
        scores.append(request.check(answers))
        return scores[-1]

    few = Imitation(examples=2, rows=2, rounds=1)
    settings = TrainSettings(updates=1, requests=2, group=4, history=1.0, imitation=few)
    assert train(tmp_path / "training", base, machines_for(base)[:1], settings, own=[replace(request, check=check)])
    assert max(scores) == 1.0, "its own check judges the answers"


async def run_and_rate(home: Path, registry: Registry, folder: Path, request: str, score: float) -> str:
    async with Orchestrator.open(home, registry, Ports(follows_registry=False)) as orchestrator:
        run = await execute(orchestrator, Job(request, None, folder, "as-planned"))
        at = orchestrator.clock.now()
        await orchestrator.journal.append(run, [RatingGiven(at=at, score=score, by="user")])
        return run


async def test_requests_that_the_user_rated_good_are_learned_from(base: Registry, tmp_path: Path) -> None:
    folder, home = tmp_path / "mine", tmp_path / "home"
    folder.mkdir()
    for name, text in (("a.txt", "name: Koldin\nowner: Hillem\nlength: 187"), ("b.txt", "name: Haklon\nlength: 405")):
        (folder / name).write_text(text)
    good = await run_and_rate(home, base, folder, "Summarize a.txt and b.txt.", 1.0)
    await run_and_rate(home, base, folder, "Summarize b.txt and a.txt.", 0.0)
    with JournalReader.open_to_read(home) as journal:
        (request,) = rated_requests(journal)
        assert (request.name, sorted(request.files)) == (good, ["a.txt", "b.txt"])
    with RealEngines(base, tmp_path / "answers.jsonl") as engines:
        best = await asyncio.to_thread(Harness(base, engines, tmp_path).best, request, machines_for(base)[0])
    assert (best.score, best.width) == (1.0, 2)
    assert request.check(["another answer"]) == 0.0
    (folder / "a.txt").write_text("something else")
    with JournalReader.open_to_read(home) as journal:
        assert rated_requests(journal) == [], "a file is not as it was"
