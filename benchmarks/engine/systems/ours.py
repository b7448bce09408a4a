"""Measure our engine, which runs in a process of its own."""

import asyncio
import time
from pathlib import Path
from typing import Self

from benchmarks.engine.names import OURS
from benchmarks.engine.system import Measured, RequestLoad, SystemSetup
from orchestrator.bench.simulate.measure import until_calibrated
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.registry.options import EagleOptions, MtpOptions, PromptLookupOptions, SpeculationOptions


class Ours:
    """A running engine."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine

    @classmethod
    async def start(
        cls,
        setup: SystemSetup,
        name: str = OURS,
        *,
        lookup: PromptLookupOptions | None = None,
        speculation: SpeculationOptions | None = None,
        mtp: MtpOptions | None = None,
        eagle: EagleOptions | None = None,
        library: Path | None = None,
        calibrated: bool = False,
    ) -> Self:
        """Start an engine with its default settings, the given kind of drafts and build of llama.cpp.

        With `calibrated`, this waits until the engine has measured its steps. It would otherwise do so while another
        system is measured. Raises ModelLoadFailed.
        """
        spec = EngineSpec(
            file=str(setup.model),
            context=setup.context,
            slots=setup.width,
            threads=setup.threads,
            niceness=0,
            prompt_lookup=lookup,
            speculation=speculation,
            mtp=mtp,
            eagle=eagle,
            llama_library=None if library is None else str(library),
            step_costs=str(setup.folder / "curves"),
            hung_seconds=120.0,
        )
        engine = await Engine.start(spec)
        if calibrated:
            await until_calibrated(engine)
        return cls(name, engine)

    async def run(self, load: RequestLoad) -> Measured:
        """Answer all requests at once."""
        before = await self._engine.stats()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._engine.generate(Generation(messages=p.messages, max_tokens=load.answer)))
                for p in load.prompts
            ]
        seconds = time.perf_counter() - started
        after = await self._engine.stats()
        answers = [task.result() for task in tasks]
        return Measured(
            seconds=seconds,
            tokens=sum(answer.usage.output_tokens for answer in answers),
            texts=tuple(answer.text for answer in answers),
            asked=tuple(answer.usage.prompt_tokens for answer in answers),
            llama_seconds=after.llama_seconds - before.llama_seconds,
            own_seconds=after.own_seconds - before.own_seconds,
            split_cache=after.split_cache,
        )

    async def close(self) -> None:
        """End the process."""
        await self._engine.stop()
