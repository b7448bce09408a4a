import ctypes
import re
from pathlib import Path

import pytest

from orchestrator.registry import architectures
from orchestrator.registry.llama_library import installed_library

LIBRARY = installed_library() or Path("libllama.so")


def _says(predicate: str) -> set[str]:
    """The names of all architectures for which llama.cpp's own predicate holds."""
    library = ctypes.CDLL(str(LIBRARY))
    name = library._Z13llm_arch_name8llm_arch
    name.restype = ctypes.c_char_p
    holds = getattr(library, f"_Z{len(predicate)}{predicate}RK8llm_arch")
    holds.restype = ctypes.c_bool
    found, number = set(), 0
    while (text := name(number)) not in (None, b"unknown", b"(unknown)"):
        if holds(ctypes.byref(ctypes.c_int(number))):
            found.add(text.decode())
        number += 1
    assert number > 100
    return found


@pytest.mark.skipif(not LIBRARY.exists(), reason="llama.cpp is not where the wheel puts it")
def test_tables_agree_with_the_installed_llama_cpp() -> None:
    assert _says("llm_arch_is_recurrent") == architectures.STATE_SPACE
    assert _says("llm_arch_is_hybrid") == architectures.HYBRID
    assert _says("llm_arch_is_diffusion") == architectures.DIFFUSION
    assert _says("llm_arch_supports_rs_rollback") == architectures.ROLLS_BACK | {"deepseek4"}


@pytest.mark.skipif(not LIBRARY.exists(), reason="llama.cpp is not where the wheel puts it")
def test_the_installed_llama_cpp_computes_these_mtp_heads() -> None:
    classes = set(re.findall(rb"_ZN\d+llama_model_(\w+?)9graph_mtpC2E", LIBRARY.read_bytes()))
    names = {re.sub(r"[^a-z0-9]", "", name) for name in architectures.MTP}
    assert {name.decode().replace("_", "") for name in classes} == names
    assert len(names) == len(architectures.MTP)


def test_an_mtp_head_drafts_if_it_is_there_and_computed() -> None:
    assert architectures.why_no_mtp("glm4moe", 1) is None
    assert architectures.why_no_mtp("glm4moe", 0) == "the file has no MTP head"
    assert architectures.why_no_mtp("exaone-moe", 1) == "llama.cpp does not compute the MTP heads of exaone-moe"


@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv7", "rwkv99"])
def test_state_space_models_cannot_roll_back(name: str) -> None:
    assert "state-space model" in (architectures.why_no_rollback(name) or "")
    assert architectures.why_no_generation(name) is None


@pytest.mark.parametrize("name", ["jamba", "falcon-h1", "granitehybrid", "plamo2", "nemotron_h", "lfm2", "qwen3next"])
def test_hybrid_models_cannot_roll_back(name: str) -> None:
    assert "hybrid model" in (architectures.why_no_rollback(name) or "")
    assert architectures.why_no_generation(name) is None


@pytest.mark.parametrize("name", ["lfm2", "qwen35moe", "jamba", "rwkv7", "deepseek4"])
def test_most_models_that_cannot_draft_verify_the_drafts_of_others(name: str) -> None:
    assert architectures.why_no_rollback(name) is not None
    assert (architectures.why_no_drafts(name) is not None) == (name == "deepseek4")


@pytest.mark.parametrize("name", ["llama", "qwen3moe", "gemma3", "something-new"])
def test_transformers_are_free(name: str) -> None:
    assert architectures.why_no_rollback(name) is None
    assert architectures.why_no_drafts(name) is None
    assert architectures.why_no_generation(name) is None


@pytest.mark.parametrize("name", ["bert", "t5encoder", "llada"])
def test_what_does_not_write_text_says_so(name: str) -> None:
    assert architectures.why_no_generation(name) is not None
