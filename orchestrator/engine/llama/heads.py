"""Compute drafts with a head, in a context of its own: the MTP head of a loaded model, or an EAGLE-3 head for it.

A head reads tokens together with states that the model computed, and drafts the next ones. Its own states can be read
in place of the model's, to draft further tokens.
"""

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama.batch import Batch, RowsView, ints_at
from orchestrator.engine.llama.grammar import Logits
from orchestrator.engine.llama.loading import CannotLoad, load_weights, new_context
from orchestrator.engine.llama.model import BATCH, FLASH_ATTENTION, DecodeFailed, Llama
from orchestrator.engine.llama.vocabulary import Vocabulary, meta
from orchestrator.registry.architectures import EAGLE, why_no_eagle, why_no_mtp

States = npt.NDArray[np.float32]
"""One row for each token: what the model computed to choose it."""
_READ_TOGETHER = 64  # tokens that an EAGLE-3 head reads at once: llama.cpp reserves logits for each of them


def why_no_mtp_head(target: Llama) -> str | None:
    """Return why a model cannot draft with a head of its own, or None if it can. It was loaded for that."""
    if problem := lib.why_not("MTP heads"):
        return problem
    return why_no_mtp(target.info.architecture, target.heads)


def why_no_eagle_head(target: Llama) -> str | None:
    """Return why no EAGLE-3 head can draft for a model, or None if one can."""
    if problem := lib.why_not("EAGLE-3 heads"):
        return problem
    return why_no_eagle(target.info.architecture)


class Head(ABC):
    """A head with a sequence for each slot of its target, and as many cells as the target has.

    Sequences have numbers of their own: those of the target depend on the layout of its cache, which changes. They may
    start at any position. A batch has outputs for all of its tokens, at most `rows`, or for none: it depends on the
    architecture whose states llama.cpp returns for some of them.
    """

    def __init__(self, target: Llama, width: int, rows: int, *, together: int, spare: int = 0) -> None:
        """Raises CannotLoad.

        A state in the batch has `width` numbers. `together` are the most tokens of a batch, and `spare` sequences come
        after those for the slots.
        """
        self.width = width
        self.sequences = target.info.slots
        params = lib.llama_context_default_params()
        params.n_seq_max = self.sequences + spare
        self.rows = max(rows, params.n_seq_max)  # llama.cpp needs as many as sequences
        params.n_ctx = target.cells  # a sequence holds fewer than in the target
        params.n_batch = params.n_ubatch = min(max(together, self.rows), params.n_ctx)
        params.n_outputs_max = self.rows
        params.n_threads = params.n_threads_batch = target.threads
        # One pool: sequences have different numbers of tokens to read, which streams would compute one after the other.
        params.kv_unified = True
        params.flash_attn_type = FLASH_ATTENTION[target.flash_attention]
        params.swa_full = True
        params.offload_kqv = False
        params.no_perf = True
        self._context = self._open(target, params)
        lib.llama_set_embeddings_nextn(self._context, True, True)
        self._memory = lib.llama_get_memory(self._context)
        self._logits = RowsView(self.rows, target.vocab.size)
        self._states = RowsView(self.rows, width)
        self.batch = Batch(params.n_batch, padding=0, width=width)

    @abstractmethod
    def _open(self, target: Llama, params: Any) -> Any:
        """Return llama.cpp's context. Raises CannotLoad."""

    def encode(self, states: list[States]) -> list[States]:
        """Return what the batch needs of the target's states, a row for each. Raises DecodeFailed."""
        return states

    def decode(self) -> tuple[Logits, States]:
        """Compute the batch. Return its logits and states, a row for each output, valid until the next call.

        Raises DecodeFailed.
        """
        rows = self.batch.outputs
        assert rows in (0, self.batch.size), "states of some tokens would be those of others"
        code = lib.llama_decode(self._context, self.batch.struct())
        if code:
            raise DecodeFailed(f"llama_decode returned {code} for {self.batch.size} tokens of the head")
        if not rows:
            return self._logits.view[:0], self._states.view[:0]
        logits = self._logits.of(lib.llama_get_logits(self._context))
        return logits[:rows], self._states.of(lib.llama_get_embeddings_nextn(self._context))[:rows]

    def truncate(self, seq: int, length: int) -> None:
        """Remove the tokens of a sequence from position `length` on."""
        lib.llama_memory_seq_rm(self._memory, seq, length or -1, -1)

    def set_threads(self, threads: int) -> None:
        lib.llama_set_n_threads(self._context, threads, threads)


