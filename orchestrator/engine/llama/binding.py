"""Bind llama.cpp: the structs, constants and functions of llama.h that we call, and nothing else.

`load` opens a build of libllama and looks up every function, which is then an attribute of this module. A use before
that loads the default. Names and types are those of llama.h; handles and arrays that functions return are addresses, or
None. A build is refused if it lacks a function, except those of `OPTIONAL`, or if its structs have a layout that is
neither llama.h's nor of another release (`LAYOUTS`). That shows in llama.cpp's own defaults and in results that are
always the same.
"""

import ctypes
import hashlib
import os
from collections.abc import Iterator, Mapping
from ctypes import (
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.registry.llama_library import (
    ENVIRONMENT,
    default_library,
    installed_library,
    library_file,
    why_no_library,
)

HEADER: Final = "llama-cpp-python 0.3.36"  # has the llama.h that this file follows
_ACCEPTED: Final = f"a build of llama.cpp with the API of {HEADER}"
# A build whose structs have grown at their end writes into this, and reads its own defaults back from it.
_RESERVE: Final = 256  # bytes

# Constants

GGML_LOG_LEVEL_INFO: Final = 2
GGML_LOG_LEVEL_WARN: Final = 3
GGML_LOG_LEVEL_ERROR: Final = 4
GGML_LOG_LEVEL_CONT: Final = 5
GGML_TYPE_F32: Final = 0
GGML_TYPE_F16: Final = 1
GGML_TYPE_Q4_0: Final = 2
GGML_TYPE_Q4_1: Final = 3
GGML_TYPE_Q5_0: Final = 6
GGML_TYPE_Q5_1: Final = 7
GGML_TYPE_Q8_0: Final = 8
GGML_TYPE_BF16: Final = 30
LLAMA_CONTEXT_TYPE_MTP: Final = 1
LLAMA_FLASH_ATTN_TYPE_AUTO: Final = -1
LLAMA_FLASH_ATTN_TYPE_DISABLED: Final = 0
LLAMA_FLASH_ATTN_TYPE_ENABLED: Final = 1
LLAMA_KV_OVERRIDE_TYPE_INT: Final = 0
LLAMA_LOAD_MODE_AUTO: Final = -1
LLAMA_LOAD_MODE_MMAP: Final = 1
LLAMA_LOAD_MODE_MLOCK: Final = 2
LLAMA_POOLING_TYPE_UNSPECIFIED: Final = -1
LLAMA_POOLING_TYPE_MEAN: Final = 1
LLAMA_POOLING_TYPE_CLS: Final = 2
LLAMA_POOLING_TYPE_LAST: Final = 3
LLAMA_POOLING_TYPE_RANK: Final = 4
LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED: Final = -1
LLAMA_SPLIT_MODE_LAYER: Final = 1
LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: Final = 1
LLAMA_TOKEN_ATTR_USER_DEFINED: Final = 1 << 4

# Types. Pointers that we neither set nor read are `c_void_p`, and enums are `c_int`.

llama_log_callback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)  # ggml_log_callback in ggml.h
llama_progress_callback = ctypes.CFUNCTYPE(c_bool, c_float, c_void_p)


class llama_token_data(ctypes.Structure):
    _fields_ = (("id", c_int32), ("logit", c_float), ("p", c_float))


class llama_token_data_array(ctypes.Structure):
    _fields_ = (("data", POINTER(llama_token_data)), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool))


class llama_batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
        ("_reserve", c_uint8 * _RESERVE),
    )


class _OverrideValue(ctypes.Union):
    _fields_ = (("val_i64", c_int64), ("val_f64", c_double), ("val_bool", c_bool), ("val_str", c_char * 128))


class llama_model_kv_override(ctypes.Structure):
    _anonymous_ = ("value",)
    _fields_ = (("tag", c_int), ("key", c_char * 128), ("value", _OverrideValue))


class llama_model_params(ctypes.Structure):
    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int),
        ("load_mode", c_int),
        ("lazy_mode", c_int),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", llama_progress_callback),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", POINTER(llama_model_kv_override)),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
        ("_reserve", c_uint8 * _RESERVE),
    )


