"""`orchestrator init`: a registry from the models that are here, and what is said where there are none."""

import re
import shutil
from pathlib import Path

import gguf
import pytest

from orchestrator.registry.load import load_registry
from orchestrator.registry.measured import MeasuredShares, model_file, write_measured
from tests.orchestrator.cli.cli_command import ROOT, Cli, smollm2

TINY = ROOT / "registry" / "tiny"


@pytest.fixture
def folder(home: Path) -> Path:
    """The folder for models, with two of them and something that is none."""
    folder = home / ".local" / "share" / "orchestrator" / "models"
    folder.mkdir(parents=True)
    shutil.copy(TINY / "large.gguf", folder / "large.gguf")
    shutil.copy(TINY / "draft.gguf", folder / "draft.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    return folder


def test_the_models_of_the_folder_become_a_registry_that_is_then_used(command: Cli, home: Path, folder: Path) -> None:
    result = command("init")
    written = home / ".config" / "orchestrator" / "model_registry.yaml"
    assert result.code == 0, result.err
    assert result.out.startswith(f"{written}\n")
    assert "orchestrator models try large\n" in result.out
    assert f"note: {folder / 'broken.gguf'} is left out: " in result.err
    registry = load_registry(written)
    assert {role.model for name, role in registry.roles.items() if name != "draft"} == {"large"}
    assert registry.roles["draft"].model == "draft"
    assert command("models", "--json").json["registry"] == str(written)
    assert list(written.parent.iterdir()) == [written]


def test_models_that_were_measured_get_the_roles_that_they_are_good_at(command: Cli, folder: Path) -> None:
    shutil.copy(TINY / "medium.gguf", folder / "medium.gguf")
    for name, plans, answers in (("large", 0.1, 0.9), ("medium", 0.95, 0.2), ("draft", 0.0, 0.5)):
        measure(folder, folder / f"{name}.gguf", MeasuredShares(plans=plans, answers=answers, code=0.0))
    told = command("init", "--json").json
    assert told["roles"]["frontdoor"] == "medium"
    assert told["roles"]["worker"] == "large"
    assert any(
        note.startswith("medium was measured: 95% of the plans for the tuning and unseen requests of `bench model` and")
        for note in told["notes"]
    )
    measure(folder, folder / "draft.gguf", MeasuredShares(plans=0.0, answers=0.85, code=0.0))
    roles = command("init", "--force", "--json").json["roles"]
    assert (roles["worker"], roles["frontdoor"]) == ("draft", "medium"), "it is small, and about as good as the best"


def test_the_models_of_worker_and_coder_can_be_set_by_hand(command: Cli, folder: Path, home: Path) -> None:
    made = command("init", "--worker", "draft", "--coder", "large", "--json").json
    assert (made["roles"]["worker"], made["roles"]["coder"], made["roles"]["architect"]) == ("draft", "large", "large")
    roles = load_registry(home / ".config" / "orchestrator" / "model_registry.yaml").roles
    assert (roles["worker"].escalates_to, roles["coder"].escalates_to) == ("generalist", None)
    assert roles["generalist"].model == "large", "it answers whole requests, since the worker is set to a smaller one"
    refused = command("init", "--force", "--worker", "absent", "--coder", "large")
    assert refused.code == 2
    assert "absent: is no name of the catalogue and no file" in refused.err


def measure(folder: Path, file: Path, shares: MeasuredShares) -> None:
    write_measured(folder, model_file(file, file.stat().st_size), shares)


def test_a_file_is_not_overwritten_unless_it_is_asked_for(command: Cli, tmp_path: Path) -> None:
    out = tmp_path / "new" / "mine.yaml"
    assert command("init", "--model", TINY / "large.gguf", "--out", out).code == 0
    before = out.read_bytes()
    again = command("init", "--model", TINY / "medium.gguf", "--out", out)
    assert (again.code, out.read_bytes()) == (2, before)
    assert "exists already; accepted: --force to replace it, or --out with another file" in again.err
    told = command("init", "--model", TINY / "medium.gguf", "--out", out, "--force", "--json").json
    assert set(told["roles"].values()) == {"medium"}
    assert told["next"][0] == f"orchestrator --registry {out} models try medium"
    assert load_registry(out).models["medium"].file == TINY / "medium.gguf"


def test_without_models_it_says_how_to_get_some(command: Cli) -> None:
    result = command("init")
    assert result.code == 2
    assert "holds no models; accepted: --model NAME, such as smollm2-135m (" in result.err


def test_a_model_that_is_not_here_is_not_downloaded_without_a_yes(command: Cli) -> None:
    result = command("init", "--model", "qwen3-8b")
    assert result.code == 2
    assert "--model qwen3-8b: is not here: about 4.7 GiB (Apache-2.0) would have to be downloaded" in result.err
    assert "--yes, or `orchestrator models get qwen3-8b` first" in result.err


def test_a_name_that_is_none_is_refused_with_those_like_it(command: Cli) -> None:
    result = command("init", "--model", "qwen3-8")
    assert result.code == 2
    assert "is no name of the catalogue and no file; close names of the catalogue: qwen3-8b" in result.err


def test_models_of_the_folder_go_by_their_stems_and_those_of_the_catalogue_by_their_names(
    command: Cli, folder: Path, tmp_path: Path
) -> None:
    hub = folder / "Qwen" / "Qwen3-4B-GGUF"
    hub.mkdir(parents=True)
    shutil.copy(TINY / "medium.gguf", hub / "Qwen3-4B-Q4_K_M.gguf")
    told = command("init", "--model", "qwen3-4b", "--model", "draft", "--out", tmp_path / "a.yaml", "--json").json
    assert (told["models"], told["roles"]["worker"]) == (["qwen3-4b", "draft"], "qwen3-4b")
    assert any("qwen3-0.6b" in warning and "could draft for qwen3-4b" in warning for warning in told["warnings"])
    assert any(
        warning.startswith("the plans of qwen3-4b were not measured, so requests are answered directly: ")
        for warning in told["warnings"]
    )


def test_a_model_that_was_measured_to_plan_badly_is_not_asked_for_plans(command: Cli, tmp_path: Path) -> None:
    composed = command("init", "--model", smollm2(), "--out", tmp_path / "a.yaml", "--json").json
    (warning,) = (warning for warning in composed["warnings"] if "answered directly" in warning)
    assert re.fullmatch(
        r"the plans of .* are right for \d\d% of the unseen and wide requests of `bench model`, so .*"
        r": `run --mode as-planned` .* anyway",
        warning,
    )


def test_the_share_of_right_plans_names_its_requests(command: Cli, folder: Path) -> None:
    measure(folder, folder / "large.gguf", MeasuredShares(plans=0.5, answers=0.9, code=0.0))
    warnings = command("init", "--model", "large", "--json").json["warnings"]
    share = "the plans of large are right for 50% of the tuning and unseen requests of `bench model`, so requests are"
    assert any(warning.startswith(share) for warning in warnings), warnings


@pytest.mark.parametrize("how", ["init", "init --model", "models add", "models import"])
def test_a_copy_of_a_model_of_the_catalogue_gets_its_adapter_under_any_name(
    command: Cli, folder: Path, tmp_path: Path, how: str
) -> None:
    copy = folder / "mine.gguf"
    copy.symlink_to(smollm2())
    (presets := tmp_path / "presets.ini").write_text(f"[mine]\nmodel = {copy}\n")
    out = tmp_path / "r.yaml"
    arguments: dict[str, tuple[object, ...]] = {
        "init": ("init", "--out", out),
        "init --model": ("init", "--model", copy, "--out", out),
        "models add": ("--registry", out, "models", "add", copy, "--write"),
        "models import": ("--registry", out, "models", "import", presets, "--write"),
    }
    result = command(*arguments[how])
    assert result.code == 0, result.err
    registry = load_registry(out)
    frontdoor, worker = registry.roles["frontdoor"], registry.roles["worker"]
    assert frontdoor.model == ("smollm2-135m" if how.startswith("init") else "mine")
    assert registry.models[frontdoor.model].file == copy
    assert [Path(adapter.file).name for adapter in frontdoor.lora] == ["smollm2-135m-frontdoor.gguf"]
    assert (frontdoor.system, worker.lora) == ("Plan the request as steps.", ())


def test_a_file_that_holds_no_model_makes_no_registry(command: Cli, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    result = command("init", "--model", tmp_path / "x.gguf", "--out", tmp_path / "r.yaml")
    assert result.code == 2
    assert not (tmp_path / "r.yaml").exists()
