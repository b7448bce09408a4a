from pathlib import Path
from typing import Any

import pytest

from orchestrator.registry.errors import RegistryError
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import (
    PACKAGED,
    PACKAGED_PERSONAS,
    find_registry,
    load_personas,
    load_registry,
    read_unchecked,
)
from orchestrator.registry.memory import estimate_draft, estimate_eagle
from orchestrator.registry.models import Registry
from orchestrator.registry.options import EagleOptions, Lora, MtpOptions, SamplingOptions, SpeculationOptions
from orchestrator.registry.strict_yaml import parse_file
from orchestrator.registry.watch import difference, files_of
from tests.registry.conftest import WriteGguf, write_adapter

GOOD = """\
personas: personas.yaml
defaults:
  context: 1024
  slots: 8
  max_tokens: 99
models:
  big:
    file: big.gguf
    residency: hot
    context: 512
    threads: 2
    flash_attention: on
  little:
    file: sub/little.gguf
roles:
  frontdoor: {model: big, tier: A, system: Plan.}
  worker: {model: little, tier: C, escalates_to: coder, persona: terse, temperature: 0.5}
  coder: {model: little, tier: B, level: B1, escalates_to: architect, max_tokens: 7}
  architect: {model: big, tier: B, level: B2}
"""
PERSONAS = "personas:\n  terse: {text: Be terse., description: short}\n"


@pytest.fixture
def folder(tmp_path: Path, write_gguf: WriteGguf) -> Path:
    (tmp_path / "sub").mkdir()
    write_gguf(tmp_path / "big.gguf", context=2048)
    write_gguf(tmp_path / "sub" / "little.gguf", context=800)
    (tmp_path / "personas.yaml").write_text(PERSONAS)
    return tmp_path


def _load(folder: Path, text: str = GOOD) -> Registry:
    path = folder / "model_registry.yaml"
    path.write_text(text)
    return load_registry(path)


def _problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(RegistryError) as caught:
        _load(folder, text)
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_a_good_registry_is_complete(folder: Path) -> None:
    registry = _load(folder)
    big, little = registry.models["big"], registry.models["little"]
    assert (big.file, little.file) == (folder / "big.gguf", folder / "sub" / "little.gguf")
    assert (big.residency, big.context, big.slots) == ("hot", 512, 8)
    assert (big.options.threads, big.options.flash_attention) == (2, "on")
    assert (little.residency, little.context) == ("warm", 800)
    assert (little.options.threads, little.options.flash_attention) == (None, "auto")
    assert big.header is not None
    assert big.memory is not None
    assert big.memory.weights == big.header.weight_bytes
    worker, coder = registry.roles["worker"], registry.roles["coder"]
    assert (worker.escalates_to, worker.persona, worker.temperature, worker.max_tokens) == ("coder", "terse", 0.5, 99)
    assert (coder.level, coder.temperature, coder.top_p, coder.max_tokens) == ("B1", 0.0, 1.0, 7)
    assert registry.personas["terse"].text == "Be terse."
    assert registry.usable_roles == {"frontdoor", "worker", "coder", "architect"}
    assert (registry.defaults.memory, registry.defaults.max_replans) == (None, 2)


def test_a_role_without_a_tier_gets_the_usual_one(folder: Path) -> None:
    text = GOOD.replace("tier: A, ", "").replace("tier: C, ", "").replace("tier: B, ", "")
    tiers = {name: role.tier for name, role in _load(folder, text).roles.items()}
    assert tiers == {"frontdoor": "A", "worker": "C", "coder": "B", "architect": "B"}
    own = text + "  tester: {model: big}\n  draft: {model: little}\n"
    assert [_load(folder, own).roles[name].tier for name in ("tester", "draft")] == ["C", "D"]


def test_a_model_has_other_names(folder: Path) -> None:
    registry = _load(folder, GOOD.replace("    residency: hot\n", "    aliases: [gpt-4o, 'qwen3:8b', a/b]\n"))
    assert [registry.model_named(name) for name in ("big", "gpt-4o", "qwen3:8b", "a/b")] == ["big"] * 4
    assert registry.model_named("worker") is None
    assert registry.usable_names == {"big", "gpt-4o", "qwen3:8b", "a/b", "little"}


