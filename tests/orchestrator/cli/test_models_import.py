"""`models import`: the entries that are made of a file of llama-swap or llama-server, and what is written of them."""

import shutil
from pathlib import Path

import pytest
import yaml

from benchmarks.models import ModelShape, write_llama
from orchestrator.registry.load import load_registry
from orchestrator.registry.options import SpeculationOptions
from tests.orchestrator.cli.cli_command import ROOT, Cli

TINY = ROOT / "registry" / "tiny"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration of llama-swap for the embedded models."""
    for name in ("large.gguf", "draft.gguf", "small.gguf"):
        shutil.copy(TINY / name, tmp_path / name)
    path = tmp_path / "config.yaml"
    path.write_text(
        """\
models:
  "big:1b":
    cmd: llama-server -m large.gguf -c 4096 -np 4 -t 1 -md draft.gguf --draft 5 -ngl 9
    aliases: [gpt-4o]
    ttl: 60
  little:
    cmd: llama-server -m small.gguf --parallel 2 --ctx-size 2048
  elsewhere:
    cmd: llama-server -hf owner/Not-Here-GGUF:Q4_K_M
"""
    )
    return path


def test_the_entries_are_printed_as_yaml(command: Cli, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    result = command("--registry", path, "models", "import", config)
    assert result.code == 0, result.err
    told = yaml.safe_load(result.out)
    big = told["models"]["big-1b"]
    assert (big["file"], big["context"], big["slots"], big["threads"]) == ("large.gguf", 1024, 4, 1)
    assert (big["aliases"], big["speculation"]) == (["big:1b", "gpt-4o"], {"draft": "draft", "k": 5})
    assert told["models"]["draft"] == {"file": "draft.gguf"}
    assert told["roles"]["draft"] == {"model": "draft", "tier": "D"}
    assert told["roles"]["frontdoor"]["model"] == "big-1b", "a new registry gets roles too"
    assert "not taken: models.big:1b: gpu-layers 9: models run on the CPU here\n" in result.err
    assert "not taken: ttl: big:1b 60 s: the registry has one such time for all models" in result.err
    get = "`orchestrator models get hf:owner/Not-Here-GGUF:Q4_K_M`"
    assert f"not taken: models.elsewhere: hf:owner/Not-Here-GGUF:Q4_K_M: it is not here: {get}" in result.err
    assert not path.exists()


def test_what_is_written_loads(command: Cli, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    assert command("--registry", path, "models", "import", config, "--write").code == 0
    registry = load_registry(path)
    assert registry.usable_models == {"big-1b", "little", "draft"}
    assert registry.models["big-1b"].options.speculation == SpeculationOptions(str(tmp_path / "draft.gguf"), 5)
    assert registry.model_named("gpt-4o") == "big-1b"
    assert {"frontdoor", "worker", "coder", "architect", "judge", "draft"} == set(registry.roles)


def test_models_are_added_to_a_registry_and_its_roles_stay(command: Cli, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(
        f"# mine\nmodels:\n  little:\n    file: {TINY / 'medium.gguf'}\nroles:\n  frontdoor: {{model: little}}\n"
    )
    told = command("--registry", path, "models", "import", config, "--write", "--json").json
    assert told["written"]
    registry = load_registry(path)
    assert set(registry.models) == {"little", "big-1b", "little-2", "draft"}
    assert (set(registry.roles), registry.roles["frontdoor"].model) == ({"frontdoor", "draft"}, "little")
    assert path.read_text().startswith("# mine\n")


def test_what_two_models_cannot_both_have_is_named(command: Cli, config: Path, tmp_path: Path) -> None:
    write_llama(tmp_path / "last.gguf", ModelShape(chat_template="{{ messages[-1].content }}"))
    (tmp_path / "presets.ini").write_text(
        """\
[first]
model = small.gguf
embeddings = true
[second]
model = draft.gguf
embeddings = true
[copies]
model = large.gguf
spec-type = ngram-mod
draft-max = 9
md = not-here.gguf
[forgets]
model = last.gguf
"""
    )
    told = command("--registry", tmp_path / "r.yaml", "models", "import", tmp_path / "presets.ini", "--json").json
    assert told["roles"]["embedder"]["model"] == "first"
    assert told["models"]["copies"]["prompt_lookup"] == {"ngram": 3, "k": 9}
    assert "speculation" not in told["models"]["copies"]
    assert "forgets" not in told["models"]
    reasons = {one["where"]: one["reason"] for one in told["not_taken"]}
    assert reasons["[second]"] == "the role embedder has the model first, and stays with it"
    assert reasons["[copies]"] == "cannot be read, so nothing can draft with it yet"
    assert "the model's chat template loses words of the user" in reasons["[forgets]"]


def test_a_base_model_is_taken_with_a_warning_and_answers_in_no_new_registry(command: Cli, tmp_path: Path) -> None:
    write_llama(tmp_path / "base.gguf", ModelShape(chat_template=None))
    presets, out = tmp_path / "presets.ini", tmp_path / "r.yaml"
    presets.write_text("[base]\nmodel = base.gguf\n")
    alone = command("--registry", out, "models", "import", presets, "--write")
    assert (alone.code, out.exists()) == (2, False)
    assert "base: it has no chat template, so it is a base model" in alone.err
    shutil.copy(TINY / "large.gguf", tmp_path / "large.gguf")
    presets.write_text("[base]\nmodel = base.gguf\n[large]\nmodel = large.gguf\n")
    result = command("--registry", out, "models", "import", presets, "--write")
    told = f"warning: [base]: {tmp_path / 'base.gguf'}: it has no chat template, so it is a base model, which continues"
    assert told in result.err
    assert "accepted for roles that answer: its instruct or chat version" in result.err
    registry = load_registry(out)
    assert "base" in registry.models
    assert "base" not in {role.model for role in registry.roles.values()}


def test_a_file_without_models_of_llama_server_is_refused_with_the_reasons(command: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("models: {a: {cmd: vllm serve x}}\n")
    result = command("--registry", tmp_path / "r.yaml", "models", "import", tmp_path / "c.yaml")
    assert result.code == 2
    assert "models.a: runs vllm and not llama-server" in result.err
