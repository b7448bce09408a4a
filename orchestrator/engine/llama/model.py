"""Decode with a loaded model that generates text: its context, KV cache and vocabulary."""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.contract import EngineSpec, ModelInfo
from orchestrator.engine.kv.layout import begins_as_pool
from orchestrator.engine.llama.batch import Batch, RowsView, as_tokens
from orchestrator.engine.llama.grammar import Grammars, Logits
from orchestrator.engine.llama.loading import (
    CannotLoad,
    LlamaLog,
    apply_adapters,
    check_feature,
    describe,
    load_adapters,
    load_model,
    new_context,
    open_library,
)
from orchestrator.engine.llama.vocabulary import Vocabulary, meta
from orchestrator.engine.processor import usable_cores
from orchestrator.engine.step_cost.attention import MICRO_BATCH_WITH_SCORES, may_keep_scores
from orchestrator.engine.worker.batching import Padding, padding, padding_streams
from orchestrator.registry.architectures import COMPRESSED, ROLLS_BACK
from orchestrator.registry.options import (
    INVARIANT_MICRO_BATCH,
    INVARIANT_ROWS,
    MAX_CELLS,
    MAX_SEQUENCES,
    MOST_CHECKPOINTS,
    Adapters,
    FlashAttention,
    KvType,
    invariant_streams,
    state_sequences,
)

BATCH = 512  # tokens of a step
VERIFIED = 64  # tokens of a step that may have logits, at least, to verify draft tokens
DEFAULT_CONTEXT = 8192  # tokens of a sequence, if the spec does not say
_KV_TYPES: dict[KvType, int] = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": lib.GGML_TYPE_BF16,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q8_0": lib.GGML_TYPE_Q8_0,
}
FLASH_ATTENTION: dict[FlashAttention, int] = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


class DecodeFailed(Exception):
    """llama_decode refused a batch: a defect, since admission and batching should have prevented it."""


