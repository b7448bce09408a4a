"""Give a network LoRA weights (Hu et al., 2021), the only ones that learn."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from orchestrator.memrl.parl.network import LlamaNetwork
from orchestrator.memrl.parl.weights import BLOCK_NAMES
from orchestrator.memrl.parl.weights import Weights as Arrays

Weights = dict[str, Tensor]
"""Values of the weights that learn, by name."""


class LoraLinear(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """A frozen projection W, and what is added to it: (alpha / rank) · B · A, which is zero at first."""

    def __init__(self, inner: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.inner = inner
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, inner.in_features))
        self.b = nn.Parameter(torch.zeros(inner.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        output: Tensor = self.inner(x) + self.scale * ((x @ self.a.T) @ self.b.T)
        return output


def with_lora(network: LlamaNetwork, rank: int, alpha: float, seed: int) -> LlamaNetwork:
    """Freeze a network, give all its projections LoRA weights, and return it."""
    torch.manual_seed(seed)
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for block in network.blocks:
        for name, module in [*block.named_children()]:
            if isinstance(module, nn.Linear):
                setattr(block, name, LoraLinear(module, rank, alpha))
    return network


def lora_parameters(network: LlamaNetwork) -> dict[str, nn.Parameter]:
    """Return the weights that learn, by name."""
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def lora_pairs(network: LlamaNetwork) -> dict[tuple[int, str], tuple[Arrays, Arrays]]:
    """Return A and B of each projection as `write_adapter` gets them."""
    return {
        (layer, BLOCK_NAMES[name]): (module.a.detach().numpy().copy(), module.b.detach().numpy().copy())
        for layer, block in enumerate(network.blocks)
        for name, module in block.named_children()
        if isinstance(module, LoraLinear)
    }


def copied(network: LlamaNetwork) -> Weights:
    """Return a copy of the weights that learn, by name."""
    return {name: weight.detach().clone() for name, weight in lora_parameters(network).items()}


def restore(network: LlamaNetwork, weights: Weights) -> None:
    """Give the weights that learn these values."""
    with torch.no_grad():
        for name, weight in lora_parameters(network).items():
            weight.copy_(weights[name])


@contextmanager
def with_weights(network: LlamaNetwork, weights: Weights) -> Iterator[None]:
    """Let the network compute with other LoRA weights."""
    present = copied(network)
    restore(network, weights)
    try:
        yield
    finally:
        restore(network, present)
