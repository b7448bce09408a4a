"""Define the setups to compare: which embedded model works first, with or without gates and escalation."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.bench.families.example import SYSTEM_PROMPTS
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry

WEIGHTS = Path(__file__).parents[2] / "registry" / "tiny"
MODELS = {f"tiny-{size}": f"{size}.gguf" for size in ("small", "medium", "large")}  # the files of the models, by name


@dataclass(frozen=True, slots=True)
class GateSetup:
    """One way to run the tasks."""

    name: str
    worker: str  # the size of the model of the role worker
    gates: bool  # whether steps have gates
    escalation: bool  # whether stronger roles take over after failures

    @property
    def folder(self) -> str:
        """Return the name of its state folder."""
        return self.name.replace(" ", "-")

    def registry(self, folder: Path) -> Registry:
        """Write the registry of this setup into the folder, and load it."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.folder}.yaml"
        file.write_text(json.dumps(self._document()), encoding="utf-8")  # JSON is YAML
        return load_registry(file)

    def _document(self) -> dict[str, Any]:
        models = {model: {"file": str(WEIGHTS / file), "threads": 1} for model, file in MODELS.items()}
        workers = {"worker": self.worker, "coder": "medium", "architect": "large"}
        roles: dict[str, dict[str, Any]] = {
            name: {"model": f"tiny-{size}", "tier": "B", "system": SYSTEM_PROMPTS[name]}
            for name, size in workers.items()
        }
        roles["worker"]["tier"] = "C"
        roles["coder"]["level"], roles["architect"]["level"] = "B1", "B2"
        if self.escalation:
            roles["worker"]["escalates_to"], roles["coder"]["escalates_to"] = "coder", "architect"
        roles["judge"] = {"model": "tiny-large", "tier": "B", "system": SYSTEM_PROMPTS["judge"]}
        # Models are loaded before the first task, so that no deadline includes loading.
        defaults = {"residency": "hot", "context": 2048, "slots": 8, "batch_invariant": True, "temperature": 0}
        return {"defaults": defaults, "models": models, "roles": roles}


FIRST = GateSetup("small without gates", "small", gates=False, escalation=False)
SETUPS = (
    FIRST,
    GateSetup("small with gates", "small", gates=True, escalation=False),
    GateSetup("small with gates and escalation", "small", gates=True, escalation=True),
    GateSetup("large without gates", "large", gates=False, escalation=False),
)
