"""With what an engine of a model is started: its entry's options, its place, and the folders that it writes to."""

from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.engine.contract import EngineSpec, SystemPrompt
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Replica
from orchestrator.registry.models import ModelEntry


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders that engines write to. `prefixes` is for KV cells of prompts, of at most `prefix_bytes`; 0 for none."""

    logs: Path
    step_costs: Path | None = None
    prefixes: Path | None = None
    prefix_bytes: int = 0


def engine_spec(
    entry: ModelEntry,
    threads: int,
    replica: Replica,
    topology: Topology,
    *,
    folders: Folders,
    system_prompts: tuple[SystemPrompt, ...] = (),
) -> EngineSpec:
    assert entry.file is not None, "a model that another server runs has no engine here"
    number, node = replica.replica_id[1], replica.node
    return EngineSpec.of(
        # A bound engine reads its weights into its own memory, which lies on its node if a pinned process touches it
        # first. A mapped file lies wherever it was read first.
        replace(entry.options, threads=threads, mmap=entry.options.mmap and node is None),
        file=str(entry.file),
        embeds=entry.embeds,
        ranks=entry.ranks,
        adapters=entry.adapters,
        step_costs=str(folders.step_costs) if folders.step_costs is not None else None,
        prefixes=str(folders.prefixes) if folders.prefixes is not None and folders.prefix_bytes else None,
        prefix_bytes=folders.prefix_bytes,
        system_prompts=system_prompts,
        cpus=topology.node(node).cpus if node is not None else (),
        log_file=str(folders.logs / (f"{entry.id}#{number}.log" if number else f"{entry.id}.log")),
        name=entry.id,
    )
