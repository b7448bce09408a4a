"""Try a client: run its program, ask it for one ability after the other, and judge what comes back."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.clients.environments import HERE, NotInstalled, command
from tests.clients.programs.case import LONG_REQUEST, LONG_TOKENS, said
from tests.clients.suite import ABILITIES, CHAT_MODEL, Ability, Client
from tests.orchestrator.api.daemon_process import Running, active_requests
from tests.orchestrator.api.tool_calling import RESULT

Outcome = Literal["works", "fails", "lacks", "absent"]
SECONDS: Final = 240
"""How long one ability may take: the first request loads the model, and some clients import for half a minute."""
IDLE_SECONDS: Final = 20
"""How long a cancelled request may go on."""
CALLS: Final = [["get_price", {"item": "quartz"}], ["add", {"a": 214, "b": 12}]]
QUIET: Final[Mapping[str, str]] = {
    "ANONYMIZED_TELEMETRY": "False",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OTEL_SDK_DISABLED": "true",
}
"""Variables with which clients send nothing to their makers, and fetch nothing from them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one ability of a client."""

    outcome: Outcome
    """`lacks`: the client does not have the ability; `absent`: the client or the model cannot be had here."""
    detail: str = ""
    """What went wrong, or why it was not tried."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a client."""

    client: str
    language: str
    versions: Mapping[str, str]
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Served:
    """The daemon that clients are tried against."""

    daemon: Running
    models: frozenset[str]
    """The names of the models that it has."""
    long_answer: int
    """How many tokens the answer to `LONG_REQUEST` has if nobody cancels it; 0 without the model that gives it."""

    @property
    def address(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.daemon.port}"


def served(daemon: Running, models: Sequence[str]) -> Served:
    """Return what clients are tried against, having asked for the long answer once if its model is there."""
    known = frozenset((*models, "embedder"))
    if CHAT_MODEL not in models:
        return Served(daemon, known, 0)
    body = {"model": CHAT_MODEL, "messages": said(LONG_REQUEST), "max_tokens": LONG_TOKENS, "temperature": 0}
    with daemon.client() as client:
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return Served(daemon, known, int(answer["usage"]["completion_tokens"]))


async def attempt(client: Client, at: Served, folder: Path, abilities: Sequence[Ability] = ABILITIES) -> Row:
    """Try the abilities of a client, whose environment is under `folder`."""
    try:
        told = command(client, folder)
    except NotInstalled as error:
        return _absent(client, str(error), abilities)
    return await attempt_with(told, client, at, abilities)


async def attempt_with(told: Sequence[str], client: Client, at: Served, abilities: Sequence[Ability]) -> Row:
    """Try abilities with the program that a command drives."""
    cells: dict[str, Cell] = {}
    versions: dict[str, str] = {}
    chat: str | None = None
    left = list(abilities)
    while left:
        async with _Program.started(told, at) as program:
            try:
                versions = (await program.answer())["versions"]
            except ProgramEnded as error:
                return _absent(client, f"its program does not start: {error}", abilities)
            while left:
                ability = left.pop(0)
                try:
                    answer = await _answered(ability, program, at)
                except ProgramEnded as error:
                    cells[ability.name] = Cell("fails", str(error))
                    break  # the others are tried with a program that is started anew
                cells[ability.name] = found = judged(ability.function, answer, chat)
                if ability.function == "chat" and found.outcome == "works":
                    chat = answer["value"]
    return Row(client.name, client.language, versions, cells)


def _absent(client: Client, reason: str, abilities: Sequence[Ability]) -> Row:
    return Row(client.name, client.language, {}, {ability.name: Cell("absent", reason) for ability in abilities})


async def _answered(ability: Ability, program: "_Program", at: Served) -> Mapping[str, Any]:
    """Return a program's answer; of one that cancels, how many tokens were written anyway. Raises ProgramEnded."""
    if ability.model not in at.models:
        return {"absent": f"the model {ability.model} is not here"}
    before = _written(at)
    answer = await program.ask(ability)
    if ability.function != "cancel" or "value" not in answer:
        return answer
    return {"value": {"read": answer["value"], "written": _written_when_idle(at) - before, "long": at.long_answer}}


