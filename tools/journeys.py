"""Count the files that three journeys touch: `python tools/journeys.py`.

report   `orchestrator run` of a request of three steps, without a daemon, to its printed report
chat     a streamed chat with a loaded model over the API, to its first token
outcome  a run of two steps that has ended, to what the router has learned from it

A profiler sees every call in this process. Engines are processes of their own, so their files do not count. Neither
does what the service of the chat does by itself at the same time: it follows the registry's files, keeps schedules and
learns. `imported` are files of which only classes are defined, because something else in them is needed.
"""

import asyncio
import contextlib
import inspect
import io
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx2
from starlette.types import Message, Receive, Scope, Send

from orchestrator.api.app import make_app
from orchestrator.api.guard import Guard
from orchestrator.app import attached, command_line
from orchestrator.memrl.learning import Learning
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.service.configuration import Configuration
from orchestrator.task.taskir.parse import task_from

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = tuple(str(ROOT / name) for name in ("orchestrator", "registry", "procedures", "memrl"))
RECORDS: Final = ROOT / "examples" / "records"
BY_ITSELF: Final = ContextVar("BY_ITSELF", default=False)  # whether a service works by itself, and for no request
REQUEST: Final = "Summarize a and b, then compare them"


class Journey:
    """Counts calls between files of the product while it is watched."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.called: set[str] = set()  # those of which a function was called
        self.functions: set[tuple[str, str]] = set()
        self.calls: Counter[tuple[str, str]] = Counter()
        self._watching = False
        threading.setprofile(self._profile)  # threads that start from now on

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Count the calls of this thread, and of threads that were started after this journey was made."""
        sys.setprofile(self._profile)
        self._watching = True
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Count no further call."""
        self._watching = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._watching or BY_ITSELF.get():
            return
        code = frame.f_code
        if code.co_name == "<module>" or not code.co_filename.startswith(PRODUCT):
            return
        self.files.add(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED:  # else it is the body of a class
            self.called.add(code.co_filename)
        self.functions.add((code.co_filename, code.co_qualname))
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PRODUCT):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.calls[caller.f_code.co_filename, code.co_filename] += 1

    def to_json(self) -> dict[str, int]:
        """Return the counts."""
        return {
            "files": len(self.files),
            "imported": len(self.files - self.called),
            "functions": len(self.functions),
            "calls": self.calls.total(),
        }


def report(home: Path) -> Journey:
    """Watch `orchestrator run` of a request from its command to its report."""
    journey = Journey()
    arguments = ["--home", str(home), "run", REQUEST, "--dir", str(RECORDS)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), journey.watched():
        with contextlib.suppress(SystemExit):
            command_line()(arguments, standalone_mode=False)
    return journey


async def chat(home: Path) -> Journey:
    """Watch a streamed chat from its request to its first token."""
    journey = Journey()
    registry = load_registry(find_registry(environment={}))
    BY_ITSELF.set(True)
    is_counted = False
    async with attached().service(home, registry, Configuration()) as service, asyncio.TaskGroup() as tasks:
        BY_ITSELF.set(False)
        app = make_app(service, tasks, attached().endpoints)
        # As on the Unix socket, whose caller owns the state folder
        application = Guard(app, service, None, app.state.sessions)

        async def until_first_token(scope: Scope, receive: Receive, send: Send) -> None:
            async def sent(message: Message) -> None:
                if is_counted and b'"content"' in message.get("body", b""):
                    journey.stop()
                await send(message)

            scope["state"] = {"uid": os.getuid()}  # what the connection says of its peer
            with journey.watched() if is_counted else contextlib.nullcontext():
                await application(scope, receive, sent)

        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=until_first_token), base_url="http://localhost"
        ) as client:
            body = {"model": "worker", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
            # This one waits until the service has started and has loaded the model
            await client.post("/v1/chat/completions", json=body)
            is_counted = True
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.is_success, answer.text
        app.state.limiter.cancel_all()
    return journey


async def outcome(home: Path) -> Journey:
    """Watch what follows a run that has ended, until the router has learned from it."""
    journey = Journey()
    step = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s1.txt"]}
    later = {"id": "S2", "actor": "worker", "action": "Summarize b.txt.", "inputs": ["b.txt"], "outputs": ["s2.txt"]}
    task = task_from({"objective": "two summaries", "plan": {"steps": [step, later]}})
    learning = Learning(home, lambda: Configuration().memory)
    opened = Orchestrator.open(home, load_registry(find_registry(environment={})), Ports(router=learning.router))
    async with opened as orchestrator, learning.running(orchestrator):
        run = await orchestrator.submit(Job(None, task, RECORDS, "as-planned"))
        async for _ in orchestrator.watch(run):
            pass
        await asyncio.sleep(0.1)  # until the thread of the journal waits again, which has nothing to do with learning
        with journey.watched():
            learning.notice()
            await learning.caught_up()
    return journey


def main() -> None:
    """Print the counts of the journeys as JSON."""
    counts: dict[str, dict[str, int]] = {}
    for name in ("report", "chat", "outcome"):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            if name == "report":
                journey = report(home)
            else:
                journey = asyncio.run(chat(home) if name == "chat" else outcome(home))
        counts[name] = journey.to_json()
        if "--files" in sys.argv:
            print(name, *sorted(str(Path(file).relative_to(ROOT)) for file in journey.files), sep="\n  ")
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
