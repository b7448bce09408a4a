"""Set by environment variables how long llama.cpp's threads spin while they wait for each other, before they sleep.

libgomp, GCC's OpenMP library, reads them when it is loaded. It has two limits. The first holds while a process has at
most as many of libgomp's threads as CPUs, else the second, which is 1,000 rounds under this policy (libgomp `env.c` and
`config/linux/wait.h`). `engine/llama/openmp.py` changes between them at run time. A round takes 10 to 50 ns.
"""

from collections.abc import Mapping
from typing import Final

# The first limit is libgomp's default, some milliseconds: longer than what happens between two steps.
_OURS: Final = {"GOMP_SPINCOUNT": "300000", "OMP_WAIT_POLICY": "active"}

# Under this policy threads of LLVM's OpenMP library would never sleep. This is its default, in milliseconds.
_LLVM: Final = {"KMP_BLOCKTIME": "200"}


def spin_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for an engine's process. Empty if `environment`, the user's, already has one of ours."""
    if any(name in environment for name in _OURS):
        return {}
    return _OURS | {name: value for name, value in _LLVM.items() if name not in environment}


def is_ours(environment: Mapping[str, str]) -> bool:
    """Return whether the limits in `environment` are ours, so that we may change between them."""
    return all(environment.get(name) == value for name, value in _OURS.items())
