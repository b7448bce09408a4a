"""An engine with another build of llama.cpp: one that is complete, lacks functions, or has other structs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.models import ModelShape, write_adapter, write_bert, write_chain
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.client.library import LibraryFailed, probe_library
from orchestrator.engine.contract import EngineSpec, Generation, Infill, Message
from orchestrator.engine.errors import BadPrompt, ModelLoadFailed
from orchestrator.engine.llama import binding
from orchestrator.registry.llama_library import ENVIRONMENT
from orchestrator.registry.options import Lora
from tests.orchestrator.engine.llama_builds import copied, original, with_shim, without

# A copy of another build may still load parts of the original, and shims stand between the installed release and us.
pytestmark = pytest.mark.skipif(ENVIRONMENT in os.environ, reason="compares builds made of the installed library")

ACCEPTED = f"accepted: a build of llama.cpp with the API of {binding.HEADER}"
ASK = Generation(messages=(Message("user", "hello"),), max_tokens=12)
WIDTH = ModelShape().width


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a second build: a copy of the first one."""
    return copied(tmp_path_factory.mktemp("builds") / "copy")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a build without any function of llama.cpp that an engine can do without."""
    names = {name for names in binding.OPTIONAL.values() for name in names if name.startswith("llama_")}
    return without(tmp_path_factory.mktemp("builds") / "bare", map(binding.symbol, names))


def spec_of(models: Path, library: Path | None, **options: Any) -> EngineSpec:
    settings = {"file": str(models / "quantised.gguf"), "context": 256, "slots": 2, "threads": 1, **options}
    return EngineSpec(**settings, llama_library=None if library is None else str(library), batch_invariant=True)


async def said(spec: EngineSpec) -> str:
    async with await Engine.start(spec) as engine:
        return (await engine.generate(ASK)).text


async def why_refused(spec: EngineSpec) -> str:
    with pytest.raises(ModelLoadFailed) as caught:
        await Engine.start(spec)
    assert caught.value.kind == "library"
    assert not caught.value.passing
    return str(caught.value).removeprefix(f"{spec.file}: ")


async def test_an_engine_loads_the_build_that_its_model_names_and_nothing_of_another(models: Path, copy: Path) -> None:
    for named in (copy, copy / "libllama.so"):
        async with await Engine.start(spec_of(models, named)) as engine:
            maps = psutil.Process(engine.info.pid).memory_maps()
            loaded = {
                Path(region.path) for region in maps if Path(region.path).name.startswith(("libllama", "libggml"))
            }
            assert {file.parent for file in loaded} == {copy}
            assert len(loaded) >= 4
            text = (await engine.generate(ASK)).text
        assert text == await said(spec_of(models, None))


async def test_measurements_of_builds_of_the_same_version_are_kept_apart(
    models: Path, copy: Path, tmp_path: Path
) -> None:
    rebuilt = copied(tmp_path / "rebuilt")
    for file in rebuilt.glob("libggml-cpu*"):  # which has the kernels
        os.utime(file, (1, 1))
    builds = []
    for library in (copy, copy, rebuilt):
        async with await Engine.start(spec_of(models, library)) as engine:
            builds.append(engine.info.llama_cpp)
    assert builds[0] == builds[1] != builds[2]


async def test_a_build_without_optional_functions_generates_the_same_text(models: Path, bare: Path) -> None:
    assert await said(spec_of(models, bare)) == await said(spec_of(models, None))


async def test_what_needs_a_missing_function_is_refused(
    models: Path, recurrent_models: Path, windowed_models: Path, tmp_path: Path, bare: Path
) -> None:
    library = bare / "libllama.so"
    adapter = str(write_adapter(tmp_path / "adapter.gguf", WIDTH))
    for options in ({"lora": (Lora(adapter),)}, {"adapters": (adapter,)}):
        missing = "llama_adapter_lora_init, llama_set_adapters_lora, which is needed for adapters"
        assert await why_refused(spec_of(models, bare, **options)) == f"{library} lacks {missing}; {ACCEPTED}"
    recurrent = await why_refused(spec_of(recurrent_models, bare, file=str(recurrent_models / "mamba.gguf")))
    assert "lacks llama_state_seq_get_size, llama_state_seq_get_size_ext" in recurrent
    windowed = await why_refused(spec_of(windowed_models, bare, file=str(windowed_models / "windowed.gguf")))
    assert "lacks llama_memory_seq_pos_min, which is needed for models with sliding windows" in windowed
    embedder = write_bert(tmp_path / "bert.gguf", ModelShape(context=64, pooling="mean"))
    refused = await why_refused(spec_of(models, bare, file=str(embedder), context=None, embeds=True))
    assert "lacks llama_encode, llama_get_embeddings_seq, llama_model_n_embd_out" in refused


async def test_a_place_cannot_be_filled_without_the_functions_for_it(tmp_path: Path, bare: Path) -> None:
    marks = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    file = write_chain(tmp_path / "m.gguf", {"<|fim_middle|>": "7"}, ModelShape(marks=marks, control_marks=True))
    place = Generation(infill=Infill("a", "b"), max_tokens=1)
    for library, works in ((None, True), (bare, False)):
        async with await Engine.start(spec_of(tmp_path, library, file=str(file))) as engine:
            if works:
                assert (await engine.generate(place)).text == "7"
            else:
                with pytest.raises(BadPrompt, match=r"libllama\.so lacks llama_vocab_fim_mid, llama_vocab_fim_pre"):
                    await engine.generate(place)


async def test_prefixes_are_stored_only_with_the_functions_for_it(models: Path, tmp_path: Path, bare: Path) -> None:
    system = "the quick brown fox jumps over the lazy dog and runs away " * 2
    request = Generation(messages=(Message("system", system), Message("user", "hello")), max_tokens=4)
    for library, stores in ((None, True), (bare, False)):
        folder = tmp_path / str(stores)
        spec = spec_of(models, library, prefixes=str(folder), stores_all=True)
        async with await Engine.start(spec) as engine:
            await engine.generate(request)
        assert (folder.is_dir() and bool(list(folder.iterdir()))) is stores


@pytest.mark.parametrize("function", ["llama_decode", "llama_memory_seq_rm", "llama_sampler_init_grammar"])
async def test_a_build_without_a_necessary_function_is_refused(models: Path, tmp_path: Path, function: str) -> None:
    broken = without(tmp_path / "broken", [function])
    assert await why_refused(spec_of(models, broken)) == f"{broken}/libllama.so lacks {function}; {ACCEPTED}"


def shifted(struct: str) -> dict[str, str]:
    """Return a function that returns default parameters whose struct has one field more in front of the others."""
    name = f"{struct.removesuffix('_params')}_default_params"
    return {
        name: f"""
