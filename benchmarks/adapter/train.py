"""Train a LoRA adapter on the weights of a GGUF file as llama.cpp sees them, dequantised.

What makes it quick on a processor: examples are packed one behind the other without padding, and the tokens that all of
a batch begin with are computed once; the lower layers have no adapter, so nothing is propagated back through them; and
logits are computed only where there is loss, which is on the answers. Started by `torchrun`, its processes take a
batch each and average the gradients, which bears busy cores better than threads do. A run has a budget in tokens,
leaves a checkpoint every few of them, and continues from it.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer

from benchmarks.adapter.base import MODEL, SHAPES, AdapterShape
from benchmarks.adapter.data import SEED, TokenizedExample, batches, common_prefix

RANK: Final = 16
ALPHA: Final = 32
PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# The share of the learning rate that is left at the end. It falls evenly with the tokens.
LAST_LEARNING_RATE: Final = 0.05
WARM_UP_STEPS: Final = 10
WIDTH: Final = 448  # the most tokens of a batch of a process. Small batches learn more from the same tokens.
CHECKPOINT_SECONDS: Final = 120.0
PROGRESS_STEPS: Final = 5
_KEPT: Final = 0.95  # the weight of the past in the loss that is shown
PACKED: Final = "packed"  # the name of `_packed_attention` among those of `transformers`


@dataclass(frozen=True, slots=True)
class _Packed:
    """Examples in one row: the tokens that all begin with, then what follows in each."""

    tokens: torch.Tensor
    positions: torch.Tensor
    prefix: int  # how many tokens all begin with
    spans: list[tuple[int, int]]  # where what follows of each example begins and ends
    predicting: torch.Tensor  # the places before a token that counts for the loss
    predicted: torch.Tensor  # these tokens
    weights: torch.Tensor  # how much they count


def _pack(batch: list[TokenizedExample], device: torch.device) -> _Packed:
    prefix = common_prefix(batch)
    rest = [example.tokens[prefix:] for example in batch]
    spans = list(pairwise(accumulate(map(len, rest), initial=prefix)))
    places, predicted, weights = [], [], []
    for (start, _), example in zip(spans, batch, strict=True):
        for index, weight in enumerate(example.weights):
            if weight:
                places.append(start + index - prefix - 1)
                predicted.append(example.tokens[index])
                weights.append(weight)
    tokens = [*batch[0].tokens[:prefix], *(token for tokens_left in rest for token in tokens_left)]
    positions = [*range(prefix), *(prefix + index for tokens_left in rest for index in range(len(tokens_left)))]
    return _Packed(
        torch.tensor([tokens], device=device),
        torch.tensor([positions], device=device),
        prefix,
        spans,
        torch.tensor(places, device=device),
        torch.tensor(predicted, device=device),
        torch.tensor(weights, device=device),
    )


def _packed_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: None, **given: Any
) -> tuple[torch.Tensor, None]:
    """Return attention within each packed example, as `transformers` wants it: batch, tokens, heads, values.

    Queries, keys and values are batch, heads, tokens, values. The prefix is computed again with each example, which
    takes less than a mask would.
    """
    packed: _Packed = given["packed"]
    groups = module.num_key_value_groups
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    shared, outputs = packed.prefix, list[torch.Tensor]()
    for start, end in packed.spans:
        queries, keys, values = (
            torch.cat((each[:, :, :shared], each[:, :, start:end]), dim=2) for each in (query, key, value)
        )
        attended = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=given["scaling"])
        outputs.append(attended if not outputs else attended[:, :, shared:])
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register(PACKED, _packed_attention)


@dataclass(slots=True)
class AdapterProgress:
    """How far a run is. It is part of a checkpoint."""

    steps: int = 0
    tokens: int = 0  # tokens of examples that were computed, without padding
    seconds: float = 0.0  # how long the run has computed, over all its starts
    loss: float = 0.0  # the running mean of the loss per token of an answer
    batches: int = 0  # Batches that were taken from the data: one for each process in a step


def load(file: Path, dtype: torch.dtype, rank: int, first_layer: int) -> tuple[Any, Any]:
    """Return the model of a GGUF file with a new adapter of a rank from a layer on, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation=PACKED
    )
    return with_adapter(model, rank, rank * ALPHA // RANK, first_layer).to(dtype), tokenizer


def with_adapter(model: Any, rank: int = RANK, alpha: int = ALPHA, first_layer: int = 0) -> Any:
    """Return a model with a new adapter on all projections of the layers from `first_layer` on. Only that learns."""
    layers = list(range(first_layer, model.config.num_hidden_layers))
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(PROJECTIONS), layers_to_transform=layers)
    return get_peft_model(model, config)


def loss_of(model: Any, batch: list[TokenizedExample]) -> torch.Tensor:
    """Return the mean loss of a batch's answers, each token with its weight."""
    packed, inner = _pack(batch, model.device), model.get_base_model()
    hidden = inner.model(
        input_ids=packed.tokens, position_ids=packed.positions, use_cache=False, packed=packed
    ).last_hidden_state
    logits = inner.lm_head(hidden[0, packed.predicting]).float()
    losses = cross_entropy(logits, packed.predicted, reduction="none")
    return (losses * packed.weights).sum() / packed.weights.sum()


