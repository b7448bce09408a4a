"""Load models for every system with the same llama.cpp parameters as our engine does."""

from typing import Any

import llama_cpp.llama_cpp

import orchestrator.engine.llama.binding as lib


def has_broken_amx() -> bool:
    """Return whether this llama.cpp has the AMX kernels that crash when gcc 12 compiles them (engine.llama.loading).

    They belong to the extra buffer types, as repacked weights do.
    """
    return b"AMX_INT8 = 1" in lib.llama_print_system_info()


def avoid_broken_amx() -> None:
    """Change this process's default parameters, which llama_cpp's classes use, so that the broken kernels are not
    used."""
    defaults = llama_cpp.llama_cpp.llama_model_default_params
    if not has_broken_amx() or not defaults().use_extra_bufts:
        return

    def without() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = False
        return parameters

    llama_cpp.llama_cpp.llama_model_default_params = without
