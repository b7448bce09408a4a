"""The environment of processes that are a part of a Ray cluster: Ray's own, and ours that talk to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.cluster.listening import listening
from orchestrator.engine.client.spawn import engine_environment

# Unless this process's environment says otherwise.
_USUAL: Final = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_usage_threshold": "0.98",  # above that Ray kills processes; models may take more than its usual 0.95
    "RAY_worker_niceness": "0",  # that of engines; they would have 15
}


def ray_environment(address: str = "") -> dict[str, str]:
    """Return an environment whose processes listen at `address` only, or where `driver.connect` has them listen.

    Raises NoLibrary and OSError.
    """
    return listening({**_USUAL, **engine_environment()}, address)


def lacks_token(environ: Mapping[str, str]) -> bool:
    """Return whether Ray would require a token in this environment, and there is none."""
    if environ.get("RAY_AUTH_MODE", _USUAL["RAY_AUTH_MODE"]).lower() != "token" or environ.get("RAY_AUTH_TOKEN"):
        return False
    usual = Path(environ.get("HOME") or Path.home()) / ".ray" / "auth_token"
    try:
        return not Path(environ.get("RAY_AUTH_TOKEN_PATH") or usual).read_text("utf-8").strip()
    except OSError:
        return True
