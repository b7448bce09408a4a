import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.errors import RegistryError
from registry.forms import ModelForm, RoleForm
from registry.load import load_registry
from registry.merge import SECTIONS, Merged, merge
from registry.models import ModelEntry, Registry, RoleEntry
from tests.registry.conftest import WriteGguf

PERSONAS = "personas:\n  terse: {text: Be terse.}\n  long: {text: Be long.}\n"
GOOD = """\
personas: personas.yaml
defaults: {context: 512, slots: 2}
models:
  big: {file: big.gguf, residency: hot}
  little: {file: little.gguf, context: 256}
roles:
  worker: {model: little, tier: C, system: Work., escalates_to: coder, persona: terse}
  coder: {model: little, tier: B, level: B1, escalates_to: architect}
  architect: {model: big, tier: B, level: B2}
"""


@pytest.fixture(scope="session")
def gguf_files(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("gguf")
    files = {
        "big.gguf": write_gguf(folder / "big.gguf"),
        "little.gguf": write_gguf(folder / "little.gguf", context=800),
        "third.gguf": write_gguf(folder / "third.gguf", tokens=["a", "b"]),
    }
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.fixture
def folder(tmp_path: Path, gguf_files: dict[str, bytes]) -> Path:
    for name, content in gguf_files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "personas.yaml").write_text(PERSONAS)
    (tmp_path / "registry.yaml").write_text(GOOD)
    return tmp_path


def _edited(folder: Path, *edits: tuple[str, str]) -> tuple[Registry, Merged]:
    before = load_registry(folder / "registry.yaml")
    text = GOOD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (folder / "registry.yaml").write_text(text)
    return before, merge(before)


def _kept_out(merged: Merged) -> list[str]:
    return sorted(map(str, merged.kept_out))


def test_what_is_valid_is_taken_up_as_a_start_would_take_it(folder: Path) -> None:
    third = "roles:\n", "  third: {file: third.gguf}\nroles:\n  helper: {model: third, tier: C}\n"
    _, merged = _edited(folder, ("Work.", "Do the work."), ("context: 512", "context: 600"), third)
    assert (merged.kept_out, merged.problems) == ((), ())
    assert merged.registry == load_registry(folder / "registry.yaml")
    assert merged.registry.roles["worker"].system == "Do the work."
    assert list(merged.registry.models) == ["big", "little", "third"]


@pytest.mark.parametrize(
    ("edit", "kept_out", "told"),
    [
        (("context: 256", "kontext: 256"), ["models.little"], "registry.yaml:5: models.little.kontext: unknown key"),
        (("context: 256", "context: 9999"), ["models.little"], "the model was made for 800"),
        (("little.gguf", "gone.gguf"), ["models.little"], "models.little.file: {folder}/gone.gguf: cannot be read"),
        (("tier: C", "tier: X"), ["roles.worker"], "roles.worker.tier: is 'X'"),
        (("persona: terse", "persona: tense"), ["roles.worker"], "no persona 'tense'; accepted: terse?"),
        (("level: B2", "level: B1"), ["roles.architect"], "goes from level B1 to B1"),
        (("level: B2", "level: B2, escalates_to: coder"), ["roles.architect"], "goes from level B2 to B1"),
        (("  big: {file: big.gguf, residency: hot}\n", ""), ["models.big"], "there is no model 'big'"),
    ],
)
def test_a_bad_entry_keeps_only_itself_out(folder: Path, edit: tuple[str, str], kept_out: list[str], told: str) -> None:
    before, merged = _edited(folder, edit, ("Work.", "Do the work.") if "Work." not in edit[0] else edit)
    assert _kept_out(merged) == kept_out
    assert any(told.format(folder=folder) in str(problem) for problem in merged.problems), merged.problems
    section, name = kept_out[0].split(".")
    assert getattr(merged.registry, section)[name] == getattr(before, section)[name]
    if name != "worker":
        assert merged.registry.roles["worker"].system == "Do the work."