struct shifted {{ int64_t more; struct {struct} rest; }};
struct shifted {name}(void) {{
    struct {struct} (*original)(void) = ORIGINAL({name});
    return (struct shifted) {{7, original()}};
}}"""
    }


OTHER_BATCH = """
struct llama_batch llama_batch_init(int32_t tokens, int32_t size, int32_t sequences) {
    struct llama_batch (*original)(int32_t, int32_t, int32_t) = ORIGINAL(llama_batch_init);
    struct llama_batch batch = original(tokens, size, sequences);
    return (struct llama_batch) {.embd = (float *) batch.token, .pos = batch.pos, .logits = batch.logits};
}"""
OTHER_CANDIDATES = """
void llama_sampler_apply(struct llama_sampler * sampler, llama_token_data_array * candidates) {}"""


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        (shifted("llama_model_params"), "llama_model_params.devices is 7 by default, not None"),
        (shifted("llama_context_params"), "llama_context_params.n_ctx is 7 by default, not 512"),
        ({"llama_batch_init": OTHER_BATCH}, "llama_batch has other fields"),
        ({"llama_sampler_apply": OTHER_CANDIDATES}, "llama_token_data_array has other fields"),
    ],
    ids=["model", "context", "batch", "candidates"],
)
async def test_a_build_with_structs_of_another_layout_is_refused(
    models: Path, tmp_path: Path, functions: dict[str, str], problem: str
) -> None:
    library = with_shim(tmp_path / "other", **functions) / "libllama.so"
    expected = f"{library} has structs of another layout: {problem}; {ACCEPTED}"
    assert await why_refused(spec_of(models, library)) == expected


GROWN = {
    "llama_context_default_params": """
