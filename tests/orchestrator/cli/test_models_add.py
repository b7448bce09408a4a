"""`models add`: what is proposed for a file, what is written into a registry, and what is refused."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import yaml

from benchmarks.models import ModelShape, write_llama
from orchestrator.registry.load import load_registry
from tests.orchestrator.cli.cli_command import ROOT, Cli, smollm2
from tests.registry.conftest import write_adapter

TINY = ROOT / "registry" / "tiny"
TEXT = f"""\
# Mine.
defaults: {{memory: 4 GiB}}
models:
  large: {{file: {TINY / "large.gguf"}, residency: hot}}  # the best
  draft: {{file: {TINY / "draft.gguf"}}}

roles:
  frontdoor: {{model: large, tier: A, system: Plan the request as steps.}}
  worker: {{model: large, tier: C, system: Do the task.}}  # all of it
  draft: {{model: draft, tier: D}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of its own vocabulary, whose file has a name with spaces."""
    (tmp_path / "sub").mkdir()
    return write_llama(tmp_path / "sub" / "My Model.gguf", ModelShape(context=1024))


def test_the_proposal_is_yaml_that_can_be_pasted(command: Cli, registry: Path, model: Path) -> None:
    result = command("--registry", registry, "models", "add", model)
    assert (result.code, result.err) == (0, "")
    told = yaml.safe_load(result.out)
    assert list(told) == ["models"]
    entry = told["models"]["my-model"]
    assert (entry["file"], entry["context"], entry["slots"]) == ("sub/My Model.gguf", 1024, 16)
    assert entry["flash_attention"] == "auto"
    assert "threads" not in entry
    assert "# memory: 16 x 1,024 tokens (the model was made for 1,024) take " in result.out
    assert "of which HOT models keep" in result.out
    assert "# suits: worker (" in result.out
    assert registry.read_text() == TEXT, "nothing is written unless it is asked for"
    registry.write_text(TEXT.replace("\nroles:", result.out.partition("models:\n")[2] + "\nroles:"))
    assert load_registry(registry).models["my-model"].file == model


def test_a_written_entry_and_its_role_are_used_and_the_rest_stays(command: Cli, registry: Path, model: Path) -> None:
    result = command("--registry", registry, "models", "add", model, "--role", "worker", "--write", "--id", "mine")
    assert result.code == 0, result.err
    assert result.out.endswith(f"# written to {registry}\n")
    after = load_registry(registry)
    assert after.roles["worker"].model == "mine"
    assert after.models["mine"].file == model
    lines = registry.read_text().splitlines()
    column = next(line for line in TEXT.splitlines() if line.startswith("  worker")).index("#")
    changed = "  worker: {model: mine, tier: C}".ljust(column) + "# all of it"  # the comment keeps its column
    for line in TEXT.splitlines():
        assert (changed if line.startswith("  worker") else line) in lines
    listed = command("--registry", registry, "models", "--json").json
    assert [entry["id"] for entry in listed["models"]] == ["large", "draft", "mine"]


def test_a_new_role_is_added_with_its_tier(command: Cli, registry: Path) -> None:
    file = TINY / "medium.gguf"
    told = command("--registry", registry, "models", "add", file, "--role", "judge", "--write", "--json").json
    assert told["written"]
    given = {"name": "judge", "entry": {"model": "medium", "tier": "B"}, "left_out": [], "kept": []}
    assert told["roles"] == [given]
    assert load_registry(registry).roles["judge"].model == "medium"


def test_the_proposal_as_data(command: Cli, registry: Path) -> None:
    told = command("--registry", registry, "models", "add", TINY / "medium.gguf", "--json").json
    assert (told["id"], told["written"], told["roles"], told["fits"]) == ("medium", False, [], True)
    assert told["entry"]["file"] == str(TINY / "medium.gguf")
    memory = told["memory"]
    assert memory["total"] == sum(memory[part] for part in ("weights", "kv_cache", "compute", "process"))
    assert memory["budget"] == 4 << 30
    large = load_registry(registry).models["large"].memory
    assert large is not None
    assert memory["hot"] == large.total
    assert told["suits"]["role"] == "worker"
    assert told["entry"]["speculation"] == {"draft": "draft", "k": 8}
    assert any("speculation: role draft has a small model of the same vocabulary" in note for note in told["notes"])


def test_what_will_not_go_well_is_warned_of_on_stderr(command: Cli, registry: Path, tmp_path: Path) -> None:
    file = write_llama(tmp_path / "base.gguf", ModelShape(chat_template=None))
    result = command("--registry", registry, "models", "add", file)
    assert result.code == 0
    assert result.err.startswith("warning: it has no chat template")
    assert yaml.safe_load(result.out)["models"].keys() == {"base"}
    registry.write_text(TEXT.replace("4 GiB", "120 MiB"))
    crowded = command("--registry", registry, "models", "add", file, "--json").json
    assert not crowded["fits"]
    assert any("it does not fit" in warning for warning in crowded["warnings"])


def _truncated(folder: Path) -> list[str]:
    file = folder / "cut.gguf"
    file.write_bytes((TINY / "draft.gguf").read_bytes()[:-1000])
    return [str(file)]


def _second_piece(folder: Path) -> list[str]:
    file = folder / "big-00002-of-00003.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 3)
    writer.add_tensor("x", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [str(file)]


def _without_second_piece(folder: Path) -> list[str]:
    whole = _second_piece(folder)[0]
    writer = gguf.GGUFWriter(folder / "big-00001-of-00003.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.add_tensor("y", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    Path(whole).unlink()
    return [str(folder / "big-00001-of-00003.gguf")]


def _forgetful(folder: Path) -> list[str]:
    template = "{{ messages[-1].content }}"
    return [str(write_llama(folder / "last.gguf", ModelShape(chat_template=template)))]


def _no_gguf(folder: Path) -> list[str]:
    (folder / "page.gguf").write_text("<html>not found</html>")
    return [str(folder / "page.gguf")]


def _read_only(folder: Path) -> list[str]:
    (folder / "registry.yaml").chmod(0o444)
    return [str(TINY / "medium.gguf"), "--write"]


def _in_braces(folder: Path) -> list[str]:
    path = folder / "registry.yaml"
    path.write_text(f"models: {{a: {{file: {TINY / 'large.gguf'}}}}}\nroles: {{w: {{model: a, tier: C}}}}\n")
    return [str(TINY / "medium.gguf"), "--write"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (lambda folder: [str(folder / "none.gguf")], "none.gguf: cannot be read: No such file or directory"),
        (lambda folder: [str(folder)], "is not a regular file|cannot be read"),
        (_no_gguf, "page.gguf: is not a GGUF file: it begins with b'<htm'"),
        (_truncated, r"cut.gguf: is truncated: tensor \S+ ends [\d,]+ bytes after the end of the file"),
        (_second_piece, "is piece 2 of 3; accepted: the first one"),
        (
            _without_second_piece,
            r"is split into 3 files, and big-00002-of-00003\.gguf, big-00003-of-00003\.gguf are not next to it",
        ),
        (_forgetful, r"last\.gguf: the model's chat template loses words of the user .*accepted: a model with a chat"),
        (lambda _: [str(TINY / "medium.gguf"), "--id", "large"], r"--id large: is taken by .*such as large-2"),
        (lambda _: [str(TINY / "large.gguf")], r"--id large: is taken by"),
        (lambda _: [str(TINY / "medium.gguf"), "--id", "a b"], "--id a b: is no name; accepted: letters, digits"),
        (lambda _: [str(TINY / "medium.gguf"), "--role", "-"], "--role -: is no name"),
        (_read_only, "registry.yaml: is read-only; accepted: a file that can be written to"),
        (_in_braces, "registry.yaml: models: is written in braces"),
        (lambda _: [], "Missing argument"),
    ],
)
def test_bad_input_is_reported_with_code_2_and_nothing_is_written(
    command: Cli, registry: Path, tmp_path: Path, arguments: Callable[[Path], list[str]], told: str
) -> None:
    given = arguments(tmp_path)
    text = registry.read_text()
    result = command("--registry", registry, "models", "add", *given)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert "Traceback" not in result.err
    if told != "Missing argument":
        as_json = command("--registry", registry, "models", "add", *given, "--json")
        assert as_json.code == 2
        assert re.search(told, as_json.json["error"])
    assert re.search(told, result.err)
    assert registry.read_text() == text


def test_a_model_that_cannot_write_gets_no_role_that_does(command: Cli, registry: Path, tmp_path: Path) -> None:
    file = tmp_path / "embed.gguf"
    writer = gguf.GGUFWriter(file, "nomic-bert")
    writer.add_context_length(512)
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_token_list(["a"])
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tensor("x", np.zeros(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    told = command("--registry", registry, "models", "add", file, "--json").json
    assert told["suits"]["role"] == "embedder"
    refused = command("--registry", registry, "models", "add", file, "--role", "worker", "--write")
    assert refused.code == 2
    assert "--role worker: the model cannot have it: it was made for embeddings" in refused.err
    assert registry.read_text() == TEXT
    assert command("--registry", registry, "models", "add", file, "--role", "embedder", "--write").code == 0
    assert load_registry(registry).roles["embedder"].tier == "D"


def test_several_roles_are_given_at_once(command: Cli, registry: Path, model: Path) -> None:
    given = ("--role", "worker", "--role", "judge", "--role", "coder", "--write")
    assert command("--registry", registry, "models", "add", model, *given).code == 0
    roles = load_registry(registry).roles
    assert {name for name, role in roles.items() if role.model == "my-model"} == {"worker", "judge", "coder"}
    assert (roles["judge"].tier, roles["coder"].tier) == ("B", "B")


def test_an_adapter_that_ships_for_the_model_is_named_where_its_role_does_not_use_it(
    command: Cli, registry: Path, tmp_path: Path
) -> None:
    told = "an adapter for this model as frontdoor ships, and the role does not use it: give the role `system: Plan"
    given = ("models", "add", smollm2(), "--id", "smol")
    assert told not in command("--registry", registry, *given, "--role", "worker").err
    assert told in command("--registry", registry, *given, "--role", "frontdoor").err
    assert told in command("--registry", tmp_path / "new.yaml", *given, "--role", "frontdoor").err
    assert told not in command("--registry", tmp_path / "new.yaml", *given).err, "it has it"


def test_a_prompt_for_the_embedded_models_does_not_stay_with_another_model(
    command: Cli, registry: Path, model: Path
) -> None:
    registry.write_text(TEXT.replace("  draft: {model: draft, tier: D}", "  poet: {model: large, system: Rhyme.}"))
    given = ("--role", "worker", "--role", "poet", "--write")
    result = command("--registry", registry, "models", "add", model, *given)
    assert result.out.count("# left out, as made for the model before: system\n") == 1
    roles = load_registry(registry).roles
    assert (roles["worker"].model, roles["poet"].model) == ("my-model", "my-model")
    assert "Do the task." not in roles["worker"].system
    assert roles["poet"].system == "Rhyme.", "what the user wrote stays"
    assert roles["frontdoor"].system == "Plan the request as steps.", "nor is that of another role touched"


def test_what_was_made_for_the_model_before_does_not_stay_with_another_model(
    command: Cli, registry: Path, model: Path
) -> None:
    adapter = write_adapter(registry.parent / "plan.gguf")
    small = "max_tokens: 99, sampling: {dry_multiplier: 0.8}"
    text = TEXT.replace("tier: A, system", f"tier: A, lora: [{{file: {adapter.name}}}], system")
    registry.write_text(text.replace("system: Do the task.", small))
    result = command(
        "--registry", registry, "models", "add", model, "--role", "frontdoor", "--role", "worker", "--write"
    )
    assert "# left out, as made for the model before: system, lora\n" in result.out
    assert "# kept, though perhaps chosen for the model before: max_tokens, sampling\n" in result.out
    loaded = load_registry(registry)
    frontdoor = loaded.roles["frontdoor"]
    assert (frontdoor.model, frontdoor.lora, frontdoor.has_own_system) == ("my-model", (), False)
    assert loaded.why_not("frontdoor") is None
    assert (loaded.roles["worker"].model, loaded.roles["worker"].max_tokens) == ("my-model", 99)


@pytest.mark.parametrize(
    "text", [None, "", "# mine\n", "models:\nroles: {}\n", "defaults: {memory: 2 GiB}\nmodels: {}\n"]
)
def test_a_missing_or_empty_registry_is_begun(command: Cli, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "new" / "registry.yaml"
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    result = command("--registry", path, "models", "add", TINY / "large.gguf", "--write")
    assert (result.code, result.err) == (0, "")
    registry = load_registry(path)
    assert set(registry.roles) == {"frontdoor", "worker", "coder", "architect", "judge"}
    assert registry.usable_models == {"large"}
    assert registry.defaults.memory == (2 << 30 if text and "memory" in text else None)
    assert text is None or "# mine" not in text or path.read_text().startswith("# mine\n")
    assert command("--registry", path, "models", "add", TINY / "draft.gguf", "--role", "draft", "--write").code == 0
    assert load_registry(path).roles["draft"].model == "draft"


def test_a_new_registry_with_only_the_roles_that_are_named_says_what_is_lacking(command: Cli, tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    result = command("--registry", path, "models", "add", TINY / "large.gguf", "--role", "worker", "--write")
    assert result.code == 0
    assert "warning: there is no role frontdoor" in result.err
    assert set(load_registry(path).roles) == {"worker"}


def test_nobody_writes_into_the_packaged_registry(command: Cli, home: Path) -> None:
    before = (ROOT / "model_registry.yaml").read_bytes()
    own = home / ".config" / "orchestrator" / "model_registry.yaml"
    told = command("models", "add", TINY / "medium.gguf", "--write", "--json").json
    assert told["registry"] == str(own)
    assert load_registry(own).roles["worker"].model == "medium"
    assert (ROOT / "model_registry.yaml").read_bytes() == before


def test_a_copy_of_the_packaged_registry_says_where_its_files_are(command: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "model_registry.yaml", path)
    listed = command("--registry", path, "models", "--json").json
    reason = next(model["why_not"] for model in listed["models"] if model["id"] == "tiny-large")
    assert f"registry/tiny/large.gguf is relative to the registry's folder {tmp_path}" in reason
    assert f"accepted: {TINY / 'large.gguf'}" in reason


def test_the_packaged_registry_is_proposed_for_without_being_touched(command: Cli, tmp_path: Path) -> None:
    before = (ROOT / "model_registry.yaml").read_bytes()
    file = tmp_path / "copy.gguf"
    shutil.copy(TINY / "medium.gguf", file)
    assert command("models", "add", file, "--json").json["registry"] == str(ROOT / "model_registry.yaml")
    assert (ROOT / "model_registry.yaml").read_bytes() == before