@pytest.mark.parametrize(
    ("alias", "said"),
    [
        ("little", "models.big.aliases.0: 'little' is the name of a model already; accepted: a name of its own"),
        ("coder", "models.big.aliases.0: 'coder' is the name of a role already; accepted: a name of its own"),
        ("terse", "models.big.aliases.0: 'terse' is the name of a persona already; accepted: a name of its own"),
        ("'a b'", "models.big.aliases.0: is 'a b'"),
    ],
)
def test_another_name_must_not_stand_for_something_else(folder: Path, alias: str, said: str) -> None:
    (problem,) = _problems(folder, GOOD.replace("    residency: hot\n", f"    aliases: [{alias}]\n"))
    assert said in problem


def test_two_models_cannot_have_the_same_other_name(folder: Path) -> None:
    text = GOOD.replace("    residency: hot\n", "    aliases: [one]\n").replace(
        "little.gguf\nroles", "little.gguf\n    aliases: [one]\nroles"
    )
    (problem,) = _problems(folder, text)
    assert "models.little.aliases.0: 'one' is the name of model big already" in problem


def test_a_missing_or_broken_file_takes_only_its_own_roles_down(folder: Path) -> None:
    (folder / "sub" / "little.gguf").write_bytes(b"GGUF but not really")
    registry = _load(folder)
    assert registry.usable_roles == {"frontdoor", "architect"}
    assert registry.usable_models == {"big"}
    assert "little.gguf: has GGUF version" in (registry.why_not("worker") or "")
    (folder / "sub" / "little.gguf").unlink()
    assert "little.gguf: cannot be read: No such file" in (_load(folder).why_not("worker") or "")
    assert registry.models["little"].memory is None


def _with_adapters(worker: str, frontdoor: str = "") -> str:
    text = GOOD.replace("tier: C, escalates_to", f"tier: C, lora: [{worker}], escalates_to")
    return text.replace("tier: A, ", f"tier: A, lora: [{frontdoor}], ") if frontdoor else text


def test_a_roles_adapters_are_loaded_with_its_model(folder: Path) -> None:
    for name in ("plans.gguf", "sub/words.gguf"):
        write_adapter(folder / name)
    plain = _load(folder)
    registry = _load(folder, _with_adapters("{file: sub/words.gguf, scale: 0.5}", "{file: plans.gguf}"))
    plans, words = str(folder / "plans.gguf"), str(folder / "sub" / "words.gguf")
    assert registry.roles["worker"].lora == (Lora(words, 0.5),)
    assert registry.roles["frontdoor"].lora == (Lora(plans),)
    assert registry.roles["coder"].lora == ()
    assert (registry.models["little"].adapters, registry.models["big"].adapters) == ((words,), (plans,))
    for name in ("little", "big"):
        with_it, without = registry.models[name].memory, plain.models[name].memory
        assert with_it is not None
        assert without is not None
        assert with_it.total == without.total + 2 * 4 * 8 * 4
    unchecked = read_unchecked(parse_file(folder / "model_registry.yaml"))
    assert {Path(plans), Path(words)} <= unchecked.signatures.keys()
    assert difference(registry, registry, {Path(words)}).retired == {"little"}
    assert difference(plain, registry).retired == {"little", "big"}


