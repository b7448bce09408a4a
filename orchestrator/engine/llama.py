"""Call llama.cpp: the only file that imports llama_cpp. Much down there aborts the process, so this checks first.

One `Llama` is a model with one context, for one thread. Token arrays are int32, logits float32.
"""

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt
import psutil

from orchestrator.engine.contract import MAX_CELLS, EngineSpec, ModelInfo
from orchestrator.engine.errors import BadGrammar, LoadFailure

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

BATCH = 512
EXACT_QUERIES = 63
MAX_SEQUENCES = 256
DEFAULT_CONTEXT = 8192
MAX_NESTING = 100
_KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
_FLASH = {"auto": -1, "off": 0, "on": 1}
_LEVEL_WARN, _LEVEL_ERROR, _LEVEL_CONTINUE = 3, 4, 5
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class CannotLoad(Exception):
    """The model cannot be loaded; `kind` says why."""

    def __init__(self, kind: LoadFailure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class DecodeFailed(Exception):
    """llama_decode refused a batch. Admission and batching make sure of what it needs, so this is a defect."""


class _Log:
    """llama.cpp's log: everything while loading, then warnings and errors, to standard error (the log file)."""

    def __init__(self) -> None:
        self.verbose = True
        self.errors: deque[str] = deque(maxlen=8)
        self._last = 0
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, None)

    def _write(self, level: int, text: bytes, _: object) -> None:
        level = self._last if level == _LEVEL_CONTINUE else level
        self._last = level
        if level == _LEVEL_ERROR:
            self.errors.append(text.decode("utf-8", "replace").strip())
        if (self.verbose and 0 < level <= _LEVEL_ERROR and level != 1) or level in (_LEVEL_WARN, _LEVEL_ERROR):
            os.write(2, text)


