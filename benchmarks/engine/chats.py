"""Make loads for models that have their own vocabulary: chats, in the model's own tokens."""

import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orchestrator.engine.llama.binding as lib
from benchmarks.engine.cells import Cell, State, UserCell
from benchmarks.engine.prose import document, list_task, question
from benchmarks.engine.system import BenchmarkPrompt, RequestLoad
from benchmarks.engine.workload import common
from benchmarks.tiny.families import FAMILIES
from orchestrator.bench.families.words import seeded
from orchestrator.engine.contract import Message
from orchestrator.engine.llama import Vocabulary
from orchestrator.engine.worker.chat import PromptTemplate

FAMILY = "plan"
# Requests whose correct answer has fewer characters are not used, so that no measured answer ends early.
_LONG_ANSWER = 160


@dataclass(frozen=True, slots=True)
class Chats:
    """The vocabulary and the template of a model."""

    vocabulary: Vocabulary
    template: PromptTemplate

    @classmethod
    def of(cls, file: Path) -> "Chats":
        """Read them from a model file, and no weights. Raises OSError. They stay in memory until the process ends."""
        parameters: Any = lib.llama_model_default_params()
        parameters.vocab_only = True
        model = lib.llama_model_load_from_file(os.fsencode(file), parameters)
        if not model:
            raise OSError(f"llama.cpp cannot read {file}")
        vocabulary = Vocabulary(model)
        source = lib.llama_model_chat_template(model, None)
        return cls(vocabulary, PromptTemplate(vocabulary, source.decode() if source else None))

    def prose_loads(self, cell: UserCell, number: int) -> dict[State, RequestLoad]:
        """Return the loads of round `number` of a cell of the user's path: the same documents in all states."""
        rng = random.Random(f"{cell.name}/{number}")  # noqa: S311 (prompts, no secrets)
        if cell.steps:
            return {state: self._steps(rng, cell) for state in cell.states}
        texts = [document(rng, cell.prefix, self._count) for _ in range(1 if cell.shared else cell.width)]
        documents = texts * cell.width if cell.shared else texts
        loads: dict[State, RequestLoad] = {}
        for state in cell.states:
            prompts = tuple(
                self._prompt((Message("system", text), Message("user", question(rng)))) for text in documents
            )
            shared = common(tuple(prompt.tokens for prompt in prompts))
            loads[state] = RequestLoad(prompts=prompts, answer=cell.answer, shared=shared)
        return loads

    def _steps(self, rng: random.Random, cell: UserCell) -> RequestLoad:
        prompts = tuple(self._prompt((Message("user", list_task(rng)),)) for _ in range(cell.steps))
        return RequestLoad(prompts=prompts, answer=cell.answer, steps=True)

    def _count(self, text: str) -> int:
        return len(self.vocabulary.tokens_of(text, False))

    def load(self, cell: Cell, number: int) -> RequestLoad:
        """Return the load of round `number` for the embedded models."""
        rng = seeded(f"{cell.name}/{number}")
        prompts: list[BenchmarkPrompt] = []
        while len(prompts) < cell.width:
            example = FAMILIES[FAMILY].generate(rng, "wording")
            prompt = self._prompt(tuple(example.messages))
            if len(example.answer) >= _LONG_ANSWER and len(prompt.tokens) <= cell.own:
                prompts.append(prompt)
        shared = common(tuple(prompt.tokens for prompt in prompts))
        return RequestLoad(prompts=tuple(prompts), answer=cell.answer, shared=shared)

    def prepared_load(self, cell: Cell, number: int) -> tuple[RequestLoad, RequestLoad]:
        """Return the load that computes the prompts of round `number`, and the load of the round."""
        load = self.load(cell, number)
        return replace(load, answer=1), load

    def _prompt(self, messages: tuple[Message, ...]) -> BenchmarkPrompt:
        segments = self.template.segments(messages)
        tokens = self.template.tokens_of(segments)
        return BenchmarkPrompt(messages, "".join(segment.text for segment in segments), tuple(tokens.tolist()))
