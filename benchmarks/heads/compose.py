"""Put an MTP head on an embedded model, as a GGUF file of architecture `glm4moe`, and make the model larger.

Dense GLM-4.5 is Llama with the rotary halves of a head one after the other, and llama.cpp computes its MTP head. The
weights of the trunk stay as they are, so the text does, too. It also stays with more layers that add nothing: such a
model writes what the embedded one writes, at the speed of a larger one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import gguf
import numpy as np
from numpy.typing import NDArray

from benchmarks.models import finish
from benchmarks.tiny.sizes import SIZES
from orchestrator.memrl.parl.weights import halved

ARCHITECTURE = "glm4moe"
# llama.cpp wants experts in the head. The shared one is the feed-forward network, and a single routed one adds little.
ROUTED_WIDTH = 32
FOLDER = Path(__file__).parent
# How many layers the larger model has. Its 33 million weights do not fit into the cache of a core.
DEEP: Final = 60

Tensors = dict[str, NDArray[np.float32]]


def head_shapes(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a head's tensors, by name, rows first."""
    square = (width, width)
    return {
        "nextn.enorm": (width,),
        "nextn.hnorm": (width,),
        "nextn.eh_proj": (width, 2 * width),
        "nextn.shared_head_norm": (width,),
        "attn_norm": (width,),
        "attn_q": square,
        "attn_k": square,
        "attn_v": square,
        "attn_output": square,
        "post_attention_norm": (width,),
        "ffn_gate_shexp": (hidden, width),
        "ffn_up_shexp": (hidden, width),
        "ffn_down_shexp": (width, hidden),
    }


def headed(size: str, folder: Path, layers: int = 0) -> Path:
    """Return the file in a folder of an embedded model with its trained head; it is written unless it is there.

    With `layers`, it has that number of layers, and only its own layers change anything.
    """
    head = read_head(head_file(size))
    trunk = deepened(size, folder, layers) if layers else SIZES[size].shipped
    digest = crc32(b"".join(head[name].tobytes() for name in sorted(head)), crc32(trunk.read_bytes()))
    return _written(folder / f"{trunk.stem}-mtp-{digest:08x}.gguf", partial(compose, trunk, head))


def deepened(size: str, folder: Path, layers: int) -> Path:
    """Return the file in a folder of an embedded model with more layers; it is written unless it is there.

    The further layers come last, and add zero to what they get.
    """
    trunk = SIZES[size].shipped
    file = folder / f"{size}-{layers}-layers-{crc32(trunk.read_bytes()):08x}.gguf"
    return _written(file, partial(_deepen, trunk, layers))


def _written(file: Path, write: Callable[[Path], None]) -> Path:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        write(unfinished)
        unfinished.replace(file)
    return file


def _deepen(trunk: Path, layers: int, target: Path) -> None:
    reader = gguf.GGUFReader(trunk)
    own = reader.fields["llama.block_count"].contents()
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            _copy(writer, name, layers if name == "llama.block_count" else field.contents(), field)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    last = f"blk.{own - 1}."
    for number in range(own, layers):
        for tensor in reader.tensors:
            if tensor.name.startswith(last):
                adds = tensor.name.endswith((".attn_output.weight", ".ffn_down.weight"))
                data = np.zeros_like(tensor.data) if adds else tensor.data
                name = tensor.name.replace(last, f"blk.{number}.", 1)
                writer.add_tensor(name, data, raw_dtype=tensor.tensor_type)
    finish(writer)


def _copy(writer: gguf.GGUFWriter, key: str, value: Any, field: gguf.ReaderField) -> None:
    writer.add_key_value(key, value, field.types[0], field.types[1] if len(field.types) > 1 else None)


def head_file(size: str) -> Path:
    """Return the file of the trained head for a size of the embedded models."""
    return FOLDER / f"{size}.gguf"


def write_head(head: Tensors, file: Path) -> None:
    """Write the tensors of a head, as `compose` does."""
    writer = gguf.GGUFWriter(file, ARCHITECTURE)
    for name, weights in head.items():
        add(writer, name, weights)
    finish(writer)


def read_head(file: Path) -> Tensors:
    """Return the tensors that `write_head` wrote."""
    return {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors}


def random_head(width: int, hidden: int, seed: int = 0) -> Tensors:
    """Return a head that drafts at random."""
    rng = np.random.default_rng(seed)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
        for name, shape in head_shapes(width, hidden).items()
    }


def compose(trunk: Path, head: Tensors, target: Path) -> None:
    """Write the model `trunk`, of architecture `llama`, with a head to `target`."""
    reader = gguf.GGUFReader(trunk)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    layers, width = fields["llama.block_count"], fields["llama.embedding_length"]
    heads = fields["llama.attention.head_count"]
    writer = gguf.GGUFWriter(target, ARCHITECTURE)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        key = name.replace("llama.", f"{ARCHITECTURE}.", 1) if name.startswith("llama.") else name
        value = layers + 1 if name == "llama.block_count" else field.contents()
        _copy(writer, key, value, field)
    writer.add_uint32(f"{ARCHITECTURE}.nextn_predict_layers", 1)
    writer.add_leading_dense_block_count(layers)
    writer.add_expert_count(1)
    writer.add_expert_used_count(1)
    writer.add_expert_feed_forward_length(ROUTED_WIDTH)
    hidden = head["ffn_gate_shexp"].shape[0]
    writer.add_expert_shared_count(hidden // ROUTED_WIDTH)
    for tensor in reader.tensors:
        name, data = tensor.name.replace(".ffn_norm.", ".post_attention_norm."), tensor.data
        if ".attn_q." in name or ".attn_k." in name:
            data = halved(data, heads)
        writer.add_tensor(name, data, raw_dtype=tensor.tensor_type)
    routed = {
        "exp_probs_b": np.zeros(1, np.float32),
        "ffn_gate_inp": np.zeros((1, width), np.float32),
        "ffn_gate_exps": np.zeros((1, ROUTED_WIDTH, width), np.float32),
        "ffn_up_exps": np.zeros((1, ROUTED_WIDTH, width), np.float32),
        "ffn_down_exps": np.zeros((1, width, ROUTED_WIDTH), np.float32),
    }
    for name, weights in (head | routed).items():
        kind = "bias" if name == "exp_probs_b" else "weight"
        add(writer, f"blk.{layers}.{name}.{kind}", weights)
    finish(writer)


def add(writer: gguf.GGUFWriter, name: str, weights: NDArray[np.float32]) -> None:
    """Add a matrix as Q8_0, and anything else as F32."""
    if weights.ndim == 1 or ".ffn_gate_inp." in name:
        writer.add_tensor(name, weights)
    else:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)
