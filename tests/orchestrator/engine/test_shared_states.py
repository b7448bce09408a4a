"""Models with recurrent layers share prefixes: what is shared is not computed again, and changes no text."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message, Priority, SystemPrompt
from orchestrator.engine.llama import Llama, as_tokens
from orchestrator.engine.protocol import Finished
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

MODELS = ["mamba", "jamba", "moe"]
CONTEXT = 256
MESSAGE_END = (511, 10, 510)  # of ChatML, as `benchmarks.models` writes its vocabulary
LOREM = "the quick brown fox jumps over the lazy dog and runs away "

pytestmark = pytest.mark.parametrize("model", MODELS)


def spec_of(models: Path, model: str, **options: Any) -> EngineSpec:
    """F32 throughout, so that sums in another order differ far less than the logits of two tokens."""
    exactly = {"kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off"}
    return EngineSpec(
        **{"file": str(models / f"{model}.gguf"), "context": CONTEXT, "slots": 3, "threads": 1, **exactly, **options}
    )


@pytest.fixture(scope="module")
def llamas(recurrent_models: Path) -> dict[str, tuple[Llama, EngineSpec, Llama]]:
    """Of each model, one for a loop, and one that computes each text alone."""
    loaded = {}
    for model in MODELS:
        spec = spec_of(recurrent_models, model, cells=CONTEXT)
        loaded[model] = Llama(spec), spec, Llama(spec_of(recurrent_models, model, slots=1))
    return loaded


def text(first: int, length: int) -> tuple[int, ...]:
    return tuple((first + np.arange(length) * 7 % 90).tolist())


def ask(prompt: tuple[int, ...], **options: Any) -> Generation:
    return Generation(prompt=prompt, logprobs=0, **{"max_tokens": 12, "ignore_end": True, **options})


def check_alone(llama: Llama, prompt: tuple[int, ...], done: Finished) -> None:
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
    assert (logits.max(axis=1) - chosen).max() < 1e-3
    assert np.abs(logprobs - [token.logprob for token in done.logprobs]).max() < 1e-3


@dataclass
class Step:
    """Something that happens to an engine, `after` so many of its steps."""

    kind: str
    after: int
    number: int  # of a shared text, or of an earlier request
    length: int
    priority: Priority


steps = st.builds(
    Step,
    kind=st.sampled_from(["submit", "submit", "turn", "turn", "again", "cancel"]),
    after=st.integers(0, 6),
    number=st.integers(0, 3),
    length=st.integers(1, 40),
    priority=st.sampled_from(["interactive", "batch"]),
)


@dataclass
class Story:
    """Plays steps while a loop runs, and keeps what was asked."""

    steps: list[Step]
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
        prompt = (*text(1, 70), *MESSAGE_END, *text(100 * step.number, 30), *MESSAGE_END)
        if step.kind == "turn" and earlier in self.done:
            prompt = (*self.prompts[earlier], *(token.id for token in self.done[earlier].logprobs), *MESSAGE_END)
        elif step.kind == "again" and earlier:
            prompt = self.prompts[earlier]
        if step.kind != "again":
            prompt = (*prompt, *text(300 + step.length, step.length))
        prompt = prompt[: CONTEXT - 40]
        self.prompts[parent.submit(ask(prompt, max_tokens=step.length, priority=step.priority))] = prompt


@given(st.lists(steps, min_size=1, max_size=14))
def test_whatever_happens_all_texts_are_those_that_are_computed_from_their_starts(
    llamas: dict[str, tuple[Llama, EngineSpec, Llama]], model: str, steps: list[Step]
) -> None:
    llama, spec, alone = llamas[model]
    llama.clear()
    story = Story(list(steps))
    with driven_loop(llama, spec, story.before_step) as parent:
        story.play(parent)
        stats = parent.stats().stats
    computed = stats.prefill_tokens + stats.recomputed_tokens
    assert stats.cancelled or stats.prompt_tokens <= stats.reused_tokens + computed
    for number, done in story.done.items():
        check_alone(alone, story.prompts[number], done)


@pytest.fixture
def parent(llamas: dict[str, tuple[Llama, EngineSpec, Llama]], model: str) -> Iterator[Parent]:
    llama, spec, _ = llamas[model]
    llama.clear()
    with driven_loop(llama, spec) as running:
        yield running


def computed(parent: Parent, *prompts: tuple[int, ...], **options: Any) -> tuple[int, list[Finished]]:
    """Return how many prompt tokens an engine computes for requests that come together, and its answers."""
    before = parent.stats().stats.prefill_tokens
    numbers = [parent.submit(ask(prompt, **options)) for prompt in prompts]
    done = {finished.seq: finished for finished in (parent.finished() for _ in prompts)}
    return parent.stats().stats.prefill_tokens - before, [done[number] for number in numbers]


def test_a_new_prefix_is_computed_once_for_more_requests_than_slots(
    llamas: dict[str, tuple[Llama, EngineSpec, Llama]], model: str
) -> None:
    llama, spec, _ = llamas[model]
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
        assert parent.stats().stats.prefill_tokens == 5 + 150 + 8 * 10
        assert computed(parent, *prompts)[0] <= 8 * 10, "a later request finds the prefix, too"


def test_the_next_turn_goes_on_where_the_answer_ended(parent: Parent) -> None:
    prompt = (*text(1, 60), *MESSAGE_END, *text(200, 60))
    _, (first,) = computed(parent, prompt)
    answer = tuple(token.id for token in first.logprobs)
    # The last token of the answer was not computed.
    count, (second,) = computed(parent, (*prompt, *answer, *MESSAGE_END, *text(300, 20)))
    assert count == 1 + len(MESSAGE_END) + 20
    assert second.cached_tokens == len(prompt) + len(answer) - 1


def test_another_answer_in_the_history_costs_no_more_than_what_follows_the_last_message(parent: Parent) -> None:
    prompt = (*text(1, 60), *MESSAGE_END, *text(200, 80), *MESSAGE_END, *text(120, 4))
    computed(parent, prompt)
    count, _ = computed(parent, (*prompt, *text(330, 15)))
    assert count <= 1 + 4 + 15


def test_a_chat_goes_on_from_its_last_message_whatever_was_answered(parent: Parent) -> None:
    chat = (Message("system", "Be brief."), Message("user", LOREM))
    parent.submit(Generation(messages=chat, max_tokens=4))
    first = parent.finished()
    longer = (*chat, Message("assistant", "not what it said"), Message("user", "and then?"))
    parent.submit(Generation(messages=longer, max_tokens=4))
    # The header of the answer, `<|im_start|>assistant`, follows the last message.
    assert parent.finished().cached_tokens >= first.prompt_tokens - 12
    other = (*chat[:1], Message("user", "something else"))
    parent.submit(Generation(messages=other, max_tokens=4))
    assert parent.finished().cached_tokens == 0, "so short a system prompt is not worth a state"


def test_where_two_prompts_part_a_third_one_starts(parent: Parent) -> None:
    first, second, third = ((*text(1, 100), *text(200 + 20 * number, 30)) for number in range(3))
    assert computed(parent, first)[0] == 130
    assert computed(parent, second)[0] == 130, "the state of the first stands at its end"
    assert computed(parent, third)[0] == 30


def test_the_same_prompt_again_is_computed_from_its_last_state(parent: Parent) -> None:
    prompt = text(1, 150)
    assert computed(parent, prompt)[0] == 150
    assert computed(parent, prompt)[0] == 1


def test_an_interactive_request_takes_the_slot_of_a_batch_which_starts_again_from_a_state(
    llamas: dict[str, tuple[Llama, EngineSpec, Llama]], model: str, parent: Parent
) -> None:
    prompts = [(*text(1, 100), *text(200 + 20 * number, 20)) for number in range(6)]
    batch = [parent.submit(ask(prompt, priority="batch", slack=20.0, max_tokens=60)) for prompt in prompts[:3]]
    urgent = [parent.submit(ask(prompt)) for prompt in prompts[3:]]
    done = [parent.finished() for _ in prompts]
    stats = parent.stats().stats
    for finished in done:
        check_alone(llamas[model][2], prompts[finished.seq - 1], finished)
    assert {finished.seq for finished in done} == {*batch, *urgent}
    assert stats.recomputed_tokens <= 3 * (20 + 60), "the common prefix is not computed again"


SYSTEM = LOREM * 3
PERSONA = SYSTEM + "\nspeak like a sailor who has seen it all, and say so in every sentence "


async def life(spec: EngineSpec, *systems: str) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        requests = [
            Generation(messages=(Message("system", system), Message("user", "hello")), max_tokens=24)
            for system in systems
        ]
        return [await engine.generate(request) for request in requests], await engine.stats()


async def test_the_next_engine_computes_no_system_prompt_again_and_says_the_same(
    recurrent_models: Path, tmp_path: Path, model: str
) -> None:
    spec = spec_of(
        recurrent_models,
        model,
        context=512,
        prefixes=str(tmp_path / "prefixes"),
        system_prompts=tuple(map(SystemPrompt, (SYSTEM, PERSONA, "short"))),
        step_costs=str(tmp_path / "curves"),
        log_file=str(tmp_path / "engine.log"),
        hung_seconds=60,
    )
    first, before = await life(spec, PERSONA, SYSTEM, "short")
    assert before.restored_prefixes == 0
    assert len(list((tmp_path / "prefixes").iterdir())) == 2, "each needs a state of its own"
    second, after = await life(spec, PERSONA, SYSTEM, "short")
    assert after.restored_prefixes == 2
    assert [done.text for done in second] == [done.text for done in first]
    assert sum(done.usage.cached_tokens for done in second[:2]) >= after.restored_tokens > 200