def judged(function: str, answer: Mapping[str, Any], chat: str | None) -> Cell:
    """Return what an answer is worth; `chat` is the text that streaming has to give in pieces, if there is one."""
    if "lacks" in answer:
        return Cell("lacks", str(answer["lacks"]))
    if "absent" in answer:
        return Cell("absent", str(answer["absent"]))
    calls = answer.get("calls", [])
    if "error" in answer:
        made = f" (calls: {calls})" if calls else ""
        return Cell("fails", f"{answer['error']}{made}")
    wrong = _wrong(function, answer["value"], calls, chat)
    return Cell("fails", wrong) if wrong else Cell("works")


def _wrong(function: str, value: Any, calls: Sequence[Any], chat: str | None) -> str:
    """Return what is wrong with a value; an empty text where nothing is."""
    match function, value:
        case "chat", str() if value.strip():
            return ""
        case "stream", [*pieces] if all(isinstance(piece, str) for piece in pieces):
            text = "".join(pieces).strip()
            if sum(1 for piece in pieces if piece) < 2:
                return f"the text comes in one piece: {pieces}"
            same = chat is None or text == chat.strip()
            return "" if same else f"the text is {text!r}, and without streaming {chat!r}"
        case "structured", {"name": str(), "age": int(), **more} if not more:
            return ""
        case "embeddings", [[*first], [*second], [*third]] if len(first) == len(third) > 1:
            return "" if first == second != third else "equal texts have other vectors, or other texts the same"
        case "tools", str():
            right = calls == CALLS and value.strip() == RESULT
            return "" if right else f"it answers {value!r} after the calls {calls}"
        case "cancel", {"read": int(read), "written": int(written), "long": int(long)} if read and 2 * written < long:
            return ""
    return f"{function} gives {value!r}"


def _written(at: Served) -> int:
    """Return how many tokens the model of chats has written so far."""
    with at.daemon.client() as client:
        text = client.get("/metrics").raise_for_status().text
    wanted = (f'model="{CHAT_MODEL}"', 'kind="output_tokens"')
    lines = [line for line in text.splitlines() if line.startswith("orchestrator_engine_total{")]
    return next((int(float(line.split()[-1])) for line in lines if all(part in line for part in wanted)), 0)


def _written_when_idle(at: Served) -> int:
    """Wait until no request generates, IDLE_SECONDS at most, and return how many tokens have been written so far."""
    end = time.monotonic() + IDLE_SECONDS
    while active_requests(at.daemon) and time.monotonic() < end:
        time.sleep(0.1)
    return _written(at)


class ProgramEnded(Exception):
    """A program has ended, or does not answer; the text says more."""


class _Program:
    """A program of a client that runs."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, told: Sequence[str], at: Served) -> AsyncIterator["_Program"]:
        """Start a program in a folder of its own, and end it with all its children at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="client-") as folder:
            kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
            server = {"DAEMON_ADDRESS": at.address, "DAEMON_TOKEN": at.daemon.token}
            log = Path(folder) / "log"
            with log.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    *told,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    cwd=folder,
                    env={**kept, **QUIET, **server, "HOME": folder, "PYTHONPATH": str(HERE)},
                    limit=1 << 24,
                    start_new_session=True,
                )
            try:
                yield cls(process, log)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def ask(self, ability: Ability) -> dict[str, Any]:
        """Return the program's answer. Raises ProgramEnded."""
        asked = json.dumps({"ability": ability.function, "model": ability.model})
        assert self._process.stdin is not None
        self._process.stdin.write(f"{asked}\n".encode())
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        """Return the next line of the program. Raises ProgramEnded."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS)
        except TimeoutError:
            raise ProgramEnded(f"no answer for {SECONDS} seconds") from None
        if not line:
            raise ProgramEnded((self._log.read_text(errors="replace").strip() or "it has ended").splitlines()[-1])
        found: dict[str, Any] = json.loads(line)
        return found