class Llama:
    """A model and its context. Raises CannotLoad; `progress` gets the loaded fraction, 0 to 1.

    Sequences have numbers below `sequences`. In a `split` cache each has its own stream of cells: a fork copies the
    stream, and attention reads only the sequence's cells, in the order of its tokens. Otherwise all share a pool of
    cells, and a fork shares those of its source.

    A recurrent layer has one state for all tokens of a sequence. A model with such layers cannot remove tokens from the
    end of a sequence (`can_cut_back` is false), and a fork gets all tokens of its source. To verify draft tokens, such
    a model keeps the states after its last few tokens, if llama.cpp can (`free_rollback`), or else a copy of the state
    before (`checkpoint`), from which accepted tokens are computed again.

    A layer with a sliding window has as many cells as the others. A sequence keeps all of them, except if it was
    restored, or started with a part of such a sequence: `least_prefix` says how far it can be cut back.
    """

    def __init__(self, spec: EngineSpec, progress: Callable[[float], None] = lambda _: None) -> None:
        started = time.monotonic()
        open_library(spec)
        self.log = LlamaLog()
        if spec.batch_invariant:
            os.environ["GGML_CPU_TILED_MM"] = "0"  # those kernels take over from eight tokens on, by other sums
        self._model: Any = load_model(spec, self.log, progress)
        self._architecture = meta(self._model, "general.architecture")
        self.can_cut_back = not (lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model))
        if not self.can_cut_back:
            check_feature("models with recurrent layers")
        if spec.batch_invariant and not self.can_cut_back:  # tokens of a sequence cannot make its rows whole, see ADR 5
            lib.llama_model_free(self._model)
            self._model = load_model(spec, self.log, progress, repack=False)
        self._adapters = load_adapters(self._model, spec, self.log)
        self._own_lora = spec.lora
        self.vocab = Vocabulary(self._model)
        self.grammars = Grammars(self.vocab, self.log.errors)
        self.split = spec.splits_cache and self.can_cut_back
        # Whether a sequence can start with a part of another, and be stored and restored. When a state is kept depends
        # on other requests, so batch invariance rules it out.
        self.can_fork = self.can_cut_back or not spec.batch_invariant
        # Whether it can do so only at the end of the other, where the state of that stands.
        self.keeps_states = self.can_fork and not self.can_cut_back
        # MTP heads, if they are wanted and the library can run them.
        self.heads = lib.llama_model_n_layer_nextn(self._model) if spec.mtp and not lib.why_not("MTP heads") else 0
        self._window: int = lib.llama_model_n_swa(self._model)  # tokens; 0: all layers attend to all tokens
        if self._window:
            check_feature("models with sliding windows")
        # Whether a restored sequence can be forked only at its end: of a window, no more than its content is stored.
        self.restores_ends = self.keeps_states or self._window > 0
        self.context_limit = self._choose_context(spec)
        self._context: Any = None
        self._handed_over: tuple[int, ...] = ()  # layers whose inputs are the `states`
        # A batch-invariant engine pads each micro-batch to a multiple of this, at least two, and computes logits of
        # such a multiple: kernels compute a lone row, and on some processors the remaining rows, by other sums.
        self.row_multiple = 1
        self.may_keep_scores = spec.flash_attention == "auto" and may_keep_scores(
            spec, context=self.context_limit, heads=lib.llama_model_n_head(self._model), split=self.split
        )
        self.flash_attention: FlashAttention = "off" if self.may_keep_scores else spec.flash_attention
        if self.can_fork and begins_as_pool(spec, self.flash_attention, self.context_limit):
            self.split = False
        self._open(spec)
        self.batch_invariant = spec.batch_invariant and self._keeps_batch_invariance()
        self.log.verbose = False
        self.info = self._describe(spec, time.monotonic() - started)

    # Loading

    def _choose_context(self, spec: EngineSpec) -> int:
        trained = lib.llama_model_n_ctx_train(self._model)
        limit = spec.context or min(trained, DEFAULT_CONTEXT, spec.cells or MAX_CELLS // spec.slots)
        if limit > trained and not spec.beyond_training:
            raise CannotLoad(
                "settings",
                f"context is {limit}, but the model was trained on {trained} tokens; accepted: at most that",
            )
        return limit

    def set_attention(self, spec: EngineSpec, flash_attention: FlashAttention) -> None:
        """Change how attention is computed, in the cache layout of the settings. Empties the cache.

        Raises CannotLoad, after which only this method and `set_layout` may be called.
        """
        self.flash_attention = flash_attention
        self._reopen(spec, split=spec.splits_cache and self.can_cut_back)

    def set_layout(self, spec: EngineSpec, *, split: bool) -> None:
        """Give each sequence its own stream of cells, or all of them one pool. Empties the cache.

        Raises CannotLoad, after which only this method and `set_attention` may be called.
        """
        self._reopen(spec, split=split)

    def _reopen(self, spec: EngineSpec, *, split: bool) -> None:
        threads = self.threads
        lib.llama_free(self._context)
        self._context = None
        self.split = split
        self._open(spec)
        self.set_threads(threads)

    def _open(self, spec: EngineSpec) -> None:
        started = time.monotonic()
        self._context = self._make_context(spec)
        self.open_seconds = time.monotonic() - started
        self._memory = lib.llama_get_memory(self._context)
        self._held = [0] * (self.sequences + 1 + self._twin + self.checkpoints)
        self._rolled_back: set[int] = set()
        self._copying: set[int] = set()
        self._logits = RowsView(self._most_rows, self.vocab.size)
        self._states = RowsView(self._most_rows, self.state_width if self.heads else 0)
        self._hand_over()
        self.cells: int = lib.llama_n_ctx(self._context) - self._spare
        self._warm_up()
        if not (self.can_cut_back or self.cell_bytes):
            self.cells = self.context_limit * self.sequences  # a state has room for any number of tokens

    def _make_context(self, spec: EngineSpec) -> Any:
        params = lib.llama_context_default_params()
        threads = spec.threads or usable_cores()
        self._batch_invariant = spec.batch_invariant
        # A micro-batch of one token computes its attention in parts, one a thread, and the sum differs in its last
        # bits. For batch invariance it is therefore padded with a token whose result nobody uses. In a common pool that
        # is one of a sequence which exists for nothing else, with a cell to spare.
        self._spare = int(spec.batch_invariant and not self.split)
        if self.split:
            self.sequences = invariant_streams(spec.slots) if spec.batch_invariant else spec.slots
            padded = self.context_limit + (max(INVARIANT_ROWS) if spec.batch_invariant else 0)
            params.n_ctx = padded * self.sequences
        else:
            self.sequences = self._pooled_sequences(spec.slots)
            params.n_ctx = (spec.cells or self.context_limit * spec.slots) + self._spare
        params.n_batch = min(BATCH, params.n_ctx)
        together = MICRO_BATCH_WITH_SCORES if self.flash_attention == "off" else BATCH
        params.n_ubatch = min(INVARIANT_MICRO_BATCH if spec.batch_invariant else together, params.n_batch)
        drafts = 0 if self.can_cut_back else spec.rollback
        # Of a sequence with two numbers, llama.cpp would take back the state of one.
        able = self._architecture in ROLLS_BACK and not self._window
        params.n_rs_seq = drafts if able and not lib.why_not("drafts for models with recurrent layers") else 0
        # Sequences beyond all others hold copies of states, see `checkpoint`.
        self.checkpoints = min(spec.slots, MOST_CHECKPOINTS) if drafts else 0
        rows = self.sequences + self._spare
        params.n_seq_max = self._number_sequences(rows)
        self.max_outputs: int = max(rows, min(VERIFIED, params.n_batch))
        extra = max(INVARIANT_ROWS) if spec.batch_invariant else 0
        self._most_rows = self.max_outputs + 2 * extra
        params.n_outputs_max = max(self._most_rows, params.n_seq_max)  # llama.cpp needs as many as sequences
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH_ATTENTION[self.flash_attention]
        params.type_k = _KV_TYPES[spec.kv_type_k]
        params.type_v = _KV_TYPES[spec.kv_type_v]
        params.kv_unified = not self.split
        params.swa_full = True  # else llama.cpp would drop what leaves a window, and sequences could not be cut back
        params.offload_kqv = False
        params.no_perf = True
        context = new_context(self._model, params, self.log)
        if not lib.llama_get_memory(context):
            raise CannotLoad("architecture", "the model keeps no KV cache, so it cannot generate")
        if self.heads:
            lib.llama_set_embeddings_nextn(context, True, True)
        if spec.lora:
            apply_adapters(context, self._adapters, spec.lora, self.log)
        self._lora = spec.lora
        # How many of the tokens of its last step can be removed from a sequence: without a checkpoint, and in any way.
        self.free_rollback: int = self.context_limit if self.can_cut_back else 0
        if params.n_rs_seq:
            self.free_rollback = lib.llama_n_rs_seq(context)
        self.max_rollback = self.context_limit if self.checkpoints else self.free_rollback
        self.micro_batch: int = params.n_ubatch
        self.batch = Batch(params.n_batch - self._spare, padding=(rows + 1) * max(1, extra), twin=self._twin)
        self.threads = threads
        return context

    def _number_sequences(self, rows: int) -> int:
        # Number the sequences beyond the first `rows`, and return how many there are in all.
        self._twin = rows if self._pools_windows else 0
        first_copy = rows + self._twin
        self._free_copies = list(range(first_copy, first_copy + self.checkpoints))
        self._copies: dict[int, int] = {}  # their numbers, by the sequences that they are copies of
        return first_copy + self.checkpoints

    @property
    def _pools_windows(self) -> bool:
        # In a pool, llama.cpp gives cells that have left the window of a sequence to others, unless two sequences hold
        # them. A sequence that is cut back needs them again. One that cannot be cut back would lose cells, too: before
        # llama.cpp computes the first micro-batch of a step, it drops what no longer is in the window after the last
        # one. So each sequence has a second number, whose tokens are the same.
        # A model that compresses its keys has no pool, whatever the layout.
        return self._window > 0 and not self.split and self._architecture not in COMPRESSED

    def _pooled_sequences(self, slots: int) -> int:
        if not self.can_cut_back:
            most = (MAX_SEQUENCES - MOST_CHECKPOINTS) // (2 if self._pools_windows else 1)
            return min(state_sequences(slots) if self.keeps_states else slots, most)
        # Those beyond the slots hold finished prompts. Each needs room for outputs, which a step has anyway.
        most, free = (MAX_SEQUENCES // 2, VERIFIED // 2) if self._window else (MAX_SEQUENCES, VERIFIED)
        return min(max(2 * slots, free), most)

    def _keeps_batch_invariance(self) -> bool:
        problem = ""
        if lib.llama_model_is_hybrid(self._model):
            problem = "its attention reads the cells of all sequences in one pool"
        elif self.split and not self._find_row_multiple():
            problem = "this processor computes a token by other sums when other tokens are in the step"
        if problem:
            print(f"batch_invariant does not hold for this model: {problem}", file=sys.stderr, flush=True)
        return not problem

    def _find_row_multiple(self) -> bool:
        # The least multiple of rows with which a token's logits do not depend on the rest of its micro-batch.
        length = min(INVARIANT_MICRO_BATCH, self.context_limit // max(INVARIANT_ROWS) * max(INVARIANT_ROWS))
        for self.row_multiple in INVARIANT_ROWS:
            together = self._probe([length])
            least = max(2, self.row_multiple)
            cuts = ([least] * 3, [length - least, least])
            if all(np.array_equal(self._probe(sizes), together[: sum(sizes)]) for sizes in cuts):
                return True
        return False

    def _probe(self, sizes: Sequence[int]) -> Logits:
        rows = []
        self.clear()
        for size in sizes:
            self.batch.clear()
            position = self._held[0]
            self.batch.add(0, position, np.arange(position, position + size, dtype=np.int32) % self.vocab.size, size)
            rows.append(self.decode().copy())
        self.clear()
        return np.concatenate(rows)

    def _warm_up(self) -> None:
        self.batch.clear()
        self.batch.add(0, 0, np.arange(min(8, self.vocab.size), dtype=np.int32), 1)
        started = time.monotonic()
        # This reads every weight.
        is_finite = np.isfinite(self.decode()[0]).all()
        self.warm_seconds = time.monotonic() - started
        # Whether the `state` of a sequence fits both layouts of the cache.
        streams = self.sequences if self.split else 1
        is_portable = self.can_cut_back and self.can_store and not self._window
        self.portable_states = is_portable and _has_streams(self._raw_state(0), streams, self._held[0])
        self._measure_bytes()
        self.clear()
        if not is_finite:
            raise CannotLoad("corrupt", "the model's first logits are not finite: its weights are damaged")

    def _measure_bytes(self) -> None:
        # Of a recurrent state, and of a cell of all layers with attention. If there are only cells, they are the unit.
        self.state_bytes, self.cell_bytes = 0, 1
        if self.can_cut_back:
            return

        def sizes() -> tuple[int, int]:
            only_states = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY  # and the cells of windows
            size = lib.llama_state_seq_get_size_ext(self._context, 0, only_states)
            return lib.llama_state_seq_get_size(self._context, 0), size

        held, (whole, partial) = self._held[0], sizes()
        self.batch.clear()
        self.batch.add(0, held, as_tokens([0]), 1)
        self.decode()
        longer, partial_longer = sizes()
        self.cell_bytes = longer - whole
        self.state_bytes = partial - held * (partial_longer - partial)

    def _describe(self, spec: EngineSpec, seconds: float) -> ModelInfo:
        return describe(
            self._model,
            self.vocab,
            context=self.context_limit,
            cells=self.cells,
            slots=spec.slots,
            threads=self.threads,
            chat_template=self.chat_template() is not None,
            shares_prefixes=self.can_fork,
            batch_invariant=self.batch_invariant,
            split_cache=self.split,
            load_seconds=seconds,
        )

    def chat_template(self) -> str | None:
        template = lib.llama_model_chat_template(self._model, None)
        return template.decode("utf-8", "replace") if template else None

    # Decoding

    def decode(self, width: int = 0) -> Logits:
        """Compute the batch; return its logits, of shape (outputs, vocabulary), valid until the next call.

        With a split cache the batch must contain equally many tokens of each of its sequences, in their order, so that
        llama.cpp needs few micro-batches. Other sequences are padded, up to `width` sequences in all, if that takes
        less time. Padding is removed from the cache afterwards. Raises DecodeFailed.
        """
        batch = self.batch
        pads = self._padding(width)
        if pads:
            batch.pad([(seq, self._position(seq), count) for seq, count in pads])
            if self.split:
                batch.sort()
        output_rows = batch.want_logits(self.row_multiple) if batch.outputs and self.row_multiple > 1 else None
        code = lib.llama_decode(self._context, batch.struct())
        if code:
            raise DecodeFailed(f"llama_decode returned {code} for {batch.size} tokens")
        self._copying.clear()
        for seq, end in batch.ends:
            self._held[seq] = end
            self._rolled_back.discard(seq)
        for seq, count in pads:
            self.truncate(seq, self._held[seq] - count)
        if not batch.outputs:
            return self._logits.view[:0]
        rows = self._rows(batch.outputs)
        if output_rows is None:
            self._selected: slice | npt.NDArray[np.int64] = slice(batch.outputs)
            return rows
        first, last = int(output_rows[0]), int(output_rows[-1])
        self._selected = slice(first, last + 1) if last - first + 1 == len(output_rows) else output_rows
        return rows[self._selected]

    def states(self) -> npt.NDArray[np.float32]:
        """Return the states from which the logits of the last `decode` follow, of shape (outputs, width).

        Only for a model with `heads`, or after `hand_over`. They are valid until the next call of `decode`.
        """
        if self._handed_over:
            rows = np.flatnonzero(self.batch.logits[: self.batch.size])[self._selected]
            inputs = [
                view.of(lib.llama_get_embeddings_layer_inp(self._context, layer))[rows]
                for layer, view in zip(self._handed_over, self._layer_inputs, strict=True)
            ]
            return np.concatenate(inputs, axis=1)
        return self._states.of(lib.llama_get_embeddings_nextn(self._context))[self._selected]

    def _rows(self, count: int) -> Logits:
        # The logits never move for a single row once there was one. Several rows are put in order only by
        # llama_get_logits.
        if count == 1 and len(self._logits.view):
            return self._logits.view[:1]
        return self._logits.of(lib.llama_get_logits(self._context))[:count]

    def _padding(self, width: int) -> list[tuple[int, int]]:
        batch = self.batch
        if not self.split:
            lone = self._batch_invariant and batch.size % self.micro_batch == 1
            return [(self.sequences, 1)] if lone else []
        seqs = sorted({seq for seq, _ in batch.ends})
        count = batch.size // len(seqs)
        if len(seqs) == 1 and not self._batch_invariant:
            return []
        padding = self._plan(seqs, count, width)
        own = padding.tokens - count
        return [*((seq, padding.tokens) for seq in padding.streams), *((seq, own) for seq in seqs if own)]

    def padded_beside(self, seqs: Sequence[int], width: int = 0) -> list[int]:
        """Return the other sequences that `decode` pads in a step of one token for each of `seqs`, which are sorted."""
        return self._plan(seqs, 1, width).streams if self.split else []

    def fits(self, seqs: Sequence[int], count: int) -> bool:
        """Return whether `count` tokens of each of `seqs` can be computed with batch invariance."""
        padding = self._plan(sorted(seqs), count, 0)
        return (len(seqs) + len(padding.streams)) * padding.tokens <= self.micro_batch

    def _plan(self, seqs: Sequence[int], count: int, width: int) -> Padding:
        if self._batch_invariant:
            cells = self.context_limit + max(INVARIANT_ROWS)
            rooms = [cells - held for held in self._held[: self.sequences]]
            return padding(seqs, count, rooms, multiple=self.row_multiple, most=self.micro_batch, width=width)
        if len(seqs) == 1:
            return Padding([], count)
        candidates = padding_streams(seqs, self.sequences, width=width) or []
        padded = [seq for seq in candidates if self._held[seq] + count <= self.context_limit]
        most = min(self.batch.padding, self.micro_batch - len(seqs) * count)
        return Padding(padded if len(padded) * count <= most else [], count)

    def _position(self, seq: int) -> int:
        batch = self.batch
        mine = batch.pos[: batch.size][batch.seq[: batch.size] == seq]
        return int(mine[-1]) + 1 if len(mine) else self._held[seq]

    def held(self, seq: int) -> int:
        return self._held[seq]

    @property
    def layers(self) -> int:
        """How many layers the model has, without MTP heads."""
        count: int = lib.llama_model_n_layer(self._model)
        return count

    @property
    def embedding(self) -> int:
        """How many numbers the input of a layer has for each token."""
        width: int = lib.llama_model_n_embd(self._model)
        return width

    @property
    def state_width(self) -> int:
        """How many numbers a row of `states` has."""
        if self._handed_over:
            return len(self._handed_over) * self.embedding
        width: int = lib.llama_model_n_embd_out(self._model)
        return width

    def hand_over(self, layers: tuple[int, ...]) -> None:
        """Let `states` be the inputs of these layers one after the other, for an EAGLE-3 head.

        llama.cpp aborts if it does not have them for the architecture (`registry.architectures`).
        """
        self._handed_over = layers
        self._hand_over()
        self._logits = RowsView(self._most_rows, self.vocab.size)  # they move to make room

    def _hand_over(self) -> None:
        for layer in self._handed_over:
            lib.llama_set_embeddings_layer_inp(self._context, layer, True)
        rows = self.batch.capacity + self._spare
        self._layer_inputs = [RowsView(rows, self.embedding) for _ in self._handed_over]

    def head_context(self, params: Any) -> Any:
        """Return llama.cpp's context for the model's MTP head. Raises CannotLoad."""
        params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        return new_context(self._model, params, self.log)

    def least_context(self) -> Any:
        """Return a context that computes nothing, for a head in another file that reads weights of this model.

        The model's own context is another one after a change of layout. Raises CannotLoad.
        """
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = params.n_seq_max = params.n_outputs_max = 1
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = FLASH_ATTENTION[self.flash_attention]
        params.offload_kqv = False
        params.no_perf = True
        return new_context(self._model, params, self.log)

    def set_threads(self, threads: int) -> None:
        self.threads = threads
        lib.llama_set_n_threads(self._context, threads, threads)

    def has_adapters(self, lora: Adapters) -> bool:
        """Return whether these adapters are loaded, as `use_adapters` requires."""
        return all(adapter.file in self._adapters for adapter in lora)

    def use_adapters(self, lora: Adapters) -> bool:
        """Use these adapters in addition to the model's own; return whether that is a change.

        After a change the next `decode` takes longer, since llama.cpp plans its computation again.
        """
        adapters = self._own_lora + lora
        if adapters == self._lora:
            return False
        apply_adapters(self._context, self._adapters, adapters, self.log)
        self._lora = adapters
        return True

    def fork(self, source: int, target: int, length: int) -> None:
        """Let the empty sequence `target` start with the first `length` tokens of `source`, without computing them.

        If the model cannot cut back, `length` must be all tokens that `source` holds.
        """
        if not self.can_cut_back:
            assert length == self._held[source], "a state cannot be forked before its end"
            self._settle(source)
            for number in self._numbers(target):
                lib.llama_memory_seq_cp(self._memory, source, number, -1, -1)
            self._held[target] = length
        elif self.split:
            lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)  # only whole streams can be copied
            self._copying |= {source, target}
            self.truncate(target, length)
        else:
            for number in self._numbers(target):
                lib.llama_memory_seq_cp(self._memory, source, number, 0, length)
            self._held[target] = length

    def truncate(self, seq: int, length: int) -> None:
        """Remove all but the first `length` tokens of a sequence from the cache.

        If the model cannot cut back, all tokens are removed, none, or up to `free_rollback` of those of its last step.
        """
        for number in self._numbers(seq):
            removed = lib.llama_memory_seq_rm(self._memory, number, length if length else -1, -1)
            assert removed, f"sequence {seq} cannot be cut back to {length} tokens"
        if 0 < length < self._held[seq] and not self.can_cut_back:
            self._rolled_back.add(seq)
        elif not length:
            self._rolled_back.discard(seq)
        self._held[seq] = length

    def checkpoint(self, seq: int) -> None:
        """Copy the state of a sequence before a step with draft tokens. At most `checkpoints` sequences have a copy."""
        self._settle(seq)
        number = self._copies[seq] = self._free_copies.pop()
        lib.llama_memory_seq_cp(self._memory, seq, number, -1, -1)
        self._held[number] = self._held[seq]

    def release_checkpoint(self, seq: int, *, restores: bool) -> None:
        """Remove the copy of a sequence's state. With `restores`, the sequence holds what it held before the step."""
        number = self._copies.pop(seq)
        if restores:
            self.truncate(seq, 0)
            self.fork(number, seq, self._held[number])
        self.truncate(number, 0)
        self._free_copies.append(number)

    def has_checkpoint(self, seq: int) -> bool:
        return seq in self._copies

    def _settle(self, seq: int) -> None:
        # llama.cpp remembers of a sequence, but not of its copies, that its state is an earlier one.
        if seq not in self._rolled_back:
            return
        only_states = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        buffer = np.empty(lib.llama_state_seq_get_size_ext(self._context, seq, only_states), np.uint8)
        lib.llama_state_seq_get_data_ext(self._context, _bytes_of(buffer), len(buffer), seq, only_states)
        lib.llama_state_seq_set_data_ext(self._context, _bytes_of(buffer), len(buffer), seq, only_states)
        self._rolled_back.discard(seq)

    def least_prefix(self, seq: int) -> int:
        """Return how many tokens of a sequence must stay, at least, if it is forked or cut back and then continues.

        Not for models that keep states. It is 0 unless cells of a window are missing.
        """
        if not self._window:
            return 0
        first = lib.llama_memory_seq_pos_min(self._memory, seq)
        # The token at position n attends to those from n - window + 1 on.
        return first + self._window - 1 if first > 0 else 0

    def _numbers(self, seq: int) -> tuple[int, ...]:
        return (seq, seq + self._twin) if seq < self._twin else (seq,)  # copies of states have no twin

    @property
    def can_store(self) -> bool:
        """Whether the library has the functions for `state` and `restore`."""
        return lib.why_not("prefixes stored on disk") is None

    def is_copied(self, seq: int) -> bool:
        """Return whether the next step copies cells of this sequence. Until then, use neither `state` nor `restore`."""
        # llama.cpp notes a copy of a stream and makes it in its next step.
        return seq in self._copying

    def size_of_state(self, seq: int) -> int:
        """Return how many bytes `state` returns, or few more."""
        size: int = lib.llama_state_seq_get_size(self._context, seq)
        return size

    def state(self, seq: int) -> memoryview:
        """Return the contents of a sequence's cells, for `restore`, in either layout if these are `portable_states`.

        Raises OSError if llama.cpp cannot read them.
        """
        state = self._raw_state(seq)
        if not len(state):
            raise OSError(f"llama.cpp does not return the cells of sequence {seq}")
        return (_of_one_stream(state, self.sequences, seq) if self.split and self.portable_states else state).data

    def _raw_state(self, seq: int) -> npt.NDArray[np.uint8]:
        buffer = np.empty(lib.llama_state_seq_get_size(self._context, seq), np.uint8)
        size = lib.llama_state_seq_get_data(self._context, _bytes_of(buffer), len(buffer), seq)
        return buffer[:size]

    def restore(self, seq: int, state: memoryview, length: int) -> bool:
        """Fill an empty sequence with the `state` of `length` tokens; return whether that succeeded.

        The bytes must be unchanged, since llama.cpp does not check them.
        """
        buffer = np.frombuffer(state, np.uint8)
        if self.split and self.portable_states:
            buffer = _of_streams(buffer, self.sequences)
        bytes_read = lib.llama_state_seq_set_data(self._context, _bytes_of(buffer), len(buffer), seq)
        last = lib.llama_memory_seq_pos_max(self._memory, seq)
        if not bytes_read or last != length - 1:
            self.truncate(seq, 0)
            return False
        if self._twin:
            lib.llama_memory_seq_cp(self._memory, seq, seq + self._twin, -1, -1)
        self._held[seq] = length
        return True

    def clear(self) -> None:
        lib.llama_memory_clear(self._memory, False)
        self._held = [0] * len(self._held)
        self._rolled_back.clear()
        self._copying.clear()
        self._free_copies += self._copies.values()
        self._copies.clear()


# llama.cpp writes a mark, the number of the sequence, the number of streams, and for each stream the number of cells
# and the cells, of which all streams but one have none. `_NUMBER_BYTES` is the size of each number.
_NUMBER_BYTES = 4


def _has_streams(state: npt.NDArray[np.uint8], streams: int, cells: int) -> bool:
    """Return whether the state of the first sequence has this form, with this number of streams and cells."""
    numbers = state[: 4 * _NUMBER_BYTES].view(np.uint32)
    return bool(numbers[2:].tolist() == [streams, cells])


def _of_one_stream(state: npt.NDArray[np.uint8], streams: int, stream: int) -> npt.NDArray[np.uint8]:
    """Return the state of a sequence as that of the first one in a pool. Overwrites `state`."""
    numbers = state[: (3 + streams) * _NUMBER_BYTES].view(np.uint32)
    numbers[stream : stream + 3] = numbers[0], 0, 1
    return state[stream * _NUMBER_BYTES : len(state) - (streams - 1 - stream) * _NUMBER_BYTES]


def _of_streams(state: npt.NDArray[np.uint8], streams: int) -> npt.NDArray[np.uint8]:
    """Return a state from `_of_one_stream` in the form for a cache with this number of streams."""
    padded = np.concatenate((state, np.zeros((streams - 1) * _NUMBER_BYTES, np.uint8)))
    padded[2 * _NUMBER_BYTES : 3 * _NUMBER_BYTES].view(np.uint32)[0] = streams
    return padded


def _bytes_of(buffer: npt.NDArray[np.uint8]) -> Any:
    return buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
