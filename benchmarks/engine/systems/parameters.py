"""Load models for every system with the same llama.cpp parameters as our engine does."""

from typing import Any

import llama_cpp.llama_cpp as lib


def has_broken_amx() -> bool:
    """Return whether llama.cpp here has the AMX kernels that crash as gcc 12 compiles them (see engine.llama.loading).

    They go with the extra buffer types, and so do repacked weights.
    """
    return b"AMX_INT8 = 1" in lib.llama_print_system_info()


def avoid_broken_amx() -> None:
    """Make the default parameters of this process those that do not crash; llama_cpp's own classes start from them."""
    defaults = lib.llama_model_default_params
    if not has_broken_amx() or not defaults().use_extra_bufts:
        return

    def without() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = False
        return parameters

    lib.llama_model_default_params = without
