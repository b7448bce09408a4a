"""Store system prompts and personas as objects, so that events can name the versions that an attempt used."""

from functools import lru_cache, partial

from orchestrator.registry.models import Registry
from orchestrator.run.journal.disk import retry_when_disk_full
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import digest_of
from orchestrator.task.events import PromptDigests


async def keep_prompts(journal: Journal, registry: Registry) -> None:
    """Store the prompts of all roles and personas, once the disk has room for them. Raises JournalError."""
    systems = {registry.system(role, model) for role in registry.roles for model in registry.models}
    texts = systems | {persona.text for persona in registry.personas.values()}
    # Never released, since any attempt may name them.
    for text in sorted(texts - {""}):
        await retry_when_disk_full(partial(journal.put, text.encode()))


def prompt_digests(registry: Registry, role: str, persona: str | None, model: str) -> PromptDigests:
    """Return the digests of an attempt's prompts; empty for a role, persona or model that is gone."""
    system = registry.system(role, model) if role in registry.roles else ""
    added = registry.personas[persona].text if persona is not None and persona in registry.personas else ""
    shipped = registry.models[model].prompts.stamp if model in registry.models else ""
    return PromptDigests(_digest(system), _digest(added), shipped)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return digest_of(text.encode()) if text else ""
