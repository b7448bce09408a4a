"""What is searched for which model, and real measurements of settings on small models."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.heads.compose import compose, head_file, read_head
from benchmarks.heads.eagle import eagle_file
from benchmarks.tiny.sizes import SIZES
from orchestrator.pool.machine import Node, Topology
from orchestrator.pool.residency import Folders
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.operations import tuning
from orchestrator.procedures.operations.tuning import (
    AskedRequest,
    SettingComparison,
    TuneArguments,
    TuningOperations,
    dimensions,
)
from orchestrator.procedures.operations.tuning import requests as requests_in
from orchestrator.procedures.ports import planning_work as work
from orchestrator.procedures.upkeep import Installation, Upkeep
from orchestrator.registry.load import load_registry
from tests.registry.conftest import write_model

TINY = Path(__file__).parents[3] / "registry" / "tiny"
ONE_NODE = Topology.flat(8, 1 << 34)
TWO_NODES = Topology((Node(0, ((0,), (1,)), 1 << 34), Node(1, ((2,), (3,)), 1 << 34)))


def installation(folder: Path, model: dict[str, Any], **roles: dict[str, Any]) -> Installation:
    """Return an installation whose registry has a model `main`, and one for each other role, with its file."""
    models = {"main": {"threads": 1, "context": 512, **model}}
    models |= {name: {"file": role.pop("file"), "context": 512} for name, role in roles.items()}
    path = folder / "registry.yaml"
    document = {
        "models": models,
        "roles": {
            "worker": {"model": "main", "tier": "C"},
            **{name: {"model": name, "tier": "D", **role} for name, role in roles.items()},
        },
    }
    path.write_text(json.dumps(document))
    home = folder / "home"
    return Installation(
        home=home,
        registry=path,
        models=folder,
        token=home / "api.token",
        upkeep=Upkeep(),
    )


def requests_file(folder: Path) -> str:
    path = folder / "requests.jsonl"
    path.write_text('{"prompt": "Summarize: The bell rang twice in the harbour.", "max_tokens": 12}\n')
    return str(path)


def searched(on: Installation, topology: Topology, **arguments: Any) -> dict[str, tuple[list[Any], str]]:
    """Return the choices of each dimension, and why it has none."""
    registry = load_registry(on.registry)
    found = dimensions(registry.models["main"], registry, TuneArguments(model="main", **arguments), topology)
    return {one.name: ([dict(choice) for choice in one.choices], one.refused) for one in found}


def test_what_is_searched_is_what_the_model_and_the_machine_allow(tmp_path: Path) -> None:
    large = {"file": str(TINY / "large.gguf")}
    found = searched(installation(tmp_path, large), ONE_NODE)
    assert set(found) == {"threads", "speculation", "prompt_lookup", "mtp", "eagle", "replicas"}
    assert found["threads"][0] == [{"threads": 8}, {"threads": 6}, {"threads": 4}, {"threads": 2}]
    assert found["speculation"] == ([], "no role has a smaller model with the same vocabulary")
    assert found["mtp"] == ([], "the file has no MTP head")
    assert found["eagle"] == ([], "its entry names no EAGLE-3 head")
    assert found["replicas"][1].startswith("this machine has one NUMA node")

    drafted = installation(tmp_path, {**large, "prompt_lookup": {"ngram": 3, "k": 8}, "instances": 2},
                           draft={"file": str(TINY / "draft.gguf")})  # fmt: skip
    found = searched(drafted, TWO_NODES, kv_types=True, experts=True)
    assert {"speculation": {"draft": "draft", "k": 8}} in found["speculation"][0]
    assert found["prompt_lookup"][0][0] == {"prompt_lookup": None}
    assert found["replicas"][0] == [{"instances": 1}]
    assert found["kv_types"][0][0] == {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}
    assert found["experts"] == ([], "the model is no mixture of experts")


def test_what_the_architecture_forbids_is_refused_with_the_reason_and_not_measured(tmp_path: Path) -> None:
    write_model(tmp_path / "v4.gguf", architecture="deepseek4", embedding=256)
    write_model(tmp_path / "small.gguf", embedding=16)
    on = installation(tmp_path, {"file": "v4.gguf"}, draft={"file": "small.gguf"})
    before = on.registry.read_bytes()
    operation = TuningOperations(on).by_name()["models.tune"]
    arguments = TuneArguments(model="main", seconds=60, only=("speculation", "prompt_lookup"))
    found = operation.run(arguments, work())
    assert (found["changed"], found["values"], found["low"]) == (False, {}, None)
    tried = json.loads(Path(found["evidence"]).read_text())["tried"]
    assert {one["dimension"] for one in tried} == {"speculation", "prompt_lookup"}
    assert all("deepseek4 is a hybrid model" in one["refused"] for one in tried)
    assert on.registry.read_bytes() == before


async def test_how_many_tokens_a_head_drafts_is_tried(tmp_path: Path) -> None:
    size = SIZES["large"]
    file = tmp_path / "headed.gguf"
    compose(size.shipped, read_head(head_file(size.name)), file)
    on = installation(tmp_path, {"file": str(file), "slots": 2, "batch_invariant": True})
    assert searched(on, ONE_NODE)["mtp"] == ([{"mtp": {"k": k}} for k in (1, 2, 3, 4)], "")
    present = installation(tmp_path, {"file": str(file), "slots": 2, "batch_invariant": True, "mtp": {"k": 2}})
    assert searched(present, ONE_NODE)["mtp"][0] == [{"mtp": None}, *({"mtp": {"k": k}} for k in (1, 3, 4))]
    asked = (AskedRequest(prompt="Summarize: The bell rang twice.", max_tokens=24),)
    folders = Folders(tmp_path / "logs", tmp_path / "curves")
    folders.logs.mkdir()
    async with SettingComparison(on.registry, "main", asked, ONE_NODE, folders, 1.0, work()) as measured:
        compared = await measured.compare({"mtp": None}, {"mtp": {"k": 3}}, 1)
        assert (len(compared.ratios), compared.answers) == (1, 1)
        assert compared.differing == 0, "a head changes no answer at temperature 0"


def test_how_many_tokens_an_eagle_head_drafts_is_tried(tmp_path: Path) -> None:
    file, head = str(TINY / "large.gguf"), str(eagle_file("large"))
    on = installation(tmp_path, {"file": file, "eagle": {"file": head, "k": 2}})
    choices = [{"eagle": None}, *({"eagle": {"file": head, "k": k}} for k in (1, 3, 4))]
    assert searched(on, ONE_NODE)["eagle"] == (choices, "")


@pytest.mark.parametrize("fits", [True, False])
async def test_settings_are_measured_in_turns_whether_or_not_both_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    monkeypatch.setattr(tuning, "memory_budget", lambda: 1 << 40 if fits else 0)
    on = installation(tmp_path, {"file": str(TINY / "small.gguf"), "slots": 2})
    asked = (AskedRequest(prompt="Summarize: The bell rang twice.", max_tokens=8),)
    folders = Folders(tmp_path / "logs", tmp_path / "curves")
    folders.logs.mkdir()
    async with SettingComparison(on.registry, "main", asked, ONE_NODE, folders, 1.0, work()) as measured:
        assert measured.why_refused({"threads": 0})
        assert measured.why_refused({"threads": 1}) == ""
        for rounds in (2, 1) if fits else (1,):
            compared = await measured.compare({}, {"prompt_lookup": {"ngram": 3, "k": 4}}, rounds)
            assert (len(compared.ratios), compared.answers) == (rounds, 1)
            assert compared.differing == 0, "prompt lookup changes no answer at temperature 0"
            assert min(compared.ratios) > 0


async def test_a_setting_that_cannot_be_loaded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "memory_budget", lambda: 0)
    on = installation(tmp_path, {"file": str(TINY / "small.gguf")})
    folders = Folders(tmp_path, None)
    asked = (AskedRequest(prompt="Summarize: The bell rang twice.", max_tokens=8),)
    async with SettingComparison(on.registry, "main", asked, ONE_NODE, folders, 1.0, work()) as measured:
        monkeypatch.setattr(tuning, "MOST_CONTEXT", 4)
        with pytest.raises(StepFailed):
            await measured.compare({}, {"threads": 2}, 1)


def test_requests_of_ones_own_are_read_and_bad_ones_refused(tmp_path: Path) -> None:
    assert requests_in(requests_file(tmp_path))[0].max_tokens == 12
    for text, told in (("", "has no requests"), ('{"promt": "x"}', "accepted"), ("x", "accepted")):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(StepFailed, match=told):
            requests_in(str(tmp_path / "bad.jsonl"))
    with pytest.raises(StepFailed, match="cannot be read"):
        requests_in(str(tmp_path / "none.jsonl"))


def two_nodes() -> Topology:
    """Return a machine with two nodes, each with one of the CPUs that this process may use."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("this process may use one CPU only")
    return Topology(tuple(Node(number, ((cpu,),), 1 << 34) for number, cpu in enumerate(cpus[:2])))


