"""Update a policy by GRPO (Shao et al., 2024), with the clipping range of DAPO (Yu et al., 2025), or by imitation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from orchestrator.memrl.parl.allowed import Choices, unpacked
from orchestrator.memrl.parl.lora import Weights, lora_parameters, with_weights
from orchestrator.memrl.parl.network import LlamaNetwork

ROWS = 16  # rows of one pass through the network; more need more memory
MAX_NORM = 1.0  # of the gradient


@dataclass(frozen=True, slots=True)
class SampledRow:
    """An answer that was sampled, and how much better it was than the others of its group."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    choices: Choices  # what each token was chosen from
    advantage: float
    count: int = 1  # how often it was sampled

    @property
    def length(self) -> int:
        """In tokens, with the prompt."""
        return len(self.prompt) + len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoSettings:
    learning_rate: float = 5e-4
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.001
    epochs: int = 2


class UpdateFigures(NamedTuple):
    loss: float  # of the last epoch
    kl: float  # from the reference, per free token, before the update
    free_tokens: int  # tokens that the grammar did not force


class _Batch(NamedTuple):
    prefix: Tensor  # [places]: tokens with which all rows begin
    ids: Tensor  # [rows, length]: those that follow
    predicting: Tensor  # [free tokens, 2]: row and place of the logits for each
    picked: Tensor  # [free tokens]
    allowed: Tensor  # [free tokens, vocabulary]
    advantages: Tensor  # [free tokens]
    counts: Tensor  # [free tokens]


def update(
    network: LlamaNetwork,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[SampledRow],
    settings: GrpoSettings,
    reference: Weights,
    temperature: float = 1.0,
) -> UpdateFigures:
    """Improve the policy by rows that it has sampled itself at this temperature, without leaving the reference far."""
    batches = _batches(rows, network)
    free = sum(int(batch.counts.sum()) for batch in batches)
    if not free:
        return UpdateFigures(0.0, 0.0, 0)
    with torch.no_grad(), with_weights(network, reference):
        bases = [_log_probabilities(network, batch, temperature) for batch in batches]
    before: list[Tensor] = []
    loss = 0.0
    for epoch in range(settings.epochs):
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for number, (batch, base) in enumerate(zip(batches, bases, strict=True)):
            new = _log_probabilities(network, batch, temperature)
            if not epoch:
                before.append(new.detach())
            part = _loss(new, before[number], base, batch, settings) / free
            part.backward()
            loss += float(part.detach())
        _step(network, optimizer)
    kl = sum(
        float((batch.counts * _divergence(old, base)).sum())
        for batch, old, base in zip(batches, before, bases, strict=True)
    )
    return UpdateFigures(loss, kl / free, free)


def imitate(
    network: LlamaNetwork, optimizer: torch.optim.Optimizer, rows: Sequence[SampledRow], temperature: float = 1.0
) -> float:
    """Make answers likelier, and return how likely their free tokens were: the mean of the logarithms."""
    batches = _batches(rows, network)
    free = sum(int(batch.counts.sum()) for batch in batches)
    optimizer.zero_grad(set_to_none=True)
    likelihood = 0.0
    for batch in batches:
        part = (batch.counts * _log_probabilities(network, batch, temperature)).sum() / free
        (-part).backward()
        likelihood += float(part.detach())
    if batches:
        _step(network, optimizer)
    return likelihood


def _step(network: LlamaNetwork, optimizer: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(lora_parameters(network).values(), MAX_NORM)
    optimizer.step()


def _loss(new: Tensor, old: Tensor, base: Tensor, batch: _Batch, settings: GrpoSettings) -> Tensor:
    # the sum over tokens, so that long answers count as much per token as short ones
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    gain = torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
    return (batch.counts * (settings.kl * _divergence(new, base) - gain)).sum()


def _divergence(new: Tensor, base: Tensor) -> Tensor:
    # an unbiased estimate that is never negative (Schulman, 2020, "k3")
    difference = base - new
    return difference.exp() - difference - 1


def _log_probabilities(network: LlamaNetwork, batch: _Batch, temperature: float) -> Tensor:
    # of the chosen tokens, among those that the grammar allowed
    states = network.states_after(batch.prefix, batch.ids)[batch.predicting[:, 0], batch.predicting[:, 1]]
    logits = network.head(states)
    logits = logits.masked_fill(~batch.allowed, -torch.inf)
    return (logits / temperature).log_softmax(-1).gather(1, batch.picked[:, None])[:, 0]


def _batches(rows: Sequence[SampledRow], network: LlamaNetwork) -> list[_Batch]:
    made = (_batch(rows, places, network) for rows, places in grouped(rows))
    return [batch for batch in made if batch is not None]


def grouped(rows: Sequence[SampledRow]) -> Iterator[tuple[list[SampledRow], int]]:
    """Yield the rows of each pass, with the number of tokens that all of them begin with.

    Two rows share a pass if that makes fewer tokens, with those that pad them to one length.
    """
    group: list[SampledRow] = []
    places = 0
    for row in sorted(rows, key=lambda row: (row.prompt, row.tokens)):
        # The last token of a prompt is never shared, as the first token of each answer is predicted there.
        common = min(places, _common(group[-1].prompt, row.prompt)) if group else len(row.prompt) - 1
        apart = _size(group, places) + row.length
        if group and (len(group) == ROWS or _size([*group, row], common) > apart):
            yield group, places
            group, common = [], len(row.prompt) - 1
        group, places = [*group, row], common
    if group:
        yield group, places


def _common(some: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(some[:-1], other[:-1], strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(some), len(other)) - 1)


def _size(rows: Sequence[SampledRow], places: int) -> int:
    return places + len(rows) * max((row.length - places for row in rows), default=0)


def _batch(rows: Sequence[SampledRow], places: int, network: LlamaNetwork) -> _Batch | None:
    size, length = network.shape.vocabulary, max(row.length for row in rows) - places
    ids = np.zeros((len(rows), length), np.int64)
    predicting: list[tuple[int, int]] = []
    picked: list[int] = []
    free: list[npt.NDArray[np.bool_]] = []
    advantages: list[float] = []
    counts: list[int] = []
    for number, row in enumerate(rows):
        ids[number, : row.length - places] = (*row.prompt[places:], *row.tokens)
        for at, (token, choices) in enumerate(zip(row.tokens, row.choices, strict=True), len(row.prompt) - 1 - places):
            allowed = unpacked(choices, size)
            if np.count_nonzero(allowed) > 1:
                predicting.append((number, at))
                picked.append(token)
                free.append(allowed)
                advantages.append(row.advantage)
                counts.append(row.count)
    if not predicting:
        return None
    return _Batch(
        torch.tensor(rows[0].prompt[:places], dtype=torch.int64),
        torch.from_numpy(ids),
        torch.tensor(predicting),
        torch.tensor(picked),
        torch.from_numpy(np.array(free)),
        torch.tensor(advantages),
        torch.tensor(counts),
    )
