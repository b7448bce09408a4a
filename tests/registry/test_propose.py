from pathlib import Path

import pytest
import yaml

from benchmarks.stand_ins import stand_in_header
from orchestrator.registry.fit import Room
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.registry.propose import Proposal, file_name, id_from, propose
from orchestrator.registry.strict_yaml import write_yaml
from tests.registry.conftest import WriteGguf

TEXT = """\
models:
  big: {file: big.gguf}
  little: {file: little.gguf}
roles:
  worker: {model: big, tier: C}
  guess: {model: little, tier: D}
"""
ROOM = Room(budget=8 << 30)
OTHER = ["x", "y"]


@pytest.fixture
def registry(tmp_path: Path, write_gguf: WriteGguf) -> Registry:
    write_gguf(tmp_path / "big.gguf", embedding=1024)
    write_gguf(tmp_path / "little.gguf", embedding=64)
    (tmp_path / "registry.yaml").write_text(TEXT)
    return load_registry(tmp_path / "registry.yaml")


def _propose(registry: Registry, write_gguf: WriteGguf, name: str = "new.gguf", **options: object) -> Proposal:
    file = write_gguf(registry.path.parent / name, **options)
    return propose(read_header(file), file, registry, ROOM)


def test_a_proposal_loads_and_says_what_was_proposed(registry: Registry, write_gguf: WriteGguf) -> None:
    made = _propose(registry, write_gguf, context=1000, embedding=512)
    text = TEXT.replace("roles:\n", f"  {made.id}:\n{write_yaml(made.entry, 4)}roles:\n")
    registry.path.write_text(text)
    model = load_registry(registry.path).models["new"]
    assert model.file == registry.path.parent / "new.gguf"
    assert (model.context, model.slots) == (made.fit.context, made.fit.options.slots) == (1000, 16)
    assert (model.options.kv_type_k, model.options.flash_attention, model.options.threads) == ("f16", "auto", None)
    assert model.memory == made.fit.memory
    assert "a test model (llama F32" in model.description


@pytest.mark.parametrize("role", [None, "embedder"])
@pytest.mark.parametrize("batch_invariant", ["false", "true"])
@pytest.mark.parametrize("room", [180 << 20, 400 << 20, 8 << 30])
def test_what_is_proposed_takes_what_it_was_said_to_take(
    registry: Registry, write_gguf: WriteGguf, role: str | None, batch_invariant: str, room: int
) -> None:
    registry.path.write_text(f"defaults: {{batch_invariant: {batch_invariant}}}\n{TEXT}")
    file = write_gguf(registry.path.parent / "new.gguf", context=32768, embedding=512)
    wanted = () if role is None else (role,)
    made = propose(read_header(file), file, load_registry(registry.path), Room(budget=room), roles=wanted)
    roles = "" if role is None else f"  {role}: {{model: new, tier: D}}\n"
    entries = TEXT.replace("roles:\n", f"  {made.id}:\n{write_yaml(made.entry, 4)}roles:\n")
    registry.path.write_text(f"defaults: {{batch_invariant: {batch_invariant}}}\n{entries}{roles}")
    model = load_registry(registry.path).models["new"]
    assert model.memory == made.fit.memory
    assert (model.options.batch_invariant, model.embeds) == (batch_invariant == "true", role == "embedder")
    assert model.memory is not None
    assert (model.memory.total <= room) == (made.fit.short == 0)


def test_a_draft_has_the_same_vocabulary_and_is_much_smaller(registry: Registry, write_gguf: WriteGguf) -> None:
    assert _propose(registry, write_gguf, embedding=512).entry["speculation"] == {"draft": "guess", "k": 8}
    assert "speculation" not in _propose(registry, write_gguf, embedding=128).entry, "only twice as large"
    file = registry.path.parent / "guess.gguf"
    header = read_header(write_gguf(file, embedding=512))
    assert "speculation" not in propose(header, file, registry, ROOM, roles=("guess",)).entry, (
        "it would be its own draft"
    )
    alien = _propose(registry, write_gguf, embedding=4096, tokens=OTHER)
    assert "speculation" not in alien.entry
    assert any("no role has a model of the same vocabulary" in note for note in alien.notes)
    assert alien.entry["prompt_lookup"] == {"ngram": 3, "k": 8}


@pytest.mark.parametrize("architecture", ["mamba", "rwkv7", "jamba", "qwen3next"])
def test_state_space_models_are_not_drafted_for(registry: Registry, write_gguf: WriteGguf, architecture: str) -> None:
    made = _propose(registry, write_gguf, architecture=architecture, embedding=512)
    assert not {"speculation", "prompt_lookup"} & made.entry.keys()
    assert any("left out" in note and "before a rejected draft are computed again" in note for note in made.notes)
    assert made.suits.role == "worker"


def test_models_that_keep_states_for_drafts_get_them_where_memory_is_left(
    registry: Registry,
) -> None:
    header, file = stand_in_header(registry.path.parent, "qwen3.6-27b", 17 * 10**9), registry.path.parent / "new.gguf"
    roomy, made = (propose(header, file, registry, Room(budget=gigabytes << 30)) for gigabytes in (200, 30))
    assert roomy.entry["prompt_lookup"] == {"ngram": 3, "k": 8}
    assert roomy.entry["mtp"] == {"k": 3}
    assert not {"speculation", "prompt_lookup", "mtp"} & made.entry.keys()
    assert any("left out" in note and "5 times the memory" in note for note in made.notes)
    text = TEXT.replace("roles:\n", "  new: {file: new.gguf, prompt_lookup: {ngram: 2}}\nroles:\n")
    registry.path.write_text(text)
    assert load_registry(registry.path).models["new"].options.prompt_lookup is not None