def test_an_adapter_that_is_missing_or_for_another_model_takes_only_its_role_down(folder: Path) -> None:
    registry = _load(folder, _with_adapters("{file: words.gguf}"))
    assert registry.usable_roles == {"frontdoor", "coder", "architect"}
    assert "role worker" in (registry.why_not("worker") or "")
    assert "words.gguf: cannot be read" in (registry.why_not("worker") or "")
    assert registry.models["little"].adapters == ()
    write_adapter(folder / "words.gguf", architecture="qwen2")
    registry = _load(folder, _with_adapters("{file: words.gguf}"))
    assert "is an adapter for 'qwen2'" in (registry.why_not("worker") or "")


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("far: {model: far, tier: C, lora: [{file: a.gguf}]}", "roles.far.lora: far takes no adapters"),
        ("embedder: {model: big, tier: D, lora: [{file: a.gguf}]}", "roles.embedder.lora: is for roles that write"),
        ("far: {model: far, tier: C, lora: []}", "roles.far.lora: is []; accepted:"),
        ("far: {model: far, tier: C, lora: [{fil: a.gguf}]}", "roles.far.lora.0.fil: unknown key; accepted: file?"),
    ],
)
def test_adapters_that_no_engine_could_use_are_refused(folder: Path, role: str, expected: str) -> None:
    far = "  far: {backend: openai, base_url: http://localhost:9/v1, model: x}\nroles:\n"
    text = GOOD.replace("roles:\n", far) + f"  {role}\n"
    assert any(expected in problem for problem in _problems(folder, text))


def test_a_model_whose_template_loses_words_cannot_be_used(folder: Path, write_gguf: WriteGguf) -> None:
    template = "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
    write_gguf(folder / "sub" / "little.gguf", template=template, context=800)
    registry = _load(folder)
    assert registry.usable_roles == {"frontdoor", "architect"}
    assert "sub/little.gguf: the model's chat template loses words of the user" in (registry.why_not("worker") or "")
    write_gguf(folder / "sub" / "little.gguf", template="{% oops %}", context=800)
    assert "the model's chat template is broken: " in (_load(folder).why_not("worker") or "")


def test_the_template_of_a_model_that_only_drafts_does_not_matter(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "sub" / "little.gguf", template="{% oops %}", context=800)
    text = GOOD.partition("  worker:")[0] + "  worker: {model: big, tier: C}\n  draft: {model: little, tier: D}\n"
    assert _load(folder, text).usable_roles == {"frontdoor", "worker", "draft"}


