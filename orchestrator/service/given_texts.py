"""Keep texts that come with a request as objects, until the first event of its run names them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from orchestrator.run.journal.journal import Journal


@asynccontextmanager
async def stored_texts(journal: Journal, texts: Mapping[str, bytes]) -> AsyncGenerator[dict[str, str], None]:
    """Store texts, and yield their digests by name. No sweep removes them before the context ends.

    Raises JournalError.
    """
    digests = await asyncio.to_thread(_stored, journal, texts) if texts else {}
    try:
        yield digests
    finally:
        journal.objects.release(digests.values())


def _stored(journal: Journal, texts: Mapping[str, bytes]) -> dict[str, str]:
    digests: dict[str, str] = {}
    try:
        for name, data in texts.items():
            digests[name] = journal.put(data)
    except BaseException:
        journal.objects.release(digests.values())
        raise
    return digests