def faster_dtype() -> torch.dtype:
    """Return the type in which this processor computes faster: bfloat16 if it has instructions for it, or float32.

    A GPU computes a model this small fast enough in float32.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return torch.float32
    return torch.bfloat16 if "avx512_bf16" in flags or "amx_bf16" in flags else torch.float32


def train(
    file: Path,
    folder: Path,
    tokens: int,
    dtype: torch.dtype | None = None,
    seed: int = SEED,
    threads: int | None = None,
    device: str | None = None,
    rank: int = RANK,
    shape: AdapterShape = SHAPES[MODEL],
    data: Callable[[Any, int, int, int], Iterator[list[TokenizedExample]]] = batches,
) -> AdapterProgress:
    """Train on `tokens` tokens in all, from the checkpoint in `folder` if there is one, and leave one there.

    A checkpoint is `adapter.pt`; it holds the adapter's weights, the optimizer's state and the progress. `device` is
    what PyTorch calls it; if it is not given, that is a GPU where there is one, or the processor. `data` returns
    batches, given the tokenizer, the seed, the most tokens of a batch and how many batches to leave out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype = dtype or (faster_dtype() if torch_device.type == "cpu" else torch.float32)
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(seed)
    model, tokenizer = load(file, dtype, rank, shape.first_layer)
    model.to(torch_device)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=shape.learning_rate, weight_decay=0.0)
    progress = _restore(folder, model, optimizer)
    group = _Processes()
    print(
        f"{torch_device}, {dtype}, {sum(weight.numel() for weight in weights):,} weights, from step {progress.steps}",
        flush=True,
    )
    saved = shown = time.monotonic()
    shown_tokens = progress.tokens
    model.train()
    taken = islice(data(tokenizer, seed, WIDTH, progress.batches), group.rank, None, group.count)
    while not group.over(progress.tokens >= tokens):
        started, batch = time.monotonic(), next(taken)
        for parameters in optimizer.param_groups:
            parameters["lr"] = shape.learning_rate * _rate(progress, tokens)
        loss = loss_of(model, batch)
        loss.backward()
        computed, value = group.average(weights, sum(len(example.tokens) for example in batch), loss.item())
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _record(progress, value, computed, group.count, time.monotonic() - started)
        if progress.steps % PROGRESS_STEPS == 0 and group.rank == 0:
            now = time.monotonic()
            speed = (progress.tokens - shown_tokens) / (now - shown)
            print(
                f"step {progress.steps}  {progress.seconds / 60:.1f} min  {progress.tokens:,} of {tokens:,} tokens  "
                f"{speed:.1f} tokens/s  loss {progress.loss:.4f}",
                flush=True,
            )
            shown, shown_tokens = now, progress.tokens
        if time.monotonic() - saved > CHECKPOINT_SECONDS and group.rank == 0:
            _save(folder, model, optimizer, progress)
            saved = time.monotonic()
    if group.rank == 0:
        _save(folder, model, optimizer, progress)
    return progress


class _Processes:
    """The processes that train together: one, unless `torchrun` has started several."""

    def __init__(self) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = 0
        if self.count > 1:
            dist.init_process_group("gloo")
            self.rank = dist.get_rank()

    def over(self, mine: bool) -> bool:
        """Return whether the first process is at the end, so that all end at the same step."""
        if self.count == 1:
            return mine
        said = torch.tensor([mine])
        dist.broadcast(said, 0)
        return bool(said.item())

    def average(self, weights: list[torch.nn.Parameter], tokens: int, loss: float) -> tuple[int, float]:
        """Average the gradients of all processes, and return their tokens and their mean loss."""
        if self.count == 1:
            return tokens, loss
        every = torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None])
        totals = torch.tensor([float(tokens), loss], dtype=torch.float64)
        dist.all_reduce(every)
        dist.all_reduce(totals)
        at = 0
        for weight in weights:
            if weight.grad is not None:
                weight.grad.copy_((every[at : at + weight.numel()] / self.count).view_as(weight))
                at += weight.numel()
        return int(totals[0]), float(totals[1]) / self.count


def saved_adapter(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the adapter in a folder's checkpoint, by peft's names."""
    weights: dict[str, torch.Tensor] = torch.load(folder / "adapter.pt", weights_only=True, map_location="cpu")[
        "adapter"
    ]
    return weights


def _rate(progress: AdapterProgress, tokens: int) -> float:
    """Return the share of the learning rate at this point of the run."""
    done = min(1.0, progress.tokens / tokens)
    return min(1.0, (progress.steps + 1) / WARM_UP_STEPS) * (1 - (1 - LAST_LEARNING_RATE) * done)


def _record(progress: AdapterProgress, loss: float, tokens: int, batches: int, seconds: float) -> None:
    decay = _KEPT if progress.steps else 0.0
    progress.loss = decay * progress.loss + (1 - decay) * loss
    progress.steps += 1
    progress.tokens += tokens
    progress.batches += batches
    progress.seconds += seconds


def _save(folder: Path, model: Any, optimizer: Any, progress: AdapterProgress) -> None:
    state = {
        "adapter": get_peft_model_state_dict(model, save_embedding_layers=False),
        "optimizer": optimizer.state_dict(),
        "progress": [progress.steps, progress.tokens, progress.seconds, progress.loss, progress.batches],
    }
    unfinished = folder / "adapter.pt.new"
    torch.save(state, unfinished)
    os.replace(unfinished, folder / "adapter.pt")


def _restore(folder: Path, model: Any, optimizer: Any) -> AdapterProgress:
    path = folder / "adapter.pt"
    if not path.exists():
        return AdapterProgress()
    state = torch.load(path, weights_only=True, map_location=model.device)
    set_peft_model_state_dict(model, state["adapter"])
    optimizer.load_state_dict(state["optimizer"])
    return AdapterProgress(*state["progress"])