struct grown { struct llama_context_params rest; int64_t more[2]; };
struct grown llama_context_default_params(void) {
    struct llama_context_params (*original)(void) = ORIGINAL(llama_context_default_params);
    return (struct grown) {original(), {41, 42}};
}""",
    "llama_init_from_model": """
struct llama_context * llama_init_from_model(struct llama_model * model, struct grown params) {
    typedef struct llama_context * function(struct llama_model *, struct llama_context_params);
    function * original = ORIGINAL(llama_init_from_model);
    if (params.more[0] != 41 || params.more[1] != 42) abort();
    return original(model, params.rest);
}""",
    "llama_decode": """
struct grown_batch { struct llama_batch rest; void * more; };
int32_t llama_decode(struct llama_context * context, struct grown_batch batch) {
    int32_t (*original)(struct llama_context *, struct llama_batch) = ORIGINAL(llama_decode);
    return batch.more == NULL ? original(context, batch.rest) : -1;
}""",
}


async def test_structs_may_have_grown_at_their_end(models: Path, tmp_path: Path) -> None:
    grown = with_shim(tmp_path / "grown", **GROWN)
    assert await said(spec_of(models, grown)) == await said(spec_of(models, None))


RELEASE_0_6 = {
    "llama_context_default_params": """
#include <stddef.h>
#include <string.h>
struct params_0_6 {
    struct { _Alignas(8) char bytes[offsetof(struct llama_context_params, abort_callback)]; } head;
    size_t moe_cache_size;
    char rest[sizeof(struct llama_context_params) - offsetof(struct llama_context_params, abort_callback)];
};
struct params_0_6 llama_context_default_params(void) {
    struct llama_context_params (*original)(void) = ORIGINAL(llama_context_default_params);
    struct llama_context_params params = original();
    struct params_0_6 wider = {.moe_cache_size = 43};
    memcpy(&wider.head, &params, sizeof wider.head);
    memcpy(wider.rest, &params.abort_callback, sizeof wider.rest);
    return wider;
}""",
    "llama_init_from_model": """
struct llama_context * llama_init_from_model(struct llama_model * model, struct params_0_6 wider) {
    typedef struct llama_context * function(struct llama_model *, struct llama_context_params);
    function * original = ORIGINAL(llama_init_from_model);
    struct llama_context_params params;
    memcpy(&params, &wider.head, sizeof wider.head);
    memcpy(&params.abort_callback, wider.rest, sizeof wider.rest);
    if (wider.moe_cache_size != 43 || params.n_seq_max != 2) abort();
    return original(model, params);
}""",
}


async def test_the_structs_of_release_0_6_are_known(models: Path, tmp_path: Path) -> None:
    release = with_shim(tmp_path / "release", **RELEASE_0_6)
    assert await said(spec_of(models, release)) == await said(spec_of(models, None))


KERNELS = {
    "ggml_backend_load_all_from_path": """
static int loaded = 0;
void ggml_backend_load_all_from_path(const char * folder) { loaded = !strcmp(folder, FOLDER); }""",
    "ggml_backend_reg_count": """
size_t ggml_backend_reg_count(void) {
    size_t (*original)(void) = ORIGINAL(ggml_backend_reg_count);
    return loaded ? original() : 0;
}""",
    "llama_backend_init": """