class Batch:
    """The arrays of a llama_batch, reused for every step: token, position, sequence and whether logits are wanted.

    `capacity` is for the caller's tokens; one more row is kept for padding.
    """

    def __init__(self, capacity: int) -> None:
        size = capacity + 1
        self.capacity = capacity
        self.token = np.zeros(size, np.int32)
        self.pos = np.zeros(size, np.int32)
        self.seq = np.zeros(size, np.int32)
        self.logits = np.zeros(size, np.int8)
        self.size = 0
        self.outputs = 0
        self._one = np.ones(size, np.int32)
        self._seq_pointers = self.seq.ctypes.data + np.arange(size, dtype=np.uint64) * 4
        int32 = ctypes.POINTER(ctypes.c_int32)
        self.struct = lib.llama_batch(
            token=self.token.ctypes.data_as(int32),
            pos=self.pos.ctypes.data_as(int32),
            n_seq_id=self._one.ctypes.data_as(int32),
            seq_id=ctypes.cast(ctypes.c_void_p(self._seq_pointers.ctypes.data), ctypes.POINTER(int32)),
            logits=self.logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def clear(self) -> None:
        """Start over with no tokens."""
        self.size = self.outputs = 0

    def add_token(self, seq: int, pos: int, token: int) -> None:
        """Add one token whose logits are wanted. Its output's row is `outputs` before the call."""
        row = self.size
        self.token[row] = token
        self.pos[row] = pos
        self.seq[row] = seq
        self.logits[row] = 1
        self.size = row + 1
        self.outputs += 1

    def add_padding(self, seq: int) -> None:
        """Add one token to an empty sequence; there is always room for it beyond `capacity`."""
        row = self.size
        self.token[row] = self.pos[row] = self.logits[row] = 0
        self.seq[row] = seq
        self.size = row + 1

    def add_chunk(self, seq: int, pos: int, tokens: Tokens, want_logits: bool) -> None:
        """Add prompt tokens; the logits of the last one are wanted or none."""
        start, end = self.size, self.size + len(tokens)
        self.token[start:end] = tokens
        self.pos[start:end] = np.arange(pos, pos + len(tokens), dtype=np.int32)
        self.seq[start:end] = seq
        self.logits[start:end] = 0
        self.logits[end - 1] = want_logits
        self.size = end
        self.outputs += want_logits


class Grammar:
    """The state of one sequence in its grammar. `close` frees it; it is not to be used afterwards."""

    def __init__(self, sampler: Any, size: int) -> None:
        self._sampler = sampler
        self._one = np.zeros(1, _CANDIDATE)
        self._one_array = _candidates(self._one)
        self._size = size

    def allows(self, token: int) -> bool:
        """Return whether this token may come next. Far cheaper than asking for all of them."""
        self._one[0] = (token, 0.0, 0.0)
        self._one_array.size = 1
        lib.llama_sampler_apply(self._sampler, ctypes.byref(self._one_array))
        return bool(self._one["logit"][0] == 0.0)

    def mask(self, logits: Logits) -> Logits:
        """Return a copy of the logits with minus infinity where a token is not allowed."""
        candidates = np.empty(self._size, _CANDIDATE)
        candidates["id"] = np.arange(self._size, dtype=np.int32)
        candidates["logit"] = logits
        lib.llama_sampler_apply(self._sampler, ctypes.byref(_candidates(candidates)))
        return np.ascontiguousarray(candidates["logit"])

    def accept(self, token: int) -> None:
        """Move on by a token that is allowed (another one would abort the process)."""
        lib.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Free it."""
        if self._sampler:
            lib.llama_sampler_free(self._sampler)
            self._sampler = None


def _candidates(array: npt.NDArray[Any]) -> Any:
    data = array.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    return lib.llama_token_data_array(data=data, size=len(array), selected=-1, sorted=False)


class Llama:
    """A model and its context. Raises CannotLoad; `progress` is called with the part loaded, 0 to 1."""

    def __init__(self, spec: EngineSpec, progress: Callable[[float], None] = lambda _: None) -> None:
        started = time.monotonic()
        self.log = _Log()
        _check_file(spec.file)
        lib.llama_backend_init()
        self._model: Any = self._load_model(spec, progress)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.vocabulary: int = lib.llama_vocab_n_tokens(self._vocab)
        self.can_share = not (lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model))
        self.context_limit = self._choose_context(spec)
        self._context: Any = self._make_context(spec)
        self._memory = lib.llama_get_memory(self._context)
        self.cells: int = lib.llama_n_ctx(self._context) - spec.exact
        self.end_tokens = frozenset(t for t in range(self.vocabulary) if lib.llama_vocab_is_eog(self._vocab, t))
        self.bos: int = lib.llama_vocab_bos(self._vocab)
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(self._vocab)) and self.bos >= 0
        self.adds_space = _meta(self._model, "tokenizer.ggml.model") == "llama" and (
            _meta(self._model, "tokenizer.ggml.add_space_prefix") != "false"
        )
        self._pieces: dict[int, bytes] = {}
        self._grammars: dict[str, Any] = {}
        self._warm_up()
        self.log.verbose = False
        self.info = self._describe(spec, time.monotonic() - started)

    # Loading

    def _load_model(self, spec: EngineSpec, progress: Callable[[float], None]) -> Any:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = (lib.LLAMA_LOAD_MODE_MMAP if spec.mmap else 0) | (2 if spec.mlock else 0)
        params.check_tensors = spec.check_tensors
        # ggml's AMX kernels, as gcc 12 compiles them, load a tile configuration that was never stored (the stores are
        # taken for dead), and the first product with quantised weights ends in SIGSEGV. Without the extra buffer types
        # they are not used, and neither are repacked weights, which costs speed on such processors.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()

        def report(part: float, _: object) -> bool:
            progress(part)
            return True

        callback = lib.llama_progress_callback(report)
        params.progress_callback = callback
        if spec.experts is not None:
            params.kv_overrides = self._expert_override(spec)
        model = lib.llama_model_load_from_file(os.fsencode(spec.file), params)
        if not model:
            raise self._load_error()
        if not lib.llama_model_has_decoder(model) or lib.llama_model_has_encoder(model):
            raise CannotLoad("architecture", "the model is no text generator (it has an encoder)")
        return model

    def _expert_override(self, spec: EngineSpec) -> Any:
        """Return the overrides that set the number of experts used per token; needs the architecture's name first."""
        params = lib.llama_model_default_params()
        params.vocab_only = True
        model = lib.llama_model_load_from_file(os.fsencode(spec.file), params)
        if not model:
            raise self._load_error()
        architecture = _meta(model, "general.architecture")
        count = _meta(model, f"{architecture}.expert_count")
        lib.llama_model_free(model)
        if not count.isdigit() or int(count) < (spec.experts or 0):
            raise CannotLoad("settings", f"experts is {spec.experts}, but the model has {count or 'no'} experts")
        overrides = (lib.llama_model_kv_override * 2)()
        overrides[0].tag = lib.LLAMA_KV_OVERRIDE_TYPE_INT
        overrides[0].key = f"{architecture}.expert_used_count".encode()
        overrides[0].value.val_i64 = spec.experts
        self._overrides = overrides  # llama.cpp keeps no copy while it loads
        return overrides

    def _load_error(self) -> CannotLoad:
        message = "; ".join(dict.fromkeys(self.log.errors)) or "llama.cpp cannot load it and does not say why"
        if "unknown model architecture" in message:
            return CannotLoad("architecture", message)
        if any(word in message for word in ("failed to allocate", "unable to allocate", "out of memory")):
            return CannotLoad("memory", message)
        return CannotLoad("corrupt", message)

    def _choose_context(self, spec: EngineSpec) -> int:
        trained = lib.llama_model_n_ctx_train(self._model)
        wanted = spec.context or min(trained, DEFAULT_CONTEXT, MAX_CELLS // spec.slots)
        if wanted > trained and not spec.beyond_training:
            raise CannotLoad(
                "settings",
                f"context is {wanted}, but the model was trained on {trained} tokens; accepted: at most that",
            )
        return wanted

    def _make_context(self, spec: EngineSpec) -> Any:
        params = lib.llama_context_default_params()
        threads = spec.threads or default_threads()
        params.n_ctx = self.context_limit * spec.slots + spec.exact
        params.n_batch = min(BATCH, params.n_ctx)
        params.n_ubatch = min(EXACT_QUERIES if spec.exact else BATCH, params.n_batch)
        self.sequences = min(2 * spec.slots, MAX_SEQUENCES - 1) if self.can_share else spec.slots
        self._scratch = self.sequences
        params.n_seq_max = self.sequences + spec.exact
        params.n_outputs_max = params.n_seq_max
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = _FLASH[spec.flash_attention]
        params.type_k = _KV_TYPES[spec.kv_type_k]
        params.type_v = _KV_TYPES[spec.kv_type_v]
        params.kv_unified = True  # a fork of a prefix is then a matter of marks, not of copies
        params.swa_full = True  # a window that forgets cannot be forked from
        params.offload_kqv = False
        params.no_perf = True
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            message = "; ".join(dict.fromkeys(self.log.errors)) or "llama.cpp cannot make a context"
            raise CannotLoad("memory" if "alloc" in message else "settings", message)
        if not lib.llama_get_memory(context):
            raise CannotLoad("architecture", "the model keeps no KV cache, so it cannot generate")
        # A micro-batch of one token computes its attention in parts, one a thread, and the sum differs in its last
        # bits. So when exact, it gets company: a token of a sequence that exists for that only.
        self.batch = Batch(params.n_batch - spec.exact)
        self._exact = spec.exact
        self._ubatch: int = params.n_ubatch
        self.threads = threads
        return context

    def _warm_up(self) -> None:
        """Decode a few tokens: touches every weight, and finds those that give NaN."""
        self.batch.clear()
        tokens = np.arange(min(8, self.vocabulary), dtype=np.int32)
        self.batch.add_chunk(0, 0, tokens, True)
        started = time.monotonic()
        row = self.decode()[0]
        self.warm_seconds = time.monotonic() - started
        self.clear()
        if not np.isfinite(row).all():
            raise CannotLoad("corrupt", "the model's first logits are not finite: its weights are damaged")

    def _describe(self, spec: EngineSpec, seconds: float) -> ModelInfo:
        text = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self._model, text, 256)
        return ModelInfo(
            pid=os.getpid(),
            description=text.value.decode("utf-8", "replace"),
            architecture=_meta(self._model, "general.architecture"),
            parameters=lib.llama_model_n_params(self._model),
            bytes=lib.llama_model_size(self._model),
            vocabulary=self.vocabulary,
            context=self.context_limit,
            training_context=lib.llama_model_n_ctx_train(self._model),
            cells=self.cells,
            slots=spec.slots,
            threads=self.threads,
            chat_template=self.chat_template() is not None,
            bos=self.token_text(self.bos),
            eos=self.token_text(lib.llama_vocab_eos(self._vocab)),
            shares_prefixes=self.can_share,
            exact=spec.exact,
            llama_cpp=lib.llama_version().decode("utf-8", "replace"),
            load_seconds=seconds,
        )

    # Decoding

    def decode(self) -> Logits:
        """Compute the batch and return its logits, a row for each output, valid until the next call."""
        batch = self.batch
        padded = self._exact and batch.size % self._ubatch == 1
        if padded:
            batch.add_padding(self._scratch)
        batch.struct.n_tokens = batch.size
        code = lib.llama_decode(self._context, batch.struct)
        if code:
            raise DecodeFailed(f"llama_decode returned {code} for {batch.size} tokens")
        if padded:
            self.truncate(self._scratch, 0)
        if not batch.outputs:
            return np.empty((0, self.vocabulary), np.float32)
        pointer = lib.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(batch.outputs, self.vocabulary))

    def set_threads(self, threads: int) -> None:
        """Use this many threads from the next decode on."""
        self.threads = threads
        lib.llama_set_n_threads(self._context, threads, threads)

    def fork(self, source: int, target: int, length: int) -> None:
        """Let `target`, which is empty, share the first `length` tokens of `source`."""
        lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def truncate(self, seq: int, length: int) -> None:
        """Forget what a sequence holds from position `length` on; all of it for 0."""
        lib.llama_memory_seq_rm(self._memory, seq, length if length else -1, -1)

    def clear(self) -> None:
        """Forget everything."""
        lib.llama_memory_clear(self._memory, False)

    # Vocabulary

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text, without BOS; `special` lets the text spell control tokens."""
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        count = lib.llama_tokenize(self._vocab, data, len(data), tokens, room, False, special)
        if count < 0:
            tokens = (ctypes.c_int32 * -count)()
            count = lib.llama_tokenize(self._vocab, data, len(data), tokens, -count, False, special)
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; none for control tokens."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._spell(token, special=False)
        return known

    def token_text(self, token: int) -> str:
        """Return how a token is spelled in a template, control tokens included; empty for no token."""
        return self._spell(token, special=True).decode("utf-8", "replace") if 0 <= token < self.vocabulary else ""

    def eos_text(self) -> str:
        """Return how the end-of-sequence token is spelled."""
        return self.token_text(lib.llama_vocab_eos(self._vocab))

    def _spell(self, token: int, special: bool) -> bytes:
        room = 64
        buffer = ctypes.create_string_buffer(room)
        count = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = lib.llama_token_to_piece(self._vocab, token, buffer, -count, 0, special)
        return buffer.raw[:count]

    def chat_template(self) -> str | None:
        """Return the model's own Jinja template, or None."""
        template = lib.llama_model_chat_template(self._model, None)
        return template.decode("utf-8", "replace") if template else None

    # Grammars

    def grammar(self, text: str) -> Grammar:
        """Return a grammar at its start. Raises BadGrammar."""
        master = self._grammars.get(text)
        if master is None:
            master = self._parse_grammar(text)
            if len(self._grammars) >= 32:
                lib.llama_sampler_free(self._grammars.pop(next(iter(self._grammars))))
            self._grammars[text] = master
        return Grammar(lib.llama_sampler_clone(master), self.vocabulary)

    def _parse_grammar(self, text: str) -> Any:
        if _nesting(text) > MAX_NESTING:
            raise BadGrammar(f"the grammar is nested more than {MAX_NESTING} deep")  # its parser is recursive
        if "\0" in text:
            raise BadGrammar("the grammar holds a zero byte")
        self.log.errors.clear()
        sampler = lib.llama_sampler_init_grammar(self._vocab, text.encode(), b"root")
        if not sampler:
            raise BadGrammar("; ".join(self.log.errors) or "llama.cpp cannot parse the grammar")
        return sampler


def default_threads() -> int:
    """Return the number of physical cores that this process may use."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def _check_file(name: str) -> None:
    path = Path(name)
    try:
        if not path.exists():
            raise CannotLoad("missing", "there is no such file")
        if not path.is_file():
            raise CannotLoad("unreadable", "it is not a regular file")
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise CannotLoad("unreadable", f"it cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise CannotLoad("not-gguf", f"it is not a GGUF file: it begins with {magic!r}")


def _meta(model: Any, key: str) -> str:
    text = ctypes.create_string_buffer(256)
    count = lib.llama_model_meta_val_str(model, key.encode(), text, 256)
    return text.value.decode("utf-8", "replace") if count >= 0 else ""


def _nesting(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        if letter == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif letter == ")":
            depth -= 1
    return deepest


def as_tokens(tokens: Sequence[int]) -> Tokens:
    """Return an array of tokens."""
    return np.asarray(tokens, dtype=np.int32)
