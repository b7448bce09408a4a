"""Which roles models get, by size and kind, and that what is composed of them loads."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.registry.compose import Candidate, Composed, NothingAnswers, compose
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.measured import MeasuredShares
from orchestrator.registry.models import Registry
from orchestrator.registry.sources.catalogue import AdapterEntry
from tests.registry.conftest import WriteGguf

B = 10**9
GIB = 1 << 30


@pytest.fixture
def header(tmp_path: Path, write_gguf: WriteGguf) -> GgufHeader:
    return read_header(write_gguf(tmp_path / "any.gguf", context=8192))


def model(header: GgufHeader, name: str, billions: float, *, family: str = "one", **other: Any) -> Candidate:
    """A model of a size: its weights are counted with half a byte each."""
    parameters = int(billions * B)
    sized = replace(header, parameters=parameters, active_parameters=parameters, weight_bytes=parameters // 2)
    made = replace(sized, name=name, vocab_digest=family)
    return Candidate(id=name, file=Path(f"/models/{name}.gguf"), header=replace(made, **other))


def adapter(file: str, system: str, plan_quality: float | None = None) -> AdapterEntry:
    return AdapterEntry(file=file, sha256="0" * 64, system=system, plan_quality=plan_quality)


def composed(*models: Candidate, gib: float = 256) -> Composed:
    return compose(models, Path("/registry.yaml"), int(gib * GIB))


def escalation(made: Composed) -> dict[str, str | None]:
    roles = yaml.safe_load(made.text)["roles"]
    names = ("worker", "generalist", "coder", "architect")
    return {name: role.get("escalates_to") for name, role in roles.items() if name in names}


def test_a_single_model_gets_all_roles_and_escalates_to_nobody(header: GgufHeader) -> None:
    made = composed(model(header, "only", 0.1))
    assert made.roles == dict.fromkeys(("frontdoor", "worker", "coder", "architect", "judge"), "only")
    assert escalation(made) == {"worker": None, "coder": None, "architect": None}
    assert made.warnings == ()


def test_a_plan_gives_steps_to_roles_that_differ(header: GgufHeader) -> None:
    def left_out(*models: Candidate) -> set[str]:
        roles = yaml.safe_load(composed(*models).text)["roles"]
        return {name for name, role in roles.items() if not role.get("in_plans", True)}

    assert left_out(model(header, "only", 0.1)) == {"architect", "judge"}
    three = [model(header, f"m{size}", size, family=str(size)) for size in (32, 4, 14)]
    assert left_out(*three) == {"judge", "generalist"}, "the architect is the most able model, and no other has it"


def test_small_models_work_and_large_ones_take_over(header: GgufHeader) -> None:
    made = composed(*(model(header, f"m{size}", size, family=str(size)) for size in (32, 4, 14)))
    roles = {"frontdoor": "m14", "worker": "m4", "coder": "m14", "architect": "m32", "judge": "m14"}
    assert made.roles == {**roles, "generalist": "m14"}
    assert escalation(made) == {
        "worker": "generalist",
        "generalist": "architect",
        "coder": "architect",
        "architect": None,
    }


def test_whole_requests_go_to_a_more_able_model_than_the_worker_s_if_it_is_fast_enough(header: GgufHeader) -> None:
    small, large = model(header, "small", 4, family="a"), model(header, "large", 8, family="b")
    slow = model(header, "slow", 70, family="c")
    worker = {"worker": "small"}

    def generalist(*models: Candidate) -> str | None:
        return compose(models, Path("/registry.yaml"), 256 * GIB, worker).roles.get("generalist")

    def measured(candidate: Candidate, answers: float) -> Candidate:
        return replace(candidate, measured=MeasuredShares(plans=0.5, answers=answers, code=0.5))

    assert generalist(small, large, slow) == "large"
    assert generalist(small, slow) is None, "the user would wait for it"
    assert generalist(small) is None
    assert generalist(small, model(header, "similar", 5, family="d")) is None
    assert generalist(measured(small, 0.46), measured(large, 0.66)) == "large"
    assert generalist(measured(small, 0.6), measured(large, 0.66)) is None, "it is about as good"


def test_what_was_measured_of_all_gives_the_roles(header: GgufHeader) -> None:
    shares = {
        "m4": MeasuredShares(plans=0.9, answers=0.65, code=0.2),
        "m14": MeasuredShares(plans=0.4, answers=0.7, code=0.9),
        "m32": MeasuredShares(plans=1.0, answers=0.2, code=0.3),
    }
    sizes = {"m4": 4, "m14": 14, "m32": 32}
    models = [model(header, name, size, family=name) for name, size in sizes.items()]
    made = composed(*(replace(one, measured=shares[one.id]) for one in models))
    roles = {"frontdoor": "m4", "worker": "m4", "coder": "m14", "architect": "m14", "judge": "m4"}
    assert made.roles == roles, (
        "the largest one is too slow to plan, and the smallest about as good a worker as the best"
    )
    assert (
        "m4 was measured: 90% of the plans for the tuning and unseen requests of `bench model` and 65% of its small "
        "tasks are right, 20% of the code passes its tests" in made.notes
    )
    by_size = composed(*models).roles
    by_plans = {**by_size, "frontdoor": "m4", "judge": "m4"}
    assert composed(replace(models[0], measured=shares["m4"]), *models[1:]).roles == by_plans, "two were not measured"
    assert composed(models[0], replace(models[1], measured=shares["m14"]), models[2]).roles == by_size, (
        "another one may plan better than that"
    )
    nothing = MeasuredShares(plans=0.0, answers=0.0, code=0.0)
    assert composed(*(replace(one, measured=nothing) for one in models)).roles == by_size, "none did anything correctly"


def test_a_small_model_that_plans_best_plans_and_does_not_judge(header: GgufHeader) -> None:
    planner = MeasuredShares(plans=0.7, answers=0.1, code=0.0)
    worker = MeasuredShares(plans=0.2, answers=0.8, code=0.6)
    models = (model(header, "m0", 0.1, family="m0"), model(header, "m1", 1.5, family="m1"))
    made = composed(replace(models[0], measured=planner), replace(models[1], measured=worker))
    rest = dict.fromkeys(("worker", "coder", "architect", "judge"), "m1")
    assert made.roles == {"frontdoor": "m0", **rest}


@pytest.mark.parametrize(("quality", "frontdoor"), [(0.9, "draft"), (0.89, "some-coder"), (None, "some-coder")])
def test_a_small_model_with_an_adapter_that_plans_well_plans(
    header: GgufHeader, quality: float | None, frontdoor: str
) -> None:
    adapters = {"frontdoor": adapter("/adapters/plan.gguf", "Plan.", quality)}
    small = replace(model(header, "draft", 0.1), adapters=adapters)
    made = composed(small, model(header, "some-coder", 1.5))
    assert made.roles["frontdoor"] == frontdoor
    assert (made.roles["worker"], made.roles["judge"], made.roles["draft" if quality != 0.9 else "frontdoor"]) == (
        "some-coder",
        "some-coder",
        "draft",
    )


@pytest.mark.parametrize(("measured", "written"), [(None, None), ("own", None), ("shared", "shared")])
def test_steps_read_what_was_measured_to_be_best(header: GgufHeader, measured: Any, written: str | None) -> None:
    shares = MeasuredShares(plans=0.5, answers=0.5, step_context=measured)
    made = composed(replace(model(header, "only", 4), measured=shares))
    assert yaml.safe_load(made.text)["models"]["only"].get("step_context") == written


def test_roles_are_set_by_hand(header: GgufHeader) -> None:
    models = (model(header, "m1", 4), model(header, "m0", 0.5))
    by_hand = {"worker": "m0", "coder": "m1"}
    made = compose(models, Path("/registry.yaml"), 256 * GIB, by_hand)
    assert {role: made.roles[role] for role in by_hand} == by_hand
    assert escalation(made) == {"worker": "generalist", "generalist": None, "coder": None, "architect": None}
    assert yaml.safe_load(made.text)["models"]["m1"]["speculation"]["draft"] == "worker", "it drafts, too"
    silent = model(header, "silent", 0.5, chat_template=None)
    with pytest.raises(NothingAnswers, match="silent: "):
        compose((*models, silent), Path("/registry.yaml"), 256 * GIB, {"worker": "silent"})


def test_the_worker_of_a_small_model_is_kept_short_and_from_repeating_itself(header: GgufHeader) -> None:
    small, large = (yaml.safe_load(composed(model(header, "one", size)).text)["roles"] for size in (0.1, 4))
    assert (small["worker"]["sampling"], small["worker"]["max_tokens"]) == ({"dry_multiplier": 0.8}, 384)
    assert large["worker"]["max_tokens"] == 1024
    with_sampling = [
        *(name for name in small if "sampling" in small[name]),
        *(n for n in large if "sampling" in large[n]),
    ]
    assert with_sampling == ["worker"], "code repeats itself by right, and larger models do not need it"


def test_a_model_for_code_codes_and_does_not_plan(header: GgufHeader) -> None:
    made = composed(model(header, "some-coder", 30, family="a"), model(header, "some", 8, family="b"))
    assert made.roles["coder"] == "some-coder"
    assert (made.roles["frontdoor"], made.roles["worker"], made.roles["judge"]) == ("some", "some", "some")


def test_a_model_for_code_does_plan_where_the_other_is_hopeless(header: GgufHeader) -> None:
    made = composed(model(header, "some-coder", 30, family="a"), model(header, "smol", 0.1, family="b"))
    assert set(made.roles.values()) == {"some-coder"}
    assert any(warning.startswith("smol has no role: the others suit every role better") for warning in made.warnings)


def test_a_mixture_is_as_quick_as_what_it_uses(header: GgufHeader) -> None:
    mixture = model(header, "mixture", 30, family="a", experts=128, experts_used=8, active_parameters=3 * B)
    made = composed(mixture, model(header, "dense", 24, family="b"), model(header, "huge", 70, family="c"))
    assert (made.roles["frontdoor"], made.roles["worker"], made.roles["architect"]) == ("mixture", "mixture", "huge")


def test_a_small_model_of_the_same_vocabulary_drafts(header: GgufHeader) -> None:
    made = composed(model(header, "big", 8), model(header, "little", 0.6), model(header, "other", 3, family="b"))
    assert made.roles["draft"] == "little"
    assert made.roles["worker"] == "other"
    entries = yaml.safe_load(made.text)
    assert entries["models"]["big"]["speculation"] == {"draft": "draft", "k": 8}
    assert "speculation" not in entries["models"]["other"]
    assert entries["roles"]["draft"]["tier"] == "D"


def test_two_families_have_a_draft_model_each(header: GgufHeader) -> None:
    made = composed(
        model(header, "a8", 8, family="a"),
        model(header, "a-small", 0.5, family="a"),
        model(header, "b30", 30, family="b"),
        model(header, "b-small", 1, family="b"),
    )
    entries = yaml.safe_load(made.text)["models"]
    drafts = {name: made.roles[entries[name]["speculation"]["draft"]] for name in ("a8", "b30")}
    assert drafts == {"a8": "a-small", "b30": "b-small"}


def test_a_model_without_a_chat_template_only_drafts(header: GgufHeader) -> None:
    made = composed(model(header, "big", 8), model(header, "base", 0.5, chat_template=None))
    assert made.roles["draft"] == "base"
    with pytest.raises(NothingAnswers, match="base: it has no chat template"):
        composed(model(header, "base", 8, chat_template=None))


def test_an_embedder_embeds(header: GgufHeader) -> None:
    made = composed(model(header, "big", 8), model(header, "bge", 0.1, pooling="mean", architecture="bert"))
    assert made.roles["embedder"] == "bge"
    with pytest.raises(NothingAnswers):
        composed(model(header, "bge", 0.1, pooling="mean", architecture="bert"))


def test_models_stay_loaded_where_memory_allows(header: GgufHeader) -> None:
    models = [model(header, "m4", 4, family="a"), model(header, "m14", 14, family="b")]

    def residency(gib: float) -> Mapping[str, str]:
        entries = yaml.safe_load(composed(*models, gib=gib).text)["models"]
        return {name: entry["residency"] for name, entry in entries.items()}

    assert residency(64) == {"m4": "hot", "m14": "hot"}
    assert residency(8) == {"m14": "warm", "m4": "warm"}
    too_small = composed(*models, gib=4)
    assert any(re.match("m14 does not fit: it takes .* more than the 4.0 GiB", text) for text in too_small.warnings)


def test_what_is_composed_loads(tmp_path: Path, write_gguf: WriteGguf) -> None:
    big = write_gguf(tmp_path / "big.gguf", embedding=256, layers=8, context=4096)
    small = write_gguf(tmp_path / "sub.gguf", embedding=32)
    vectors = write_gguf(tmp_path / "bge.gguf", pooling=1)
    path = tmp_path / "registry.yaml"
    candidates = [Candidate(id=file.stem, file=file, header=read_header(file)) for file in (big, small, vectors)]
    path.write_text(compose(candidates, path, GIB).text)
    registry: Registry = load_registry(path)
    assert registry.usable_models == {"big", "sub", "bge"}
    assert registry.roles["draft"].model == "sub"
    assert registry.models["big"].file == big
    assert "file: big.gguf" in path.read_text()


def test_an_adapter_goes_to_its_role_with_the_prompt_that_it_is_trained_with(header: GgufHeader) -> None:
    adapters = {"frontdoor": adapter("/package/plan.gguf", "Plan it.")}
    small = replace(model(header, "small", 0.1, family="a"), adapters=adapters)
    made = composed(small)
    roles = yaml.safe_load(made.text)["roles"]
    assert (roles["frontdoor"]["system"], roles["frontdoor"]["lora"]) == ("Plan it.", [{"file": "package/plan.gguf"}])
    assert "lora" not in roles["worker"]
    assert "plans_by_cores" not in roles["frontdoor"]
    told = {"frontdoor": adapters["frontdoor"].model_copy(update={"plans_by_cores": True})}
    assert yaml.safe_load(composed(replace(small, adapters=told)).text)["roles"]["frontdoor"]["plans_by_cores"] is True
    assert "small has the adapter plan.gguf as frontdoor, which is trained for that" in made.notes
    roles = yaml.safe_load(composed(small, model(header, "large", 8, family="b")).text)["roles"]
    assert not any("lora" in role for role in roles.values()), "another model plans"


def test_the_frontdoor_s_entry_says_which_share_of_its_plans_is_right(header: GgufHeader) -> None:
    plain = model(header, "small", 1)

    def quality(candidate: Candidate) -> object:
        return yaml.safe_load(composed(candidate).text)["roles"]["frontdoor"].get("plan_quality")

    assert quality(plain) is None, "it was not measured"
    measured = replace(plain, measured=MeasuredShares(plans=0.2, answers=0.5))
    assert quality(measured) == 0.2
    trained = adapter("/package/plan.gguf", "Plan it.", 0.7)
    assert quality(replace(measured, adapters={"frontdoor": trained})) == 0.7, "with the adapter it plans better"


@pytest.mark.parametrize("heads", [0, 1])
def test_a_model_with_an_mtp_head_drafts_for_itself(header: GgufHeader, heads: int) -> None:
    made = composed(model(header, "only", 0.1, architecture="glm4moe", mtp_heads=heads))
    assert yaml.safe_load(made.text)["models"]["only"].get("mtp") == ({"k": 3} if heads else None)
