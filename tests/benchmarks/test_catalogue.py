"""The catalogue's current models: their page, and what the registry makes of files like theirs."""

from collections.abc import Mapping
from pathlib import Path

import llama_cpp
import pytest

from benchmarks.catalogue import MEMORY, budget, candidate, choice, composed, fleet, page
from benchmarks.stand_ins import STAND_INS, write_stand_in
from orchestrator.engine.thinking import ThoughtSplitter
from orchestrator.registry.architectures import COMPRESSED
from orchestrator.registry.chat_template import ChatTemplate
from orchestrator.registry.checks import why_no_prompt, why_not_drafted
from orchestrator.registry.compose import Candidate, compose
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.messages import Message
from orchestrator.registry.sources.catalogue import CatalogueEntry, read_catalogue
from orchestrator.registry.thinking import Thinking, template_arguments, thought_markers

ROOT = Path(__file__).parents[2]
LIBRARY = Path(llama_cpp.__file__).parent / "lib" / "libllama.so"
CURRENT: Mapping[str, CatalogueEntry] = {name: e for name, e in read_catalogue().items() if e.facts is not None}
KIB = 1024


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Candidate]:
    folder = tmp_path_factory.mktemp("models")
    return {name: candidate(folder, name, entry) for name, entry in CURRENT.items()}


def test_the_page_is_up_to_date() -> None:
    text = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    assert text == page(), "run `python -m benchmarks.catalogue > docs/catalogue.md`"


def test_the_facts_are_those_of_the_stand_ins(candidates: Mapping[str, Candidate]) -> None:
    assert CURRENT.keys() == STAND_INS.keys()
    for name, entry in CURRENT.items():
        assert entry.facts is not None
        header = candidates[name].header
        assert (entry.facts.architecture, entry.facts.context) == (header.architecture, header.context_length), name
        has_recurrent_layers = header.state_bytes > 0 and header.architecture not in COMPRESSED
        assert ("recurrent" in entry.facts.attention) == has_recurrent_layers, name
        if entry.gguf is not None and entry.gguf.bytes is not None:
            assert abs(entry.size - entry.gguf.bytes) < 10**7, name


@pytest.mark.parametrize("name", CURRENT)
def test_each_is_an_exact_file(name: str) -> None:
    entry = CURRENT[name]
    assert entry.gguf is not None
    assert entry.source.endswith(".gguf")
    assert entry.revision is not None or entry.mirror is not None, "without either, a replaced file cannot be had"


@pytest.mark.skipif(not LIBRARY.exists(), reason="llama.cpp is not where the wheel puts it")
def test_the_installed_llama_cpp_knows_their_architectures() -> None:
    library = LIBRARY.read_bytes()
    for name, model in STAND_INS.items():
        # Linkers let a string be the end of a longer one.
        assert f"{model.architecture}\0".encode() in library, name


@pytest.mark.parametrize(
    ("name", "per_token", "state"),
    [
        # Layers, heads, numbers of a head, keys and values, bytes; and recurrent layers with their states in F32.
        ("qwen3.8-27b", 16 * 4 * 256 * 2 * 2, 48 * (3 * (6144 + 2 * 16 * 128) + 128 * 6144) * 4),
        ("qwen3.6-27b", 16 * 4 * 256 * 2 * 2, 48 * (3 * (6144 + 2 * 16 * 128) + 128 * 6144) * 4),
        ("qwen3.6-35b-a3b", 10 * 2 * 256 * 2 * 2, 30 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096) * 4),
        ("qwen3.5-122b-a10b", 12 * 2 * 256 * 2 * 2, 36 * (3 * (8192 + 2 * 16 * 128) + 128 * 8192) * 4),
        ("gemma-4-12b", (40 * 8 * 256 + 8 * 1 * 512) * 2 * 2, 0),
        ("gemma-4-26b-a4b", (25 * 8 * 256 + 5 * 2 * 512) * 2 * 2, 0),
        ("gemma-4-31b", (50 * 16 * 256 + 10 * 4 * 512) * 2 * 2, 0),
        # One latent vector, and the key of an index.
        ("glm-5.2", 78 * (576 + 128) * 2, 0),
        # 43 layers, of which 21 compress four tokens and keep an index, and 20 compress 128.
        (
            "deepseek-v4-flash",
            (43 * 512 + 21 * (512 + 128) // 4 + 20 * 512 // 128) * 2,
            (21 * 8 * 4 * (512 + 128) + 20 * 2 * 128 * 512) * 4,
        ),
        ("minimax-m2.7", 62 * 8 * 128 * 2 * 2, 0),
        ("nemotron-3.5-lightning-30b-a3b", 6 * 2 * 128 * 2 * 2, 23 * (3 * (4096 + 2 * 8 * 128) + 128 * 4096) * 4),
        ("lfm2.5-8b-a1b", 6 * 8 * 64 * 2 * 2, 18 * 2 * 2048 * 4),
        ("qwen2.5-coder-0.5b", 24 * 2 * 64 * 2 * 2, 0),
        ("qwen2.5-coder-1.5b", 28 * 2 * 128 * 2 * 2, 0),
        ("gpt-oss-20b", 24 * 8 * 64 * 2 * 2, 0),
        ("gpt-oss-120b", 36 * 8 * 64 * 2 * 2, 0),
    ],
)
def test_cache_by_hand(candidates: Mapping[str, Candidate], name: str, per_token: int, state: int) -> None:
    header = candidates[name].header
    assert 2 * (header.cached_keys + header.cached_values) == per_token
    assert header.state_bytes == state


