"""Functions of llama.cpp that only tests call, to compare our own code with, and to quantise models.

They are those of the library that the engine's binding has loaded, with its structs.
"""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

import orchestrator.engine.llama.binding as binding

# Any: arrays of them are made of tuples, which their types do not allow.
llama_token_data: Any = binding.llama_token_data
llama_token_data_array: Any = binding.llama_token_data_array


class _LogitBias(ctypes.Structure):
    _fields_ = (("token", c_int32), ("bias", c_float))


llama_logit_bias: Any = _LogitBias
_LogitBias.__name__ = "llama_logit_bias"


class llama_sampler_chain_params(ctypes.Structure):
    _fields_ = (("no_perf", c_bool),)


class llama_model_quantize_params(ctypes.Structure):
    _fields_ = (
        ("nthread", c_int32),
        ("ftype", c_int),
        ("output_tensor_type", c_int),
        ("token_embedding_type", c_int),
        ("allow_requantize", c_bool),
        ("quantize_output_tensor", c_bool),
        ("only_copy", c_bool),
        ("pure", c_bool),
        ("keep_split", c_bool),
        ("dry_run", c_bool),
        ("imatrix", c_void_p),
        ("kv_overrides", c_void_p),
        ("tt_overrides", c_void_p),
        ("prune_layers", c_void_p),
        ("max_buf_size", c_size_t),
    )


STRUCTS = (_LogitBias, llama_sampler_chain_params, llama_model_quantize_params)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "llama_sampler_accept": (None, c_void_p, c_int32),
    "llama_sampler_apply": (None, c_void_p, POINTER(binding.llama_token_data_array)),
    "llama_sampler_free": (None, c_void_p),
    "llama_sampler_chain_default_params": (llama_sampler_chain_params,),
    "llama_sampler_chain_init": (c_void_p, llama_sampler_chain_params),
    "llama_sampler_chain_add": (None, c_void_p, c_void_p),
    "llama_sampler_init_dist": (c_void_p, c_uint32),
    "llama_sampler_init_dry": (
        *(c_void_p, c_void_p, c_float, c_float, c_int32, c_int32),
        *(POINTER(c_char_p), c_size_t),
    ),
    "llama_sampler_init_greedy": (c_void_p,),
    "llama_sampler_init_logit_bias": (c_void_p, c_int32, c_int32, POINTER(_LogitBias)),
    "llama_sampler_init_min_p": (c_void_p, c_float, c_size_t),
    "llama_sampler_init_mirostat": (c_void_p, c_int32, c_uint32, c_float, c_float, c_int32),
    "llama_sampler_init_mirostat_v2": (c_void_p, c_uint32, c_float, c_float),
    "llama_sampler_init_penalties": (c_void_p, c_int32, c_int32, c_float, c_float, c_float),
    "llama_sampler_init_temp": (c_void_p, c_float),
    "llama_sampler_init_top_k": (c_void_p, c_int32),
    "llama_sampler_init_top_p": (c_void_p, c_float, c_size_t),
    "llama_sampler_init_typical": (c_void_p, c_float, c_size_t),
    "llama_sampler_init_xtc": (c_void_p, c_float, c_float, c_size_t, c_uint32),
    "llama_model_quantize_default_params": (llama_model_quantize_params,),
    "llama_model_quantize": (c_uint32, c_char_p, c_char_p, POINTER(llama_model_quantize_params)),
}


def __getattr__(name: str) -> Any:
    if name not in SIGNATURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = ctypes.CDLL(str(binding.library()))[name]
    function.restype, function.argtypes = SIGNATURES[name][0], SIGNATURES[name][1:]
    globals()[name] = function
    return function