_UP_TO_TYPES: Final = (
    ("n_ctx", c_uint32),
    ("n_batch", c_uint32),
    ("n_ubatch", c_uint32),
    ("n_seq_max", c_uint32),
    ("n_rs_seq", c_uint32),
    ("n_outputs_max", c_uint32),
    ("n_outputs_max_per_seq", c_uint32),
    ("n_threads", c_int32),
    ("n_threads_batch", c_int32),
    ("ctx_type", c_int),
    ("rope_scaling_type", c_int),
    ("pooling_type", c_int),
    ("attention_type", c_int),
    ("flash_attn_type", c_int),
    ("rope_freq_base", c_float),
    ("rope_freq_scale", c_float),
    ("yarn_ext_factor", c_float),
    ("yarn_attn_factor", c_float),
    ("yarn_beta_fast", c_float),
    ("yarn_beta_slow", c_float),
    ("yarn_orig_ctx", c_uint32),
    ("defrag_thold", c_float),
    ("cb_eval", c_void_p),
    ("cb_eval_user_data", c_void_p),
    ("type_k", c_int),
    ("type_v", c_int),
)
_FROM_CALLBACKS: Final = (
    ("abort_callback", c_void_p),
    ("abort_callback_data", c_void_p),
    ("embeddings", c_bool),
    ("offload_kqv", c_bool),
    ("no_perf", c_bool),
    ("op_offload", c_bool),
    ("swa_full", c_bool),
    ("kv_unified", c_bool),
    ("samplers", c_void_p),
    ("n_samplers", c_size_t),
    ("ctx_other", c_void_p),
    ("_reserve", c_uint8 * _RESERVE),
)


class llama_context_params(ctypes.Structure):
    _fields_ = (*_UP_TO_TYPES, *_FROM_CALLBACKS)


class _llama_context_params_0_6(ctypes.Structure):
    _fields_ = (*_UP_TO_TYPES, ("moe_cache_size", c_size_t), *_FROM_CALLBACKS)


# Layouts of a struct in other releases of llama.cpp. They differ in fields that we neither set nor read.
LAYOUTS: Final[Mapping[type[ctypes.Structure], tuple[type[ctypes.Structure], ...]]] = {
    llama_context_params: (_llama_context_params_0_6,),
}


# Functions: the type of the result, then those of the arguments. The variables name what a handle is of.

_model = _context = _memory = _vocab = _sampler = _adapter = c_void_p
_seq = _pos = _token = c_int32

SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "llama_backend_init": (None,),
    "llama_log_set": (None, llama_log_callback, c_void_p),
    "llama_print_system_info": (c_char_p,),
    "llama_version": (c_char_p,),
    "ggml_backend_load_all_from_path": (None, c_char_p),
    "ggml_backend_reg_count": (c_size_t,),
    "llama_model_default_params": (llama_model_params,),
    "llama_model_load_from_file": (_model, c_char_p, llama_model_params),
    "llama_model_free": (None, _model),
    "llama_model_chat_template": (c_char_p, _model, c_char_p),
    "llama_model_desc": (c_int32, _model, c_char_p, c_size_t),
    "llama_model_get_vocab": (_vocab, _model),
    "llama_model_has_decoder": (c_bool, _model),
    "llama_model_has_encoder": (c_bool, _model),
    "llama_model_is_hybrid": (c_bool, _model),
    "llama_model_is_recurrent": (c_bool, _model),
    "llama_model_meta_val_str": (c_int32, _model, c_char_p, c_char_p, c_size_t),
    "llama_model_n_ctx_train": (c_int32, _model),
    "llama_model_n_embd": (c_int32, _model),
    "llama_model_n_embd_out": (c_int32, _model),
    "llama_model_n_head": (c_int32, _model),
    "llama_model_n_layer": (c_int32, _model),
    "llama_model_n_layer_nextn": (c_int32, _model),
    "llama_model_n_params": (c_uint64, _model),
    "llama_model_n_swa": (c_int32, _model),
    "llama_model_size": (c_uint64, _model),
    "llama_adapter_lora_init": (_adapter, _model, c_char_p),
    "llama_set_adapters_lora": (c_int32, _context, POINTER(_adapter), c_size_t, POINTER(c_float)),
    "llama_context_default_params": (llama_context_params,),
    "llama_init_from_model": (_context, _model, llama_context_params),
    "llama_free": (None, _context),
    "llama_get_memory": (_memory, _context),
    "llama_n_ctx": (c_uint32, _context),
    "llama_n_rs_seq": (c_uint32, _context),
    "llama_set_n_threads": (None, _context, c_int32, c_int32),
    "llama_batch_init": (llama_batch, c_int32, c_int32, c_int32),
    "llama_batch_free": (None, llama_batch),
    "llama_decode": (c_int32, _context, llama_batch),
    "llama_encode": (c_int32, _context, llama_batch),
    # An address, since making a pointer object at each step would take ten times as long.
    "llama_get_logits": (c_void_p, _context),
    "llama_get_embeddings_seq": (c_void_p, _context, _seq),
    "llama_memory_clear": (None, _memory, c_bool),
    "llama_memory_seq_cp": (None, _memory, _seq, _seq, _pos, _pos),
    "llama_memory_seq_pos_max": (_pos, _memory, _seq),
    "llama_memory_seq_pos_min": (_pos, _memory, _seq),
    "llama_memory_seq_rm": (c_bool, _memory, _seq, _pos, _pos),
    "llama_state_seq_get_data": (c_size_t, _context, POINTER(c_uint8), c_size_t, _seq),
    "llama_state_seq_get_data_ext": (c_size_t, _context, POINTER(c_uint8), c_size_t, _seq, c_uint32),
    "llama_state_seq_get_size": (c_size_t, _context, _seq),
    "llama_state_seq_get_size_ext": (c_size_t, _context, _seq, c_uint32),
    "llama_state_seq_set_data": (c_size_t, _context, POINTER(c_uint8), c_size_t, _seq),
    "llama_state_seq_set_data_ext": (c_size_t, _context, POINTER(c_uint8), c_size_t, _seq, c_uint32),
    "llama_tokenize": (c_int32, _vocab, c_char_p, c_int32, POINTER(_token), c_int32, c_bool, c_bool),
    "llama_token_to_piece": (c_int32, _vocab, _token, c_char_p, c_int32, c_int32, c_bool),
    "llama_vocab_bos": (_token, _vocab),
    "llama_vocab_eos": (_token, _vocab),
    "llama_vocab_fim_mid": (_token, _vocab),
    "llama_vocab_fim_pre": (_token, _vocab),
    "llama_vocab_fim_rep": (_token, _vocab),
    "llama_vocab_fim_sep": (_token, _vocab),
    "llama_vocab_fim_suf": (_token, _vocab),
    "llama_vocab_get_add_bos": (c_bool, _vocab),
    "llama_vocab_get_add_eos": (c_bool, _vocab),
    "llama_vocab_get_add_sep": (c_bool, _vocab),
    "llama_vocab_get_attr": (c_int, _vocab, _token),
    "llama_vocab_is_eog": (c_bool, _vocab, _token),
    "llama_vocab_n_tokens": (c_int32, _vocab),
    "llama_vocab_sep": (_token, _vocab),
    "llama_sampler_accept": (None, _sampler, _token),
    "llama_sampler_apply": (None, _sampler, POINTER(llama_token_data_array)),
    "llama_sampler_clone": (_sampler, _sampler),
    "llama_sampler_free": (None, _sampler),
    "llama_sampler_init_grammar": (_sampler, _vocab, c_char_p, c_char_p),
    "llama_sampler_init_greedy": (_sampler,),
}

# The same for functions of llama.cpp's src/llama-ext.h, which is C++ and may change. Their symbols state the types of
# their arguments.
EXTENSIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "llama_get_embeddings_layer_inp": (c_void_p, _context, c_uint32),
    "llama_get_embeddings_nextn": (c_void_p, _context),
    "llama_model_target_layer_ids": (c_void_p, _model),
    "llama_model_target_layer_ids_n": (c_uint32, _model),
    "llama_set_embeddings_layer_inp": (None, _context, c_uint32, c_bool),
    "llama_set_embeddings_nextn": (None, _context, c_bool, c_bool),
}
_SYMBOLS: Final[Mapping[str, str]] = {
    "llama_get_embeddings_layer_inp": "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "llama_get_embeddings_nextn": "_Z26llama_get_embeddings_nextnP13llama_context",
    "llama_model_target_layer_ids": "_Z28llama_model_target_layer_idsPK11llama_model",
    "llama_model_target_layer_ids_n": "_Z30llama_model_target_layer_ids_nPK11llama_model",
    "llama_set_embeddings_layer_inp": "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "llama_set_embeddings_nextn": "_Z26llama_set_embeddings_nextnP13llama_contextbb",
}

