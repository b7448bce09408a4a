"""What an explanation says of a step while it runs: the same to the API, to MCP clients and on the command line."""

import json
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import httpx2
import psutil
import pytest

from orchestrator.cli.daemon import step_progress
from tests.orchestrator.api.daemon_process import Running, executed, finished, submitted, summary
from tests.orchestrator.api.test_mcp import asked, over_socket
from tests.orchestrator.cli.cli_command import Cli, make_command

QUEUED = r"next in the queue|in the queue, \d+ ahead"
STEPS = [f"S{number}" for number in range(1, 21)]
"""More steps than an engine has slots."""
HOLD = {"bench": {"run": ["sleep", "100"], "max_seconds": 200}}
"""A gate that lasts until its run is cancelled."""


@pytest.fixture
def command(daemon: Running) -> Cli:
    """The command line on the daemon's state folder."""
    return make_command(daemon.home)


@contextmanager
def running(client: httpx2.Client, body: dict[str, Any]) -> Iterator[str]:
    """Submit a run, and cancel it at the end of the block."""
    run = submitted(client, body)
    try:
        yield run
    finally:
        client.post(f"/v1/runs/{run}/cancel")
        finished(client, run)


def crowd() -> dict[str, Any]:
    """Return the body of a run whose steps read long texts that begin with different words, and write long answers."""
    numbers = {"type": "array", "items": {"type": "integer"}, "minItems": 300}
    texts = [
        {"type": "text", "label": f"t{step}", "value": f"{step} sells tea. " + "It has a shop. " * 80} for step in STEPS
    ]
    steps = [
        {"id": step, "actor": "worker", "action": f"List numbers of t{step}.", "inputs": [f"t{step}"]}
        | {"outputs": [f"o{step}"], "output_schema": numbers, "max_tokens": 1024}
        for step in STEPS
    ]
    return {"task": {"objective": "a test", "inputs": texts, "plan": {"steps": steps}}}


def held() -> dict[str, Any]:
    """Return the body of a run whose step is checked by a gate that does not end."""
    step = {"id": "S1", "actor": "worker", "action": "Say yes or no.", "outputs": ["answer.json"]}
    plan = {"steps": [{**step, "output_schema": {"type": "boolean"}}]}
    return {"task": {"objective": "a test", "gates": ["bench"], "commands": HOLD, "plan": plan}}


def updates(client: httpx2.Client, run: str) -> Generator[dict[str, Any]]:
    """Yield the progress that whoever follows a run gets."""
    with client.stream("GET", f"/v1/runs/{run}/events") as answer:
        for event in httpx2.EventSource(answer):
            if event.event == "progress":
                yield json.loads(event.data)
    raise AssertionError("the run has ended without it")


def progress_of(client: httpx2.Client, run: str, step: str = "S1") -> dict[str, Any]:
    """Return the progress in the explanation of a step; empty if there is none."""
    progress: dict[str, Any] | None = client.get(f"/v1/runs/{run}/steps/{step}").json()["progress"]
    return progress or {}


def holding_gates(daemon: Running) -> int:
    """Return how many gates run."""
    count = 0
    for child in psutil.Process(daemon.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            count += child.name() == "sleep"
    return count


async def test_prompts_that_are_read_and_places_in_the_queue_are_explained(
    daemon: Running, client: httpx2.Client, command: Cli
) -> None:
    with running(client, crowd()) as run:
        with closing(updates(client, run)) as following:
            for _ in following:
                shown = {step: progress_of(client, run, step) for step in STEPS}
                ahead = {step: shown[step]["ahead"] for step in STEPS if shown[step].get("ahead") is not None}
                if ahead and any(progress.get("prompt_tokens") for progress in shown.values()):
                    break
        last = max(ahead, key=lambda step: ahead[step])  # in the queue, which it does not leave for a while
        for progress in shown.values():
            if progress.get("ahead") is not None:
                assert re.fullmatch(QUEUED, progress["words"])
                assert str(progress["ahead"] or "next") in progress["words"]
            elif progress.get("prompt_tokens"):
                assert progress["words"] == f"read {progress['read_tokens']} of {progress['prompt_tokens']} tokens"
        assert re.search(rf"Attempt 1 +running\n(?s:.*)\n +({QUEUED})\n", command("explain", run, last).out)
        assert re.fullmatch(QUEUED, command("explain", run, last, "--json").json["progress"]["words"])
        async with over_socket(daemon) as mcp:
            assert re.fullmatch(QUEUED, (await asked(mcp, "explain", run_id=run, step=last))["progress"]["words"])
    assert not any(progress_of(client, run, step) for step in STEPS)
    assert not re.search(QUEUED, command("explain", run, last).out)


def test_an_answer_that_is_written_is_explained(client: httpx2.Client, command: Cli) -> None:
    with running(client, crowd()) as run:
        with closing(updates(client, run)) as following:
            before = next(update for update in following if update["output_tokens"] > 1)
        step = before["step"]
        progress = progress_of(client, run, step)
        assert progress["output_tokens"] >= before["output_tokens"]
        assert progress.keys() == {*before, "words", "gate_seconds"}
        assert progress["words"].startswith(f"being written: {progress['output_tokens']} tokens so far, ")
        assert re.search(r"being written: \d+ tokens so far, \d+ tok/s\n", command("explain", run, step).out)


@pytest.mark.usefixtures("sandbox")
async def test_gates_that_check_or_wait_for_a_core_are_explained(
    daemon: Running, client: httpx2.Client, command: Cli
) -> None:
    with running(client, held()) as first:
        with closing(updates(client, first)) as following:
            next(update for update in following if update["gates"] and not update["waits_for_core"])
        while not holding_gates(daemon):
            pass
        earlier, later = (progress_of(client, first) for _ in range(2))
        assert earlier["words"] == later["words"] == "checking: bench"
        assert 0 < earlier["gate_seconds"]["bench"] < later["gate_seconds"]["bench"]
        assert re.search(r"\n +checking: bench\n +gate bench: [\d.]+ s so far\n", command("explain", first, "S1").out)

        cores = client.get("/v1/pool").json()["cores"]
        words = "checking: bench, waiting for a core"
        with ExitStack() as stack:
            for _ in range(cores - 1):
                stack.enter_context(running(client, held()))
            while holding_gates(daemon) < cores:
                pass
            waiting = stack.enter_context(running(client, held()))
            with closing(updates(client, waiting)) as following:
                next(update for update in following if update["waits_for_core"])
            assert progress_of(client, waiting)["words"] == words
            shown = command("explain", waiting, "S1").out
            assert re.search(rf"\n +{words}\n +gate bench: [\d.]+ s so far\n", shown)
            async with over_socket(daemon) as mcp:
                explained = (await asked(mcp, "explain", run_id=waiting, step="S1"))["progress"]
            assert (explained["words"], list(explained["gate_seconds"])) == (words, ["bench"])
    for run in (first, waiting):
        assert not progress_of(client, run)
        assert "so far" not in command("explain", run, "S1").out


def test_a_step_that_is_done_has_no_progress(daemon: Running, client: httpx2.Client, command: Cli) -> None:
    run = executed(client, summary())["run_id"]
    assert client.get(f"/v1/runs/{run}/steps/S1").json()["progress"] is None
    assert command("explain", run, "S1", "--json").json["progress"] is None
    assert step_progress(daemon.home, run, "S1") is None
    assert step_progress(daemon.home, "nobody", "S1") is None, "the run was deleted in the meantime"
    assert step_progress(daemon.home / "other", run, "S1") is None, "there is no daemon"