def test_replicas_are_really_measured_and_only_written_where_they_are_certain_to_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "read_topology", two_nodes)
    on = installation(tmp_path, {"file": str(TINY / "small.gguf"), "slots": 2})
    (tmp_path / "two.jsonl").write_text(Path(requests_file(tmp_path)).read_text() * 2)
    operation = TuningOperations(on).by_name()["models.tune"]
    arguments = TuneArguments(model="main", seconds=4, only=("replicas",), requests=str(tmp_path / "two.jsonl"))
    assert 'replicas: {"instances": 2}' in operation.preview(arguments)
    found = operation.run(arguments, work())
    evidence = json.loads(Path(found["evidence"]).read_text())
    (tried,) = evidence["tried"]
    assert (tried["dimension"], tried["setting"], tried["refused"]) == ("replicas", {"instances": 2}, "")
    assert min(tried["ratios"]) > 0
    assert evidence["cores"] == 2
    if found["changed"]:
        assert (found["low"] > 1, found["values"]["instances"]) == (True, 2)
        assert found["evidence"] in found["values"]["tuned"]
    else:
        assert found["values"] == {}


async def test_replicas_answer_the_same_from_an_engine_on_each_node(tmp_path: Path) -> None:
    on = installation(tmp_path, {"file": str(TINY / "small.gguf"), "slots": 2})
    asked = tuple(AskedRequest(prompt=f"Summarize: The bell rang {number} times.", max_tokens=8) for number in (2, 3))
    folders = Folders(tmp_path / "logs", tmp_path / "curves")
    folders.logs.mkdir()
    async with SettingComparison(on.registry, "main", asked, two_nodes(), folders, 1.0, work()) as measured:
        compared = await measured.compare({}, {"instances": 2}, 1)
    assert (compared.differing, compared.answers) == (0, 2)
    assert {path.name for path in folders.logs.iterdir()} >= {"main.log", "main#1.log"}