def test_a_cold_model_says_that_it_is_not_loaded(folder: Path) -> None:
    registry = _load(folder, GOOD.replace("residency: hot", "residency: cold"))
    assert "big is cold" in (registry.why_not("architect") or "")
    assert registry.usable_models == {"little"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("slots: 8", "slot: 8", "model_registry.yaml:4: defaults.slot: unknown key; accepted: slots? (one of"),
        ("threads: 2", "thread: 2", "model_registry.yaml:11: models.big.thread: unknown key; accepted: threads?"),
        ("tier: A", "teir: A", "roles.frontdoor.teir: unknown key; accepted: tier?"),
        ("roles:", "rolls:", "model_registry.yaml:15: rolls: unknown key; accepted: roles?"),
        ("tier: A", "tier: E", "roles.frontdoor.tier: is 'E'; accepted: 'A', 'B', 'C' or 'D'"),
        ("slots: 8", "slots: many", "model_registry.yaml:4: defaults.slots: is 'many'; accepted: a valid integer"),
        ("slots: 8", "slots: 0", "defaults.slots: is 0; accepted: greater than or equal to 1"),
        ("slots: 8", "max_replans: 9", "defaults.max_replans: is 9; accepted: less than or equal to 8"),
        ("  big:\n    file: big.gguf\n", "  big:\n", "models.big.file: is required"),
        ("  big:\n", "  big one:\n", "models.big one: is no name; accepted: letters"),
        ("model: little, tier: C", "model: litle, tier: C", "there is no model 'litle'; accepted: little? (one of"),
        ("escalates_to: coder", "escalates_to: codr", "there is no role 'codr'; accepted: coder?"),
        ("persona: terse", "persona: tense", "there is no persona 'tense'; accepted: terse?"),
        ("escalates_to: coder", "escalates_to: frontdoor", "role frontdoor has no level"),
        ("level: B2", "level: B1", "roles.coder.escalates_to: goes from level B1 to B1"),
        ("level: B2", "level: B2, escalates_to: coder", "goes round in a circle: coder → architect → coder"),
        ("context: 512", "context: 4096", "models.big.context: 4,096 tokens, but the model was made for 2,048"),
        ("threads: 2", "kv_type_v: q8_0", "kv_type_v: q8_0 needs heads of a multiple of 32 numbers"),
        ("threads: 2", "experts: 2", "models.big.experts: is 2, but the model has no experts"),
        (
            "threads: 2",
            "cells: 900\n    batch_invariant: true",
            "models.big.cells: is for a common pool, but batch_invariant or split",
        ),
        ("threads: 2", "cells: 500", "models.big.cells: is 500, and one sequence may take 512; accepted: at least 512"),
        (
            "threads: 2",
            "slots: 128\n    batch_invariant: maybe",
            "models.big.batch_invariant: is 'maybe'; accepted: a valid boolean",
        ),
        ("threads: 2", "lora: []", "models.big.lora: is []; accepted: "),
        ("threads: 2", "numa: 1\n    instances: 2", "models.big.numa: binds the model to node 1, but 2 instances have"),
        ("threads: 2", "instances: 0", "models.big.instances: is 0; accepted: greater than or equal to 1"),
        ("slots: 8", "slots: 8\n  idle_unload_seconds: 0", "idle_unload_seconds: is 0; accepted: greater than 0"),
        ("threads: 2", "speculation: {draft: drft}", "models.big.speculation.draft: there is no role 'drft'"),
        ("threads: 2", "speculation: {k: 3}", "models.big.speculation.draft: is required"),
        ("threads: 2", "speculation: {draft: worker, kk: 3}", "models.big.speculation.kk: unknown key; accepted: "),
        ("threads: 2", "speculation: {draft: architect}", "a model cannot draft for itself"),
        ("slots: 8", "memory: 12 apples", "defaults.memory: is '12 apples'; accepted: a valid integer"),
        ("models:\n", "models: []\nx:\n", "models: is []; accepted: a mapping of names"),
    ],
)
def test_a_mistake_is_reported_where_it_is_and_what_would_do(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    problems = _problems(folder, GOOD.replace(old, new, 1))
    assert any(expected in problem for problem in problems), problems
    assert all(problem.startswith("model_registry.yaml") for problem in problems)


def test_all_mistakes_are_reported_at_once(folder: Path) -> None:
    text = GOOD.replace("model: little, tier: C", "model: x, tier: C").replace("persona: terse", "persona: y")
    assert len(_problems(folder, text)) == 2


def test_an_empty_registry_says_what_it_needs(folder: Path) -> None:
    (told,) = _problems(folder, "")
    assert told.startswith(
        "model_registry.yaml: is empty; accepted: a registry, such as `orchestrator init --out FILE`"
    )
    with pytest.raises(RegistryError, match=r"absent\.yaml: cannot be read: .*; accepted: a registry, such as"):
        load_registry(folder / "absent.yaml")
    assert _problems(folder, "personas: p.yaml") == [
        "model_registry.yaml:1: models: is required",
        "model_registry.yaml:1: roles: is required",
    ]


def test_a_model_drafts_with_an_mtp_head_that_it_has(folder: Path, write_gguf: WriteGguf) -> None:
    text = GOOD.replace("threads: 2", "mtp: {k: 2}")
    write_gguf(folder / "big.gguf", architecture="glm4moe", metadata={"nextn_predict_layers": 1})
    assert _load(folder, text).models["big"].options.mtp == MtpOptions(k=2)
    write_gguf(folder / "big.gguf", architecture="glm4moe")
    (problem,) = _problems(folder, text)
    assert "mtp: is impossible: the file has no MTP head; accepted: a model with an MTP head, or no such key" in problem


HEAD = {"target_layers": [0, 0, 1], "target_hidden_size": 64}
WITH_EAGLE = GOOD.replace("threads: 2", "eagle: {file: sub/head.gguf, k: 2}")


def test_a_model_drafts_with_an_eagle_head(folder: Path, write_gguf: WriteGguf) -> None:
    plain = _load(folder).models["big"].memory
    head = write_gguf(folder / "sub" / "head.gguf", architecture="eagle3", layers=1, metadata=HEAD)
    registry = _load(folder, WITH_EAGLE)
    model = registry.models["big"]
    assert model.options.eagle == EagleOptions(str(head), k=2)
    assert plain is not None
    assert model.memory is not None
    assert model.header is not None
    assert model.memory.total > plain.total + head.stat().st_size // 2
    assert model.memory == plain + estimate_eagle(model.header, read_header(head), model.options)
    assert head in registry.signatures
    assert head in files_of(model)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"architecture": "llama"}, "it is a model of architecture llama, not eagle3"),
        ({"metadata": HEAD | {"target_hidden_size": 65}}, "it reads states of 65 numbers, and the model's have 64"),
        ({"metadata": HEAD | {"target_layers": [0, 1, 2]}}, "it reads the layers 0, 1, 2, and the model has 2"),
        ({"tokens": [f"u{number}" for number in range(96)]}, "its vocabulary is not the model's"),
    ],
)
def test_an_eagle_head_of_another_model_is_refused(
    folder: Path, write_gguf: WriteGguf, options: dict[str, Any], problem: str
) -> None:
    write_gguf(folder / "sub" / "head.gguf", **{"architecture": "eagle3", "metadata": HEAD, **options})
    assert _problems(folder, WITH_EAGLE) == [
        f"model_registry.yaml:11: models.big.eagle.file: sub/head.gguf cannot draft: {problem}; "
        "accepted: an EAGLE-3 head that was trained for this model"
    ]


