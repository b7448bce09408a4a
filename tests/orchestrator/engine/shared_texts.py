"""Play requests that share texts against a running loop, and compare what it writes with a fresh computation."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message, Priority
from orchestrator.engine.llama import Llama, as_tokens
from orchestrator.engine.protocol import Finished
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

CONTEXT = 256
Loaded = tuple[Llama, EngineSpec, Llama]
"""A model for a loop, its settings, and the model again to compute each text alone."""
MESSAGE_END = (511, 10, 510)  # of ChatML, as `benchmarks.models` writes its vocabulary


def spec_of(models: Path, model: str, **options: Any) -> EngineSpec:
    """F32 throughout, so that sums in another order differ far less than the logits of two tokens."""
    exactly = {"kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off"}
    return EngineSpec(
        **{"file": str(models / f"{model}.gguf"), "context": CONTEXT, "slots": 3, "threads": 1, **exactly, **options}
    )


def text(first: int, length: int) -> tuple[int, ...]:
    return tuple((first + np.arange(length) * 7 % 90).tolist())


def ask(prompt: tuple[int, ...], **options: Any) -> Generation:
    return Generation(prompt=prompt, logprobs=0, **{"max_tokens": 12, "ignore_end": True, **options})


def check_alone(llama: Llama, prompt: tuple[int, ...], done: Finished, *, tolerance: float = 1e-3) -> None:
    """Compare the answer, and its probabilities, with those of a computation of the text from its start."""
    tokens = [token.id for token in done.logprobs]
    if not tokens:
        return
    llama.clear()
    llama.batch.clear()
    llama.batch.add(0, 0, as_tokens((*prompt, *tokens[:-1])), len(tokens))
    logits = llama.decode().astype(np.float64)
    chosen = logits[np.arange(len(tokens)), tokens]
    logprobs = chosen - np.log(np.exp(logits).sum(axis=1))
    logits[:, sorted(llama.vocab.end)] = -np.inf
    assert (logits.max(axis=1) - chosen).max() < tolerance
    assert np.abs(logprobs - [token.logprob for token in done.logprobs]).max() < tolerance


def computed(parent: Parent, *prompts: tuple[int, ...], **options: Any) -> tuple[int, list[Finished]]:
    """Return how many prompt tokens an engine computes for requests that come together, and its answers."""
    before = parent.stats().stats.prefill_tokens
    numbers = [parent.submit(ask(prompt, **options)) for prompt in prompts]
    done = {finished.seq: finished for finished in (parent.finished() for _ in prompts)}
    return parent.stats().stats.prefill_tokens - before, [done[number] for number in numbers]


def prefills_of_a_fan_out(loaded: Loaded) -> tuple[int, int]:
    """Return how many tokens are computed of prompts that come together, and how many when they come again.

    These are eight prompts that share 150 tokens and have ten of their own, more than there are slots. They come while
    one of 5 tokens is computed, which counts.
    """
    llama, spec, _ = loaded
    llama.clear()
    prompts = [(*text(1, 150), *text(200 + number, 10)) for number in range(8)]
    arriving = list(prompts)

    def submit_all(parent: Parent) -> None:  # between two steps, so that they come together on a busy machine, too
        while arriving:
            parent.submit(ask(arriving.pop()))

    with driven_loop(llama, spec, submit_all) as parent:
        parent.submit(ask(text(400, 5)))
        for _ in range(1 + len(prompts)):
            parent.finished()
        return parent.stats().stats.prefill_tokens, computed(parent, *prompts)[0]


def stored_in(folder: Path) -> dict[str, Any]:
    """Return the options of an engine that stores all prefixes in a folder."""
    return {
        "context": 512,
        "prefixes": str(folder / "prefixes"),
        "stores_all": True,
        "step_costs": str(folder / "curves"),
        "log_file": str(folder / "engine.log"),
        "hung_seconds": 60,
    }


async def life(spec: EngineSpec, *systems: str) -> tuple[list[Completion], EngineStats]:
    """Start an engine, ask it once with each of these system prompts, and stop it."""
    async with await Engine.start(spec) as engine:
        requests = [
            Generation(messages=(Message("system", system), Message("user", "hello")), max_tokens=24)
            for system in systems
        ]
        return [await engine.generate(request) for request in requests], await engine.stats()


async def check_document_outlasts(spec: EngineSpec, document: str) -> None:
    """Start an engine twice and ask about a document each time; the second one must not compute it again."""
    done = []
    for task, prefixes in (("count", spec.prefixes), ("summarise it", spec.prefixes), ("summarise it", None)):
        messages = Message("system", "Be brief."), Message("user", f"{document}\n\nTask: {task}")
        async with await Engine.start(replace(spec, prefixes=prefixes)) as engine:
            done.append(await engine.generate(Generation(messages=messages, max_tokens=24)))
    _, second, fresh = done
    assert second.usage.cached_tokens > len(document) / 2  # a token has at most two of its letters
    assert second.text == fresh.text


@dataclass
class Step:
    """Something that happens to an engine, `after` so many of its steps."""

    kind: str
    after: int
    number: int  # of a shared text, or of an earlier request
    length: int
    priority: Priority
    stops: bool  # whether every eighth token ends the text


steps = st.builds(
    Step,
    kind=st.sampled_from(["submit", "submit", "turn", "turn", "again", "cancel"]),
    after=st.integers(0, 6),
    number=st.integers(0, 3),
    length=st.integers(1, 40),
    priority=st.sampled_from(["interactive", "batch"]),
    stops=st.booleans(),
)


stories = st.lists(steps, min_size=1, max_size=14)


@dataclass
class Story:
    """Plays steps while a loop runs, and keeps what was asked."""

    steps: list[Step]
    starts: tuple[tuple[int, ...], ...] = ()  # of prompts, in turns
    prompts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    done: dict[int, Finished] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waited: int = 0

    def before_step(self, parent: Parent) -> None:
        with self._lock:
            self._waited += 1
            while self.steps and self._waited > self.steps[0].after:
                self._play(parent)

    def play(self, parent: Parent) -> None:
        while True:
            with self._lock:
                if len(self.done) == len(self.prompts):
                    if not self.steps:
                        return
                    self._play(parent)
            if len(self.done) < len(self.prompts):
                finished = parent.finished()
                with self._lock:
                    self.done[finished.seq] = finished

    def _play(self, parent: Parent) -> None:
        step, self._waited = self.steps.pop(0), 0
        numbers = list(self.prompts)
        earlier = numbers[step.number % len(numbers)] if numbers else 0
        if step.kind == "cancel":
            if earlier and earlier not in self.done:
                parent.cancel(earlier)
            return
        starts = self.starts or ((*text(1, 70), *MESSAGE_END),)
        document = (*text(100 * step.number, 30), 10, 10)  # ends with a blank line
        prompt = (*starts[step.number % len(starts)], *document, *MESSAGE_END)
        if step.kind == "turn" and earlier in self.done:
            prompt = (*self.prompts[earlier], *(token.id for token in self.done[earlier].logprobs), *MESSAGE_END)
        elif step.kind == "again" and earlier:
            prompt = self.prompts[earlier]
        if step.kind != "again":
            prompt = (*prompt, *text(300 + step.length, step.length))
        prompt = prompt[: CONTEXT - 40]
        stops = tuple(range(0, 512, 8)) if step.stops else ()
        request = ask(prompt, max_tokens=step.length, priority=step.priority, stop_tokens=stops)
        self.prompts[parent.submit(request)] = prompt


def check_story(loaded: Loaded, actions: list[Step], starts: tuple[tuple[int, ...], ...] = ()) -> EngineStats:
    """Play a story; whatever happens in it, all texts must be those that are computed from their starts alone."""
    llama, spec, alone = loaded
    llama.clear()
    story = Story(list(actions), starts)
    with driven_loop(llama, spec, story.before_step) as parent:
        story.play(parent)
        stats = parent.stats().stats
    for number, done in story.done.items():
        check_alone(alone, story.prompts[number], done)
    return stats
