"""Call llama_decode with tokens that are known beforehand, and do nothing else: the best that a scheduler can reach."""

import os
import time
from typing import Any, Self

import orchestrator.engine.llama.binding as lib
from benchmarks.engine.names import POOLED, SPLIT
from benchmarks.engine.system import Measured, RequestLoad, SystemSetup, Tokens
from benchmarks.engine.systems.parameters import has_broken_amx
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama.batch import Batch
from orchestrator.engine.step_cost.attention import MICRO_BATCH_WITH_SCORES, may_keep_scores
from orchestrator.engine.step_cost.attention_trial import attention_key
from orchestrator.engine.step_cost.cost_cache import load_attention

_BATCH = 512
_OUTPUTS = 64


class Ceiling:
    """A model and a context in this process."""

    def __init__(self, setup: SystemSetup, *, split: bool) -> None:
        """Load the model. Raises MemoryError if llama.cpp cannot make the context, OSError if it cannot load the
        model."""
        self.name = SPLIT if split else POOLED
        lib.llama_backend_init()
        parameters = lib.llama_model_default_params()
        parameters.use_extra_bufts = not has_broken_amx()
        self._model: Any = lib.llama_model_load_from_file(os.fsencode(setup.model), parameters)
        if not self._model:
            raise OSError(f"llama.cpp cannot load {setup.model}")
        self._context: Any = lib.llama_init_from_model(self._model, _parameters(self._model, setup, split))
        if not self._context:
            raise MemoryError(f"llama.cpp cannot make a context of {setup.width} x {setup.context} cells")
        self._memory = lib.llama_get_memory(self._context)
        self._width = setup.width
        self._split = split
        self._batch = Batch(_BATCH, padding=0)
        self._held: Tokens = ()

    @classmethod
    async def start(cls, setup: SystemSetup, *, split: bool) -> Self:
        """Load the model."""
        return cls(setup, split=split)

    async def run(self, load: RequestLoad) -> Measured:
        """Compute what every system has to compute for a load.

        That is the shared tokens once, unless they are in the cache; the rest of each prompt; and a step for every
        token of the answers except the last one.
        """
        prefix = load.prompts[0].tokens[: load.shared]
        if prefix != self._held:
            self._truncate(0)
        started = time.perf_counter()
        if prefix != self._held:
            self._prefix(prefix)
        for seq in range(1, len(load.prompts)):
            self._fork(seq, len(prefix))
        self._prompts([prompt.tokens[load.shared :] for prompt in load.prompts], len(prefix))
        for step in range(load.answer - 1):
            self._batch.clear()
            for seq, prompt in enumerate(load.prompts):
                self._batch.add(seq, len(prompt.tokens) + step, prompt.tokens[:1], 1)
            self._decode()
        seconds = time.perf_counter() - started
        self._truncate(len(prefix))
        self._held = prefix
        return Measured(seconds=seconds, tokens=len(load.prompts) * load.answer)

    def steps(self, prompt: Tokens, most: int) -> tuple[float, ...]:
        """Return how long steps with 1 to `most` tokens of one sequence take after a prompt, in seconds."""
        self._truncate(0)
        self._prefix(prompt)
        times = []
        for count in range(1, most + 1):
            self._batch.clear()
            self._batch.add(0, len(prompt), (prompt[-1],) * count, count)
            started = time.perf_counter()
            self._decode()
            times.append(time.perf_counter() - started)
            lib.llama_memory_seq_rm(self._memory, 0, len(prompt), -1)
        self._truncate(0)
        self._held = ()
        return tuple(times)

    async def close(self) -> None:
        """Free model and context."""
        lib.llama_free(self._context)
        lib.llama_model_free(self._model)

    def _prefix(self, tokens: Tokens) -> None:
        for start in range(0, len(tokens), _BATCH):
            self._batch.clear()
            self._batch.add(0, start, tokens[start : start + _BATCH], 0)
            self._decode()

    def _prompts(self, rests: list[Tokens], position: int) -> None:
        """Compute the rests of the prompts, as many together as fit into a batch."""
        self._batch.clear()
        for seq, rest in enumerate(rests):
            for start in range(0, len(rest), _BATCH):
                chunk = rest[start : start + _BATCH]
                if self._batch.size + len(chunk) > _BATCH:
                    self._decode()
                    self._batch.clear()
                self._batch.add(seq, position + start, chunk, int(start + len(chunk) == len(rest)))
        self._decode()

    def _fork(self, seq: int, length: int) -> None:
        """Let a sequence begin with the first `length` tokens of sequence 0, unless it does already."""
        if lib.llama_memory_seq_pos_max(self._memory, seq) < length - 1:
            whole = self._split  # only whole streams can be copied
            lib.llama_memory_seq_cp(self._memory, 0, seq, -1 if whole else 0, -1 if whole else length)

    def _truncate(self, length: int) -> None:
        """Remove from every sequence what follows its first `length` tokens."""
        for seq in range(self._width):
            lib.llama_memory_seq_rm(self._memory, seq, length or -1, -1)

    def _decode(self) -> None:
        code = lib.llama_decode(self._context, self._batch.struct())
        if code:
            raise RuntimeError(f"{self.name}: llama_decode returned {code} for {self._batch.size} tokens")


def _parameters(model: Any, setup: SystemSetup, split: bool) -> Any:
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = setup.width * setup.context
    parameters.n_batch = parameters.n_ubatch = min(_BATCH, parameters.n_ctx)
    parameters.n_seq_max = setup.width
    parameters.n_outputs_max = max(setup.width, min(_OUTPUTS, parameters.n_batch))
    parameters.n_threads = parameters.n_threads_batch = setup.threads
    parameters.kv_unified = not split
    if split and _keeps_scores(model, setup):
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.n_ubatch = min(MICRO_BATCH_WITH_SCORES, parameters.n_batch)
    parameters.swa_full = True
    parameters.offload_kqv = False
    parameters.no_perf = True
    return parameters


def _keeps_scores(model: Any, setup: SystemSetup) -> bool:
    """Return whether our engine keeps the scores of attention with this model and setup."""
    spec = EngineSpec(file=str(setup.model), slots=setup.width)
    key = attention_key(spec, lib.build(), setup.threads)
    measured = None if key is None else load_attention(setup.folder / "curves", key)
    heads = lib.llama_model_n_head(model)
    may = may_keep_scores(spec, context=setup.context, heads=heads, split=True)
    return may and (measured is None or measured.attention == "off")
