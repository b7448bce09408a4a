"""Define the Llama model in PyTorch: RMSNorm, rotary positions, SwiGLU, no biases, untied head."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.tiny.sizes import CONTEXT, Size
from benchmarks.tiny.tokenizer import VOCABULARY_SIZE

ROPE_BASE = 10000.0
NORM_EPSILON = 1e-5


def rotary_table(head: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [CONTEXT, head / 2] of the rotary angles (Su et al. 2021, section 3.2.2)."""
    frequencies = ROPE_BASE ** (-torch.arange(0, head, 2).float() / head)
    angles = torch.outer(torch.arange(CONTEXT).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate `x` [rows, heads, length, head] with split halves; the export interleaves them."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, left * sine + right * cosine), dim=-1).type_as(x)


class Block(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """Attention, then SwiGLU, each added to what it read."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, size.width, bias=False)
        self.value = nn.Linear(size.width, size.width, bias=False)
        self.output = nn.Linear(size.width, size.width, bias=False)
        self.feed_norm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Map [rows, length, width] to the same shape; each position sees itself and the earlier ones."""
        rows, length, width = x.shape
        normed = self.attention_norm(x)
        shape = (rows, length, self.heads, width // self.heads)
        query, key, value = (part(normed).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(rows, length, width))
        normed = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """Maps token ids [rows, length] to logits [rows, length, vocabulary]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY_SIZE, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        self.head = nn.Linear(size.width, VOCABULARY_SIZE, bias=False)
        cosine, sine = rotary_table(size.width // size.heads)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 if name.startswith("embedding") else parameter.shape[1] ** -0.5
                nn.init.normal_(parameter, std=scale / 2 if name.endswith(("output.weight", "down.weight")) else scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the token after each position."""
        x = self.embedding(ids)
        cosine, sine = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cosine, sine)
        logits: Tensor = self.head(self.norm(x))
        return logits