# What an engine does without if its library lacks one of these functions. It needs all others.
OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels in files of their own": ("ggml_backend_load_all_from_path", "ggml_backend_reg_count"),
    "adapters": ("llama_adapter_lora_init", "llama_set_adapters_lora"),
    "embedding and ranking": ("llama_encode", "llama_get_embeddings_seq", "llama_model_n_embd_out"),
    "infilling": (
        "llama_vocab_fim_mid",
        "llama_vocab_fim_pre",
        "llama_vocab_fim_rep",
        "llama_vocab_fim_sep",
        "llama_vocab_fim_suf",
    ),
    "MTP heads": (
        "llama_get_embeddings_nextn",
        "llama_model_n_embd_out",
        "llama_model_n_layer_nextn",
        "llama_set_embeddings_nextn",
    ),
    "EAGLE-3 heads": (
        "llama_encode",
        "llama_get_embeddings_layer_inp",
        "llama_get_embeddings_nextn",
        "llama_model_n_embd",
        "llama_model_n_layer",
        "llama_model_target_layer_ids",
        "llama_model_target_layer_ids_n",
        "llama_set_embeddings_layer_inp",
        "llama_set_embeddings_nextn",
    ),
    "models with sliding windows": ("llama_memory_seq_pos_min",),
    "models with recurrent layers": ("llama_state_seq_get_size", "llama_state_seq_get_size_ext"),
    "drafts for models with recurrent layers": (
        "llama_n_rs_seq",
        "llama_state_seq_get_data_ext",
        "llama_state_seq_set_data_ext",
    ),
    "prefixes stored on disk": (
        "llama_memory_seq_pos_max",
        "llama_state_seq_get_data",
        "llama_state_seq_get_size",
        "llama_state_seq_set_data",
    ),
    "the version of llama.cpp": ("llama_version",),
}
_SPARED: Final = frozenset(name for names in OPTIONAL.values() for name in names)


class UnusableLibrary(Exception):
    """A build of llama.cpp that cannot be used. The message names it, and says why and what would be accepted."""


@dataclass(frozen=True, slots=True)
class _Library:
    file: Path
    functions: Mapping[str, Any]  # those of `SIGNATURES` and `EXTENSIONS` that it has, by name


_library: _Library | None = None  # of this process


def load(name: str | None = None) -> None:
    """Load a library, named by its file or folder; without a name the default, unless one is loaded already.

    A process has one library, since the libraries of ggml that belong to it are shared by name. Raises UnusableLibrary.
    """
    global _library
    if name is None and _library is not None:
        return
    file = default_library() if name is None else library_file(name).absolute()
    if file is None:
        message = "llama-cpp-python is not installed, and no other library is named"
        raise UnusableLibrary(f"{message}; accepted: {_ACCEPTED}, named by llama_library or {ENVIRONMENT}")
    if _library is None:
        _library = _Library(file, _functions(file))
        globals().update(_library.functions)
        _load_kernels(_library)
    elif file != _library.file:
        raise UnusableLibrary(f"{file} cannot be loaded next to {_library.file}; accepted: one library in a process")


def symbol(name: str) -> str:
    """Return the name of a function in the library's table of symbols."""
    return _SYMBOLS.get(name, name)


def _functions(file: Path) -> dict[str, Any]:
    if problem := why_no_library(file):
        raise UnusableLibrary(f"{file} cannot be loaded: {problem}; accepted: {_ACCEPTED}")
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:  # a library that it needs is missing, or it needs another C library
        raise UnusableLibrary(f"{file} cannot be loaded: {error}; accepted: {_ACCEPTED}") from error
    functions: dict[str, Any] = {}
    for name, (result, *arguments) in ({**SIGNATURES, **EXTENSIONS}).items():
        try:
            function = library[symbol(name)]
        except AttributeError:
            if name not in _SPARED:
                raise UnusableLibrary(f"{file} lacks {name}; accepted: {_ACCEPTED}") from None
            continue
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    if problem := next(_layout_problems(functions), None):
        raise UnusableLibrary(f"{file} has structs of another layout: {problem}; accepted: {_ACCEPTED}")
    return functions


def _load_kernels(library: _Library) -> None:
    # Builds for many processors, such as llama.cpp's releases, have them in files that are loaded only when asked for.
    count = library.functions.get("ggml_backend_reg_count")
    load_all = library.functions.get("ggml_backend_load_all_from_path")
    if count is not None and load_all is not None and not count():
        load_all(os.fsencode(library.file.parent))


# llama.cpp's defaults that have not changed in years, between them at most a few fields.
_DEFAULTS: Final[Mapping[str, Mapping[str, object]]] = {
    "llama_model_default_params": {
        "devices": None,
        "tensor_buft_overrides": None,
        "split_mode": LLAMA_SPLIT_MODE_LAYER,
        "load_mode": LLAMA_LOAD_MODE_AUTO,
        "main_gpu": 0,
        "tensor_split": None,
        "progress_callback_user_data": None,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
        "no_alloc": False,
    },
    "llama_context_default_params": {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "rope_scaling_type": LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
        "pooling_type": LLAMA_POOLING_TYPE_UNSPECIFIED,
        "flash_attn_type": LLAMA_FLASH_ATTN_TYPE_AUTO,
        "yarn_ext_factor": -1.0,
        "yarn_orig_ctx": 0,
        "cb_eval_user_data": None,
        "type_k": GGML_TYPE_F16,
        "type_v": GGML_TYPE_F16,
        "abort_callback": None,
        "embeddings": False,
        "offload_kqv": True,
        "swa_full": True,
        "kv_unified": False,
    },
}