def test_caches_are_as_large_as_llama_cpp_says(candidates: Mapping[str, Candidate]) -> None:
    def per_token(name: str) -> int:
        return 2 * (candidates[name].header.cached_keys + candidates[name].header.cached_values)

    # What llama.cpp prints when it loads these models, as published: with 262,144 tokens the cache of the 27B takes 16
    # GiB, that of the 35B takes 5 GiB, and a state of the 27B 149.625 MiB.
    assert per_token("qwen3.8-27b") * 262_144 == 16 << 30
    assert per_token("qwen3.6-35b-a3b") * 262_144 == 5 << 30
    assert candidates["qwen3.8-27b"].header.state_bytes == 149.625 * KIB * KIB
    # Of the 12B with 8 bits and a fourth: 136 MiB for 16,384 tokens without a window, and 255 MiB for 1,536 with one.
    full, windowed = 8 * 1 * 512 * 2, 40 * 8 * 256 * 2
    assert (full * 16_384 * 34 // 32, windowed * 1536 * 34 // 32) == (136 << 20, 255 << 20)
    assert per_token("gemma-4-12b") == 2 * (full + windowed)


def test_mixtures_are_as_quick_as_what_they_use(candidates: Mapping[str, Candidate]) -> None:
    mixtures = {name for name, model in candidates.items() if model.header.experts}
    dense = {"qwen3.8-27b", "qwen3.6-27b", "gemma-4-12b", "gemma-4-31b", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"}
    assert mixtures == CURRENT.keys() - dense
    for name in mixtures:
        header = candidates[name].header
        in_experts = header.parameters * header.experts_used / header.experts
        assert in_experts < candidates[name].active < header.parameters / 2, "attention and shared experts count, too"


@pytest.mark.parametrize("name", CURRENT)
def test_more_memory_is_used(candidates: Mapping[str, Candidate], name: str) -> None:
    tokens = []
    for gigabytes in MEMORY:
        chosen = choice(candidates[name], gigabytes)
        slots, _, context = chosen.partition(" x ")
        tokens.append(int(slots) * int(context.split()[0].replace(",", "")) if context else 0)
    assert tokens == sorted(tokens)
    assert tokens[-1] > 0, "every model of the catalogue fits into the largest machine"


def test_what_does_not_fit_is_said(candidates: Mapping[str, Candidate]) -> None:
    def too_large(gigabytes: int) -> set[str]:
        return {name for name, model in candidates.items() if choice(model, gigabytes) == "does not fit"}

    assert too_large(32) == {"qwen3.5-122b-a10b", "glm-5.2", "deepseek-v4-flash", "minimax-m2.7", "gpt-oss-120b"}
    assert too_large(256) == {"glm-5.2"}
    assert too_large(1100) == set()
    (warning,) = composed([candidates["glm-5.2"]], 256).warnings
    assert warning.startswith("glm-5.2 does not fit: it takes ")


def test_larger_machines_get_more_able_models(candidates: Mapping[str, Candidate]) -> None:
    small, middle, large = (fleet(candidates, gigabytes) for gigabytes in MEMORY)
    ability = {name: model.ability for name, model in candidates.items()}
    for role in ("frontdoor", "architect"):
        assert ability[small[role]] <= ability[middle[role]] <= ability[large[role]]
    assert large["architect"] == "glm-5.2"
    assert {fleet_of["worker"] for fleet_of in (small, middle, large)} == {"lfm2.5-8b-a1b"}


@pytest.mark.parametrize("name", CURRENT)
def test_what_init_writes_for_it_loads(tmp_path: Path, name: str) -> None:
    model = candidate(tmp_path, name, CURRENT[name])
    path = tmp_path / "registry.yaml"
    path.write_text(compose([model], path, budget(1100)).text)
    registry = load_registry(path)
    assert registry.usable_models == {name}
    assert set(registry.roles) == {"frontdoor", "worker", "coder", "architect", "judge"}
    entry = registry.models[name]
    assert (entry.options.prompt_lookup is None) == (why_not_drafted(model.header) is not None)


@pytest.mark.parametrize("name", CURRENT)
def test_thoughts_are_told_from_answers(tmp_path: Path, name: str) -> None:
    facts = CURRENT[name].facts
    assert facts is not None
    header = read_header(write_stand_in(tmp_path / "model.gguf", name))
    assert why_no_prompt(header) is None
    template = header.chat_template
    markers = thought_markers(template, lambda _: False)
    assert (markers is None) == (facts.thinking == "never")
    if markers is None:
        return

    def state(thinking: Thinking) -> str:
        messages = [Message(role="user", content="How many?")]
        rendered = ChatTemplate(template, "<s>", "</s>").segments(messages, template_arguments(thinking, template))
        return ThoughtSplitter.after_prompt(markers, "".join(segment.text for segment in rendered)).state

    match facts.thinking:
        case "switch":
            assert (state("off"), state("on") == "answering") == ("answering", False)
        case "effort":
            assert template_arguments("high", template) == {"reasoning_effort": "high"}
        case "always":
            assert (state("off") == "answering", template_arguments("off", template)) == (False, {})
    splitter = ThoughtSplitter(markers)
    # `skips` is the header of the answer, if thoughts and answers are messages.
    thought, answer = splitter.push(f"{markers.opens}why{markers.closes}{markers.skips}because".encode())
    assert (thought, answer) == (b"why", b"because")