class MtpHead(Head):
    """The first MTP head of a model. It reads the state from which the model chose a token. Raises CannotLoad."""

    def __init__(self, target: Llama, rows: int) -> None:
        super().__init__(target, target.state_width, rows, together=BATCH)

    def _open(self, target: Llama, params: Any) -> Any:
        return target.head_context(params)


class EagleHead(Head):
    """An EAGLE-3 head from a file of its own (Li et al. 2025, section 3.1).

    Its encoder joins the states of three layers of the model. It may draft fewer tokens than the model has: llama.cpp
    puts its logits in the places of these tokens, and the others get minus infinity.
    """

    def __init__(self, spec: EngineSpec, target: Llama, rows: int) -> None:
        """Load the head of `spec`, and let the target hand over states. Raises CannotLoad.

        The kind is `settings` if the head does not fit its model.
        """
        assert spec.eagle is not None, "the option turns this on"
        own = dataclasses.replace(spec, file=spec.eagle.file, experts=None, eagle=None)
        target.log.errors.clear()
        self._model = load_weights(own, target.log)
        try:
            layers = self._fitting_layers(target)
            width = lib.llama_model_n_embd(self._model)
            # The encoder uses a sequence that stays empty, since llama.cpp checks positions.
            super().__init__(target, width, rows, together=_READ_TOGETHER, spare=1)
        except CannotLoad:
            lib.llama_model_free(self._model)
            raise
        target.hand_over(layers)
        most = min(self.rows, self.batch.capacity)  # states that are encoded at once
        self._features = Batch(most, padding=0, width=target.state_width, has_tokens=False)
        self._features.add(self.sequences, 0, np.zeros(most, np.int32), most)

    def _open(self, target: Llama, params: Any) -> Any:
        # A head without an embedding or an output reads those of the target.
        params.ctx_other = target.least_context()
        return new_context(self._model, params, target.log)

    def _fitting_layers(self, target: Llama) -> tuple[int, ...]:
        architecture = meta(self._model, "general.architecture")
        if architecture != EAGLE:
            raise CannotLoad("settings", f"the EAGLE-3 head is of architecture {architecture}; accepted: {EAGLE}")
        width, count = meta(self._model, f"{EAGLE}.target_hidden_size"), lib.llama_model_target_layer_ids_n(self._model)
        layers = tuple(ints_at(lib.llama_model_target_layer_ids(self._model), count).tolist())
        problem = target.vocab.difference(Vocabulary(self._model), "the EAGLE-3 head")
        if width != str(target.embedding):
            problem = f"the EAGLE-3 head reads states of {width} numbers, and the model's have {target.embedding}"
        elif not all(0 <= layer < target.layers for layer in layers):
            problem = f"the EAGLE-3 head reads the layers {layers}, and the model has {target.layers}"
        if problem is not None:
            raise CannotLoad("settings", f"{problem}; accepted: a head that was trained for this model")
        return layers

    def encode(self, states: list[States]) -> list[States]:
        """Join the states of three layers. Raises DecodeFailed."""
        if len(states) == 1:
            return [self._encode(states[0])]
        ends = np.cumsum([len(part) for part in states])[:-1]
        return np.split(self._encode(np.concatenate(states)), ends)

    def _encode(self, states: States) -> States:
        encoded = np.empty((len(states), self.width), np.float32)
        batch = self._features
        for start in range(0, len(states), batch.capacity):
            part = states[start : start + batch.capacity]
            batch.size = len(part)
            batch.states[: len(part)] = part
            code = lib.llama_encode(self._context, batch.struct())
            if code:
                raise DecodeFailed(f"llama_encode returned {code} for {len(part)} states of the head")
            rows = self._states.of(lib.llama_get_embeddings_nextn(self._context))
            encoded[start : start + len(part)] = rows[: len(part)]
        return encoded
