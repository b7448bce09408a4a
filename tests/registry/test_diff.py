from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Endpoint, ModelEntry, Registry
from orchestrator.registry.options import LoadOptions, Lora
from orchestrator.registry.watch import ChangedNames, Difference, difference
from tests.registry.conftest import WriteGguf

TEXT = """\
personas: personas.yaml
models:
  a: {file: a.gguf}
  b: {file: b-00001-of-00002.gguf}
  c: {file: a.gguf}
roles:
  r: {model: a, tier: C}
  s: {model: b, tier: C, persona: p}
  draft: {model: c, tier: D}
"""
FOR_THE_ENGINE: Mapping[str, Any] = {
    "file": Path("/else.gguf"),
    "options": LoadOptions(context=77, lora=(Lora("/adapter.gguf"),)),
    "numa": 1,
    "adapters": ("/plans.gguf",),
}
NOT_FOR_THE_ENGINE: Mapping[str, Any] = {
    "description": "other",
    "residency": "hot",
    "memory": None,
    "servers": (Endpoint("http://h/v1", "m", None, 120.0),),
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> Registry:
    folder = tmp_path_factory.mktemp("diff")
    write_gguf(folder / "a.gguf")
    write_gguf(folder / "b-00001-of-00002.gguf", context=999)
    (folder / "personas.yaml").write_text("personas: {p: {text: P}, q: {text: Q}}")
    (folder / "registry.yaml").write_text(TEXT)
    return load_registry(folder / "registry.yaml")


def _with(registry: Registry, **models: ModelEntry) -> Registry:
    return replace(registry, models=MappingProxyType({**registry.models, **models}))


def test_nothing_differs_from_itself(registry: Registry) -> None:
    assert difference(registry, registry) == Difference()
    assert not difference(registry, registry)
    assert not difference(registry, load_registry(registry.path))


@given(
    changes=st.dictionaries(st.sampled_from(sorted({**FOR_THE_ENGINE, **NOT_FOR_THE_ENGINE})), st.none(), max_size=4),
    model=st.sampled_from("abc"),
)
def test_an_engine_ends_exactly_when_it_would_be_loaded_in_another_way(
    registry: Registry, changes: dict[str, None], model: str
) -> None:
    values = {name: {**FOR_THE_ENGINE, **NOT_FOR_THE_ENGINE}[name] for name in changes}
    changed = difference(registry, _with(registry, **{model: replace(registry.models[model], **values)}))
    assert changed.models == ChangedNames(changed=(model,) if changes else ())
    assert changed.retired == ({model} if FOR_THE_ENGINE.keys() & changes.keys() else set())
    assert (changed.roles, changed.personas, changed.settings) == (ChangedNames(), ChangedNames(), False)


SUBSETS = st.sets(st.sampled_from(["a", "b", "c", "d"]))


@given(old=SUBSETS, new=SUBSETS, touched=SUBSETS)
def test_names_are_grouped_by_what_became_of_them(
    registry: Registry, old: set[str], new: set[str], touched: set[str]
) -> None:
    entry = registry.models["a"]
    before = replace(registry, models=dict.fromkeys(sorted(old), entry), roles={})
    after = replace(
        registry,
        models={
            name: replace(entry, options=LoadOptions(slots=9)) if name in touched else entry for name in sorted(new)
        },
        roles={},
    )
    told = difference(before, after)
    assert set(told.models.added) == new - old
    assert set(told.models.removed) == old - new
    assert set(told.models.changed) == old & new & touched
    assert told.retired == (old - new) | (old & new & touched)
    assert bool(told) == bool((old ^ new) | (old & new & touched) or (old != new))
    back = difference(after, before)
    assert (back.models.added, back.models.removed) == (told.models.removed, told.models.added)


def test_roles_and_personas_concern_no_engine(registry: Registry) -> None:
    roles = {**registry.roles, "r": replace(registry.roles["r"], system="New.", model="b")}
    personas = {"p": replace(registry.personas["p"], text="New."), "n": registry.personas["q"]}
    told = difference(registry, replace(registry, roles=roles, personas=personas))
    assert told == Difference(roles=ChangedNames(changed=("r",)), personas=ChangedNames(("n",), ("p",), ("q",)))
    assert str(told.personas) == "added n; changed p; removed q"


def test_defaults_and_the_order_of_roles_are_reported(registry: Registry) -> None:
    assert difference(registry, replace(registry, defaults=replace(registry.defaults, memory=5))).settings
    assert difference(registry, replace(registry, roles=dict(reversed(list(registry.roles.items()))))).settings


def test_a_model_that_may_not_be_loaded_any_more_is_retired(registry: Registry) -> None:
    cold = _with(registry, a=replace(registry.models["a"], residency="cold"))
    assert difference(registry, cold).retired == {"a"}
    assert difference(cold, registry).retired == set(), "it has no engine that could end"
    assert difference(cold, registry).models.changed == ("a",)


def test_a_model_is_loaded_anew_when_another_file_drafts_for_it(registry: Registry) -> None:
    def edited(*edits: tuple[str, str]) -> Registry:
        text = TEXT
        for old, new in edits:
            text = text.replace(old, new)
        path = registry.path.with_name("edited.yaml")
        path.write_text(text)
        return replace(load_registry(path), path=registry.path)

    drafts = ("a: {file: a.gguf}", "a: {file: a.gguf, speculation: {draft: draft}}")
    old = edited(drafts)
    assert difference(registry, old).retired == {"a"}
    assert difference(old, edited(drafts, ("draft: {model: c", "draft: {model: b"))).retired == {"a"}
    assert difference(old, edited(drafts, ("c: {file: a.gguf}", "c: {file: a.gguf, slots: 9}"))).retired == {"c"}
    assert difference(old, edited(drafts, ("c: {file: a.gguf}", "c: {file: a.gguf, description: x}"))).retired == set()
    assert difference(old, old, {registry.path.with_name("a.gguf")}).retired == {"a", "c"}


def test_a_rewritten_file_concerns_all_models_that_were_loaded_from_it(registry: Registry) -> None:
    folder = registry.path.parent
    told = difference(registry, registry, {folder / "a.gguf"})
    assert (told.retired, told.models) == ({"a", "c"}, ChangedNames())
    assert told
    assert difference(registry, registry, {folder / "b-00002-of-00002.gguf"}).retired == {"b"}
    assert not difference(registry, registry, {folder / "registry.yaml"})
