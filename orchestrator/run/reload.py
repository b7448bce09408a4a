"""Follow the registry's files while they are in use: adopt valid changes, and log problems."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from orchestrator.registry.watch import Reload, Reloader

# Time between two looks at the files; the second look that finds a change adopts it.
SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


async def follow(reloader: Reloader, adopt: Callable[[Reload], Awaitable[None]]) -> None:
    """Await `adopt` for each change in the registry's files, also for one with problems. Never ends."""
    while True:
        await asyncio.sleep(SECONDS)
        reload = await asyncio.to_thread(reloader.poll)
        if reload is not None:
            _log(reload)
            await adopt(reload)


def _log(reload: Reload) -> None:
    changed = reload.difference
    if changed:
        log.info(
            "the registry has changed",
            models=str(changed.models),
            roles=str(changed.roles),
            personas=str(changed.personas),
            settings=changed.settings,
            loaded_anew=sorted(changed.retired),
        )
    for problem in reload.problems:
        log.warning("the registry's files have a problem; the registry stays as it was", problem=str(problem))
    if not changed and not reload.problems:
        log.info("the registry is in order again")