def test_an_eagle_head_needs_a_model_that_hands_its_states_over(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "big.gguf", architecture="qwen2")
    write_gguf(folder / "sub" / "head.gguf", architecture="eagle3", metadata=HEAD)
    (problem,) = _problems(folder, WITH_EAGLE)
    assert "cannot draft: llama.cpp does not hand over the inputs of the layers of qwen2" in problem


def test_a_model_without_its_eagle_head_can_be_used(folder: Path) -> None:
    model = _load(folder, WITH_EAGLE).models["big"]
    assert model.why_not is None
    assert model.options.eagle == EagleOptions(str(folder / "sub" / "head.gguf"), k=2)


def test_a_model_has_one_head(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "big.gguf", architecture="glm4moe", metadata={"nextn_predict_layers": 1})
    problems = _problems(folder, WITH_EAGLE.replace("eagle:", "mtp: {k: 1}\n    eagle:"))
    assert any("eagle: is set, but the model drafts with its MTP head; accepted: eagle, or mtp" in p for p in problems)


@pytest.mark.parametrize("architecture", ["mamba", "rwkv7", "jamba", "falcon-h1", "granitehybrid", "qwen3next"])
def test_models_with_recurrent_layers_may_verify_drafts(folder: Path, write_gguf: WriteGguf, architecture: str) -> None:
    write_gguf(folder / "big.gguf", architecture=architecture)
    registry = _load(folder, GOOD.replace("threads: 2", "prompt_lookup: {ngram: 2}"))
    assert registry.models["big"].options.prompt_lookup is not None


@pytest.mark.parametrize("option", ["prompt_lookup: {ngram: 2}", "speculation: {draft: worker}"])
def test_what_an_architecture_forbids_is_refused_with_the_reason(
    folder: Path, write_gguf: WriteGguf, option: str
) -> None:
    architecture = "deepseek4"
    write_gguf(folder / "big.gguf", architecture=architecture)
    problems = _problems(folder, GOOD.replace("threads: 2", option))
    assert any(
        f"{option.split(':')[0]}: is impossible: {architecture} is a" in problem and "cannot roll it back" in problem
        for problem in problems
    ), problems


def test_a_draft_needs_the_same_vocabulary(folder: Path, write_gguf: WriteGguf) -> None:
    text = GOOD.replace("threads: 2", "speculation: {draft: worker}")
    for tokens, reason in ((["a", "b"], "has 2 tokens, the target's 96"), (["x"] * 96, "but not the same")):
        write_gguf(folder / "sub" / "little.gguf", tokens=tokens)
        assert any(reason in problem for problem in _problems(folder, text))
    write_gguf(folder / "sub" / "little.gguf")
    big, little = (_load(folder, text).models[name] for name in ("big", "little"))
    assert big.options.speculation == SpeculationOptions(str(little.file), 8)
    alone = _load(folder).models["big"].memory
    assert alone is not None
    assert little.header is not None
    assert big.memory == alone + estimate_draft(little.header, big.options)


