"""How far prompts are read, and who waits in the queue: what an engine reports, and who is told."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.protocol import Prompts
from orchestrator.engine.worker.prompt_reports import LONG_PROMPT, REPORT_SECONDS, PendingPrompt, PromptReports
from orchestrator.task.stages import PromptRead, QueuePlace, Stage, following

WORDS = "the quick brown fox jumps over the lazy dog and runs away "


def test_the_first_report_comes_at_once_and_others_when_there_is_news_and_time() -> None:
    reports = PromptReports()
    assert reports.changes([(2, 0)], [PendingPrompt(1, 0, 660)], 10.0) == Prompts([(2, 0)], [(1, 0, 660)])
    assert reports.changes([(2, 0)], [PendingPrompt(1, 300, 660)], 10.0) is None
    assert reports.changes([(2, 0), (3, 1)], [PendingPrompt(1, 300, 660)], 10.1) == Prompts([(3, 1)], [])
    later = 10.1 + REPORT_SECONDS
    assert reports.changes([(2, 0), (3, 1)], [PendingPrompt(1, 600, 660)], later) == Prompts([], [(1, 600, 660)])
    assert reports.changes([(2, 0), (3, 1)], [PendingPrompt(1, 600, 660)], later + 9) is None
    assert reports.changes([(3, 0)], [], later + 9) == Prompts([(3, 0)], [])
    assert reports.changes([], [], later + 99) is None


def test_a_short_prompt_is_not_reported_and_the_end_of_a_long_one_is() -> None:
    reports = PromptReports()
    assert reports.changes([], [PendingPrompt(1, 0, LONG_PROMPT - 1)], 0.0) is None
    assert reports.changes([], [PendingPrompt(1, 600, 663), PendingPrompt(2, 0, LONG_PROMPT)], 1.0) == Prompts(
        [], [(2, 0, LONG_PROMPT)]
    )
    assert reports.changes([], [PendingPrompt(2, 60, LONG_PROMPT)], 2.0) == Prompts([], [(2, 60, LONG_PROMPT)])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), max_size=40))
def test_a_request_is_told_of_no_more_than_changes(steps: list[tuple[int, int]]) -> None:
    reports, told = PromptReports(), dict[int, int]()
    for now, (number, computed) in enumerate(steps):
        found = reports.changes([], [PendingPrompt(number, computed, 1000)], float(now))
        news = found.read if found is not None else []
        assert news == ([(number, computed, 1000)] if told.get(number) != computed else [])
        told = {number: computed}


def spec_of(models: Path, slots: int) -> EngineSpec:
    curves = str(models / "curves")
    return EngineSpec(
        file=str(models / "quantised.gguf"), context=1024, slots=slots, threads=1, hung_seconds=60, step_costs=curves
    )


def ask(text: str, max_tokens: int = 4) -> Generation:
    return Generation(messages=(Message("user", text),), max_tokens=max_tokens, ignore_end=True)


async def test_a_caller_is_told_how_far_its_prompt_is_read(models: Path) -> None:
    stages: list[Stage] = []
    async with await Engine.start(spec_of(models, slots=2)) as engine:
        with following(stages.append):
            done = await engine.generate(ask(WORDS * 12), lambda _: None)
            again = await engine.generate(ask(WORDS * 12 + "and once more " * 20), lambda _: None)
        await engine.generate(ask("nobody follows " * 40), lambda _: None)
    read = [stage for stage in stages if isinstance(stage, PromptRead)]
    assert stages == read
    assert read[0] == PromptRead(0, done.usage.prompt_tokens)
    assert PromptRead(again.usage.cached_tokens, again.usage.prompt_tokens) in read, "what the cache holds is read"
    assert again.usage.cached_tokens > 100


async def test_a_caller_is_told_its_place_in_the_queue(models: Path) -> None:
    stages: dict[str, list[Stage]] = {"first": [], "second": [], "third": []}
    started = asyncio.Event()
    async with await Engine.start(spec_of(models, slots=1)) as engine:

        async def generate(name: str, tokens: int) -> None:
            with following(stages[name].append):
                await engine.generate(ask(f"{name} {WORDS}", tokens), lambda _: started.set())

        async with asyncio.TaskGroup() as group:
            group.create_task(generate("first", 400))
            await started.wait()
            group.create_task(generate("second", 2))
            await asyncio.sleep(0)
            group.create_task(generate("third", 2))
    places = {name: [stage for stage in of if isinstance(stage, QueuePlace)] for name, of in stages.items()}
    assert places["first"] == []
    assert places["second"] == [QueuePlace(0)]
    assert places["third"][0] == QueuePlace(1)