void llama_backend_init(void) {
    void (*original)(void) = ORIGINAL(llama_backend_init);
    if (!loaded) abort();
    original();
}""",
}


async def test_kernels_in_files_of_their_own_are_loaded_from_the_folder_of_the_library(
    models: Path, tmp_path: Path
) -> None:
    before = f'#include <string.h>\n#define FOLDER "{tmp_path}/kernels"\n'
    functions = {name: before + text for name, text in KERNELS.items()}
    library = with_shim(tmp_path / "kernels", **functions)
    assert await said(spec_of(models, library)) == await said(spec_of(models, None))


async def test_a_build_that_lacks_what_it_needs_itself_is_refused(models: Path, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = shutil.copy2(copy / "libllama.so", tmp_path / "alone")
    refused = await why_refused(spec_of(models, tmp_path / "alone"))
    assert refused.startswith(f"{alone} cannot be loaded: libggml")
    assert refused.endswith(f"cannot open shared object file: No such file or directory; {ACCEPTED}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no such file"), (b"text", "it is no shared library")],
    ids=["none", "text"],
)
async def test_what_is_no_library_is_refused(models: Path, tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "libllama.so"
    if content is not None:
        file.write_bytes(content)
    assert await why_refused(spec_of(models, file)) == f"{file} cannot be loaded: {problem}; {ACCEPTED}"


def in_a_process(code: str, **environment: str) -> str:
    """Run code in which `lib` is the binding, in a process of its own. Returns what it prints."""
    program = f"import sys\nimport orchestrator.engine.llama.binding as lib\n{code}"
    own = {key: value for key, value in os.environ.items() if key != ENVIRONMENT}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env={**own, **environment})
    return ended.stdout.strip()


def test_a_process_has_one_library(copy: Path) -> None:
    code = f"""
lib.load({str(copy)!r})
lib.load({str(copy / "libllama.so")!r})
lib.load()
try:
    lib.load({str(original())!r})
except lib.UnusableLibrary as error:
    print(error)
"""
    told = f"{original()} cannot be loaded next to {copy}/libllama.so; accepted: one library in a process"
    assert in_a_process(code) == told


def test_the_environment_names_the_default(copy: Path) -> None:
    show = "print(lib.library(), sorted({file.parent.as_posix() for file in lib.loaded_files()}))"
    assert in_a_process(show, **{ENVIRONMENT: str(copy)}) == f"{copy}/libllama.so ['{copy}']"
    assert str(copy) not in in_a_process(show)


def test_an_engine_does_not_import_the_package_that_brings_the_library() -> None:
    code = "import orchestrator.engine.worker.process\nlib.load()\nprint(*sys.modules)"
    modules = in_a_process(code).split()
    assert "numpy" in modules
    assert "llama_cpp" not in modules


def test_a_library_is_described_by_a_process_of_its_own(copy: Path, bare: Path, tmp_path: Path) -> None:
    facts = probe_library(str(copy))
    assert facts.file == str(copy / "libllama.so")
    assert {"SSE3", "NEON", "VSX", "RVV"} & {*facts.extensions}
    assert (facts.lacking, facts.strangers) == ((), ())
    assert (
        f"{bare}/libllama.so lacks llama_version, which is needed for the version"
        in probe_library(str(bare)).lacking[-1]
    )
    broken = without(tmp_path / "broken", ["llama_free"])
    with pytest.raises(LibraryFailed, match=rf"^{broken}/libllama\.so lacks llama_free; accepted: "):
        probe_library(str(broken))
    killing = with_shim(tmp_path / "killing", llama_batch_free="void llama_batch_free(void) { abort(); }")
    with pytest.raises(LibraryFailed, match="a process that loaded it was killed by SIGABRT"):
        probe_library(str(killing))


def test_a_library_under_another_name_has_a_build_of_its_own(tmp_path: Path) -> None:
    folder = copied(tmp_path / "named")
    file = shutil.copy2(folder / "libllama.so", folder / "engine.so")
    builds = set()
    for seconds in (1, 2):
        os.utime(file, (seconds, seconds))
        builds.add(in_a_process(f"lib.load({str(file)!r})\nprint(lib.build(), *lib.loaded_files())"))
    assert len(builds) == 2
    assert all(str(file) in build for build in builds)


def test_libraries_of_another_folder_are_told(copy: Path, tmp_path: Path) -> None:
    folder = copied(tmp_path / "split")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in folder.glob("libggml*"):
        file.rename(moved / file.name)
    code = f"""
from orchestrator.engine.client.library import probe_library
print(probe_library({str(folder)!r}).strangers)
"""
    assert f"{moved}/libggml" in in_a_process(code, LD_LIBRARY_PATH=str(moved))
