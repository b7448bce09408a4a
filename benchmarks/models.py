"""Write GGUF models of any size with random weights, which llama.cpp loads like others, and whose text has no meaning.

They are for tests and for benchmarks of speed, where only shapes matter. The vocabulary is byte-level as in GPT-2: 256
bytes, merged letters up to `ModelShape.vocabulary`, then the special tokens of ChatML.
"""

import itertools
import string
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Draw = Callable[[str, int, int], Matrix]  # returns the weights of a tensor by its name, rows and columns
Value = bool | int | float | Sequence[bool] | Sequence[int]  # of the metadata of a file
Merges = Sequence[tuple[str, str]]  # pairs of tokens that are merged into one, in the order of their priority

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The dimensions of a Llama-like model."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 128
    vocabulary: int = 512
    context: int = 2048
    weights: str = "q8_0"  # the type of the weights: f32, f16, q8_0 or q4_0
    chat_template: str | None = CHATML
    # The standard deviation of the weights, before division by the square root of a row's length; with larger weights
    # the logits lie further apart.
    scale: float = 1.0
    # Further tokens that are spelled like this: user-defined ones, as `<think>` is in most models.
    marks: tuple[str, ...] = ()
    control_marks: bool = False  # whether `marks` are control tokens instead, which have no text
    # For a model that embeds, how the vectors of the tokens are combined: mean, cls, last or rank.
    pooling: str | None = None


