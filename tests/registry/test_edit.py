import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.files import lock_folder
from orchestrator.registry.edit import add_model, change_model, change_role, give_role, remove_model, replace_registry
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import load_registry
from orchestrator.registry.strict_yaml import parse_text
from tests.registry.conftest import WriteGguf

ENTRY = {"file": "new.gguf", "description": "it's: new", "context": 64, "prompt": {"ngram": 3}}
LOADS = {"file": "new.gguf", "context": 64}
TEXT = """\
# The models.
models:
  a:                # the first
    file: a.gguf
    slots: 2        # few

  b: {file: a.gguf} # the second
  # about b

# The roles.
roles:
  worker: {model: 'a', tier: C}  # works
  coder:
    tier: B
    model: b  # codes
"""


@pytest.fixture
def registry(tmp_path: Path, write_gguf: WriteGguf) -> Path:
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "new.gguf")
    path = tmp_path / "registry.yaml"
    path.write_text(TEXT)
    return path


def _add(text: str, name: str = "new", entry: dict[str, object] | None = None) -> str:
    return add_model(text.encode(), Path("registry.yaml"), name, entry or ENTRY).decode()


def test_an_entry_is_added_after_the_last_one_and_its_comments() -> None:
    made = _add(TEXT)
    added = "  new:\n    file: new.gguf\n    description: 'it''s: new'\n    context: 64\n    prompt: {ngram: 3}\n"
    assert made == TEXT.replace("  # about b\n", f"  # about b\n{added}")
    assert yaml.safe_load(made)["models"]["new"] == ENTRY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models:\n  a: {file: f}", "models:\n  a: {file: f}\n  new:\n    file: n\n"),
        ("models:\n a:\n  file: f\nroles:\n", "models:\n a:\n  file: f\n new:\n  file: n\nroles:\n"),
        ("models:\n    a:\n        file: f\n", "models:\n    a:\n        file: f\n    new:\n        file: n\n"),
        ("models:\r\n  a:\r\n    file: f\r\n", "models:\r\n  a:\r\n    file: f\r\n  new:\r\n    file: n\r\n"),
        (
            "models:\n  a:\n    description: |\n      text\n      more\n\nroles: {}\n",
            "models:\n  a:\n    description: |\n      text\n      more\n  new:\n    file: n\n\nroles: {}\n",
        ),
        (
            "models:\n  a:\n    description: >-\n      text\n# end\n...\n",
            "models:\n  a:\n    description: >-\n      text\n  new:\n    file: n\n# end\n",
        ),
        ("\ufeffmodels:\n  'a':\n    file: \"f\"\n", "\ufeffmodels:\n  'a':\n    file: \"f\"\n  new:\n    file: n\n"),
        (
            "models:\n  a:\n    speculation:\n      draft: d\n      k: 3 # k\nroles:\n",
            "models:\n  a:\n    speculation:\n      draft: d\n      k: 3 # k\n  new:\n    file: n\nroles:\n",
        ),
    ],
)
def test_the_style_of_the_file_is_kept(text: str, expected: str) -> None:
    assert _add(text, entry={"file": "n"}) == expected


def test_a_role_is_pointed_to_another_model_in_its_place() -> None:
    path = Path("registry.yaml")
    assert give_role(TEXT.encode(), path, "worker", "b", "C").decode() == TEXT.replace("model: 'a'", "model: 'b'")
    assert give_role(TEXT.encode(), path, "coder", "a", "B").decode() == TEXT.replace("model: b  #", "model: a  #")
    assert give_role(TEXT.encode(), path, "coder", "1.5", "B").decode() == TEXT.replace("model: b  #", "model: '1.5' #")
    assert give_role(TEXT.encode(), path, "new", "a", "D").decode() == f"{TEXT}  new:\n    model: a\n    tier: D\n"


