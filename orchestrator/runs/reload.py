"""Take up what changes in the registry's files while they are in use."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from registry import Registry
from registry.watch import Reload, Reloader

SECONDS: Final = 1.0
"""Between two looks at the files; a change is taken up by the second look that finds it."""

log = structlog.get_logger(__name__)


async def follow(reloader: Reloader, adopt: Callable[[Registry, Collection[Path]], Awaitable[None]]) -> None:
    """Await `adopt` with each new version of the registry, and the model files that were rewritten. Never ends."""
    while True:
        await asyncio.sleep(SECONDS)
        reload = await asyncio.to_thread(reloader.poll)
        if reload is not None:
            _tell(reload)
            if reload.difference:
                await adopt(reload.registry, reload.rewritten)


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
