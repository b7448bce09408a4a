"""Store system prompts and personas as objects, so that the events of an attempt can name the versions it used."""

from functools import lru_cache, partial

from orchestrator.run.journal import Journal, digest_of, retry_when_disk_full
from orchestrator.task.events import PromptDigests
from registry.models import Registry


async def keep_prompts(journal: Journal, registry: Registry) -> None:
    """Store the system prompts of all roles and the texts of all personas, once the disk has room for them.

    They are kept from removal as long as the journal is open, since any attempt may name them. Raises JournalError.
    """
    systems = {registry.system(role, model) for role in registry.roles for model in registry.models}
    texts = systems | {one.text for one in registry.personas.values()}
    for text in sorted(texts - {""}):
        await retry_when_disk_full(partial(journal.put, text.encode()))


def prompt_digests(registry: Registry, role: str, persona: str | None, model: str) -> PromptDigests:
    """Return the digests of the prompts that an attempt uses; empty for a role, persona or model that is gone."""
    system = registry.system(role, model) if role in registry.roles else ""
    added = registry.personas[persona].text if persona is not None and persona in registry.personas else ""
    shipped = registry.models[model].prompts.stamp if model in registry.models else ""
    return PromptDigests(_digest(system), _digest(added), shipped)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return digest_of(text.encode()) if text else ""
