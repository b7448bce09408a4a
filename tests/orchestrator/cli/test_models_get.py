"""`models get` as a user runs it: against a hub, without a terminal."""

import hashlib
import shutil
from functools import partial
from pathlib import Path

import huggingface_hub.constants
import pytest

from benchmarks.models import ModelShape, write_llama
from orchestrator.registry.sources.local import link_model, models_in
from tests.orchestrator.cli.cli_command import ROOT, Cli, make_cli, make_command
from tests.registry.sources.model_server import Served, serving

TINY = (ROOT / "registry" / "tiny" / "draft.gguf").read_bytes()


def test_a_model_is_downloaded_into_the_configured_folder(tmp_path: Path) -> None:
    with serving(Served(files={"model-Q4_K_M.gguf": TINY})) as hub:
        variables = {"HF_ENDPOINT": hub.url, "ORCHESTRATOR_MODELS_FOLDER": str(tmp_path / "my models")}
        result = make_cli(tmp_path)("models", "get", "hf:some/model", **variables)
    file = tmp_path / "my models" / "some" / "model" / "model-Q4_K_M.gguf"
    assert result.code == 0
    assert file.read_bytes() == TINY
    assert "orchestrator init --model hf:some/model\n" in result.out
    assert f"models add '{file}' --role worker --write" in result.out
    assert "checked: its SHA-256 is right; its GGUF header says that it is whole\n" in result.out
    assert "model-Q4_K_M.gguf: complete; its SHA-256 is right" in result.err


def test_of_a_plain_address_only_the_size_is_compared_unless_a_digest_is_given(tmp_path: Path) -> None:
    digest = hashlib.sha256(TINY).hexdigest()
    with serving(Served(files={"model.gguf": TINY})) as server:
        get = partial(
            make_command(tmp_path), "models", "get", f"{server.url}/files/model.gguf", "--folder", tmp_path / "m"
        )
        plain = get()
        again = get("--sha256", digest.upper(), "--json")
        wrong = get("--sha256", "0" * 64)
        no_digest = get("--sha256", "1234")
    assert "model.gguf: complete; its size is what the server states, and no hash of it is known\n" in plain.err
    assert "checked: its size is what the server states, and no hash of it is known; its GGUF header" in plain.out
    assert f"orchestrator init --model {tmp_path / 'm' / 'model.gguf'}\n" in plain.out, "init looks into another folder"
    assert again.json["downloaded"] == 0
    assert again.json["checked"].startswith("its SHA-256 is right")
    assert (wrong.code, no_digest.code) == (2, 2)
    assert "there is another file of this name, which is left alone" in wrong.err
    assert "--sha256: 1234 is no SHA-256; accepted: 64 hexadecimal digits" in no_digest.err


def test_what_is_wrong_is_bad_input(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Served(files={"model-Q4_K_M.gguf": TINY})) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        result = command("models", "get", "hf:some/model:Q2_K")
    assert (result.code, result.out) == (2, "")
    assert "hf:some/model:Q2_K: the repository has no model of quantisation Q2_K; accepted: Q4_K_M" in result.err


@pytest.mark.parametrize(
    ("template", "told", "following"),
    [
        (None, "it has no chat template, so it is a base model", "--role draft --write"),
        ("{{ messages[-1].content }}", "it cannot be used: the model's chat template loses words of the user", ""),
    ],
)
def test_a_model_that_cannot_answer_is_not_said_to_be_one_for_everything(
    command: Cli, tmp_path: Path, template: str | None, told: str, following: str
) -> None:
    result = command("models", "get", write_llama(tmp_path / "m.gguf", ModelShape(chat_template=template)))
    assert result.code == 0
    assert result.err.startswith(f"warning: {told}")
    assert "accepted" in result.err
    assert "orchestrator init" not in result.out
    assert ("orchestrator models add" in result.out) == bool(following)
    assert following in result.out


def test_without_a_source_the_catalogue_is_listed(command: Cli) -> None:
    assert {"qwen3-4b", "gpt-oss-20b", "smollm2-135m"} <= {
        one["name"] for one in command("models", "get", "--json").json["models"]
    }


def test_a_file_of_this_machine_is_a_model_for_init(command: Cli, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    shutil.copy(ROOT / "registry" / "tiny" / "large.gguf", file)
    folder = home / ".local" / "share" / "orchestrator" / "models"
    got = command("models", "get", file)
    assert got.code == 0, got.err
    assert f"linked as {folder / 'mine.gguf'}\n" in got.out
    assert command("models", "get", file, "--json").json["link"] is None, "it is linked already"
    made = command("init")
    assert made.code == 0, made.err
    assert "worker     mine\n" in made.out


def test_a_link_takes_no_name_of_another_model(tmp_path: Path) -> None:
    folder, others = tmp_path / "models", tmp_path / "others"
    folder.mkdir()
    others.mkdir()
    (folder / "a.gguf").write_bytes(b"first")
    (others / "a.gguf").write_bytes(b"second")
    (folder / "gone.gguf").symlink_to(tmp_path / "nothing")
    link = link_model(others / "a.gguf", "a.gguf", folder)
    assert link == folder / "a-2.gguf"
    assert link.read_bytes() == b"second"
    assert link_model(others / "a.gguf", "a.gguf", folder) is None
    blob = others / "sha256-00"
    blob.write_bytes(b"third")
    assert link_model(blob, "library/gone:1b", folder) == folder / "library-gone-1b.gguf"


def test_all_pieces_of_a_split_model_are_linked(tmp_path: Path) -> None:
    folder, names = tmp_path / "models", [f"a-0000{number}-of-00002.gguf" for number in (1, 2)]
    for name in (*names, "a-00001-of-00003.gguf"):
        (tmp_path / name).write_bytes(name.encode())
    assert link_model(tmp_path / names[0], names[0], folder) == folder / names[0]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert models_in(folder) == [folder / names[0]]