def _layout_problems(functions: Mapping[str, Any]) -> Iterator[str]:
    for name, defaults in _DEFAULTS.items():
        declared = SIGNATURES[name][0]
        layouts = (declared, *LAYOUTS.get(declared, ()))
        layout = next((each for each in layouts if not _other_default(functions[name], each, defaults)), None)
        if layout is None:
            yield _other_default(functions[name], declared, defaults)
        elif layout is not declared:
            _declare(functions, declared, layout)
    yield from _batch_problems(functions)
    yield from _candidates_problems(functions)


def _other_default(make: Any, layout: type[ctypes.Structure], defaults: Mapping[str, object]) -> str:
    # the first field that is not llama.cpp's default if its struct has this layout; empty if all are
    make.restype = layout
    params = make()
    for field, value in defaults.items():
        if (actual := getattr(params, field)) != value:
            return f"{layout.__name__}.{field} is {actual} by default, not {value}"
    return ""


def _declare(functions: Mapping[str, Any], declared: type[ctypes.Structure], layout: type[ctypes.Structure]) -> None:
    for name, signature in SIGNATURES.items():
        if declared in signature and name in functions:
            result, *arguments = (layout if kind is declared else kind for kind in signature)
            functions[name].restype, functions[name].argtypes = result, arguments


def _batch_problems(functions: Mapping[str, Any]) -> Iterator[str]:
    # A new batch for two tokens has all arrays but `embd`, and the list of sequences ends with NULL.
    batch = functions["llama_batch_init"](2, 0, 1)
    has = {name: bool(getattr(batch, name)) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")}
    if batch.n_tokens or has.pop("embd") or not all(has.values()) or batch.seq_id[2]:
        yield "llama_batch has other fields"
    else:
        functions["llama_batch_free"](batch)


def _candidates_problems(functions: Mapping[str, Any]) -> Iterator[str]:
    # The greedy sampler selects the place of the largest logit.
    candidates = (llama_token_data * 3)(*(llama_token_data(5 + at, logit, 0.0) for at, logit in enumerate((1, 3, 2))))
    array = llama_token_data_array(data=candidates, size=3, selected=-1, sorted=False)
    sampler = functions["llama_sampler_init_greedy"]()
    functions["llama_sampler_apply"](sampler, ctypes.byref(array))
    functions["llama_sampler_free"](sampler)
    if array.selected != 1:
        yield "llama_token_data_array has other fields"


def __getattr__(name: str) -> Any:
    # Called for a name that this module does not have: a function, if no library is loaded or the library lacks it.
    if name not in SIGNATURES and name not in EXTENSIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    library = _loaded()
    if name not in library.functions:
        raise UnusableLibrary(f"{library.file} lacks {name}; accepted: {_ACCEPTED}")
    return library.functions[name]


def _loaded() -> _Library:
    load()
    assert _library is not None, "load raises if there is none"
    return _library


def library() -> Path:
    """Return the file of the loaded library, after loading the default one if there is none yet."""
    return _loaded().file


def why_not(feature: str) -> str | None:
    """Return why the library cannot be used for a feature of `OPTIONAL`, or None if it can. Loads the default."""
    library = _loaded()
    missing = ", ".join(name for name in OPTIONAL[feature] if name not in library.functions)
    return f"{library.file} lacks {missing}, which is needed for {feature}; accepted: {_ACCEPTED}" if missing else None


def build() -> str:
    """Return the version of llama.cpp, on which measurements and stored states depend. Loads the default.

    A library other than the installed one is told apart by size and time of its files, since versions are coarse.
    """
    library = _loaded()
    version = library.functions.get("llama_version")
    text = "unknown" if version is None else str(version().decode("utf-8", "replace"))
    if library.file == installed_library():
        return text
    digest = hashlib.sha256()
    for file in loaded_files():
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return f"{text} {digest.hexdigest()[:16]}"


def loaded_files() -> tuple[Path, ...]:
    """Return the library and the files of llama.cpp and ggml that this process has loaded with it, sorted."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    mapped = {Path(parts[5]) for line in lines if len(parts := line.split(maxsplit=5)) > 5}
    named = {file for file in mapped if file.name.startswith(("libllama", "libggml")) and file.exists()}
    return tuple(sorted(named | {_loaded().file.resolve()}))  # whose file may have any name
