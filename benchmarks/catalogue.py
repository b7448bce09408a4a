"""Write the page of the catalogue's current models: `python -m benchmarks.catalogue > docs/catalogue.md`.

What `orchestrator init` makes of a model is computed by the code of that command, from the model's stand-in.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from benchmarks.stand_ins import stand_in_header
from orchestrator.registry.compose import ARCHITECT, CODER, FRONTDOOR, JUDGE, WORKER, Candidate, Composed, compose
from orchestrator.registry.forms import GENERALIST
from orchestrator.registry.memory import size
from orchestrator.registry.sources.catalogue import CatalogueEntry, read_catalogue
from orchestrator.registry.sources.local import as_candidate

MEMORY: Final = (32, 256, 1100)  # GB
FREE: Final = 0.9  # of the memory, which is what models may take of a machine that does nothing else
ROLES: Final = (FRONTDOOR, GENERALIST, WORKER, CODER, ARCHITECT, JUDGE)
_REGISTRY: Final = Path("/registry.yaml")
_THINKING: Final = {"switch": "can be switched off", "effort": "by effort", "always": "always", "never": "never"}
_HEAD: Final = """# Current models

Made from [the catalogue](../registry/catalogue.yaml) by `python -m benchmarks.catalogue > docs/catalogue.md`; a test
compares the two. `orchestrator models get NAME` downloads a model; without a name, the command lists older ones, too.

The facts are from public documents; the last table says from which kinds. A *pinned* file must have the SHA-256 that
the catalogue states, and so must each piece of a split model. Where a commit of the repository is stated, the file
comes from that commit, even if the publisher has replaced it since. Other models of the catalogue are compared with the
hash that the hub states. No model was run or measured for this page, and the hashes were not compared with downloaded
files. What was run are small models of all of these architectures, with the same kinds of layers and random weights
([current_models.py](../benchmarks/current_models.py)): the engine's tests let them share, keep, store and take back
prompts, compare the text with a fresh computation, and the memory for the KV cache with what llama.cpp allocates.

"""
_MEMORY: Final = """
The last column says what is published. Used here are prompt lookup, a smaller model as a draft, MTP heads inside the
model's own files, and EAGLE-3 heads; not the heads of Gemma 4, which read the model's cells, nor DSpark's.

## What `init` makes of them

What `orchestrator init` gives a model that is alone on a machine with so much memory: sequences x tokens of each.
Models may take nine tenths of it. The KV cache per token is in 16 bits, and a recurrent state is per sequence. The code
is that of `init`; the header of the file is that of a stand-in with the model's metadata. `init` itself cannot be asked
about another machine: it goes by the memory that is free, or by the budget of the running daemon.

"""
_FLEET: Final = """
If all of these models that fit are there, the roles are:

"""
_CONFIRMED: Final = """
## Where the facts are from

"""
_OUT: Final = """
Published, but not in the catalogue: Qwen3.8 Flash-Next, GLM-5.3 Flash and MiniMax M3, whose files, hashes and licences
could not be confirmed; Qwen3.8 2.4T-A95B, which takes more than 1,100 GB at four bits; and DeepSeek V4.1 Flash, whose
architecture the installed llama.cpp does not know. Smaller models that are called Qwen3.8 are not by Qwen.
"""


def page() -> str:
    """Return the Markdown page."""
    entries = {name: entry for name, entry in read_catalogue().items() if entry.facts is not None}
    with tempfile.TemporaryDirectory() as folder:
        candidates = {name: candidate(Path(folder), name, entry) for name, entry in entries.items()}
    return "".join(
        (
            _HEAD,
            *_table(("model", "download", "licence", "attention", "context", "thinking", "drafts"), _rows(entries)),
            _MEMORY,
            *_table(("model", "KV a token", "state", *_sizes()), _fits(candidates)),
            _FLEET,
            *_table(("role", *_sizes()), _fleets(candidates)),
            _CONFIRMED,
            *_table(("model", "source", "commit", "confirmed"), _sources(entries)),
            _OUT,
        )
    )


def candidate(folder: Path, name: str, entry: CatalogueEntry) -> Candidate:
    """Return a model as `init` sees its file; `folder` gets the stand-in."""
    file_bytes = entry.size if entry.gguf is None or entry.gguf.bytes is None else entry.gguf.bytes
    return as_candidate(name, folder / f"{name}.gguf", stand_in_header(folder, name, file_bytes), entry)


def budget(gigabytes: int) -> int:
    """Return the bytes that models may take on a machine with this much memory."""
    return int(gigabytes * 10**9 * FREE)


def composed(candidates: Iterable[Candidate], gigabytes: int) -> Composed:
    """Return what `init` makes of these models on a machine with this much memory."""
    return compose([*candidates], _REGISTRY, budget(gigabytes))


def choice(model: Candidate, gigabytes: int) -> str:
    """Return slots and context of a model that is alone, or that it does not fit."""
    registry_plan = composed([model], gigabytes)
    if registry_plan.warnings:
        return "does not fit"
    entry = yaml.safe_load(registry_plan.text)["models"][model.id]
    quantised = "" if entry["kv_type_k"] == "f16" else f", {entry['kv_type_k']}"
    return f"{entry['slots']} x {entry['context']:,}{quantised}"


def fleet(candidates: Mapping[str, Candidate], gigabytes: int) -> Mapping[str, str]:
    """Return the model of each role if all models that fit are there."""
    fitting = [model for model in candidates.values() if choice(model, gigabytes) != "does not fit"]
    return composed(fitting, gigabytes).roles


def _sizes() -> tuple[str, ...]:
    return tuple(f"{gigabytes:,} GB" for gigabytes in MEMORY)


def _rows(entries: Mapping[str, CatalogueEntry]) -> Iterator[Sequence[str]]:
    for name, entry in entries.items():
        assert entry.facts is not None, "the page is about models with facts"
        facts, pinned = entry.facts, ", pinned" if entry.gguf is not None else ""
        gigabytes = entry.size / 10**9
        download = f"{gigabytes:,.{int(gigabytes < 2)}f} GB {entry.quantisation}{pinned}"
        attention, thinking = facts.attention, _THINKING[facts.thinking]
        drafts = facts.drafts or "-"
        yield f"`{name}`", download, entry.licence, attention, f"{facts.context:,}", thinking, drafts


def _fits(candidates: Mapping[str, Candidate]) -> Iterator[Sequence[str]]:
    for name, model in candidates.items():
        header = model.header
        state = size(header.state_bytes) if header.state_bytes else "-"
        per_token = 2 * (header.cached_keys + header.cached_values)
        yield f"`{name}`", size(per_token), state, *(choice(model, gigabytes) for gigabytes in MEMORY)


def _fleets(candidates: Mapping[str, Candidate]) -> Iterator[Sequence[str]]:
    fleets = [fleet(candidates, gigabytes) for gigabytes in MEMORY]
    for role in ROLES:
        yield role, *(f"`{roles[role]}`" for roles in fleets)


def _sources(entries: Mapping[str, CatalogueEntry]) -> Iterator[Sequence[str]]:
    for name, entry in entries.items():
        assert entry.facts is not None, "the page is about models with facts"
        commit = "-" if entry.revision is None else f"`{entry.revision[:8]}`"
        yield f"`{name}`", f"`{entry.source}`", commit, entry.facts.confirmed


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


if __name__ == "__main__":
    print(page(), end="")
