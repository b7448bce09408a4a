"""Store system prompts and personas as objects, so that the events of an attempt can name the versions it used."""

from functools import lru_cache, partial

from orchestrator.events import PromptDigests
from orchestrator.journal import Journal, digest_of, retry_when_disk_full
from registry.models import Registry


async def keep_prompts(journal: Journal, registry: Registry) -> None:
    """Store the system prompts of all roles and the texts of all personas, once the disk has room for them.

    They are kept from removal as long as the journal is open, since any attempt may name them. Raises JournalError.
    """
    texts = {role.system for role in registry.roles.values()} | {one.text for one in registry.personas.values()}
    for text in sorted(texts - {""}):
        await retry_when_disk_full(partial(journal.put, text.encode()))


def prompt_digests(registry: Registry, role: str, persona: str | None) -> PromptDigests:
    """Return the digests of the prompts that an attempt uses; empty for a role or persona that is gone."""
    system = registry.roles[role].system if role in registry.roles else ""
    added = registry.personas[persona].text if persona is not None and persona in registry.personas else ""
    return PromptDigests(_digest(system), _digest(added))


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return digest_of(text.encode()) if text else ""
