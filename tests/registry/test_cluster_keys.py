"""The keys of a model that say on which machines of a cluster it runs, and how often."""

from pathlib import Path

import pytest

from orchestrator.registry.errors import RegistryError
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import ModelEntry

SMALL = Path(__file__).parents[2] / "registry" / "tiny" / "small.gguf"


def _load(folder: Path, keys: str) -> ModelEntry:
    path = folder / "registry.yaml"
    path.write_text(f"models:\n  m: {{file: '{SMALL}', context: 256{keys}}}\nroles:\n  worker: {{model: m}}\n")
    return load_registry(path).models["m"]


def test_a_model_may_run_everywhere_if_nothing_is_said(tmp_path: Path) -> None:
    entry = _load(tmp_path, "")
    assert (entry.nodes, entry.replicas) == ((), None)


def test_nodes_and_replicas(tmp_path: Path) -> None:
    assert _load(tmp_path, ", nodes: [head, big-1.example]").nodes == ("head", "big-1.example")
    assert _load(tmp_path, ", replicas: 3").replicas == ReplicaLimits(3, 3)
    assert _load(tmp_path, ", replicas: {max: 4}").replicas == ReplicaLimits(1, 4)
    assert _load(tmp_path, ", replicas: {min: 2}").replicas == ReplicaLimits(2, 1024)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ("replicas: {min: 3, max: 2}", "models.m.replicas.min"),
        ("replicas: 0", "models.m.replicas"),
        ("replicas: {least: 1}", "models.m.replicas.least"),
        ("nodes: ['a b']", "models.m.nodes"),
        ("nodes: east", "models.m.nodes"),
    ],
)
def test_impossible_values_are_refused_with_their_place(tmp_path: Path, keys: str, place: str) -> None:
    with pytest.raises(RegistryError, match=place):
        _load(tmp_path, f", {keys}")
