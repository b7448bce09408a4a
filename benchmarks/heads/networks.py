"""The heads in PyTorch, as llama.cpp computes them, with the names of their tensors in the file."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.heads.compose import head_shapes
from benchmarks.heads.eagle import EAGLE_LAYERS, eagle_shapes
from benchmarks.tiny.sizes import Size
from orchestrator.memrl.parl.network import LlamaNetwork, rotate
from orchestrator.memrl.parl.shape import NORM_EPSILON


class Head(Protocol):
    """A head that learns."""

    trunk: list[LlamaNetwork]  # the one that it reads; in a list, since its weights are not the head's
    tokens: Tensor  # [outputs], which token each output stands for

    def read(self, inputs: list[Tensor], last: Tensor) -> Tensor:
        """Return the states [rows, length, width] that the head reads, of the inputs of blocks and the last state."""
        ...

    def forward(self, tokens: Tensor, states: Tensor, drafted: int) -> list[Tensor]:
        """Return the logits [rows, length, outputs] of each of `drafted` tokens in a row.

        `tokens` [rows, length] are read with the states [rows, length, width] from which they were chosen. At index i,
        the draft starts earlier, so that its last token is the one after token i. At the beginning it is shorter.
        """
        ...


class _Network(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    def __init__(
        self, trunk: LlamaNetwork, size: Size, shapes: Mapping[str, tuple[int, ...]], start: Mapping[str, Tensor]
    ) -> None:
        super().__init__()
        self.heads, self.trunk = size.heads, [trunk]
        self.weights = nn.ParameterDict()
        for name, shape in shapes.items():
            initial = start.get(name)
            if initial is None:
                initial = torch.ones(shape)
            self.weights[_key(name)] = nn.Parameter(initial.detach().clone())

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[name], NORM_EPSILON)

    def _attend(
        self, x: Tensor, step: int, keys: list[Tensor], values: list[Tensor], prefix: str, output: str
    ) -> Tensor:
        """Return what the head's attention adds, and append the keys and values of this step."""
        rows, length, _ = x.shape
        cosine, sine = self.trunk[0].cosine[:length], self.trunk[0].sine[:length]
        place, w = torch.arange(length), self.weights
        query, key, value = (
            F.linear(x, w[f"{prefix}_{part}"]).view(rows, length, self.heads, -1).transpose(1, 2)
            for part in ("q", "k", "v")
        )
        query = rotate(query, cosine, sine)
        keys.append(rotate(key, cosine, sine))
        values.append(value)
        # The keys of the trunk's states up to where the draft starts, then those of the drafted tokens.
        seen = place[None, :] <= (place[:, None] - step).clamp(min=0)
        scores = [(query @ keys[0].transpose(-1, -2)).masked_fill(~seen, -torch.inf)]
        scores += [(query * _moved(keys[at], step - at)).sum(-1, keepdim=True) for at in range(1, step + 1)]
        shares = (torch.cat(scores, dim=-1) * query.shape[-1] ** -0.5).softmax(-1)
        mixed = shares[..., :length] @ values[0]
        for at in range(1, step + 1):
            mixed = mixed + shares[..., length + at - 1, None] * _moved(values[at], step - at)
        return F.linear(mixed.transpose(1, 2).reshape(rows, length, -1), w[output])