def test_a_role_that_writes_needs_a_model_that_can(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "sub" / "little.gguf", architecture="bert")
    problems = _problems(folder, GOOD)
    assert any("roles.worker.model: little cannot do this: bert does not generate text" in line for line in problems)
    assert not any("frontdoor" in line for line in problems)


def test_more_experts_than_there_are_is_refused(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "big.gguf", experts=4)
    problems = _problems(folder, GOOD.replace("threads: 2", "experts: 9"))
    assert any("is 9, but the model has 4 experts" in problem for problem in problems)


def test_a_cache_beyond_what_an_engine_takes_is_refused(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "big.gguf", context=1 << 20)
    problems = _problems(folder, GOOD.replace("context: 512", "context: 1000000"))
    assert any("8 slots of 1,000,000 tokens make a KV cache of 8,000,000 cells" in problem for problem in problems)


def test_a_cache_is_measured_by_the_context_that_a_model_gets(folder: Path) -> None:
    text = GOOD.replace("context: 512", "cells: 4096").replace("slots: 8", "slots: 32").replace("1024", "262144")
    models = _load(folder, text).models
    assert (models["big"].context, models["little"].context) == (2048, 800)


def test_experts_are_taken_over(folder: Path, write_gguf: WriteGguf) -> None:
    write_gguf(folder / "big.gguf", experts=4)
    assert _load(folder, GOOD.replace("threads: 2", "experts: 3")).models["big"].options.experts == 3


def test_memory_is_read_with_its_unit(folder: Path) -> None:
    for written, meant in (("12 GiB", 12 << 30), ("1.5GiB", 3 << 29), ("2097152", 2 << 20)):
        assert _load(folder, GOOD.replace("slots: 8", f"memory: {written}")).defaults.memory == meant


def test_where_the_registry_is_looked_for(tmp_path: Path) -> None:
    flag, named = tmp_path / "flag.yaml", tmp_path / "named.yaml"
    configured = tmp_path / "config" / "orchestrator" / "model_registry.yaml"
    environment = {"ORCHESTRATOR_REGISTRY": str(named), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert find_registry(flag, environment) == flag
    assert find_registry(None, environment) == named
    del environment["ORCHESTRATOR_REGISTRY"]
    assert find_registry(None, environment) == PACKAGED
    configured.parent.mkdir(parents=True)
    configured.touch()
    assert find_registry(None, environment) == configured
    assert find_registry(None, {"HOME": str(tmp_path)}) == PACKAGED


def test_the_packaged_registry_and_personas_are_valid() -> None:
    registry = load_registry(PACKAGED)
    assert registry.personas == load_personas(PACKAGED_PERSONAS)
    assert {"frontdoor", "worker", "coder", "architect", "judge", "draft"} <= registry.roles.keys()
    assert registry.roles["frontdoor"].tier == "A"
    assert registry.roles["worker"].escalates_to == "coder"
    assert registry.roles["coder"].escalates_to == "architect"


@pytest.mark.parametrize("value", [True, False])
def test_the_old_name_of_batch_invariant_is_understood_and_reported_once(
    folder: Path, caplog: pytest.LogCaptureFixture, value: bool
) -> None:
    text = GOOD.replace("  context: 1024\n", f"  context: 1024\n  exact: {value}\n".lower())
    text = text.replace("    threads: 2\n", f"    threads: 2\n    exact: {not value}\n".lower())
    for _ in range(2):
        registry = _load(folder, text)
        assert registry.defaults.batch_invariant is registry.models["little"].options.batch_invariant is value
        assert registry.models["big"].options.batch_invariant is not value
    file = folder / "model_registry.yaml"
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}:4: defaults.exact: is called batch_invariant now; the old name is still understood",
        f"{file}:13: models.big.exact: is called batch_invariant now; the old name is still understood",
    ]


