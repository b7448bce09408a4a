"""Count the tokens of texts with the vocabularies of models whose files are here."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final

from orchestrator.bench.simulate.machine import Vocabulary
from orchestrator.engine.llama import CannotLoad, vocabulary_of
from orchestrator.files import Signature, signature
from orchestrator.registry.models import Registry

CACHED_TEXTS: Final = 4096  # whose tokens are remembered: many prompts have parts in common
_open: Final = ExitStack()  # until the process ends: a large vocabulary takes half a second, a simulation often less


def vocabularies_of(registry: Registry, models: Iterable[str]) -> Mapping[str, Vocabulary]:
    """Return the vocabularies of these models, by name, as far as the registry has the model and its file is sound."""
    vocabularies: dict[str, Vocabulary] = {}
    for name in models:
        entry = registry.models.get(name)
        if entry is not None and entry.file is not None and entry.why_not is None:
            with suppress(CannotLoad):
                vocabularies[name] = _opened(entry.file, signature(entry.file))
    return vocabularies


@cache
def _opened(file: Path, _content: Signature | None) -> Vocabulary:
    # Raises CannotLoad.
    vocabulary = _open.enter_context(vocabulary_of(file))
    return lru_cache(CACHED_TEXTS)(partial(vocabulary.tokenize, special=False))
