"""Models with recurrent layers share prefixes: what is shared is not computed again, and changes no text."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import Generation, Message, SystemPrompt
from orchestrator.engine.llama import Llama
from orchestrator.registry.options import PromptLookupOptions
from tests.orchestrator.engine.driven_loop import Parent, driven_loop
from tests.orchestrator.engine.shared_texts import (
    CONTEXT,
    MESSAGE_END,
    Loaded,
    Step,
    ask,
    check_alone,
    check_document_outlasts,
    check_story,
    computed,
    life,
    prefills_of_a_fan_out,
    spec_of,
    stored_in,
    stories,
    text,
)

MODELS = ["mamba", "jamba", "moe", "lfm2", "lfm2-moe", "qwen35-moe", "lfm2-windowed"]
LOREM = "the quick brown fox jumps over the lazy dog and runs away "

pytestmark = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(scope="module")
def llamas(recurrent_models: Path) -> dict[str, Loaded]:
    """Of each model, one for a loop, and one that computes each text alone."""
    loaded = {}
    for model in MODELS:
        spec = spec_of(recurrent_models, model, cells=CONTEXT)
        loaded[model] = Llama(spec), spec, Llama(spec_of(recurrent_models, model, slots=1))
    return loaded


@given(actions=stories)
def test_whatever_happens_all_texts_are_those_that_are_computed_from_their_starts(
    llamas: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    stats = check_story(llamas[model], actions)
    prefill = stats.prefill_tokens + stats.recomputed_tokens
    assert stats.cancelled or stats.prompt_tokens <= stats.reused_tokens + prefill


@pytest.fixture(scope="module")
def restoring(
    llamas: dict[str, Loaded], recurrent_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Loaded]:
    """Models that draft, and whose engines find the state of a system prompt on disk."""
    lookup = PromptLookupOptions(ngram=1, k=8)
    loaded = {}
    for model in MODELS:
        spec = spec_of(
            recurrent_models,
            model,
            cells=CONTEXT,
            prompt_lookup=lookup,
            always_draft=True,
            prefixes=str(tmp_path_factory.mktemp(model)),
            stores_all=True,
            system_prompts=(SystemPrompt(LOREM * 2),),
        )
        llama = Llama(spec)
        with driven_loop(llama, spec) as parent:
            parent.submit(Generation(messages=(Message("system", LOREM * 2), Message("user", "hello")), max_tokens=1))
            parent.finished()
            parent.shut_down()
        loaded[model] = llama, spec, llamas[model][2]
    return loaded


def stored(llama: Llama) -> tuple[int, ...]:
    """Return the tokens of the system prompt whose state is on disk."""
    prompt = f"<|im_start|>system\n{LOREM * 2}<|im_end|>\n<|im_start|>user\n"
    return tuple(llama.vocab.tokenize(prompt, special=True))


@given(actions=stories)
def test_whatever_happens_to_a_restored_state_all_texts_are_those_that_are_computed_from_their_starts(
    restoring: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    start = stored(restoring[model][0])
    check_story(restoring[model], actions, (start, start[: len(start) // 2], (*text(1, 70), *MESSAGE_END)))


def test_a_restored_state_is_continued_at_its_end(restoring: dict[str, Loaded], model: str) -> None:
    llama, spec, alone = restoring[model]
    start = stored(llama)
    prompt = (*start, *text(300, 9))
    llama.clear()
    with driven_loop(llama, spec) as parent:
        count, (done,) = computed(parent, prompt)
        assert parent.stats().stats.restored_tokens == len(prompt) - count >= 32
    check_alone(alone, prompt, done)


@pytest.fixture
def parent(llamas: dict[str, Loaded], model: str) -> Iterator[Parent]:
    llama, spec, _ = llamas[model]
    llama.clear()
    with driven_loop(llama, spec) as running:
        yield running


def test_a_new_prefix_is_computed_once_for_more_requests_than_slots(llamas: dict[str, Loaded], model: str) -> None:
    first, again = prefills_of_a_fan_out(llamas[model])
    assert first == 5 + 150 + 8 * 10
    assert again <= 8 * 10, "a later request finds the prefix, too"


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


def test_another_task_starts_at_the_end_of_the_documents(parent: Parent) -> None:
    documents = (*text(1, 70), *MESSAGE_END, *text(200, 80), 10, 10)  # and a blank line
    first, second = ((*documents, *text(300, length), *MESSAGE_END, 20) for length in (12, 30))
    assert computed(parent, first)[0] == len(first)
    count, (done,) = computed(parent, second)
    assert (count, done.cached_tokens) == (len(second) - len(documents), len(documents))


def test_a_short_document_takes_no_state_from_the_system_prompt(parent: Parent) -> None:
    system = (*text(1, 100), *MESSAGE_END[:1])
    first = (*system, *MESSAGE_END[1:], *text(200, 30), 10, 10, *text(300, 12), *MESSAGE_END, 20)
    computed(parent, first)
    _, (done,) = computed(parent, (*system, *MESSAGE_END[1:], *text(400, 30)))
    assert done.cached_tokens >= len(system) - 1


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
    llamas: dict[str, Loaded], model: str, parent: Parent
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


async def test_the_next_engine_computes_no_system_prompt_again_and_says_the_same(
    recurrent_models: Path, tmp_path: Path, model: str
) -> None:
    spec = spec_of(
        recurrent_models,
        model,
        system_prompts=tuple(map(SystemPrompt, (SYSTEM, PERSONA, "short"))),
        **stored_in(tmp_path),
    )
    first, before = await life(spec, PERSONA, SYSTEM, "short")
    assert before.restored_prefixes == 0
    assert len(list((tmp_path / "prefixes").iterdir())) >= 2, "each needs a state of its own"
    second, after = await life(spec, PERSONA, SYSTEM, "short")
    assert after.restored_prefixes == 2
    assert [done.text for done in second] == [done.text for done in first]
    assert sum(done.usage.cached_tokens for done in second[:2]) >= after.restored_tokens > 200


async def test_the_next_engine_continues_a_conversation_and_another_one_with_the_same_system_prompt(
    recurrent_models: Path, tmp_path: Path, model: str
) -> None:
    spec = spec_of(
        recurrent_models,
        model,
        system_prompts=(SystemPrompt(PERSONA),),
        **stored_in(tmp_path),
    )
    begun = (Message("system", PERSONA), Message("user", "hello"))
    async with await Engine.start(spec) as engine:
        answer = await engine.generate(Generation(messages=begun, max_tokens=24))
    turns = (*begun, Message("assistant", answer.text), Message("user", "and then?"))
    requests = [
        Generation(messages=messages, max_tokens=24)
        for messages in (turns, (Message("system", PERSONA), Message("user", "something else")))
    ]
    fresh = dataclasses.replace(spec, prefixes=None)
    texts = []
    for each in (spec, fresh):
        async with await Engine.start(each) as engine:
            done = [await engine.generate(request) for request in requests]
        texts.append([completion.text for completion in done])
        if each is spec:
            # The state at the end of the user's message, since random bytes are not the same tokens again.
            assert done[0].usage.cached_tokens > answer.usage.prompt_tokens - 20
            assert done[1].usage.cached_tokens > 100
    assert texts[0] == texts[1]


async def test_the_next_engine_computes_no_document_again_for_another_task(
    recurrent_models: Path, tmp_path: Path, model: str
) -> None:
    spec = spec_of(
        recurrent_models,
        model,
        **stored_in(tmp_path),
    )
    await check_document_outlasts(spec, PERSONA)