def _begun(path: Path, architecture: str, shape: ModelShape) -> gguf.GGUFWriter:
    """Return the writer of a model with the metadata of its shape that all architectures have."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    return writer


def add_value(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    """Add metadata as llama.cpp reads it: whole numbers as U32, others as F32."""
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case _:
            writer.add_array(key, value)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write everything to the file, and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama(
    path: Path, shape: ModelShape, seed: int = 0, *, draw: Draw | None = None, merges: Merges | None = None
) -> Path:
    """Write a model of architecture `llama`, and return its path.

    Its weights are random numbers from `seed`, or what `draw` returns. Its vocabulary is bytes and merged letters, or
    bytes and `merges`.
    """
    writer = _begun(path, "llama", shape)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    _add_pooling(writer, shape)
    tensors = _Tensors(writer, shape, seed, draw=draw, merges=merges)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer in range(shape.layers):
        tensors.add_attention(f"blk.{layer}")
        tensors.add_feed_forward(f"blk.{layer}")
    return tensors.written(path)


def write_chain(path: Path, follows: Mapping[str, str], shape: ModelShape, seed: int = 0) -> Path:
    """Write a model of architecture `llama` whose next token depends on the last one alone, and return its path.

    `follows` says which token follows on which, each spelled as text. So it is known what the model writes.
    """
    names = [*byte_letters(), *map("".join, _letters(shape)), *shape.marks, *SPECIAL]
    ids = {name: number for number, name in enumerate(names)}
    embedded = np.random.default_rng(seed).standard_normal((shape.vocabulary, shape.width), dtype=np.float32)
    output = np.zeros_like(embedded)
    for before, after in follows.items():
        output[ids[_spelled(after, ids)]] += embedded[ids[_spelled(before, ids)]]

    def draw(name: str, rows: int, columns: int) -> Matrix:
        match name:
            case "token_embd.weight":
                return embedded
            case "output.weight":
                return output
        return np.zeros((rows, columns), dtype=np.float32)

    return write_llama(path, shape, draw=draw)


def _spelled(text: str, names: Container[str]) -> str:
    """Return how a token is spelled in the vocabulary, given its text."""
    letters = byte_letters()
    return text if text in names else "".join(letters[byte] for byte in text.encode())


def write_mamba(
    path: Path, shape: ModelShape, seed: int = 0, *, state: int = 8, kernel: int = 4, draw: Draw | None = None
) -> Path:
    """Write a state-space model of architecture `mamba` (Gu and Dao 2023), and return its path.

    Weights are as in `write_llama`.

    It ignores the heads and the feed-forward part of `shape`. Each channel keeps a state of `state` numbers, and its
    convolution covers `kernel` tokens.
    """
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_name(path.stem)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    tensors = _Tensors(writer, shape, seed, draw=draw)
    layers = _MambaLayers(tensors, writer, shape, state, kernel)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer in range(shape.layers):
        layers.add(f"blk.{layer}")
    return tensors.written(path)


def write_jamba(
    path: Path,
    shape: ModelShape,
    seed: int = 0,
    *,
    state: int = 8,
    kernel: int = 4,
    experts: int = 0,
    draw: Draw | None = None,
) -> Path:
    """Write a hybrid of architecture `jamba` (Lieber et al. 2024), and return its path.

    Weights are as in `write_llama`.

    Its layers are recurrent, as those of `write_mamba`, and attend in turns. With `experts`, two of them are used per
    token.
    """
    kv_heads = [shape.kv_heads * (layer % 2) for layer in range(shape.layers)]
    writer = _begun(path, "jamba", shape)
    writer.add_head_count_kv(kv_heads)
    tensors = _Tensors(writer, shape, seed, experts, draw)
    layers = _MambaLayers(tensors, writer, shape, state, kernel)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer, heads in enumerate(kv_heads):
        block = f"blk.{layer}"
        if heads:
            tensors.add_attention(block)
        else:
            layers.add(block, normed=True)
        tensors.add_feed_forward(block)
    return tensors.written(path)


def write_lfm2(
    path: Path,
    shape: ModelShape,
    seed: int = 0,
    *,
    kernel: int = 3,
    window: int = 0,
    experts: int = 0,
    draw: Draw | None = None,
    merges: Merges | None = None,
) -> Path:
    """Write a hybrid of architecture `lfm2` or, with `experts`, `lfm2moe`, and return its path.

    Weights and vocabulary are as in `write_llama`.

    Convolutions of `kernel` tokens and attention take turns. `window` is how many tokens the attention layers see;
    llama.cpp takes no window with experts. Two experts are used per token.
    """
    assert not (window and experts), "lfm2moe has no window"
    kv_heads = [shape.kv_heads * (layer % 2) for layer in range(shape.layers)]
    writer = _begun(path, "lfm2moe" if experts else "lfm2", shape)
    writer.add_head_count_kv(kv_heads)
    writer.add_shortconv_l_cache(kernel)
    if window:
        writer.add_sliding_window(window)
    if experts:
        writer.add_leading_dense_block_count(0)
        writer.add_expert_feed_forward_length(shape.feed_forward)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    tensors = _Tensors(writer, shape, seed, experts, draw, merges)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer, heads in enumerate(kv_heads):
        block = f"blk.{layer}"
        if heads:
            tensors.add_attention(block)
            tensors.add_head_norms(block)
        else:
            tensors.constant(f"{block}.attn_norm.weight", 1.0, count=shape.width)
            tensors.matrix(f"{block}.shortconv.conv.weight", shape.width, kernel, "f32")
            tensors.matrix(f"{block}.shortconv.in_proj.weight", 3 * shape.width, shape.width)
            tensors.matrix(f"{block}.shortconv.out_proj.weight", shape.width, shape.width)
        tensors.add_feed_forward(block)
        if experts:
            tensors.constant(f"{block}.exp_probs_b.bias", 0.0, count=experts)
    return tensors.written(path, norm="token_embd_norm")


def write_qwen35(
    path: Path,
    shape: ModelShape,
    seed: int = 0,
    *,
    state: int = 16,
    kernel: int = 4,
    experts: int = 0,
    mtp: bool = False,
    draw: Draw | None = None,
) -> Path:
    """Write a hybrid of architecture `qwen35` or, with `experts`, `qwen35moe`, and return its path.

    Layers with a gated delta rule (Yang et al. 2025), whose heads have states of `state` x `state` numbers, and with
    attention take turns. With `experts`, two of them and a shared one are used per token. `mtp` adds an MTP head after
    the `shape.layers` layers.
    """
    architecture = "qwen35moe" if experts else "qwen35"
    writer = _begun(path, architecture, replace(shape, layers=shape.layers + mtp))
    writer.add_head_count_kv(shape.kv_heads)
    half = shape.width // shape.heads // 2
    writer.add_rope_dimension_sections([half - half // 2, half // 2, 0, 0])
    writer.add_uint32(f"{architecture}.full_attention_interval", 2)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(shape.kv_heads)
    writer.add_ssm_time_step_rank(shape.heads)
    writer.add_ssm_inner_size(shape.heads * state)
    if mtp:
        writer.add_nextn_predict_layers(1)
    if experts:
        writer.add_expert_feed_forward_length(shape.feed_forward)
        writer.add_expert_shared_feed_forward_length(shape.feed_forward)
    tensors = _Tensors(writer, shape, seed, experts, draw)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer in range(shape.layers + mtp):
        block = f"blk.{layer}"
        if layer % 2 or layer == shape.layers:
            tensors.add_attention(block, gated=True)
        else:
            tensors.add_delta_rule(block, state, kernel)
        tensors.add_feed_forward(block, norm="post_attention_norm", shared=bool(experts))
    if mtp:
        head = f"blk.{shape.layers}.nextn"
        tensors.matrix(f"{head}.eh_proj.weight", shape.width, 2 * shape.width)
        for name in ("enorm", "hnorm"):
            tensors.constant(f"{head}.{name}.weight", 1.0, count=shape.width)
    return tensors.written(path)


def write_windowed(
    path: Path,
    shape: ModelShape,
    seed: int = 0,
    *,
    window: int,
    experts: int = 0,
    draw: Draw | None = None,
    merges: Merges | None = None,
) -> Path:
    """Write a model with sliding windows, of architecture `granite_swa`, and return its path.

    Weights and vocabulary are as in `write_llama`.

    Its layers attend to `window` tokens and to all tokens in turns. With `experts`, two of them are used per token.
    """
    writer = _begun(path, "granite_swa", shape)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_logit_scale(1.0)
    writer.add_sliding_window(window)
    writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(shape.layers)])
    tensors = _Tensors(writer, shape, seed, experts, draw, merges)
    tensors.matrix("token_embd.weight", shape.vocabulary, shape.width)
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        tensors.add_attention(block)
        tensors.constant(f"{block}.attn_sinks.weight", 0.0, count=shape.heads)
        tensors.add_feed_forward(block)
    return tensors.written(path)


class _Tensors:
    """Adds the vocabulary and tensors of a model to its writer. Two `experts` are used per token."""

    def __init__(
        self,
        writer: gguf.GGUFWriter,
        shape: ModelShape,
        seed: int,
        experts: int = 0,
        draw: Draw | None = None,
        merges: Merges | None = None,
    ) -> None:
        self._writer = writer
        self._shape = shape
        self._weights = draw or _random(seed, shape.scale)
        self._experts = experts
        if experts:
            writer.add_expert_count(experts)
            writer.add_expert_used_count(2)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(shape.vocabulary)
        add_vocabulary(writer, shape, merges)

    def matrix(self, name: str, rows: int, columns: int, kind: str = "", *, stacked: int = 0) -> None:
        values = self._weights(name, rows * max(1, stacked), columns)
        weights = values.reshape(stacked, rows, columns) if stacked else values
        raw_type = _TYPES[kind or self._shape.weights]
        self._writer.add_tensor(name, gguf.quants.quantize(weights, raw_type), raw_dtype=raw_type)

    def constant(self, name: str, *values: float, count: int) -> None:
        repeated = np.tile(np.array(values, dtype=np.float32), (count, 1) if len(values) > 1 else count)
        self._writer.add_tensor(name, repeated)

    def add_attention(self, block: str, *, gated: bool = False) -> None:
        """Add a layer with attention. If it is `gated`, each head has a gate, and its queries and keys are normed."""
        width, head = self._shape.width, self._shape.width // self._shape.heads
        kv_width = head * self._shape.kv_heads
        self.constant(f"{block}.attn_norm.weight", 1.0, count=width)
        for name, rows in (("q", width * (1 + gated)), ("k", kv_width), ("v", kv_width), ("output", width)):
            self.matrix(f"{block}.attn_{name}.weight", rows, width)
        if gated:
            self.add_head_norms(block)

    def add_head_norms(self, block: str) -> None:
        for name in ("q", "k"):
            self.constant(f"{block}.attn_{name}_norm.weight", 1.0, count=self._shape.width // self._shape.heads)

    def add_delta_rule(self, block: str, state: int, kernel: int) -> None:
        width, heads = self._shape.width, self._shape.heads
        keys, values = state * self._shape.kv_heads, state * heads
        self.constant(f"{block}.attn_norm.weight", 1.0, count=width)
        self.matrix(f"{block}.attn_qkv.weight", 2 * keys + values, width)
        self.matrix(f"{block}.attn_gate.weight", values, width)
        self.matrix(f"{block}.ssm_conv1d.weight", 2 * keys + values, kernel, "f32")
        self.constant(f"{block}.ssm_dt.bias", -2.0, count=heads)
        self.constant(f"{block}.ssm_a", -1.0, count=heads)
        for name in ("alpha", "beta"):
            self.matrix(f"{block}.ssm_{name}.weight", heads, width)
        self.constant(f"{block}.ssm_norm.weight", 1.0, count=state)
        self.matrix(f"{block}.ssm_out.weight", width, values)

    def add_feed_forward(self, block: str, *, norm: str = "ffn_norm", shared: bool = False) -> None:
        """Add the norm of this name and a feed-forward part, with a `shared` expert next to the others."""
        width, inner, experts = self._shape.width, self._shape.feed_forward, self._experts
        suffix = "_exps" if experts else ""
        self.constant(f"{block}.{norm}.weight", 1.0, count=width)
        if shared:
            self.constant(f"{block}.ffn_gate_inp_shexp.weight", 0.0, count=width)
            for name, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
                self.matrix(f"{block}.ffn_{name}_shexp.weight", rows, columns)
        if experts:
            self.matrix(f"{block}.ffn_gate_inp.weight", experts, width, "f32")
        self.matrix(f"{block}.ffn_gate{suffix}.weight", inner, width, stacked=experts)
        self.matrix(f"{block}.ffn_up{suffix}.weight", inner, width, stacked=experts)
        self.matrix(f"{block}.ffn_down{suffix}.weight", width, inner, stacked=experts)

    def written(self, path: Path, norm: str = "output_norm") -> Path:
        """Add the output, and write everything to the file. `norm` is the name of the norm before the output."""
        self.constant(f"{norm}.weight", 1.0, count=self._shape.width)
        self.matrix("output.weight", self._shape.vocabulary, self._shape.width)
        finish(self._writer)
        return path


class _MambaLayers:
    """Adds the metadata and tensors of layers as in Mamba to a model."""

    def __init__(self, tensors: _Tensors, writer: gguf.GGUFWriter, shape: ModelShape, state: int, kernel: int) -> None:
        self._tensors = tensors
        self._width = shape.width
        self._state = state
        self._kernel = kernel
        self._inner, self._rank = 2 * shape.width, max(1, shape.width // 16)
        writer.add_ssm_conv_kernel(kernel)
        writer.add_ssm_inner_size(self._inner)
        writer.add_ssm_state_size(state)
        writer.add_ssm_time_step_rank(self._rank)

    def add(self, block: str, *, normed: bool = False) -> None:
        tensors, width, inner, rank, state = self._tensors, self._width, self._inner, self._rank, self._state
        tensors.constant(f"{block}.attn_norm.weight", 1.0, count=width)
        tensors.matrix(f"{block}.ssm_in.weight", 2 * inner, width)
        tensors.matrix(f"{block}.ssm_conv1d.weight", inner, self._kernel, "f32")
        tensors.constant(f"{block}.ssm_conv1d.bias", 0.0, count=inner)
        tensors.matrix(f"{block}.ssm_x.weight", rank + 2 * state, inner)
        tensors.matrix(f"{block}.ssm_dt.weight", inner, rank, "f32")
        tensors.constant(f"{block}.ssm_dt.bias", -2.0, count=inner)
        if normed:
            for name, count in (("dt", rank), ("b", state), ("c", state)):
                tensors.constant(f"{block}.ssm_{name}_norm.weight", 1.0, count=count)
        tensors.constant(f"{block}.ssm_a", *(-float(n) for n in range(1, state + 1)), count=inner)
        tensors.constant(f"{block}.ssm_d", 1.0, count=inner)
        tensors.matrix(f"{block}.ssm_out.weight", width, inner)


def write_bert(path: Path, shape: ModelShape, seed: int = 0) -> Path:
    """Write a model of architecture `bert` (Devlin et al. 2018), random from `seed`, and return its path.

    It embeds texts and cannot generate. Its weights are F32, and its tokens are the lower-case letters at the start of
    a word and inside it.
    """
    weights = _random(seed, shape.scale)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁{letter}" for letter in string.ascii_lowercase)]
    tokens += string.ascii_lowercase
    writer = _begun(path, "bert", shape)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    _add_pooling(writer, shape)
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(2)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * (len(tokens) - 5))
    for number, add in enumerate((writer.add_pad_token_id, writer.add_unk_token_id, writer.add_bos_token_id)):
        add(number)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, weights(name, rows, columns).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, dtype=np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(shape.width, dtype=np.float32))

    matrix("token_embd.weight", len(tokens), shape.width)
    matrix("position_embd.weight", shape.context, shape.width)
    norm("token_embd_norm")
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"{block}.{name}.weight", shape.width, shape.width)
        norm(f"{block}.attn_output_norm")
        matrix(f"{block}.ffn_up.weight", shape.feed_forward, shape.width)
        matrix(f"{block}.ffn_down.weight", shape.width, shape.feed_forward)
        norm(f"{block}.layer_output_norm")
    if shape.pooling == "rank":
        matrix("cls.weight", shape.width, shape.width)
        writer.add_tensor("cls.bias", np.zeros(shape.width, dtype=np.float32))
        matrix("cls.output.weight", 1, shape.width)
        writer.add_tensor("cls.output.bias", np.zeros(1, dtype=np.float32))
    finish(writer)
    return path


def write_adapter(path: Path, width: int, rank: int = 4, seed: int = 0) -> Path:
    """Write a LoRA adapter for two matrices of a Llama-like model with at least two layers, and return its path."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for part, shape in (("a", (rank, width)), ("b", (width, rank))):
        for name in ("blk.0.attn_q", "blk.1.attn_output"):
            writer.add_tensor(f"{name}.weight.lora_{part}", rng.standard_normal(shape, dtype=np.float32))
    finish(writer)
    return path


