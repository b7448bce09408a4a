"""The texts that prompts begin with are stored before any attempt names them."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from orchestrator.registry.load import load_registry
from orchestrator.registry.persona import Persona
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.journal.journal import Journal, keep_prompts, prompt_digests
from orchestrator.run.journal.objects import digest_of
from orchestrator.task.events import PromptDigests

REGISTRY = replace(
    load_registry(Path(__file__).parents[3] / "model_registry.yaml"),
    personas=MappingProxyType({"sailor": Persona("sailor", "Speak like a sailor.", "")}),
)


async def test_what_an_attempt_names_can_be_read_and_stays(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await keep_prompts(journal, REGISTRY)
        for role, entry in REGISTRY.roles.items():
            named = prompt_digests(REGISTRY, role, "sailor", entry.model)
            assert journal.get(named.persona) == b"Speak like a sailor."
            assert named.shipped == prompt_set("tiny").stamp
            assert (journal.get(named.system).decode() if named.system else "") == entry.system
        assert journal.sweep() == [], "no event names them yet, but an attempt may at any time"
    with Journal.open(tmp_path) as journal:
        assert digest_of(b"Speak like a sailor.") in journal.sweep(), "no attempt has used it"


def test_without_a_persona_and_for_what_is_gone_nothing_is_named() -> None:
    assert prompt_digests(REGISTRY, "worker", None, "tiny-large").persona == ""
    assert prompt_digests(REGISTRY, "nobody", "nobody", "nobody") == PromptDigests()
