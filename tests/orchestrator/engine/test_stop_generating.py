"""A text ends where `on_text` stops it, and the completion holds what was used so far."""

from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Completion, Engine, StopGenerating
from orchestrator.engine.contract import EngineSpec, Generation, Message

ASKED = Generation(messages=(Message("system", "Be brief."), Message("user", "hello")), max_tokens=1500)


def spec(models: Path) -> EngineSpec:
    return EngineSpec(file=str(models / "quantised.gguf"), context=2048, slots=2, threads=1, hung_seconds=60)


async def test_a_stopped_text_ends_with_what_it_took(models: Path) -> None:
    read: list[str] = []

    def enough_of_three(piece: str) -> None:
        read.append(piece)
        if len(read) == 3:
            raise StopGenerating

    async with await Engine.start(spec(models)) as engine:
        done: Completion = await engine.generate(ASKED, enough_of_three)
        assert done.finish == "cancelled"
        assert len(read) == 3, "nothing is read after that"
        assert done.text.startswith("".join(read))
        assert 3 <= done.usage.output_tokens < 1500
        assert done.usage.prompt_tokens == await engine.count(ASKED.messages)
        assert done.usage.decode_seconds > 0
        stats = await engine.stats()
        assert (stats.running, stats.cancelled) == (0, 1)


async def test_what_else_a_reader_raises_is_raised(models: Path) -> None:
    def broken(piece: str) -> None:
        raise ZeroDivisionError(piece)

    async with await Engine.start(spec(models)) as engine:
        with pytest.raises(ZeroDivisionError):
            await engine.generate(ASKED, broken)
