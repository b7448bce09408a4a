import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.registry.load import PACKAGED, load_registry
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanStream
from orchestrator.run.steps.role import plan_messages
from tests.registry.conftest import WriteGguf

REGISTRY = """\
models:
  big: {file: big.gguf}
  small: {file: small.gguf, prompts: tiny}
roles:
  frontdoor: {model: big, tier: A}
  worker: {model: big, tier: C, description: reads and writes}
  coder: {model: big, tier: B, level: B1, description: programs, system: Write Rust.}
  lawyer: {model: big, tier: B, level: B2}
  silent: {model: big, tier: C, system: ""}
  judge: {model: small, tier: B}
  draft: {model: small, tier: D}
"""


@pytest.fixture
def path(tmp_path: Path, write_gguf: WriteGguf) -> Path:
    write_gguf(tmp_path / "big.gguf")
    write_gguf(tmp_path / "small.gguf")
    (tmp_path / "model_registry.yaml").write_text(REGISTRY)
    return tmp_path / "model_registry.yaml"


def test_a_role_gets_what_ships_for_its_kind_and_its_model_unless_it_has_its_own(path: Path) -> None:
    registry = load_registry(path)
    general, tiny = prompt_set("general"), prompt_set("tiny")
    assert (registry.models["big"].prompts, registry.models["small"].prompts) == (general, tiny)
    said = {name: role.system for name, role in registry.roles.items()}
    assert said["worker"] == said["lawyer"] == general.roles["worker"].strip()
    assert (said["coder"], said["silent"]) == ("Write Rust.", "")
    assert said["judge"] == "Judge the answer."
    assert said["draft"] == "", "it is never asked in words"
    assert "worker: reads and writes; coder: programs; lawyer; silent" in said["frontdoor"]
    assert "{roles}" not in said["frontdoor"]


def test_the_frontdoor_is_not_told_of_roles_that_are_not_in_plans(path: Path) -> None:
    path.write_text(path.read_text().replace("level: B2}", "level: B2, in_plans: false}"))
    registry = load_registry(path)
    assert "worker: reads and writes; coder: programs; silent" in registry.roles["frontdoor"].system
    assert registry.plan_roles == ("worker", "coder", "silent", "judge")
    assert "lawyer" in registry.step_roles, "a TaskIR may still name it"


def test_another_model_in_a_role_gets_the_prompts_of_its_own_kind(path: Path) -> None:
    registry = load_registry(path)
    assert registry.system("worker", "small") == "Do the task."
    assert registry.system("coder", "small") == "Write Rust."
    assert registry.system("judge", "big") == prompt_set("general").roles["judge"].strip()


def test_the_packaged_models_get_what_they_are_trained_on() -> None:
    registry = load_registry(PACKAGED)
    assert {model.prompts.name for model in registry.models.values()} == {"tiny"}
    systems = {name: role.system for name, role in registry.roles.items() if role.system}
    assert systems == dict(prompt_set("tiny").roles)


def test_the_stamp_changes_with_the_file_and_names_the_version() -> None:
    general = prompt_set("general")
    name, version, digest = general.stamp.split("-")
    assert (name, int(version)) == ("general", general.version)
    assert general.digest.startswith(digest)
    assert replace(general, digest="0" * 64).stamp != general.stamp


def test_every_worked_example_is_a_plan_that_the_frontdoor_accepts() -> None:
    examples = prompt_set("general").examples
    assert examples
    for example in examples:
        builder, stream = PlanBuilder(example.files, ("worker", "coder")), PlanStream()
        for part in stream.feed(json.dumps({"plan": example.plan})):
            builder.add(part)
        stream.finish()
        assert builder.steps


def test_examples_are_shown_as_requests_are_and_with_roles_that_exist() -> None:
    general = prompt_set("general")
    shown = general.system("frontdoor", "A", {"writer": "writes"})
    for example in general.examples:
        assert plan_messages("", example.files, example.request)[1].content in shown
    assert '"role":"coder"' not in shown
    assert '"role":"writer"' in shown