class MtpNetwork(_Network):
    """An MTP head that starts as the last block of its trunk."""

    def __init__(self, trunk: LlamaNetwork, size: Size) -> None:
        block = trunk.blocks[-1]
        start = {
            "nextn.eh_proj": torch.cat((0.1 * torch.eye(size.width), torch.eye(size.width)), dim=1),
            "nextn.shared_head_norm": trunk.norm.weight,
            "attn_norm": block.attention_norm.weight,
            "attn_q": block.query.weight,
            "attn_k": block.key.weight,
            "attn_v": block.value.weight,
            "attn_output": block.output.weight,
            "post_attention_norm": block.feed_norm.weight,
            "ffn_gate_shexp": block.gate.weight,
            "ffn_up_shexp": block.up.weight,
            "ffn_down_shexp": block.down.weight,
        }
        super().__init__(trunk, size, head_shapes(size.width, size.hidden), start)
        self.tokens = torch.arange(size.vocabulary)

    def read(self, inputs: list[Tensor], last: Tensor) -> Tensor:
        """Return the state that the trunk's own head reads."""
        return self.trunk[0].norm(last)

    def forward(self, tokens: Tensor, states: Tensor, drafted: int) -> list[Tensor]:
        """See `Head.forward`."""
        trunk, w = self.trunk[0], self.weights
        embedded = self._norm(trunk.embedding(tokens), "nextn_enorm")
        keys: list[Tensor] = []
        values: list[Tensor] = []
        results = []
        for step in range(drafted):
            x = F.linear(torch.cat((embedded, self._norm(states, "nextn_hnorm")), dim=-1), w["nextn_eh_proj"])
            x = x + self._attend(self._norm(x, "attn_norm"), step, keys, values, "attn", "attn_output")
            normed = self._norm(x, "post_attention_norm")
            gated = F.silu(F.linear(normed, w["ffn_gate_shexp"])) * F.linear(normed, w["ffn_up_shexp"])
            out = self._norm(x + F.linear(gated, w["ffn_down_shexp"]), "nextn_shared_head_norm")
            results.append(trunk.head(out))
            states = _moved(out, 1)
        return results


class EagleNetwork(_Network):
    """An EAGLE-3 head that starts as the last block of its trunk, for the tokens `tokens`."""

    def __init__(self, trunk: LlamaNetwork, size: Size, tokens: Tensor) -> None:
        block, width = trunk.blocks[-1], size.width
        nothing = torch.zeros(width, width)
        start = {
            "fc": torch.cat((nothing, nothing, torch.eye(width)), dim=1),
            "blk.0.attn_norm_2": block.attention_norm.weight,
            "blk.0.attn_q": torch.cat((nothing, block.query.weight), dim=1),
            "blk.0.attn_k": torch.cat((nothing, block.key.weight), dim=1),
            "blk.0.attn_v": torch.cat((nothing, block.value.weight), dim=1),
            "blk.0.attn_output": block.output.weight,
            "blk.0.ffn_norm": block.feed_norm.weight,
            "blk.0.ffn_gate": block.gate.weight,
            "blk.0.ffn_up": block.up.weight,
            "blk.0.ffn_down": block.down.weight,
            "output_norm": trunk.norm.weight,
            "output": trunk.head.weight[tokens],
        }
        super().__init__(trunk, size, eagle_shapes(width, size.hidden, len(tokens)), start)
        self.tokens = tokens

    def read(self, inputs: list[Tensor], last: Tensor) -> Tensor:
        """Return the inputs of three layers, one after the other."""
        return torch.cat([inputs[layer] for layer in EAGLE_LAYERS], dim=-1)

    def forward(self, tokens: Tensor, states: Tensor, drafted: int) -> list[Tensor]:
        """See `Head.forward`."""
        w = self.weights
        embedded = self._norm(self.trunk[0].embedding(tokens), "blk_0_attn_norm")
        states = F.linear(states, w["fc"])
        keys: list[Tensor] = []
        values: list[Tensor] = []
        results = []
        for step in range(drafted):
            x = torch.cat((embedded, self._norm(states, "blk_0_attn_norm_2")), dim=-1)
            x = states + self._attend(x, step, keys, values, "blk_0_attn", "blk_0_attn_output")
            normed = self._norm(x, "blk_0_ffn_norm")
            gated = F.silu(F.linear(normed, w["blk_0_ffn_gate"])) * F.linear(normed, w["blk_0_ffn_up"])
            out = x + F.linear(gated, w["blk_0_ffn_down"])
            results.append(F.linear(self._norm(out, "output_norm"), w["output"]))
            states = _moved(out, 1)
        return results


def tensors_of(network: _Network, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return the weights of a head by their names in the file."""
    return {name: network.weights[_key(name)].detach() for name in shapes}


def _key(name: str) -> str:
    return name.replace(".", "_")  # a parameter's name has no dots


def _moved(x: Tensor, places: int) -> Tensor:
    # Towards the end of the last dimension but one.
    return F.pad(x, (0, 0, places, 0))[..., : x.shape[-2], :]
