"""Define the Llama model in PyTorch: RMSNorm, rotary positions, SwiGLU, no biases, untied head."""

from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orchestrator.memrl.parl.shape import NetworkShape, shape_of
from orchestrator.memrl.parl.weights import BLOCK_NAMES, gguf_name, halved, read_pairs

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

    For the compiler it is plain matrix products, block by block: where heads are small, PyTorch's own kernel takes
    twice as long on a CPU. Sums are divided by at the end, of few numbers.
    """
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
        self.heads = shape.heads
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.value = nn.Linear(shape.width, shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Map [rows, length, width] to the same shape; each position sees itself and the earlier ones."""
        rows, length, width = x.shape
        normed = self.attention_norm(x)
        by_head = (rows, length, self.heads, width // self.heads)
        query, key, value = (part(normed).view(by_head).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = attend(query, key, value)
        x = x + self.output(mixed.transpose(1, 2).reshape(rows, length, width))
        normed = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class LlamaNetwork(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """Maps token ids [rows, length] to logits [rows, length, vocabulary]."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        cosine, sine = rotary_table(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 if name.startswith("embedding") else parameter.shape[1] ** -0.5
                nn.init.normal_(parameter, std=scale / 2 if name.endswith(("output.weight", "down.weight")) else scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the next token at each position."""
        x = self.embedding(ids)
        cosine, sine = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cosine, sine)
        logits: Tensor = self.head(self.norm(x))
        return logits


def read_weights(network: LlamaNetwork, file: Path, heads: int) -> None:
    """Take the weights of a GGUF file. If the file knows fewer tokens, those of further tokens stay as they are."""
    tensors = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors
    }
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            array = tensors[gguf_name(name)].astype(np.float32)
            if ".query." in name or ".key." in name:
                array = halved(array, heads)
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
    shape = shape_of(file)
    network = LlamaNetwork(shape)
    read_weights(network, file, shape.heads)
    return network