def test_what_refers_to_a_bad_entry_is_kept_out_with_it(folder: Path) -> None:
    bad = "roles:\n", "  third: {file: third.gguf, context: 9999}\nroles:\n  helper: {model: third, tier: C}\n"
    before, merged = _edited(folder, bad, ("coder: {model: little", "coder: {model: third"), ("Work.", "Do the work."))
    assert _kept_out(merged) == ["models.third", "roles.coder", "roles.helper"]
    assert merged.registry.roles["coder"] == before.roles["coder"]
    assert "helper" not in merged.registry.roles
    assert merged.registry.roles["worker"].system == "Do the work."


def test_a_key_where_its_variable_should_be_named_is_kept_out_without_telling_it(folder: Path) -> None:
    far = "  far: {backend: openai, base_url: 'https://host/v1', api_key_env: sk-never-tell-anyone}\nroles:\n"
    _, merged = _edited(folder, ("roles:\n", far))
    assert _kept_out(merged) == ["models.far"]
    assert "sk-" not in repr((merged.kept_out, merged.problems))


def test_a_removal_waits_for_what_still_needs_the_entry(folder: Path) -> None:
    little = ("  little: {file: little.gguf, context: 256}\n", "")
    before, merged = _edited(folder, little, ("worker: {model: little, tier: C", "worker: {model: big, tier: Q"))
    assert _kept_out(merged) == ["models.little", "roles.worker"]
    assert merged.registry.models["little"] == before.models["little"]
    everything = GOOD.replace(*little).replace("model: little", "model: big")
    (folder / "registry.yaml").write_text(everything)
    again = merge(merged.registry)
    assert again.kept_out == ()
    assert list(again.registry.models) == ["big"]


def test_a_bad_persona_keeps_out_itself_and_the_role_that_wants_it(folder: Path) -> None:
    before = load_registry(folder / "registry.yaml")
    (folder / "registry.yaml").write_text(GOOD.replace("persona: terse", "persona: new"))
    (folder / "personas.yaml").write_text(
        PERSONAS.replace("{text: Be long.}", "{txt: Be long.}") + "  new: {text: ''}\n"
    )
    merged = merge(before)
    assert _kept_out(merged) == ["personas.long", "personas.new", "roles.worker"]
    assert merged.registry.personas == before.personas
    assert {problem.file.name for problem in merged.problems} == {"personas.yaml", "registry.yaml"}


@pytest.mark.parametrize("content", ["personas: [", "personas: {p: {text: x}, p: {text: y}}", None])
def test_personas_that_cannot_be_read_stay_as_they_were(folder: Path, content: str | None) -> None:
    before = load_registry(folder / "registry.yaml")
    (folder / "personas.yaml").unlink()
    if content is not None:
        (folder / "personas.yaml").write_text(content)
    (folder / "registry.yaml").write_text(GOOD.replace("Work.", "Do the work."))
    merged = merge(before)
    assert merged.registry.personas == before.personas
    assert merged.registry.roles["worker"].system == "Do the work."
    assert [problem.file.name for problem in merged.problems] == ["personas.yaml"]


@pytest.mark.parametrize(
    "content",
    [
        "models: [",
        "",
        "- a",
        "models: {}\nroles: {}",
        GOOD.replace("slots: 2", "slots: 0"),
        GOOD + "extra: 1\n",
        None,
    ],
)
def test_a_file_that_is_no_registry_changes_nothing(folder: Path, content: str | None) -> None:
    before = load_registry(folder / "registry.yaml")
    (folder / "registry.yaml").unlink()
    if content is not None:
        (folder / "registry.yaml").write_text(content)
    merged = merge(before)
    assert merged.registry is before
    assert merged.problems
    assert not merged.files


def test_nothing_changes_where_no_valid_entry_would_be_left(folder: Path) -> None:
    before = load_registry(folder / "registry.yaml")
    (folder / "registry.yaml").write_text("models: {a: {x: 1}}\nroles: {b: {y: 2}}")
    merged = merge(before)
    assert merged.registry is before
    assert {"models.a", "roles.b", "models.big", "roles.worker"} <= set(_kept_out(merged))


