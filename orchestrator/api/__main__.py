"""`python -m orchestrator.api`: the daemon as a program. The environment says all that it needs to know.

It is a program of its own so that the command line, which starts it, need not load what only the daemon uses.
"""

import asyncio
import os
import signal
import sys

from orchestrator.api.listen import allow_descriptors
from orchestrator.api.serve import serve
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.journal import home_path
from orchestrator.service.configuration import load_configuration
from registry.errors import RegistryError
from registry.load import find_registry, load_registry


def main() -> int:
    """Serve, and return the exit code: 0 ended in order, 1 failed, 2 bad input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can reload: by itself the signal would end it
    os.umask(0o077)
    allow_descriptors()
    try:
        configuration = load_configuration()
        asyncio.run(serve(home_path(os.environ), load_registry(find_registry()), configuration))
    except (OrchestratorError, RegistryError, OSError) as error:
        return _told([error])
    except BaseExceptionGroup as group:
        ours, others = group.split((OrchestratorError, RegistryError, OSError))
        if others is not None or ours is None:
            raise
        return _told(list(dict.fromkeys(_leaves(ours))))  # one error may have ended several runs
    return 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    inner = (_leaves(one) if isinstance(one, BaseExceptionGroup) else [one] for one in group.exceptions)
    return [error for errors in inner for error in errors]


def _told(errors: list[BaseException]) -> int:
    """Print what went wrong, and return the exit code."""
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(errors[0], InputError | RegistryError) else 1


if __name__ == "__main__":
    sys.exit(main())
