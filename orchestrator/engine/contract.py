"""Say what a caller gives an engine and gets back. Leaves: nothing internal is imported here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Finish = Literal["stop", "length", "deadline", "repetition", "cancelled"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
Priority = Literal["interactive", "batch"]
Vectors = NDArray[np.float32]

MAX_SLOTS = 128
MAX_CELLS = 1 << 22
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_PROMPT_BYTES = 64 << 20
MAX_GRAMMAR_BYTES = 1 << 18

NOT_SET_UP = "not set up"
"""What an engine says of speculation for which its registry entry has nothing."""


class Message(NamedTuple):
    """One message of a prompt: its role (system, user or assistant) and its text.

    It is the same from the layout of a prompt to the engine, where the model's chat template renders it.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """How to load one model.

    `context` is the longest sequence in tokens, prompt and answer together (None: what the model was trained on, at
    most 8,192). The KV cache has `slots` x `context` cells. `split` gives every sequence cells of its own, which is
    faster for texts that have little in common; otherwise all share one pool, and a shared prefix is there once. None
    begins split and goes by what comes (`engine.layout`), unless there are `cells`: a common pool may have fewer, since
    few sequences become as long as they may. When they run out, the sequence with the most slack gives its own up, and
    is computed again later. `flash_attention` "auto" is what `engine.attention` chooses. `threads` None means the
    physical cores. A context beyond the training context is refused unless `beyond_training` is set. `check_tensors`
    reads every weight once and refuses damaged ones. `lora` are adapters (file, scale) that are added to the weights,
    for all sequences. `prompt_lookup` is (longest n-gram, most tokens): draft tokens are taken from what a sequence has
    said before. `draft` is the file of a smaller model with the same vocabulary that guesses up to `draft_tokens`
    tokens. Output is the same with and without, as far as `batch_invariant` goes. Drafts are made where they pay;
    `always_draft`, for measuring, makes as many as there can be. `step_costs` is a folder that keeps what was measured
    of models. `prefixes` is one, of at most `prefix_bytes`, where a stopped engine leaves the KV cells of prompts that
    begin with one of the system messages `system_prompts` for the next one. `cpus` are the logical CPUs that the
    process is bound to, none for all. `log_file` None keeps the log in a temporary file. `name` is what errors call the
    model, None for the name of its file. `hung_seconds` is how long the engine may neither use CPU time nor send
    anything while it has work (5 predicted steps, if that is longer), `load_seconds` the same while it loads.

    An engine that `embeds` makes vectors and writes nothing: `context` is then the longest text and the most tokens of
    a batch, `slots` the most texts of one, and what concerns writing has no meaning.

    `batch_invariant` makes a sequence at temperature 0 give the same tokens whatever else is in the batch, at the price
    of slower prefill and of a lone sequence decoding as if it were two: every micro-batch then has 2 to 63 query
    tokens, for which llama.cpp computes each token the same way whatever else is in the batch, and the cache is split,
    so that a sequence's cells lie in the order of its tokens and attention always sums in that order. That holds for
    quantised weights with flash attention, and for state-space models with quantised weights, which have no attention.
    It does not hold for F32, F16 and BF16 weights (other kernels for one row than for many), nor without flash
    attention. Without `batch_invariant`, logits differ in their last bits with the batch, the prefix that was reused
    and the number of threads, and a greedy choice between two nearly equal tokens may fall differently.
    """

    file: str
    embeds: bool = False
    context: int | None = None
    slots: int = 4
    threads: int | None = None
    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"
    flash_attention: FlashAttention = "auto"
    mmap: bool = True
    mlock: bool = False
    check_tensors: bool = True
    beyond_training: bool = False
    batch_invariant: bool = False
    split: bool | None = None
    cells: int | None = None
    experts: int | None = None
    lora: tuple[tuple[str, float], ...] = ()
    niceness: int = 0
    prompt_lookup: tuple[int, int] | None = None
    draft: str | None = None
    draft_tokens: int = 8
    always_draft: bool = False
    step_costs: str | None = None
    prefixes: str | None = None
    prefix_bytes: int = 2 << 30
    system_prompts: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    log_file: str | None = None
    name: str | None = None
    hung_seconds: float = 10.0
    load_seconds: float = 300.0

    @property
    def splits_cache(self) -> bool:
        """Whether every sequence gets cells of its own at first, where the architecture allows a choice."""
        return self.batch_invariant or self.cells is None if self.split is None else self.split

    @property
    def shown_name(self) -> str:
        """Return what errors call the model."""
        return self.name or Path(self.file).name

    def problem(self) -> str | None:
        """Return what makes these settings impossible, or None."""
        checks = (
            (self.context is None or 8 <= self.context <= MAX_CELLS, f"context is {self.context}"),
            (1 <= self.slots <= MAX_SLOTS, f"slots is {self.slots}; accepted: 1 to {MAX_SLOTS}"),
            (self.slots * (self.context or 1) <= MAX_CELLS, f"slots x context is above {MAX_CELLS} cells"),
            (self.threads is None or 1 <= self.threads <= 1024, f"threads is {self.threads}"),
            (
                not (self.batch_invariant and self.split is False),
                "batch_invariant needs a split cache; accepted: split left out or true",
            ),
            *self._cell_checks(),
            (0 <= self.niceness <= 19, f"niceness is {self.niceness}; accepted: 0 to 19"),
            (
                self.prompt_lookup is None or min(self.prompt_lookup) >= 1,
                f"prompt_lookup is {self.prompt_lookup}; accepted: at least 1 and 1",
            ),
            (self.draft_tokens >= 1, f"draft_tokens is {self.draft_tokens}; accepted: at least 1"),
            (self.experts is None or self.experts >= 1, f"experts is {self.experts}"),
            (0 < self.hung_seconds < math.inf, f"hung_seconds is {self.hung_seconds}"),
            (0 < self.load_seconds < math.inf, f"load_seconds is {self.load_seconds}"),
        )
        return next((what for fine, what in checks if not fine), None)

    def _cell_checks(self) -> tuple[tuple[bool, str], ...]:
        least = self.context or 8
        return (
            (
                self.cells is None or not self.splits_cache,
                "cells needs a common pool; accepted: batch_invariant and split false",
            ),
            (
                self.cells is None or least <= self.cells <= MAX_CELLS,
                f"cells is {self.cells}, and one sequence may take {least}; accepted: {least} to {MAX_CELLS}",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request for text.

    `max_tokens` None means up to the end of
    the context. Temperature 0 is greedy; otherwise the same `seed` gives the same text whatever else the engine does
    (`seed` None: a fresh one). A `stop` string ends the text and is not part of it. `schema` is a JSON Schema and
    `grammar` a GBNF grammar with the rule `root`; at most one of them. `deadline_seconds` counts from the call, waiting
    included. `slack` in seconds: how late this may finish without harm; less slack goes first.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: dict[str, object] | bool | None = None
    grammar: str | None = None
    deadline_seconds: float | None = None
    slack: float = 0.0
    priority: Priority = "interactive"
    """Models are loaded, where they have to make room for each other, for interactive requests first."""
    fit: int | None = None
    """Where the prompt leaves no room for `max_tokens`, the answer gets what is left of the context, unless that is
    fewer than `fit` tokens; then, and always without `fit`, the prompt is too long."""

    def problem(self) -> str | None:
        """Return what makes this request impossible for any engine, or None."""
        checks = (
            (bool(self.messages), "there are no messages"),
            (all(role in ("system", "user", "assistant") for role, _ in self.messages), "unknown message role"),
            (sum(len(text) for _, text in self.messages) <= MAX_PROMPT_BYTES, "the prompt is above 64 MiB"),
            (self.max_tokens is None or self.max_tokens >= 1, f"max_tokens is {self.max_tokens}"),
            (0 <= self.temperature <= 100, f"temperature is {self.temperature}; accepted: 0 to 100"),
            (0 < self.top_p <= 1, f"top_p is {self.top_p}; accepted: above 0, at most 1"),
            (self.seed is None or 0 <= self.seed < 1 << 64, f"seed is {self.seed}; accepted: 0 to 2^64 - 1"),
            (len(self.stop) <= MAX_STOPS, f"{len(self.stop)} stop strings; accepted: at most {MAX_STOPS}"),
            (all(0 < len(s.encode()) <= MAX_STOP_BYTES for s in self.stop), "a stop string is empty or too long"),
            (self.schema is None or self.grammar is None, "both a schema and a grammar are given"),
            (len(self.grammar or "") <= MAX_GRAMMAR_BYTES, "the grammar is above 256 KiB"),
            (self.fit is None or self.fit >= 1, f"fit is {self.fit}; accepted: at least 1"),
            (self.deadline_seconds is None or -math.inf < self.deadline_seconds < math.inf, "the deadline is no time"),
            (-math.inf <= self.slack <= math.inf, f"slack is {self.slack}"),
        )
        return next((what for fine, what in checks if not fine), None)


def texts_problem(texts: Sequence[str]) -> str | None:
    """Return what makes these texts impossible to embed for any engine, or None."""
    if not texts:
        return "there are no texts"
    return "the texts are above 64 MiB" if sum(map(len, texts)) > MAX_PROMPT_BYTES else None


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """A vector of length 1 for each text, shape (texts, size), and how many `tokens` the texts have in all."""

    vectors: Vectors
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What was loaded. `context` is the limit of one sequence, `cells` the size of the KV cache, both in tokens.

    `embedding` is how many numbers a vector has that the engine makes; None for one that writes.
    """

    pid: int
    description: str
    architecture: str
    parameters: int
    bytes: int
    vocabulary: int
    context: int
    training_context: int
    cells: int
    slots: int
    threads: int
    chat_template: bool
    bos: str
    eos: str
    shares_prefixes: bool
    batch_invariant: bool
    split_cache: bool
    llama_cpp: str
    load_seconds: float
    embedding: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since the model was loaded, and what is going on now.

    `steps` are calls of llama_decode. `prompt_tokens` were asked for, of which `reused_tokens` came from a shared
    prefix and `prefill_tokens` have been computed. Sequences were `preempted` so often because the cache was full, and
    `recomputed_tokens` of them were computed again. `restored_prefixes` of `restored_tokens` in all were there from the
    start. Of `drafted` tokens `accepted` ones stayed, which saved
    `saved_seconds` (lost them, if negative); `speculation` says whether it goes on, and why. `llama_seconds` were spent
    inside llama.cpp, to decode and to make tokens of prompts, and `own_seconds` outside, waiting for work not counted.
    The engine computes with so many `threads`: with as many as it may, or with fewer while other processes hold some
    of the cores. It is `calibrated` when it has nothing left to measure in idle moments. After so many
    `layout_changes`, `split_cache` says whether each sequence has cells of its own now.
    """

    steps: int = 0
    decode_steps: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_tokens: int = 0
    preempted: int = 0
    recomputed_tokens: int = 0
    restored_prefixes: int = 0
    restored_tokens: int = 0
    output_tokens: int = 0
    grammar_rejections: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    drafted: int = 0
    accepted: int = 0
    saved_seconds: float = 0.0
    speculation: str = NOT_SET_UP
    llama_seconds: float = 0.0
    own_seconds: float = 0.0
    running: int = 0
    prefilling: int = 0
    queued: int = 0
    retained: int = 0
    used_cells: int = 0
    cells: int = 0
    threads: int = 0
    calibrated: bool = False
    layout_changes: int = 0
    split_cache: bool = False