def _random(seed: int, scale: float) -> Draw:
    rng = np.random.default_rng(seed)

    def draw(_: str, rows: int, columns: int) -> Matrix:
        values: Matrix = rng.standard_normal((rows, columns), dtype=np.float32) * (scale / np.sqrt(columns))
        return values

    return draw


def _add_pooling(writer: gguf.GGUFWriter, shape: ModelShape) -> None:
    if shape.pooling is not None:
        writer.add_pooling_type(gguf.PoolingType[shape.pooling.upper()])


def _merged_tokens(shape: ModelShape) -> int:
    """Return how many tokens are neither bytes nor special tokens."""
    return shape.vocabulary - 256 - len(shape.marks) - len(SPECIAL)


def _letters(shape: ModelShape) -> Merges:
    pairs = itertools.product(string.ascii_lowercase, repeat=2)
    triples = itertools.product(string.ascii_lowercase, repeat=3)
    merged = itertools.islice(itertools.chain(pairs, triples), _merged_tokens(shape))
    return [("".join(letters[:-1]), letters[-1]) for letters in merged]


def add_vocabulary(writer: gguf.GGUFWriter, shape: ModelShape, merges: Merges | None = None) -> None:
    """Write the vocabulary of a shape: bytes, `merges` or merged letters, and the special tokens of ChatML."""
    merges = _letters(shape) if merges is None else merges
    normal = [*byte_letters(), *(left + right for left, right in merges)]
    fill = [f"<unused{n}>" for n in range(_merged_tokens(shape) - len(merges))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*normal, *fill, *shape.marks, *SPECIAL])
    kinds = [gguf.TokenType.NORMAL] * len(normal) + [gguf.TokenType.UNUSED] * len(fill)
    kinds += [gguf.TokenType.CONTROL if shape.control_marks else gguf.TokenType.USER_DEFINED] * len(shape.marks)
    writer.add_token_types([*kinds, *[gguf.TokenType.CONTROL] * len(SPECIAL)])
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(shape.vocabulary - 3)
    writer.add_eos_token_id(shape.vocabulary - 3)
    writer.add_eot_token_id(shape.vocabulary - 1)
    writer.add_add_bos_token(False)
    if shape.chat_template is not None:
        writer.add_chat_template(shape.chat_template)


def byte_letters() -> list[str]:
    """Return the printable character that stands for each byte in GPT-2's vocabulary, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
