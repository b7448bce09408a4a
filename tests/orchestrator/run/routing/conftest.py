import json
from pathlib import Path

import pytest

from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A registry with the models far and near, the roles worker and expert, and the personas terse and wordy."""
    path = tmp_path / "registry.yaml"
    model = {"backend": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    roles = {"worker": {"model": "far", "tier": "C"}, "expert": {"model": "far", "tier": "B", "persona": "terse"}}
    models = {"far": model, "near": model}
    path.write_text(json.dumps({"models": models, "roles": roles, "personas": "personas.yaml"}))
    personas = {"terse": {"text": "Be brief."}, "wordy": {"text": "Take your time."}}
    (tmp_path / "personas.yaml").write_text(json.dumps({"personas": personas}))
    return load_registry(path)