@pytest.mark.parametrize(
    ("name", "options", "role"),
    [
        ("Some-7B-Instruct.gguf", {}, "worker"),
        ("deepseek-coder-6.7b.gguf", {}, "coder"),
        ("Qwen2.5-Coder-7B.gguf", {}, "coder"),
        ("encoder-thing.gguf", {}, "worker"),
        ("judge-8b.gguf", {}, "judge"),
        ("base.gguf", {"template": None}, None),
        ("small.gguf", {"embedding": 64, "tokens": tuple(f"t{n}" for n in range(96))}, "draft"),
        ("small-base.gguf", {"embedding": 64, "template": None, "tokens": tuple(f"t{n}" for n in range(96))}, "draft"),
        ("nomic.gguf", {"architecture": "nomic-bert"}, "embedder"),
        ("qwen3.gguf", {"architecture": "qwen3", "pooling": 3}, "embedder"),
        ("bge-small.gguf", {}, "embedder"),
        ("ranker.gguf", {"architecture": "bert", "pooling": 4}, "reranker"),
        ("dream.gguf", {"architecture": "dream"}, None),
    ],
)
def test_a_role_is_guessed_from_name_size_and_template(
    registry: Registry, write_gguf: WriteGguf, name: str, options: dict[str, object], role: str | None
) -> None:
    made = _propose(registry, write_gguf, name, **{"tokens": OTHER, "embedding": 512, **options})
    assert made.suits.role == role, made.suits


def test_an_embedding_model_is_distinguished_whatever_its_architecture(
    registry: Registry, write_gguf: WriteGguf
) -> None:
    made = _propose(registry, write_gguf, architecture="llama", pooling=1)
    assert made.why_no_text is not None
    assert not any("chat template" in warning for warning in made.warnings)
    registry.path.write_text(TEXT.replace("model: big", "model: new").replace("big: {file: big", "new: {file: new"))
    with pytest.raises(Exception, match=r"roles.worker.model: new cannot do this: it was made for embeddings"):
        load_registry(registry.path)


def test_what_will_not_go_well_is_warned_of(registry: Registry, write_gguf: WriteGguf) -> None:
    assert "no chat template" in "".join(_propose(registry, write_gguf, template=None).warnings)
    file = registry.path.parent / "big.gguf"
    again = propose(read_header(file), file, registry, ROOM)
    assert again.warnings == ("the registry has this file already, as big",)
    cramped = propose(read_header(file), file, registry, Room(budget=1 << 20))
    assert any(warning.startswith("it does not fit: ") for warning in cramped.warnings)
    assert cramped.fit.short > 0


def test_a_mixture_of_experts_is_recognised(registry: Registry, write_gguf: WriteGguf) -> None:
    made = _propose(registry, write_gguf, experts=8)
    assert any("2 of 8 experts are used" in note for note in made.notes)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen2.5-7b-instruct-q4_k_m"),
        ("big-00001-of-00003.gguf", "big"),
        ("My Model (new)#1.gguf", "my-model-new-1"),
        ("...gguf", "model"),
        ("ünïcode.gguf", "n-code"),
        ("x" * 200 + ".gguf", "x" * 64),
    ],
)
def test_an_id_is_made_from_the_name_of_the_file(file: str, name: str) -> None:
    assert id_from(Path(file)) == name


def test_a_file_below_the_registry_is_named_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = tmp_path / "conf" / "registry.yaml"
    assert file_name(tmp_path / "conf" / "sub" / "m.gguf", registry) == "sub/m.gguf"
    assert file_name(tmp_path / "conf" / "x" / ".." / "m.gguf", registry) == "m.gguf"
    assert file_name(tmp_path / "m.gguf", registry) == str(tmp_path / "m.gguf")
    assert file_name(tmp_path / "conf" / "~" / "m.gguf", registry) == "./~/m.gguf"
    monkeypatch.chdir(tmp_path)
    assert file_name(Path("conf/m.gguf"), Path("conf/registry.yaml")) == "m.gguf"


def test_a_hostile_name_in_a_file_stays_one_quoted_line(registry: Registry, write_gguf: WriteGguf) -> None:
    file = write_gguf(registry.path.parent / "new.gguf", name="a\n  evil: {file: x}\n\x1b[31m" + "y" * 500)
    made = propose(read_header(file), file, registry, ROOM)
    written = write_yaml(made.entry, 4)
    assert len(written.splitlines()) == len(made.entry)
    assert "\x1b" not in written
    assert yaml.safe_load(written) == dict(made.entry)
    assert len(str(made.entry["description"])) < 200


@pytest.mark.parametrize(
    ("architecture", "drafts"), [("glm4moe", True), ("exaone-moe", False), ("qwen35", True), ("qwen3next", False)]
)
def test_a_model_with_an_mtp_head_drafts_for_itself(
    registry: Registry, write_gguf: WriteGguf, architecture: str, drafts: bool
) -> None:
    made = _propose(registry, write_gguf, architecture=architecture, metadata={"nextn_predict_layers": 1})
    assert made.entry.get("mtp") == ({"k": 3} if drafts else None)
    assert ("mtp: the model has an MTP head, which drafts tokens" in made.notes) == drafts
