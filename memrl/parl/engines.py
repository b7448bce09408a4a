"""Ask real engines from code that runs in another event loop, such as that of a simulated machine.

The engines live in a thread with a loop of its own. Whoever asks waits, so no virtual time passes meanwhile. Workers
are frozen and answer at temperature 0: each question is asked once, and its answer is kept in a file.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.registry.models import Registry
from orchestrator.task.taskir.json_text import compact_json

T = TypeVar("T")

ANSWERS = "answers.jsonl"
"""The file of known answers in the folder of a training."""
RETRIED = 0.7  # the temperature of further attempts at an answer
SLOTS = 8  # sequences that an engine generates at a time


class Answer(NamedTuple):
    text: str
    tokens: int


class RealEngines:
    """The engines of a registry's models, started when they are asked for the first time. A context manager."""

    def __init__(self, registry: Registry, answers: Path) -> None:
        """`answers` is the file of known answers; it need not exist."""
        self._registry = registry
        self._file = answers
        self._known = _read(answers)
        self._engines: dict[str, Engine] = {}
        self._adapters: dict[str, tuple[str, ...]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name in [*self._engines]:
                self._wait(self._engines.pop(name).stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def set_adapters(self, model: str, files: Sequence[str]) -> None:
        """Let requests to a model name these adapters. Its engine starts again if it has others."""
        if self._adapters.get(model, ()) == (wanted := tuple(files)):
            return
        self._adapters[model] = wanted
        if (engine := self._engines.pop(model, None)) is not None:
            self._wait(engine.stop())

    def complete(self, model: str, requests: Sequence[Generation]) -> list[Completion]:
        """Return the completions of requests that are generated together. Raises EngineError."""
        return self._wait(self._complete(model, requests))

    def answer(self, model: str, request: Generation, attempt: int = 0) -> Answer:
        """Return the answer, from the file if it is known: at temperature 0, or a sampled one for a further attempt.

        Raises EngineError.
        """
        temperature = RETRIED if attempt else 0.0
        request = replace(
            request, temperature=temperature, seed=attempt, deadline_seconds=None, slack=0.0, logprobs=None
        )
        key = _key(model, request, attempt)
        if key not in self._known:
            (completion,) = self.complete(model, [request])
            self._known[key] = answer = Answer(completion.text, completion.usage.output_tokens)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(compact_json([key, *answer]) + "\n")
        return self._known[key]

    def prompt_tokens(self, model: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of a chat's prompt. Raises EngineError."""

        async def tokens() -> tuple[int, ...]:
            engine = await self._engine(model)
            return (await engine.tokenize(await engine.render(messages))).tokens

        return self._wait(tokens())

    def text_tokens(self, model: str, text: str) -> tuple[int, ...]:
        """Return the tokens of a text in an answer. Raises EngineError."""

        async def tokens() -> tuple[int, ...]:
            return (await (await self._engine(model)).tokenize(text, special=False)).tokens

        return self._wait(tokens())

    async def _complete(self, model: str, requests: Sequence[Generation]) -> list[Completion]:
        engine = await self._engine(model)
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    async def _engine(self, model: str) -> Engine:
        if model not in self._engines:
            entry = self._registry.models[model]
            options = replace(entry.options.without_drafts(), slots=SLOTS)
            adapters = self._adapters.get(model, ())
            self._engines[model] = await Engine.start(
                EngineSpec.of(options, file=str(entry.file), name=model, adapters=adapters)
            )
        return self._engines[model]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _read(file: Path) -> dict[str, Answer]:
    if not file.exists():
        return {}
    answers = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            key, text, tokens = json.loads(line)
        except ValueError:  # the process was killed while it wrote the last line
            continue
        answers[key] = Answer(text, tokens)
    return answers


def _key(model: str, request: Generation, attempt: int) -> str:
    messages = [[message.role, message.content] for message in request.messages]
    lora = [[adapter.file, adapter.scale] for adapter in request.lora]
    content = [model, messages, request.schema, request.grammar, request.max_tokens, [*request.stop], lora]
    content += [attempt] if attempt else []
    return hashlib.sha256(compact_json(content).encode()).hexdigest()
