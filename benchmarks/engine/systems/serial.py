"""Measure llama-cpp-python's `Llama` with one request after the other. It keeps the last prompt as a prefix."""

import time
from typing import Any, Self, cast

import llama_cpp

from benchmarks.engine.names import SERIAL
from benchmarks.engine.system import Measured, RequestLoad, SystemSetup
from benchmarks.engine.systems.parameters import avoid_broken_amx


class Serial:
    """A `Llama` in this process."""

    def __init__(self, llama: Any) -> None:
        self.name = SERIAL
        self._llama = llama

    @classmethod
    async def start(cls, setup: SystemSetup) -> Self:
        """Load the model."""
        avoid_broken_amx()
        return cls(
            llama_cpp.Llama(
                str(setup.model),
                n_ctx=setup.context,
                n_batch=512,
                n_threads=setup.threads,
                n_threads_batch=setup.threads,
                flash_attn=True,
                verbose=False,
            )
        )

    async def run(self, load: RequestLoad) -> Measured:
        """Answer one request after the other."""
        started = time.perf_counter()
        answers = [
            self._llama.create_completion(prompt.text, max_tokens=load.answer, temperature=0.0)
            for prompt in load.prompts
        ]
        seconds = time.perf_counter() - started
        return Measured(
            seconds=seconds,
            tokens=sum(cast(int, answer["usage"]["completion_tokens"]) for answer in answers),
            texts=tuple(answer["choices"][0]["text"] for answer in answers),
            asked=tuple(cast(int, answer["usage"]["prompt_tokens"]) for answer in answers),
        )

    async def close(self) -> None:
        """Free the model."""
        self._llama.close()
