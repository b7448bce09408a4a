"""Compute drafts with the MTP head of a loaded model, in a context of its own."""

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.llama.batch import Batch, RowsView
from orchestrator.engine.llama.grammar import Logits
from orchestrator.engine.llama.model import BATCH, FLASH_ATTENTION, DecodeFailed, Llama
from orchestrator.registry.architectures import why_no_mtp

States = npt.NDArray[np.float32]
"""One row for each token: what the model computed to choose it."""


def why_no_head(target: Llama) -> str | None:
    """Return why a model cannot draft with a head of its own, or None if it can. It was loaded for that."""
    if problem := lib.why_not("MTP heads"):
        return problem
    return why_no_mtp(target.info.architecture, target.heads)


class MtpHead:
    """The first MTP head of a model, with cells for each of its sequences. Raises CannotLoad.

    It reads a token together with the state from which the model chose that token, and drafts the next one. Its own
    states can be read in place of the model's, to draft further tokens. Sequences may start at any position. A batch
    has outputs for all of its tokens, at most `rows`, or for none: architectures disagree whose states llama.cpp
    returns for some of them.
    """

    def __init__(self, target: Llama, rows: int) -> None:
        self.sequences = target.sequences
        self.rows = max(rows, target.sequences)  # llama.cpp needs as many as sequences
        params = lib.llama_context_default_params()
        params.n_ctx = target.cells  # a sequence holds fewer than in the target
        params.n_batch = params.n_ubatch = min(BATCH, params.n_ctx)
        params.n_seq_max = target.sequences
        params.n_outputs_max = self.rows
        params.n_threads = params.n_threads_batch = target.threads
        # One pool: sequences have different numbers of tokens to read, which streams would compute one after the other.
        params.kv_unified = True
        params.flash_attn_type = FLASH_ATTENTION[target.flash_attention]
        params.swa_full = True
        params.offload_kqv = False
        params.no_perf = True
        self._context = target.head_context(params)
        lib.llama_set_embeddings_nextn(self._context, True, True)
        self._memory = lib.llama_get_memory(self._context)
        self._logits = RowsView(self.rows, target.vocab.size)
        self._states = RowsView(self.rows, target.state_width)
        self.batch = Batch(params.n_batch, padding=0, width=target.state_width)

    def decode(self) -> tuple[Logits, States]:
        """Compute the batch. Return its logits and states, a row for each output, valid until the next call.

        Raises DecodeFailed.
        """
        rows = self.batch.outputs
        assert rows in (0, self.batch.size), "states of some tokens would be those of others"
        code = lib.llama_decode(self._context, self.batch.struct())
        if code:
            raise DecodeFailed(f"llama_decode returned {code} for {self.batch.size} tokens of the MTP head")
        if not rows:
            return self._logits.view[:0], self._states.view[:0]
        logits = self._logits.of(lib.llama_get_logits(self._context))
        return logits[:rows], self._states.of(lib.llama_get_embeddings_nextn(self._context))[:rows]

    def truncate(self, seq: int, length: int) -> None:
        """Remove the tokens of a sequence from position `length` on."""
        lib.llama_memory_seq_rm(self._memory, seq, length or -1, -1)

    def set_threads(self, threads: int) -> None:
        lib.llama_set_n_threads(self._context, threads, threads)
