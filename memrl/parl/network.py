"""Define the Llama model in PyTorch: RMSNorm, rotary positions, SwiGLU. Several heads may share keys and values."""

from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orchestrator.memrl.parl.shape import NetworkShape, shape_of
from orchestrator.memrl.parl.weights import BLOCK_NAMES, gguf_name, halved, is_interleaved, read_pairs

SMALLEST_BLOCK = 128
MOST_BLOCKS = 8


def rotary_table(shape: NetworkShape) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [context, head / 2] of the rotary angles (Su et al. 2021, section 3.2.2)."""
    head = shape.width // shape.heads
    frequencies = shape.rope_base ** (-torch.arange(0, head, 2).float() / head)
    angles = torch.outer(torch.arange(shape.context).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate `x` [rows, heads, length, head] with split halves; the export interleaves them."""
    other = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * torch.cat((cosine, cosine), dim=-1) + other * torch.cat((-sine, sine), dim=-1)).type_as(x)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention of [rows, heads, length, head] each, softmax(q·k ÷ √head)·v.

    Where there are fewer queries than keys, they are of the last positions.

    For the compiler it is plain matrix products, block by block: where heads are small, PyTorch's own kernel takes
    twice as long on a CPU. Sums are divided by at the end, of few numbers.
    """
    if (earlier := key.shape[2] - query.shape[2]) > 0:
        visible = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril(earlier)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
    if not torch.compiler.is_compiling():
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    length = query.shape[2]
    block = max(SMALLEST_BLOCK, -(-length // MOST_BLOCKS))
    query = query * query.shape[-1] ** -0.5
    position = torch.arange(length, dtype=torch.int32)
    mixed = []
    for start in range(0, length, block):
        end = min(start + block, length)
        scores = query[:, :, start:end] @ key[:, :, :end].transpose(-1, -2)
        scores = scores.masked_fill(position[None, :end] > position[start:end, None], -torch.inf)
        shares = (scores - scores.amax(-1, keepdim=True).detach()).exp()
        mixed.append((shares @ value[:, :, :end]) / shares.float().sum(-1, keepdim=True))
    return torch.cat(mixed, dim=2).type_as(value)


class TransformerBlock(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """A transformer block: attention, then SwiGLU, each with a residual connection."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        shared = shape.width // shape.heads * shape.kv_heads
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.query = nn.Linear(shape.width, shape.width, bias=shape.biased)
        self.key = nn.Linear(shape.width, shared, bias=shape.biased)
        self.value = nn.Linear(shape.width, shared, bias=shape.biased)
        self.output = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Map [rows, length, width] to the same shape; each position sees itself and the earlier ones."""
        return self._mapped(x, attend(*self._heads(x, cosine, sine)))

    def after(self, prefix: Tensor, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
        """Map a prefix [1, places, width], and rows that all follow it and do not see each other."""
        rows, places = len(x), prefix.shape[1]
        query, *before = self._heads(prefix, cosine[:places], sine[:places])
        mapped = self._mapped(prefix, attend(query, *before))
        query, *own = self._heads(x, cosine[places:], sine[places:])
        keys, values = (
            torch.cat((shared.expand(rows, -1, -1, -1), part), dim=2) for shared, part in zip(before, own, strict=True)
        )
        return mapped, self._mapped(x, attend(query, keys, values))

    def _heads(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normed = self.attention_norm(x)
        head = x.shape[-1] // self.heads
        query, key, value = (
            part(normed).unflatten(-1, (-1, head)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        if self.kv_heads < self.heads:
            key, value = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value))
        return query, key, value

    def _mapped(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.feed_norm(x)
        mapped: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return mapped


class LlamaNetwork(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """Maps token ids [rows, length] to logits [rows, length, vocabulary]."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight
        cosine, sine = rotary_table(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 if name.startswith("embedding") else parameter.shape[1] ** -0.5
                nn.init.normal_(parameter, std=scale / 2 if name.endswith(("output.weight", "down.weight")) else scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the next token at each position."""
        logits: Tensor = self.head(self.states(ids))
        return logits

    def states(self, ids: Tensor) -> Tensor:
        """Return what the head reads at each position: [rows, length, width]."""
        x = self.embedding(ids)
        cosine, sine = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cosine, sine)
        states: Tensor = self.norm(x)
        return states

    def states_after(self, prefix: Tensor, ids: Tensor) -> Tensor:
        """Return the same of rows that begin with the same tokens [places], which are computed once for all of them.

        A group of GRPO has one prompt for all of its answers (Liu et al., 2025, "Prefix Grouper").
        """
        shared, x = self.embedding(prefix[None]), self.embedding(ids)
        length = len(prefix) + ids.shape[1]
        cosine, sine = self.cosine[:length], self.sine[:length]
        for block in self.blocks:
            shared, x = block.after(shared, x, cosine, sine)
        states: Tensor = self.norm(x)
        return states


def read_weights(network: LlamaNetwork, file: Path) -> None:
    """Take the weights of a GGUF file. If the file knows fewer tokens, those of further tokens stay as they are."""
    tensors = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors
    }
    turned = {"query": network.shape.heads, "key": network.shape.kv_heads} if is_interleaved(file) else {}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            array = tensors[gguf_name(name)].astype(np.float32)
            if (part := name.split(".")[-2]) in turned:
                array = halved(array, turned[part])
            parameter[: len(array)] = torch.from_numpy(array)


def add_adapter(network: LlamaNetwork, file: Path, model: Path, scale: float) -> None:
    """Add the LoRA weights in a GGUF file to the weights of the network of a model, which so computes with them."""
    pairs, alpha = read_pairs(file, model)
    names = {written: name for name, written in BLOCK_NAMES.items()}
    with torch.no_grad():
        for (layer, projection), (a, b) in pairs.items():
            weight = getattr(network.blocks[layer], names[projection]).weight
            weight += scale * alpha / len(a) * torch.from_numpy(b) @ torch.from_numpy(a)


def load_network(file: Path) -> LlamaNetwork:
    """Return the model of a GGUF file. Raises what `shape_of` raises."""
    network = LlamaNetwork(shape_of(file))
    read_weights(network, file)
    return network
