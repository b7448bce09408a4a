"""Measure our daemon over TCP, as its users call it: `orchestrator serve --tcp` with a registry of one model."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.engine.names import OURS
from benchmarks.engine.system import BenchmarkPrompt, Measured, RequestLoad, SystemSetup
from benchmarks.engine.systems.served import (
    CHAT_MODEL,
    Refused,
    Served,
    ServerFailed,
    chat_answer,
    chat_request,
    end,
    failure,
    free_port,
    serve,
    until_quiet,
)
from orchestrator.engine.contract import Message
from orchestrator.engine.step_cost.attention_trial import TRIAL_QUIET_SECONDS

ENDING_SECONDS = 120.0
# A daemon that has not computed for this long has finished measuring its model, which it starts after a pause.
SETTLED_SECONDS = TRIAL_QUIET_SECONDS + 2.0
TRIES = 3  # how often a load that fails is tried
# Makes the engine's threads wait as libgomp's default says: they spin for this number of rounds, and then sleep.
SPINNING_ENVIRONMENT = {"GOMP_SPINCOUNT": "300000"}
_FIRST = BenchmarkPrompt(messages=(Message("user", "Are you there?"),), text="", tokens=())
_ROOT = Path(__file__).parents[3]
_TOKENS_AN_ITEM = 3  # how many tokens an item of a list has: a digit, a comma and a space
_MOST_TOKENS_AN_ITEM = 40  # the most tokens of an item, for models with random text, which write more spaces


class DaemonFailed(Exception):
    """Our daemon did not start, or did not answer. Unlike for a peer, this ends the benchmark."""


class Daemon(Served):
    """A running daemon with a state folder of its own, which is deleted with it."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes], home: Path) -> None:
        self._base = f"http://127.0.0.1:{port}/v1"
        self._home = home
        token = (home / "api.token").read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}"}
        super().__init__(name, f"{self._base}/chat/completions", process, chat_request, chat_answer, headers)

    async def run(self, load: RequestLoad) -> Measured:
        """Answer all requests at once, or run the steps.

        A load that fails is repeated, as a user would do, at most TRIES times in all. Each failure counts as lost, and
        its time counts. Raises DaemonFailed if all tries fail, or at once if the daemon refuses the request.
        """
        started, lost = time.perf_counter(), 0
        while True:
            try:
                measured = await self._run_once(load)
            except ServerFailed as error:
                lost += 1
                if lost == TRIES or isinstance(error, Refused):
                    raise DaemonFailed(str(error)) from error
                continue
            seconds = time.perf_counter() - started if lost else measured.seconds
            return replace(measured, seconds=seconds, lost=measured.lost + lost)

    async def _run_once(self, load: RequestLoad) -> Measured:
        if not load.steps:
            return await super().run(load)
        try:
            return await self._run_steps(task([prompt.messages[-1][1] for prompt in load.prompts], load.answer))
        except httpx2.HTTPError as error:
            raise failure(self.name, error) from error

    async def close(self) -> None:
        """Terminate the daemon, or kill it if that takes too long, and delete its state folder."""
        await self._client.aclose()
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._process)
        shutil.rmtree(self._home)

    async def _run_steps(self, asked: dict[str, Any]) -> Measured:
        """Submit a run and wait for its end. Its report is read after the time was taken."""
        started = time.perf_counter()
        submitted = await self._client.post(f"{self._base}/runs", json={"task": asked})
        submitted.raise_for_status()
        run = f"{self._base}/runs/{submitted.json()['run_id']}"
        async with self._client.stream("GET", f"{run}/events") as events:
            events.raise_for_status()
            async for _ in events.aiter_raw():
                pass
        seconds = time.perf_counter() - started
        response = await self._client.get(run)
        response.raise_for_status()
        return measured_run(response.json(), seconds)


async def start(setup: SystemSetup, name: str = OURS, environment: Mapping[str, str] | None = None) -> Daemon:
    """Start a daemon with further environment variables, and wait until it is quiet after a first chat.

    A daemon is ready before its model is loaded, and measures the model when it has had nothing to do for a while,
    which must not happen next to the next system. The user's own configuration of the orchestrator is not used. Raises
    DaemonFailed.
    """
    port = free_port()
    home = Path(tempfile.mkdtemp(prefix="bench-orchestrator-"))  # a socket has to have a short name
    registry = home / "registry.yaml"
    registry.write_text(json.dumps(_registry(setup)), encoding="utf-8")  # JSON is YAML
    orchestrator = [sys.executable, "-m", "orchestrator", "--home", str(home), "--registry", str(registry)]
    log = setup.folder / "logs" / f"{name.replace(' ', '-').replace(',', '')}.log"
    command = [*orchestrator, "serve", "--tcp", f"127.0.0.1:{port}"]
    variables = {**_environment(home), **(environment or {})}
    try:
        process = await serve(command, port=port, health="/health/ready", log=log, environment=variables)
    except BaseException as error:
        shutil.rmtree(home, ignore_errors=True)
        if isinstance(error, ServerFailed):
            raise DaemonFailed(str(error)) from error
        raise
    daemon = Daemon(name, port, process, home)
    try:
        await daemon.run(RequestLoad(prompts=(_FIRST,), answer=1))
        await until_quiet([daemon], SETTLED_SECONDS)
    except BaseException:
        await daemon.close()
        raise
    return daemon


def task(actions: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return a TaskIR document with these steps, each of which reads what the step before has written.

    An answer is a list of digits of about `tokens` tokens. A schema fixes its length, whatever the model knows.
    """
    items = max(1, tokens // _TOKENS_AN_ITEM)
    schema = {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 9},
        "minItems": items,
        "maxItems": items,
    }
    plan = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": action,
            "inputs": [f"list{number - 1}.json"] if number > 1 else [],
            "outputs": [f"list{number}.json"],
            "output_schema": schema,
            "max_tokens": _MOST_TOKENS_AN_ITEM * items,
        }
        for number, action in enumerate(actions, start=1)
    ]
    return {"objective": "a measurement", "plan": {"steps": plan}}


def measured_run(report: dict[str, Any], seconds: float) -> Measured:
    """Return the result of a run that took `seconds`, from its report. A run that is not done counts as lost."""
    attempts = [attempt for step in report["steps"] for attempt in step["attempts"]]
    lost = sum(attempt["outcome"] != "done" for attempt in attempts)
    tokens = sum(attempt["usage"]["output_tokens"] for attempt in attempts if attempt["outcome"] == "done")
    return Measured(seconds=seconds, tokens=tokens, lost=lost or int(report["status"] != "done"))


def _registry(setup: SystemSetup) -> dict[str, Any]:
    model = {
        "file": str(setup.model),
        "residency": "hot",
        "context": setup.context,
        "slots": setup.width,
        "threads": setup.threads,
    }
    roles = {
        "frontdoor": {"model": CHAT_MODEL, "tier": "A", "system": "Plan the request as steps."},
        "worker": {"model": CHAT_MODEL, "tier": "C", "system": "Do the task."},
    }
    return {"models": {CHAT_MODEL: model}, "roles": roles}


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a daemon: our own, without variables that would configure it, and with its folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(paths), "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "0"}
    return {**inherited, **own}
