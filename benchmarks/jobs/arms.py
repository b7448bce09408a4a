"""Let a job be done by one chat, directly, or by a plan: all with the same daemon and the same models."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml

from benchmarks.daemon.process import BASE, BenchmarkFailed, DaemonProcess, running_daemon
from benchmarks.jobs.chat_files import question_of
from benchmarks.jobs.job import BenchJob
from orchestrator.run.journal.home import Home

Row = dict[str, Any]
Arm = str  # `chat`, or one of MODES

# How `orchestrator run` is asked, by arm. Left to itself, it chooses between a plan and a direct answer.
MODES: Final[Mapping[Arm, tuple[str, ...]]] = {
    "direct": ("--direct",),
    "orchestrator": (),
    "planned": ("--mode", "as-planned"),
}
RUN_SECONDS: Final = 900.0  # how long a run or a chat may take
CHAT_TOKENS: Final = 2048  # the most tokens of a chat's answer: as many as `init` gives to the roles that write most
COMMAND: Final = (sys.executable, "-m", "orchestrator")


class ArmMissing(Exception):
    """The running code does not have this way to do a job."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """Models and the roles that they play."""

    name: str
    init: tuple[str, ...]  # the options of `orchestrator init` that make the registry

    def registry(self, folder: Path) -> Path:
        """Write the registry of this setup, and return its file. Raises BenchmarkFailed."""
        file = folder / f"{self.name}.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        done = _command("init", *self.init, "--out", str(file), "--force", home=folder / "init")
        if done.returncode != 0:
            raise BenchmarkFailed(f"init fails for {self.name}: {(done.stderr or done.stdout)[-500:]}")
        return file


@dataclass(frozen=True, slots=True)
class JobRun:
    """How a job was done: what came out of it and what it cost."""

    text: str
    files: Mapping[str, str]  # the files that a run has exported; those of a chat are in its text
    seconds: float
    input_tokens: int
    output_tokens: int
    status: str  # `done`, `failed` or `cancelled`
    exit_code: int
    doubt: str = ""  # Why the answer is marked as doubtful; empty if it is not
    error: str = ""
    # The plan's form: origin, reason, number of steps and width; empty for a chat.
    plan: Row = field(default_factory=dict)


class JobDaemon:
    """A daemon with a state folder of its own, and the ways to let it do jobs."""

    def __init__(self, daemon: DaemonProcess, model: str) -> None:
        self._daemon = daemon
        self._model = model
        """The id of the model that chats."""

    def run(self, arm: Arm, job: BenchJob) -> Row:
        """Let the job be done and return the row. Raises ArmMissing."""
        if arm == "chat":
            return asdict(self._chat(job))
        if arm == "direct" and not can_answer_directly():
            raise ArmMissing("`orchestrator run` has no option --direct")
        return asdict(self._orchestrated(job, MODES[arm]))

    def warm_up(self) -> None:
        """Let the model answer once, so that it is loaded before anything is measured."""
        self._ask("Hello", max_tokens=1)

    def _chat(self, job: BenchJob) -> JobRun:
        begun = time.perf_counter()
        try:
            answer = self._ask(question_of(job), CHAT_TOKENS)
        except httpx2.TransportError as error:
            return JobRun("", {}, time.perf_counter() - begun, 0, 0, "failed", 1, error=repr(error))
        seconds = time.perf_counter() - begun
        if not answer.is_success:
            return JobRun("", {}, seconds, 0, 0, "failed", 1, error=answer.text[:500])
        document = answer.json()
        text, usage = document["choices"][0]["message"]["content"] or "", document["usage"]
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return JobRun(text, {}, seconds, *tokens, "done", 0)

    def _ask(self, question: str, max_tokens: int) -> httpx2.Response:
        messages = [{"role": "user", "content": question}]
        body = {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": max_tokens}
        transport = httpx2.HTTPTransport(uds=str(Home(self._daemon.home).socket))
        with httpx2.Client(transport=transport, base_url=BASE, timeout=RUN_SECONDS) as client:
            return client.post("/v1/chat/completions", json=body)

    def _orchestrated(self, job: BenchJob, options: tuple[str, ...]) -> JobRun:
        """Run the command that a user runs. The seconds are those of the run, without the start of the command."""
        with tempfile.TemporaryDirectory() as place:
            files, out = Path(place) / "files", Path(place) / "out"
            files.mkdir()
            for name, text in job.files.items():
                (files / name).write_text(text, encoding="utf-8")
            arguments = ("--dir", str(files), "--out", str(out), "--json", *options)
            done = _command("run", job.request, *arguments, home=self._daemon.home)
            return _job_run(done, _files_of(out))


@contextmanager
def job_daemon(setup: ModelSetup, home: Path) -> Iterator[JobDaemon]:
    """Run a daemon with these models while the block lasts. Raises BenchmarkFailed."""
    home.mkdir(parents=True, exist_ok=True)
    registry = setup.registry(home.parent)
    roles = yaml.safe_load(registry.read_text(encoding="utf-8"))["roles"]
    chatting = roles.get("architect") or roles["worker"]
    with running_daemon(home, registry=str(registry), runs_max_seconds=RUN_SECONDS) as daemon:
        jobs = JobDaemon(daemon, chatting["model"])
        jobs.warm_up()
        yield jobs


@cache
def can_answer_directly() -> bool:
    """Return whether the command line knows the arm `direct`."""
    return "--direct" in _command("run", "--help", home=Path(tempfile.gettempdir())).stdout


def _command(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = (*COMMAND, "--home", str(home), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program


def _job_run(done: "subprocess.CompletedProcess[str]", files: Mapping[str, str]) -> JobRun:
    try:
        report: Row = json.loads(done.stdout)
    except ValueError:
        return JobRun("", {}, 0.0, 0, 0, "failed", done.returncode, error=(done.stderr or done.stdout)[-500:])
    if "run_id" not in report:
        return JobRun("", {}, 0.0, 0, 0, "failed", done.returncode, error=str(report)[:500])
    usages = [report["plan_usage"], *(replan["usage"] for replan in report["replans"])]
    steps = report["steps"]
    return JobRun(
        text=report["answer"] or "",
        files=files,
        seconds=report["wall_seconds"],
        input_tokens=sum(usage["prompt_tokens"] for usage in [*usages, *steps]),
        output_tokens=sum(usage["output_tokens"] for usage in [*usages, *steps]),
        status=report["status"],
        exit_code=done.returncode,
        doubt=report.get("doubt") or "",
        error=report["error"] or "",
        plan={
            "origin": report["plan_origin"],
            "reason": report["plan_reason"],
            "mode": report["mode"],
            "steps": [
                [step["id"], step["role"], step["state"], step["action"][:200], [*step["outputs"]]] for step in steps
            ],
            "width": report["width"],
        },
    )


def _files_of(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in paths}