def test_adapters_and_trained_prompts_do_not_go_with_a_role_to_another_model() -> None:
    entry = "  plans:\n    model: a\n    system: Plan the request as steps.\n    lora: [{file: l.gguf}]\n    tier: A\n"
    path, raw = Path("registry.yaml"), (TEXT + entry).encode()
    given = give_role(raw, path, "plans", "b", "A").decode()
    assert given == TEXT + "  plans:\n    model: b\n    tier: A\n"
    kept = yaml.safe_load(give_role(raw, path, "plans", "a", "A"))["roles"]["plans"]
    assert set(kept) == {"model", "system", "lora", "tier"}, "it has the model already"
    own = TEXT + "  plans: {model: a, system: Rhyme., max_tokens: 9}\n"
    assert give_role(own.encode(), path, "plans", "b", "A").decode() == own.replace("model: a, s", "model: b, s")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: {a: {file: f}}\n", "registry.yaml: models: is written in braces"),
        ("models:\n  new: {file: f}\n", "registry.yaml: models.new: is taken; accepted: another name"),
    ],
)
def test_what_cannot_be_added_is_refused(text: str, told: str) -> None:
    with pytest.raises(RegistryError, match="^" + told):
        _add(text)


LINES = st.lists(st.sampled_from(["", "# at the edge", "  # inside", "    # deep", "  #", "\t# tabbed"]), max_size=3)
MODEL = st.sampled_from(
    [
        ["  {}:", "    file: a.gguf"],
        ["  {}: {{file: a.gguf, slots: 3}}   # said"],
        ["  {}:  # said", "    file: 'a.gguf' # so", "    description: |", "      # no comment", "      text"],
        ["  {}:", "    file: a.gguf", "    description: 'a", "      long one'"],
    ]
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models=st.lists(st.tuples(LINES, MODEL), min_size=1, max_size=3), last=LINES, end=st.sampled_from(["\n", ""]))
def test_every_comment_stays_and_the_rest_means_what_it_meant(
    registry: Path, models: list[tuple[list[str], list[str]]], last: list[str], end: str
) -> None:
    lines = ["models:"]
    for number, (above, model) in enumerate(models):
        lines += [*(line for line in above if "\t" not in line), *(line.format(f"m{number}") for line in model)]
    roles = ["roles:", "  worker: {model: m0, tier: C}"]
    for text in ("\n".join([*lines, *last, *roles]) + end, "\n".join([*roles, *lines, *last]) + end):
        registry.write_text(text)
        try:
            before = load_registry(registry)
        except RegistryError:
            continue
        made = add_model(text.encode(), registry, "new", LOADS).decode()
        new = iter(made.splitlines())
        comments = [line for line in text.splitlines() if line.lstrip().startswith("# ")]
        assert all(any(line == other for other in new) for line in comments), "a comment is gone or moved"
        after = replace_registry(registry, text.encode(), made.encode())
        assert {name: model for name, model in after.models.items() if name != "new"} == dict(before.models)
        assert (after.models["new"].context, after.roles) == (64, before.roles)


def test_a_file_is_replaced_at_once_and_keeps_its_rights(registry: Path) -> None:
    registry.chmod(0o640)
    link = registry.with_name("link.yaml")
    link.symlink_to(registry)
    replace_registry(link, TEXT.encode(), add_model(TEXT.encode(), link, "new", LOADS))
    assert link.is_symlink()
    assert registry.stat().st_mode & 0o777 == 0o640
    assert "new" in load_registry(registry).models
    assert sorted(file.name for file in registry.parent.iterdir()) == ["a.gguf", "link.yaml", "new.gguf", registry.name]


def _bytes(registry: Path) -> bytes:
    return add_model(TEXT.encode(), registry, "new", LOADS)


def test_nothing_is_written_that_would_not_load(registry: Path) -> None:
    bad = add_model(TEXT.encode(), registry, "new", {"file": "new.gguf", "context": 10**6})
    with pytest.raises(RegistryError, match=r"models.new.context: 1,000,000 tokens, but the model was made for"):
        replace_registry(registry, TEXT.encode(), bad)
    assert registry.read_text() == TEXT


def test_a_change_by_someone_else_is_not_overwritten(registry: Path) -> None:
    made = _bytes(registry)
    registry.write_text(f"{TEXT}# mine\n")
    with pytest.raises(RegistryError, match="was changed by someone else meanwhile"):
        replace_registry(registry, TEXT.encode(), made)
    assert registry.read_text() == f"{TEXT}# mine\n"
    assert len(list(registry.parent.iterdir())) == 3