@pytest.mark.slow
def test_a_search_that_is_ended_leaves_what_it_has_measured(tmp_path: Path) -> None:
    on = installation(tmp_path, {"file": str(TINY / "small.gguf")})
    operation, given = TuningOperations(on).by_name()["models.tune"], work()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        given.cancelled.set()

    arguments = TuneArguments(model="main", seconds=60, only=("prompt_lookup",), requests=requests_file(tmp_path))
    before = on.registry.read_bytes()
    found = operation.run(arguments, replace(given, say=say))
    evidence = json.loads(Path(found["evidence"]).read_text())
    assert said
    assert not found["changed"]
    assert any(one["ratios"] for one in evidence["tried"])
    assert on.registry.read_bytes() == before


@pytest.mark.slow
def test_a_search_over_everything_writes_only_what_is_certain(tmp_path: Path) -> None:
    on = installation(tmp_path, {"file": str(TINY / "large.gguf")}, draft={"file": str(TINY / "draft.gguf")})
    operation = TuningOperations(on).by_name()["models.tune"]
    found = operation.run(
        TuneArguments(model="main", seconds=90, kv_types=True), replace(work(), deadline=time.monotonic() + 300)
    )
    evidence = json.loads(Path(found["evidence"]).read_text())
    assert found["changed"] == bool(found["values"])
    assert not found["changed"] or found["low"] > 1
    assert {one["dimension"] for one in evidence["tried"]} >= {"threads", "speculation", "prompt_lookup", "kv_types"}
