"""What procedures of a command without a daemon have."""

import asyncio
from functools import cache
from pathlib import Path
from threading import Thread

from orchestrator.app import attached
from orchestrator.procedures.upkeep import Upkeep
from orchestrator.registry.load import empty_registry
from orchestrator.service.configuration import Configuration
from orchestrator.service.extent import Extent


def upkeep_alone(home: Path, registry: Path) -> Upkeep:
    """Return what procedures of a command without a daemon have. The service works in another thread."""
    service = attached().service(home, empty_registry(registry), Configuration(), Extent.NOTHING)
    service.loop = _loop()
    return Upkeep(service)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    return loop
