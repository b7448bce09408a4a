"""Add up what the generations of one attempt took, and tell it when they are over."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from orchestrator.events import Usage


def added(*usages: Usage) -> Usage:
    """Return the sum, field by field."""
    return Usage(**{field.name: sum(getattr(usage, field.name) for usage in usages) for field in fields(Usage)})


@contextmanager
def telling(scope: asyncio.Timeout, tell: Callable[[Usage], None], usage: Callable[[], Usage]) -> Iterator[None]:
    """Tell what the block took when it ends, in failure and when `scope` is over too; not when it is cancelled."""
    over = True
    try:
        yield
    except asyncio.CancelledError:
        over = scope.expired()
        raise
    finally:
        if over:
            tell(usage())