def test_a_mistake_under_an_old_name_has_its_line_and_both_names_are_one_too_many(folder: Path) -> None:
    wrong = _problems(folder, GOOD.replace("threads: 2", "exact: maybe"))
    assert wrong == ["model_registry.yaml:11: models.big.batch_invariant: is 'maybe'; accepted: a valid boolean"]
    (both,) = _problems(folder, GOOD.replace("threads: 2", "batch_invariant: true\n    exact: true"))
    assert both.startswith("model_registry.yaml:12: models.big.exact: unknown key")


def test_how_much_a_model_thinks_is_a_word_or_a_number(folder: Path) -> None:
    text = GOOD.replace("threads: 2", "threads: 2\n    thinking: off").replace("max_tokens: 7", "thinking: 500")
    registry = _load(folder, text)
    assert [registry.models[name].thinking for name in ("big", "little")] == ["off", "auto"]
    assert [registry.roles[name].thinking for name in ("worker", "coder")] == [None, 500]
    (problem,) = _problems(folder, text.replace("500", "much"))
    assert "roles.coder.thinking: is 'much'; accepted: auto, on, off, low, medium, high or a number" in problem


def test_what_keeps_answers_from_repeating_themselves_is_of_a_model_or_of_a_role(folder: Path) -> None:
    text = GOOD.replace("threads: 2", "threads: 2\n    sampling: {dry_multiplier: 0.8, dry_sequence_breakers: [x]}")
    text = text.replace("max_tokens: 7", "sampling: {repeat_penalty: 1.1}")
    registry = _load(folder, text)
    dry = SamplingOptions(dry_multiplier=0.8, dry_sequence_breakers=("x",))
    assert [registry.models[name].sampling for name in ("big", "little")] == [dry, SamplingOptions()]
    assert [registry.roles[name].sampling for name in ("worker", "coder")] == [
        None,
        SamplingOptions(repeat_penalty=1.1),
    ]
    (problem,) = _problems(folder, text.replace("1.1", "0"))
    assert "roles.coder.sampling.repeat_penalty: is 0; accepted: greater than or equal to 0.1" in problem
    (problem,) = _problems(folder, text.replace("repeat_penalty", "repetition_penalty"))
    assert "roles.coder.sampling.repetition_penalty: unknown key; accepted: repeat_penalty?" in problem


@pytest.mark.parametrize(
    ("sampling", "where", "words"),
    [
        ("{top_k: -1}", "sampling.top_k", "is -1; accepted: greater than or equal to 0"),
        ("{min_p: 1.5}", "sampling.min_p", "is 1.5; accepted: less than or equal to 1"),
        ("{typical_p: 0}", "sampling.typical_p", "is 0; accepted: greater than 0"),
        ("{mirostat: 3}", "sampling.mirostat", "is 3; accepted: 0, 1 or 2"),
        ("{mirostat: 2, top_k: 40}", "sampling.mirostat", "chooses by itself what top_k chooses"),
        ("{mirostat: 2}, top_p: 0.9", "top_p", "accepted: top_p: 1, or no mirostat"),
    ],
)
def test_which_tokens_are_sampled_is_bounded(folder: Path, sampling: str, where: str, words: str) -> None:
    (problem,) = _problems(folder, GOOD.replace("max_tokens: 7", f"sampling: {sampling}"))
    assert f"roles.coder.{where}: " in problem
    assert words in problem


def test_a_model_says_what_its_steps_read(folder: Path) -> None:
    old = _load(folder)
    new = _load(folder, GOOD.replace("threads: 2", "threads: 2\n    step_context: shared"))
    assert [new.models[name].step_context for name in ("big", "little")] == ["shared", "own"]
    assert not difference(old, new).retired
    (problem,) = _problems(folder, GOOD.replace("threads: 2", "threads: 2\n    step_context: all"))
    assert "models.big.step_context: is 'all'; accepted:" in problem
    assert "'own', 'sources' or 'shared'" in problem


@pytest.mark.parametrize("option", ["thinking: high", "sampling: {dry_multiplier: 0.8}"])
def test_an_engine_goes_on_when_only_what_a_request_says_changes(folder: Path, option: str) -> None:
    before = _load(folder)
    after = _load(folder, GOOD.replace("threads: 2", f"threads: 2\n    {option}"))
    assert difference(before, after).models.changed == ("big",)
    assert not difference(before, after).retired
