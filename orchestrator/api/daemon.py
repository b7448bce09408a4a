"""The daemon as a program, configured by the environment alone.

The command line starts it as a program of its own, so it need not import what only the daemon uses.
"""

import asyncio
import os
import signal
import sys

from orchestrator.api.app import Attached
from orchestrator.api.listen import allow_descriptors
from orchestrator.api.serve import serve
from orchestrator.errors import InputError, OrchestratorError, leaves
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.home import home_path
from orchestrator.service.configuration import load_configuration


def main(attached: Attached) -> int:
    """Serve, and return the exit code: 0 after an orderly shutdown, 1 after a failure, 2 for invalid input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until `Signals` handles it: by default the signal ends the process
    os.umask(0o077)
    allow_descriptors()
    try:
        configuration = load_configuration()
        asyncio.run(serve(home_path(os.environ), load_registry(find_registry()), configuration, attached))
    except (OrchestratorError, RegistryError, OSError) as error:
        return _print_errors([error])
    except BaseExceptionGroup as group:
        ours, defects = group.split((OrchestratorError, RegistryError, OSError))
        if defects is not None or ours is None:
            raise
        return _print_errors(list(dict.fromkeys(leaves(ours))))  # the same error may have ended several tasks
    return 0


def _print_errors(errors: list[BaseException]) -> int:
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(errors[0], InputError | RegistryError) else 1
