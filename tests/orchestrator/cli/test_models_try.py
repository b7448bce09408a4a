"""`models try`: how quick a model is and what works, for one of the registry, for a file, and for what is none."""

from pathlib import Path

import pytest

from benchmarks.models import ModelShape, write_llama
from tests.orchestrator.cli.cli_command import ROOT, Cli, smollm2

TINY = ROOT / "registry" / "tiny"


def test_a_model_of_the_registry_says_what_works(command: Cli) -> None:
    told = command("models", "try", "tiny-large", "--json").json
    assert told["model"] == "tiny-large"
    speed = told["speed"]
    assert min(speed["prefill_tokens_per_second"], speed["decode_tokens_per_second"], speed["load_seconds"]) > 0
    checks = {check["name"]: check for check in told["checks"]}
    assert list(checks) == ["template", "answer", "thinking", "JSON", "tools"]
    assert checks["template"]["works"] == "yes"
    assert checks["thinking"]["why"] == "The model does not think before it answers: its chat template has no thoughts."
    assert all(check["why"] for check in told["checks"])


def test_a_file_that_is_in_no_registry_can_be_tried(command: Cli) -> None:
    result = command("models", "try", TINY / "small.gguf")
    assert result.code in (0, 1), result.err
    assert result.out.startswith("small.gguf: llama ")
    assert "tokens/s (" in result.out
    assert "orchestrator init --model" in result.out


def test_a_template_that_loses_words_does_not_work_though_the_model_answers(command: Cli, tmp_path: Path) -> None:
    file = write_llama(tmp_path / "last.gguf", ModelShape(chat_template="{{ messages[-1].content }}"))
    result = command("models", "try", file, "--json")
    assert result.code == 1
    template, *others = result.json["checks"]
    assert template["works"] == "no"
    assert "the model's chat template loses words of the user" in template["why"]
    assert {check["works"] for check in others} == {"not asked"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_model_answers(command: Cli) -> None:
    told = command("models", "try", smollm2(), "--json").json
    checks = {check["name"]: check for check in told["checks"]}
    assert checks["template"]["works"] == "yes"
    assert "Morrow" in checks["answer"]["answer"]
    assert checks["JSON"]["works"] in ("yes", "partly"), "a grammar makes sure of the form"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny-larg", "tiny-larg: is no model of the registry and no file; accepted: a GGUF file, or one of tiny-"),
        (ROOT / "README.md", "README.md: is not a GGUF file"),
    ],
)
def test_what_cannot_be_tried_is_refused(command: Cli, name: object, told: str) -> None:
    result = command("models", "try", str(name))
    assert (result.code, result.out) == (2, "")
    assert told in result.err
