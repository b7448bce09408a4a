from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import psutil
import pytest

from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry

CONTEXT = 512
SPECIAL = ("<|begin|>", "<|user|>", "<|end|>")
TEMPLATE = "<|begin|>{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|end|>"
LoadedRegistry = Callable[..., Registry]


def _byte_tokens() -> list[str]:
    """The 256 tokens of GPT-2's byte-level alphabet."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(rest)}
    return [names[byte] for byte in range(256)]


def write_random_model(path: Path, width: int = 64, layers: int = 2, heads: int = 2) -> Path:
    """Write a Llama model that llama.cpp really loads; its weights are random, and so is what it says."""
    tokens = [*_byte_tokens(), *SPECIAL, "th"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_block_count(layers)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(258)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(7)
    shapes = {"token_embd.weight": (len(tokens), width), "output.weight": (len(tokens), width)}
    for layer in range(layers):
        shapes |= {f"blk.{layer}.attn_{name}.weight": (width, width) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{layer}.ffn_{name}.weight": (2 * width, width) for name in ("gate", "up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (width, 2 * width)
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(0, 0.2, shape).astype(np.float32))
    norms = ["output_norm.weight", *(f"blk.{n}.{part}_norm.weight" for n in range(layers) for part in ("attn", "ffn"))]
    for name in norms:
        writer.add_tensor(name, np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert not left


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture
def registry_of(tmp_path: Path, model_file: Path) -> LoadedRegistry:
    """Load a registry of models that are links to one real file; each is given as its id and its residency.

    `options` are further keys of every model, `defaults` of the defaults, as YAML. One thread each: ggml's threads wait
    for each other by spinning, which on a busy machine takes seconds a token.
    """

    def load(
        *, file: Path | None = None, threads: int | None = 1, options: str = "", defaults: str = "", **residencies: str
    ) -> Registry:
        if threads is not None:
            options = f"threads: {threads}, {options}"
        lines = [f"defaults: {{context: 256, slots: 4, {defaults}}}", "models:"]
        for name, residency in residencies.items():
            own = tmp_path / f"{name}.gguf"
            if file is None and not own.exists():
                own.symlink_to(model_file)
            lines.append(f"  {name}: {{file: '{file or own}', residency: {residency}, {options}}}")
        lines += ["roles:", f"  worker: {{model: {next(iter(residencies))}, tier: C}}"]
        path = tmp_path / "model_registry.yaml"
        path.write_text("\n".join(lines))
        return load_registry(path)

    return load
