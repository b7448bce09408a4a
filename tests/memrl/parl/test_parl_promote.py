"""A promotion writes the registry, and one command takes it back."""

from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.memrl.parl.promote import keep_adapter, promote, promotions, undo, values_with
from orchestrator.memrl.parl.weights import write_adapter
from orchestrator.registry.load import load_registry
from tests.memrl.parl.adapters import TINY, some_weights

TEXT = f"""\
models:
  large: {{file: {TINY}/large.gguf, context: 512}}
roles:
  # Plans requests.
  frontdoor:
    model: large
    tier: A
  worker: {{model: large, tier: C}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry.yaml"
    path.write_text(TEXT)
    return path


def adapter(folder: Path, scale: float) -> Path:
    file = write_adapter(some_weights(scale), TINY / "large.gguf", folder / f"{scale}.gguf", alpha=16)
    return keep_adapter(folder / "frontdoor", file)


def test_a_promotion_is_undone(registry: Path, tmp_path: Path) -> None:
    kept = adapter(tmp_path, 0.1)
    promote(registry, tmp_path / "frontdoor", values_with((), kept))
    role = load_registry(registry).roles["frontdoor"]
    assert [each.file for each in role.lora] == [str(kept)]
    assert role.plans_by_cores
    undo(registry, tmp_path / "frontdoor")
    assert registry.read_text() == TEXT
    with pytest.raises(InputError, match="nothing was promoted"):
        undo(registry, tmp_path / "frontdoor")


def test_promotions_are_undone_one_after_the_other(registry: Path, tmp_path: Path) -> None:
    first, second = adapter(tmp_path, 0.1), adapter(tmp_path, 0.2)
    for kept in (first, second):
        present = load_registry(registry).roles["frontdoor"].lora
        promote(registry, tmp_path / "frontdoor", values_with(present, kept))
    assert [each.file for each in load_registry(registry).roles["frontdoor"].lora] == [str(first), str(second)]
    undo(registry, tmp_path / "frontdoor")
    assert load_registry(registry).roles["frontdoor"].lora[0].file == str(first)
    undo(registry, tmp_path / "frontdoor")
    assert registry.read_text() == TEXT


def test_what_was_changed_by_hand_since_is_not_touched(registry: Path, tmp_path: Path) -> None:
    promote(registry, tmp_path / "frontdoor", values_with((), adapter(tmp_path, 0.1)))
    registry.write_text(registry.read_text().replace("plans_by_cores: true", "plans_by_cores: false"))
    with pytest.raises(InputError, match="was changed since"):
        undo(registry, tmp_path / "frontdoor")


def test_a_promotion_that_was_killed_before_it_wrote_the_registry_is_forgotten(registry: Path, tmp_path: Path) -> None:
    first = adapter(tmp_path, 0.1)
    promote(registry, tmp_path / "frontdoor", values_with((), first))
    promoted = registry.read_text()
    promote(registry, tmp_path / "frontdoor", values_with((), adapter(tmp_path, 0.2)))
    registry.write_text(promoted)  # as if the second had only been noted
    undo(registry, tmp_path / "frontdoor")
    assert registry.read_text() == TEXT
    assert promotions(tmp_path / "frontdoor") == []
