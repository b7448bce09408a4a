"""Embed or rank texts with a loaded model."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.contract import EngineSpec, ModelInfo, Vectors
from orchestrator.engine.errors import TextTooLong
from orchestrator.engine.llama.batch import Batch, Tokens, as_tokens, floats_at
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
from orchestrator.engine.llama.model import DEFAULT_CONTEXT, FLASH_ATTENTION, DecodeFailed
from orchestrator.engine.llama.vocabulary import Vocabulary, meta
from orchestrator.engine.processor import usable_cores

# The pooling of the tokens' vectors by the header's `pooling_type`. Generating models have no such key.
_POOLING: dict[str, int] = {
    "": lib.LLAMA_POOLING_TYPE_MEAN,
    "0": lib.LLAMA_POOLING_TYPE_MEAN,
    "1": lib.LLAMA_POOLING_TYPE_MEAN,
    "2": lib.LLAMA_POOLING_TYPE_CLS,
    "3": lib.LLAMA_POOLING_TYPE_LAST,
}
_RANK = str(lib.LLAMA_POOLING_TYPE_RANK)  # a classifier scores a query and a text
_RERANK_TEMPLATE = b"rerank"  # the prompt template of rerankers that were made from generating models
_WARM_TOKENS = 64


class Embedder:
    """A model and a context that embeds. Raises CannotLoad; `progress` gets the loaded fraction, 0 to 1.

    One call computes up to `slots` texts of `limit` tokens in all. `size` is the length of a vector.
    """

    def __init__(self, spec: EngineSpec, progress: Callable[[float], None] = lambda _: None) -> None:
        started = time.monotonic()
        open_library(spec)
        check_feature("embedding and ranking")
        self.log = LlamaLog()
        self._model: Any = load_model(spec, self.log, progress)
        self.vocab = Vocabulary(self._model)
        self.ranks = spec.ranks
        self.size: int = 1 if spec.ranks else lib.llama_model_n_embd_out(self._model)
        self.slots = spec.slots
        self.threads = spec.threads or usable_cores()
        self.limit = _context_of(self._model, spec)
        self._context: Any = self._make_context(spec)
        self._memory = lib.llama_get_memory(self._context)
        self._batch = Batch(self.limit, padding=0)
        self.token_seconds = self._warm_up()  # in the first batch
        self.log.verbose = False
        self.info = self._describe(time.monotonic() - started)

    def _make_context(self, spec: EngineSpec) -> Any:
        params = lib.llama_context_default_params()
        params.embeddings = True
        params.pooling_type = _pooling(self._model, ranks=spec.ranks)
        # The vectors of a text are pooled within one micro-batch, and an encoder has to see all its tokens at once.
        # When llama.cpp reserves memory, it divides a micro-batch among the sequences, and aborts if there is a rest.
        even = -(-self.limit // self.slots) * self.slots
        params.n_ctx = params.n_batch = params.n_ubatch = even
        params.n_seq_max = self.slots
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = FLASH_ATTENTION[spec.flash_attention]
        params.offload_kqv = False
        params.no_perf = True
        context = new_context(self._model, params, self.log)
        if spec.lora:
            apply_adapters(context, load_adapters(self._model, spec, self.log), spec.lora, self.log)
        return context

    def _warm_up(self) -> float:
        count = min(_WARM_TOKENS, self.vocab.size, self.limit)
        started = time.monotonic()
        # This reads every weight.
        (vector,) = self.embed([np.arange(count, dtype=np.int32)])
        if not np.isfinite(vector).all():
            raise CannotLoad("corrupt", "the model's first vector is zero or not finite: its weights are damaged")
        return (time.monotonic() - started) / count

    def _describe(self, seconds: float) -> ModelInfo:
        return describe(
            self._model,
            self.vocab,
            context=self.limit,
            cells=lib.llama_n_ctx(self._context) if self._memory else 0,
            slots=self.slots,
            threads=self.threads,
            chat_template=False,
            shares_prefixes=False,
            batch_invariant=False,
            split_cache=False,
            load_seconds=seconds,
            embedding=None if self.ranks else self.size,
        )

    def tokenize(self, vocab: Vocabulary, index: int, text: str) -> Tokens:
        """Return the tokens of a text, with those that the model needs around it. Raises TextTooLong with `index`.

        `vocab` is the calling thread's vocabulary of this model.
        """
        self._check_fits(vocab, index, text)
        tokens = as_tokens(vocab.tokenize(text, special=False, whole=True))
        if not 0 < len(tokens) <= self.limit:
            raise TextTooLong(index, len(tokens), self.limit)
        return tokens

    def tokenize_pair(self, vocab: Vocabulary, index: int, query: str, text: str) -> Tokens:
        """Return the tokens of a query and a text for a model that ranks. Raises TextTooLong with `index`.

        They are in the model's template, if it has one, or joined with the tokens that encoders were trained with
        (Nogueira and Cho, arXiv 1901.04085).
        """
        self._check_fits(vocab, index, query, text)
        template = lib.llama_model_chat_template(self._model, _RERANK_TEMPLATE)
        if template:
            parts = re.split(r"(\{query\}|\{document\})", template.decode("utf-8", "replace"))
            fields = {"{query}": query, "{document}": text}
            tokens = [
                token for part in parts for token in vocab.tokenize(fields.get(part, part), special=part not in fields)
            ]
        else:
            first, second = (vocab.tokenize(string, special=False) for string in (query, text))
            ends = [vocab.eos] if vocab.adds_eos else []
            between = [vocab.sep] if vocab.adds_sep else []
            tokens = [*([vocab.bos] if vocab.adds_bos else []), *first, *ends, *between, *second, *(ends or between)]
        if not 0 < len(tokens) <= self.limit:
            raise TextTooLong(index, len(tokens), self.limit)
        return as_tokens(tokens)

    def _check_fits(self, vocab: Vocabulary, index: int, *texts: str) -> None:
        # Too long even if all tokens were as long as the longest: refused before they are tokenized.
        least = sum(map(len, texts)) // vocab.longest
        if vocab.keeps_all and least > self.limit:
            raise TextTooLong(index, least, self.limit)

    def embed(self, texts: Sequence[Tokens]) -> Vectors:
        """Return the vectors of the texts, of shape (texts, size) and length 1; NaN if a vector was zero.

        A ranking model's vector is its score alone. Raises DecodeFailed.
        """
        self._batch.clear()
        for seq, tokens in enumerate(texts):
            self._batch.add(seq, 0, tokens, len(tokens))
        compute = lib.llama_decode if self._memory else lib.llama_encode
        code = compute(self._context, self._batch.struct())
        if code:
            raise DecodeFailed(f"llama.cpp returned {code} for {self._batch.size} tokens of {len(texts)} texts")
        vectors = np.stack([self._pooled(seq) for seq in range(len(texts))])
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        if self.ranks:
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: Vectors = np.divide(vectors, lengths, out=np.full_like(vectors, np.nan), where=lengths > 0)
        return units

    def _pooled(self, seq: int) -> Vectors:
        address = lib.llama_get_embeddings_seq(self._context, seq)
        return floats_at(address, (self.size,))

    def set_threads(self, threads: int) -> None:
        self.threads = threads
        lib.llama_set_n_threads(self._context, threads, threads)


def _context_of(model: Any, spec: EngineSpec) -> int:
    trained: int = lib.llama_model_n_ctx_train(model)
    limit = spec.context or min(trained, DEFAULT_CONTEXT)
    # Some models have no positions beyond the training context.
    if limit > trained:
        message = f"context is {limit}, but the model was trained on {trained} tokens; accepted: at most that"
        raise CannotLoad("settings", message)
    return limit


def _pooling(model: Any, *, ranks: bool) -> int:
    kind = meta(model, f"{meta(model, 'general.architecture')}.pooling_type")
    if ranks:
        if kind != _RANK:
            message = (
                "the model has no classifier that ranks texts; accepted: one whose header says pooling_type 4 (rank)"
            )
            raise CannotLoad("architecture", message)
        return int(lib.LLAMA_POOLING_TYPE_RANK)
    if kind not in _POOLING:
        ranks_texts = " (it ranks texts: role reranker)" if kind == _RANK else ""
        message = (
            f"the model joins its tokens in way {kind}{ranks_texts}, which makes no vector; accepted: mean, cls, last"
        )
        raise CannotLoad("architecture", message)
    return _POOLING[kind]