def test_a_file_that_breaks_does_not_take_its_model_away(folder: Path) -> None:
    before = load_registry(folder / "registry.yaml")
    (folder / "big.gguf").write_bytes((folder / "big.gguf").read_bytes()[:-300])
    merged = merge(before)
    assert _kept_out(merged) == ["models.big"]
    assert "is truncated" in str(merged.problems[0])
    assert merged.registry.models == before.models
    assert folder / "big.gguf" in merged.files


def test_a_model_that_was_absent_stays_known_and_comes_when_its_file_does(folder: Path) -> None:
    content = (folder / "big.gguf").read_bytes()
    (folder / "big.gguf").unlink()
    before, merged = _edited(folder, ("Work.", "Do the work."))
    assert merged.kept_out == ()
    assert "cannot be read" in (before.why_not("architect") or "")
    assert merged.registry.why_not("architect") == before.why_not("architect")
    (folder / "big.gguf").write_bytes(content)
    assert merge(merged.registry).registry.why_not("architect") is None


def test_a_remote_model_without_its_key_is_kept_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_KEY", raising=False)
    remote = "{backend: openai, base_url: 'http://h/v1', model: m, api_key_env: SITE_KEY}"
    _, merged = _edited(folder, ("roles:\n", f"  site: {remote}\nroles:\n"))
    assert _kept_out(merged) == ["models.site"]
    assert "SITE_KEY" in str(merged.problems[0])
    monkeypatch.setenv("SITE_KEY", "secret")
    with_key = merge(merged.registry).registry
    assert with_key.models["site"].why_not is None
    (folder / "registry.yaml").write_text(
        GOOD.replace("roles:\n", f"  site: {remote}\nroles:\n").replace("Work.", "W.")
    )
    again = merge(with_key)
    assert again.kept_out == ()
    assert again.registry.models == with_key.models
    (folder / "registry.yaml").write_text(GOOD.replace("roles:\n", "  site: {bad: 1}\nroles:\n"))
    assert _kept_out(merge(with_key)) == ["models.site"]
    assert merge(with_key).registry == with_key


def test_entries_have_what_their_forms_have() -> None:
    """Or `merge` could not check an entry that stays together with the new ones."""
    remote = {"backend", "base_url", "model", "api_key_env", "timeout_seconds"}
    assert set(ModelForm.model_fields) - remote <= set(ModelEntry.__dataclass_fields__)
    assert set(RoleForm.model_fields) <= set(RoleEntry.__dataclass_fields__)


MODELS = st.sampled_from(["big", "little", "new"])
ROLES = st.sampled_from(["worker", "coder", "architect"])
MODEL = st.fixed_dictionaries(
    {"file": st.sampled_from(["big.gguf", "little.gguf", "third.gguf", "gone.gguf"])},
    optional={
        "context": st.sampled_from([128, 512, 800, 9999]),
        "residency": st.sampled_from(["hot", "cold", "tepid"]),
        "speculation": st.fixed_dictionaries({"draft": ROLES}),
    },
)
ROLE = st.fixed_dictionaries(
    {"model": MODELS, "tier": st.sampled_from(["B", "C"])},
    optional={
        "level": st.sampled_from(["B1", "B2", "B3"]),
        "escalates_to": ROLES,
        "persona": st.sampled_from(["terse", "long", "tense"]),
        "system": st.sampled_from(["Work.", "Do."]),
    },
)
PERSONA = st.sampled_from([{"text": "Be so."}, {"text": "Be otherwise."}, {"txt": "x"}])
FILE = st.tuples(
    st.dictionaries(MODELS, MODEL, min_size=1),
    st.dictionaries(ROLES, ROLE, min_size=1),
    st.dictionaries(st.sampled_from(["terse", "long"]), PERSONA),
    st.sampled_from([{}, {"slots": 3}, {"context": 700}, {"slots": 0}]),
)