def test_a_read_only_file_is_left_alone(registry: Path) -> None:
    registry.chmod(0o444)
    with pytest.raises(RegistryError, match="is read-only; accepted: a file that can be written to"):
        replace_registry(registry, TEXT.encode(), _bytes(registry))
    assert registry.read_text() == TEXT
    registry.unlink()
    with pytest.raises(RegistryError, match="cannot be written to: No such file"):
        replace_registry(registry, TEXT.encode(), _bytes(registry))
    assert sorted(os.listdir(registry.parent)) == ["a.gguf", "new.gguf"]


TWO_MODELS = b"""\
models:
  # About the first.
  first:
    backend: openai
    base_url: http://127.0.0.1:9/v1
    model: one   # its name there
  # About the second.
  second: {backend: openai, base_url: "http://127.0.0.1:9/v1", model: two, aliases: [other]}
  # About the third.
  third:
    backend: openai
    base_url: http://127.0.0.1:9/v1
    model: three
# About roles.
roles:
  worker: {model: first}
"""


def test_keys_of_a_model_get_other_values_and_the_rest_stays_as_it_is() -> None:
    path = Path("registry.yaml")
    changed = change_model(TWO_MODELS, path, "first", {"context": 512, "description": "on", "model": "uno"})
    changed = change_model(changed, path, "second", {"aliases": None})
    assert parse_text(changed, path).data["models"]["first"]["description"] == "on"  # type: ignore[index]
    assert b"# About the second." in changed
    assert b"aliases" not in changed
    apart = TWO_MODELS.replace(b"# About roles.", b"\n# About roles.")
    assert b"\n    context: 512\n\n# About roles.\n" in change_model(apart, path, "third", {"context": 512})
    with pytest.raises(RegistryError, match=r"first\?"):
        change_model(TWO_MODELS, path, "frst", {})


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_a_model_is_removed_and_comments_about_others_stay(name: str) -> None:
    path = Path("registry.yaml")
    removed = remove_model(TWO_MODELS, path, name)
    left = [other for other in ("first", "second", "third") if other != name]
    assert list(parse_text(removed, path).data["models"]) == left  # type: ignore[index]
    assert b"# About roles." in removed
    for other in left:
        if (name, other) != ("first", "second"):  # it stands between a removed first entry and the next one
            assert f"# About the {other}.".encode() in removed
    with pytest.raises(RegistryError, match="no such model"):
        remove_model(removed, path, name)


def test_no_file_is_written_while_another_process_changes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    text = TWO_MODELS.replace(b", aliases: [other]", b"")
    path.write_bytes(text)
    with lock_folder(tmp_path), pytest.raises(RegistryError, match="being changed by another process"):
        replace_registry(path, text, text + b"# more\n")
    assert path.read_bytes() == text
    replace_registry(path, text, text + b"# more\n")


def test_a_role_gets_other_values_and_loses_them_again(registry: Path) -> None:
    values = {"lora": [{"file": "adapter.gguf"}], "plans_by_cores": True}
    changed = change_role(TEXT.encode(), registry, "worker", values)
    assert yaml.safe_load(changed)["roles"]["worker"] == {"model": "a", "tier": "C", **values}
    restored = change_role(changed, registry, "worker", dict.fromkeys(values))
    assert yaml.safe_load(restored) == yaml.safe_load(TEXT)


def test_another_model_takes_what_an_adapter_was_trained_on_from_a_role(registry: Path) -> None:
    values = {"lora": [{"file": "adapter.gguf"}], "plans_by_cores": True}
    changed = change_role(TEXT.encode(), registry, "worker", values)
    assert yaml.safe_load(give_role(changed, registry, "worker", "b", "C"))["roles"]["worker"] == {
        "model": "b",
        "tier": "C",
    }


def test_a_role_that_is_not_there_has_no_values(registry: Path) -> None:
    with pytest.raises(RegistryError, match="there is no such role"):
        change_role(TEXT.encode(), registry, "workers", {"lora": None})
