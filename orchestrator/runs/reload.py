"""Take up what changes in the registry's files while they are in use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from registry.watch import Reload, Reloader

SECONDS: Final = 1.0
"""Between two looks at the files; a change is taken up by the second look that finds it."""

log = structlog.get_logger(__name__)


async def follow(reloader: Reloader, take_up: Callable[[Reload], Awaitable[None]]) -> None:
    """Await `take_up` with whatever changes in the registry's files, problems with them included. Never ends."""
    while True:
        await asyncio.sleep(SECONDS)
        reload = await asyncio.to_thread(reloader.poll)
        if reload is not None:
            _tell(reload)
            await take_up(reload)


def _tell(reload: Reload) -> None:
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
        log.warning("something is kept out of the registry", problem=str(problem))
    if not changed and not reload.problems:
        log.info("the registry is in order again")