def _write(folder: Path, file: tuple[Any, Any, Any, Any]) -> None:
    models, roles, personas, defaults = file
    text = {"personas": "personas.yaml", "models": models, "roles": roles, "defaults": defaults}
    (folder / "registry.yaml").write_text(json.dumps(text))  # JSON is YAML
    (folder / "personas.yaml").write_text(json.dumps({"personas": personas}))


def _loads_again(folder: Path, registry: Registry) -> bool:
    """Whether a file that says what the registry holds is a valid one."""
    models = {name: _model_as_written(model) for name, model in registry.models.items()}
    keys = ("model", "tier", "level", "escalates_to", "persona")
    roles = {name: {key: getattr(role, key) for key in keys} for name, role in registry.roles.items()}
    personas = {name: {"text": persona.text} for name, persona in registry.personas.items()}
    (folder / "again-personas.yaml").write_text(yaml.safe_dump({"personas": personas}))
    text = yaml.safe_dump({"personas": "again-personas.yaml", "models": models, "roles": roles})
    (folder / "again.yaml").write_text(text)
    again = load_registry(folder / "again.yaml")
    return again.usable_roles == registry.usable_roles


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(FILE, min_size=1, max_size=3))
def test_whatever_the_files_say_the_registry_in_force_is_valid_and_has_all_that_it_can(
    folder: Path, files: list[tuple[Any, Any, Any, Any]]
) -> None:
    (folder / "registry.yaml").write_text(GOOD)
    (folder / "personas.yaml").write_text(PERSONAS)
    in_force = load_registry(folder / "registry.yaml")
    for file in files:
        _write(folder, file)
        merged = merge(in_force)
        assert _loads_again(folder, merged.registry)
        kept = {(entry.section, entry.name) for entry in merged.kept_out}
        for section in SECTIONS:
            for name, entry in getattr(merged.registry, section).items():
                assert (section, name) not in kept or entry == getattr(in_force, section)[name]
        assert bool(merged.kept_out) <= bool(merged.problems)
        try:
            whole = load_registry(folder / "registry.yaml")
        except RegistryError:
            assert merged.problems
        else:
            news = {name for name in whole.models if whole.models[name].unavailable is not None} - {
                name for name in in_force.models if in_force.models[name].unavailable is not None
            }
            if not news:
                assert (merged.registry, merged.problems) == (whole, ())
        in_force = merged.registry


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=FILE)
def test_nothing_is_kept_out_that_could_be_taken_up_alone(folder: Path, file: tuple[Any, Any, Any, Any]) -> None:
    (folder / "registry.yaml").write_text(GOOD)
    (folder / "personas.yaml").write_text(PERSONAS)
    before = load_registry(folder / "registry.yaml")
    _write(folder, file)
    merged = merge(before)
    roles = file[1]
    for entry in merged.kept_out:
        if entry.section == "roles" and entry.name in roles:
            others = {name: _as_written(role) for name, role in merged.registry.roles.items() if name != entry.name}
            alone = {**others, entry.name: roles[entry.name]}
            all_models = {name: _model_as_written(model) for name, model in merged.registry.models.items()}
            shown = {name: {"text": persona.text} for name, persona in merged.registry.personas.items()}
            _write(folder, (all_models, alone, shown, {}))
            with pytest.raises(RegistryError):
                load_registry(folder / "registry.yaml")


def _as_written(role: Any) -> dict[str, Any]:
    return {key: getattr(role, key) for key in ("model", "tier", "level", "escalates_to", "persona")}


def _model_as_written(model: ModelEntry) -> dict[str, Any]:
    draft = model.speculation
    return {
        "file": str(model.file),
        "context": model.context,
        "slots": model.slots,
        "residency": model.residency,
        "speculation": None if draft is None else {"draft": draft.draft, "k": draft.k},
    }
