"""Write registries in which the embedded models work from the smallest to the largest, with or without a ladder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tiny.example import SYSTEM_PROMPTS
from registry import Registry, load_registry

WEIGHTS = Path(__file__).parents[2] / "registry" / "tiny"


@dataclass(frozen=True, slots=True)
class World:
    """One way to carry out the tasks: who works, whether gates look, whether stronger roles take over."""

    name: str
    worker: str
    gates: bool
    ladder: bool

    def registry(self, folder: Path) -> Registry:
        """Write the registry of this world into the folder, and load it."""
        file = folder / f"{self.name.replace(' ', '-')}.yaml"
        file.write_text(json.dumps(self._document()), encoding="utf-8")  # JSON is YAML
        return load_registry(file)

    def _document(self) -> dict[str, Any]:
        sizes = ("small", "medium", "large")
        models = {f"tiny-{size}": {"file": str(WEIGHTS / f"{size}.gguf"), "threads": 1} for size in sizes}
        workers = {"worker": self.worker, "coder": "medium", "architect": "large"}
        roles: dict[str, dict[str, Any]] = {
            name: {"model": f"tiny-{size}", "tier": "B", "system": SYSTEM_PROMPTS[name]}
            for name, size in workers.items()
        }
        roles["worker"]["tier"] = "C"
        roles["coder"]["level"], roles["architect"]["level"] = "B1", "B2"
        if self.ladder:
            roles["worker"]["escalates_to"], roles["coder"]["escalates_to"] = "coder", "architect"
        roles["judge"] = {"model": "tiny-large", "tier": "B", "system": SYSTEM_PROMPTS["judge"]}
        defaults = {"context": 2048, "slots": 8, "exact": True, "temperature": 0}
        return {"defaults": defaults, "models": models, "roles": roles}


WORLDS = (
    World("small without gates", "small", gates=False, ladder=False),
    World("small with gates", "small", gates=True, ladder=False),
    World("small with gates and escalation", "small", gates=True, ladder=True),
    World("large without gates", "large", gates=False, ladder=False),
)
