"""What the registry says of a model is what llama.cpp does with it, by its log and by the engine's process."""

import re
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import psutil
import pytest

from benchmarks.models import ModelShape, write_adapter, write_llama
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import NOT_SET_UP, EngineSpec, Generation, Message
from orchestrator.pool.machine import Node, Topology
from orchestrator.pool.places import Replica
from orchestrator.pool.residency import Folders, engine_spec
from orchestrator.registry.load import load_registry
from orchestrator.run.steps.role import resolve_role
from tests.orchestrator.engine.llama_builds import copied

SHAPE = ModelShape(width=128, heads=4, kv_heads=4, layers=2, feed_forward=128, vocabulary=512, context=1024)
SHORT = Generation(messages=(Message("user", "hello"),), max_tokens=4)
FLAT = Topology.flat(2, 1 << 40)


def _write_experts(path: Path) -> Path:
    """Write a mixture of four experts, of which two are used: a Llama model whose feed-forward parts are apart."""
    dense = gguf.GGUFReader(write_llama(path.with_suffix(".dense"), SHAPE))
    writer = gguf.GGUFWriter(path, "llama")
    for field in dense.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type)
    writer.add_expert_count(4)
    writer.add_expert_used_count(2)
    rng = np.random.default_rng(3)
    for tensor in dense.tensors:
        if ".ffn_" not in tensor.name or "norm" in tensor.name:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for layer in range(SHAPE.layers):
        block = f"blk.{layer}.ffn"
        writer.add_tensor(f"{block}_gate_inp.weight", rng.normal(0, 0.1, (4, SHAPE.width)).astype(np.float32))
        for name in ("gate", "up", "down"):
            values = rng.normal(0, 0.1, (4, SHAPE.feed_forward, SHAPE.width)).astype(np.float32)
            writer.add_tensor(f"{block}_{name}_exps.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_llama(made / "small.gguf", SHAPE)
    write_llama(made / "draft.gguf", SHAPE, seed=1)
    _write_experts(made / "experts.gguf")
    write_adapter(made / "adapter.gguf", SHAPE.width)
    return made


@pytest.fixture
def spec_of(folder: Path, tmp_path: Path) -> Callable[..., EngineSpec]:
    """Return the specification of a model whose entry in a registry has these options, as YAML."""

    def make(node: int | None = None, topology: Topology = FLAT, **options: str) -> EngineSpec:
        options = {"file": "experts.gguf", "context": "256", "threads": "1"} | options
        entry = ", ".join(f"{name}: {value}" for name, value in options.items())
        path = folder / "registry.yaml"
        path.write_text(
            f"models:\n  m: {{{entry}}}\n  d: {{file: draft.gguf}}\n"
            "roles: {w: {model: m, tier: C}, guess: {model: d, tier: D}}\n"
        )
        model = load_registry(path).models["m"]
        threads = model.options.threads or topology.cores
        return engine_spec(model, threads, Replica(("m", 0), node), topology, folders=Folders(tmp_path))

    return make


def test_a_node_is_handed_on(spec_of: Callable[..., EngineSpec]) -> None:
    nodes = Topology((Node(0, ((0,),), 1 << 40), Node(1, ((1,), (2,)), 1 << 40)))
    bound = spec_of(node=1, topology=nodes)
    assert bound.cpus == (1, 2)
    assert (bound.mmap, spec_of().mmap) == (False, True), "memory of its own lies on its node"


async def _loaded(spec: EngineSpec) -> tuple[str, str, list[str], int]:
    """Return what llama.cpp logged, and of the process: its limits, the files that it maps, its threads."""
    async with await Engine.start(spec) as engine:
        completion = await engine.generate(SHORT)
        assert completion.usage.output_tokens > 0
        process = psutil.Process(engine.info.pid)
        status = Path(f"/proc/{process.pid}/status").read_text()  # noqa: ASYNC240 (no disk is behind it)
        maps = [region.path for region in process.memory_maps()]
        threads = (await engine.stats()).threads
    assert spec.log_file is not None
    return Path(spec.log_file).read_text(errors="replace"), status, maps, threads  # noqa: ASYNC240


async def test_the_cache_has_the_size_and_the_types_that_were_asked_for(spec_of: Callable[..., EngineSpec]) -> None:
    spec = spec_of(kv_type_k="q8_0", kv_type_v="q4_0", slots="3", context="128")
    log, *_ = await _loaded(spec)
    assert re.search(r"K \(q8_0\)", log)
    assert re.search(r"V \(q4_0\)", log)
    async with await Engine.start(spec) as engine:
        assert (engine.info.context, engine.info.slots) == (128, 3)
        assert engine.info.cells >= 3 * 128


async def test_sequences_share_a_pool_of_so_many_cells_and_a_draft_model_guesses(
    spec_of: Callable[..., EngineSpec],
) -> None:
    spec = spec_of(file="small.gguf", slots="4", cells="320", speculation="{draft: guess, k: 5}")
    async with await Engine.start(spec) as engine:
        maps = psutil.Process(engine.info.pid).memory_maps()
        assert {Path(region.path).name for region in maps} >= {"small.gguf", "draft.gguf"}
        assert (engine.info.split_cache, engine.info.batch_invariant) == (False, False)
        assert 320 <= engine.info.cells < 4 * 256
        assert (await engine.stats()).speculation != NOT_SET_UP


async def test_a_batch_invariant_engine_splits_its_cache_and_looks_prompts_up(
    spec_of: Callable[..., EngineSpec],
) -> None:
    async with await Engine.start(spec_of(file="small.gguf", batch_invariant="true")) as engine:
        assert (engine.info.split_cache, engine.info.batch_invariant) == (True, True)
        assert (await engine.stats()).speculation == NOT_SET_UP
    async with await Engine.start(spec_of(prompt_lookup="{ngram: 4, k: 7}", split="false")) as engine:
        assert (engine.info.split_cache, engine.info.batch_invariant) == (False, False)
        assert (await engine.stats()).speculation != NOT_SET_UP


async def test_an_adapter_changes_what_is_said(spec_of: Callable[..., EngineSpec]) -> None:
    said, request = set(), Generation(messages=(Message("user", "hello"),), max_tokens=40)
    for scale in (None, 0.5, 2.0):
        options = {} if scale is None else {"lora": f"[{{file: adapter.gguf, scale: {scale}}}]"}
        async with await Engine.start(spec_of(file="small.gguf", **options)) as engine:
            said.add((await engine.generate(request)).text)
    assert len(said) == 3


async def test_the_adapter_of_a_role_is_for_its_requests_only(folder: Path) -> None:
    (folder / "registry.yaml").write_text(
        "models: {m: {file: small.gguf, context: 256, threads: 1, batch_invariant: true}}\n"
        "roles: {w: {model: m, tier: C}, plans: {model: m, tier: A, lora: [{file: adapter.gguf}]}}\n"
    )
    registry = load_registry(folder / "registry.yaml")
    spec = engine_spec(registry.models["m"], 1, Replica(("m", 0)), FLAT, folders=Folders(folder))
    assert spec.adapters == (str(folder / "adapter.gguf"),)
    messages = (Message("user", "hello"),)
    async with await Engine.start(spec) as engine:
        said = [
            (await engine.generate(resolve_role(registry, role).request(messages, max_tokens=40))).text
            for role in ("w", "plans", "w")
        ]
    assert said[0] == said[2] != said[1]


@pytest.mark.parametrize(("asked", "told"), [("on", "enabled"), ("off", "disabled")])
async def test_flash_attention_is_as_asked_for(spec_of: Callable[..., EngineSpec], asked: str, told: str) -> None:
    log, *_ = await _loaded(spec_of(flash_attention=asked))
    assert re.search(rf"flash_attn\s+= {told}", log)


async def test_attention_keeps_its_scores_where_sequences_are_long(spec_of: Callable[..., EngineSpec]) -> None:
    for context, batch_invariant, kept in (("512", "false", False), ("1024", "false", True), ("1024", "true", False)):
        log, *_ = await _loaded(spec_of(context=context, batch_invariant=batch_invariant))
        asked = re.findall(r"flash_attn\s+= (\w+)", log)[-1]
        assert (asked == "disabled") is kept, (context, batch_invariant)


async def test_weights_are_mapped_or_read_and_locked_as_asked_for(spec_of: Callable[..., EngineSpec]) -> None:
    for mmap in (True, False):
        _, status, maps, _ = await _loaded(spec_of(mmap=str(mmap).lower()))
        assert any(path.endswith("experts.gguf") for path in maps) == mmap
        assert re.search(r"VmLck:\s+0 kB", status)
    log, status, *_ = await _loaded(spec_of(mlock="true"))
    assert not re.search(r"VmLck:\s+0 kB", status) or "failed to mlock" in log


async def test_the_build_of_llama_cpp_is_the_one_that_is_named(
    spec_of: Callable[..., EngineSpec], tmp_path: Path
) -> None:
    build = copied(tmp_path / "build")
    *_, maps, _ = await _loaded(spec_of(llama_library=str(build)))
    assert {Path(path).parent for path in maps if Path(path).name.startswith("libllama")} == {build}


@pytest.mark.parametrize("experts", [1, 4])
async def test_so_many_experts_are_used(spec_of: Callable[..., EngineSpec], experts: int) -> None:
    log, *_ = await _loaded(spec_of(experts=str(experts)))
    assert re.findall(r"n_expert_used\s+= (\d+)", log)[-1] == str(experts)


async def test_so_many_threads_compute(spec_of: Callable[..., EngineSpec]) -> None:
    assert (await _loaded(spec_of(threads="2")))[-1] == 2
    assert (await _loaded(spec_of(threads="1")))[-1] == 1
