"""Train a LoRA adapter on the weights of a GGUF file as llama.cpp sees them, dequantised.

The loss is on the answer only, and logits are computed only there. A run has a budget in minutes, leaves a checkpoint
every few of them, and goes on from it.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.adapter.data import SEED, TokenizedExample, batches, padded

RANK: Final = 16
ALPHA: Final = 32
PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LEARNING_RATE: Final = 4e-4
LAST_LEARNING_RATE: Final = 0.1
"""The share of the learning rate that is left at the end. It falls evenly with the time."""
WARM_UP_STEPS: Final = 20
WIDTH: Final = 2048
"""The most tokens of a batch, with padding."""
CHECKPOINT_SECONDS: Final = 120.0
PROGRESS_STEPS: Final = 10
_KEPT: Final = 0.95
"""The weight of the past in the loss that is shown."""


@dataclass(slots=True)
class Progress:
    """How far a run is. It is part of a checkpoint."""

    steps: int = 0
    tokens: int = 0
    """Tokens of examples that were computed, without padding."""
    seconds: float = 0.0
    """How long the run has computed, over all its starts."""
    loss: float = 0.0
    """The running mean of the loss per token of an answer."""


def load(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return the model of a GGUF file with a new adapter, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return with_adapter(model).to(dtype), tokenizer


def with_adapter(model: Any, rank: int = RANK, alpha: int = ALPHA) -> Any:
    """Return a model with a new adapter on all projections. Only the adapter learns."""
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(PROJECTIONS)))


def loss_of(model: Any, batch: list[TokenizedExample]) -> torch.Tensor:
    """Return the mean loss of a batch's answers per token."""
    width = padded(max(len(example.tokens) for example in batch))
    tokens = torch.zeros(len(batch), width, dtype=torch.long)
    mask = torch.zeros(len(batch), width, dtype=torch.long)
    counts = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, example in enumerate(batch):
        length = len(example.tokens)
        tokens[row, :length] = torch.tensor(example.tokens)
        mask[row, :length] = 1
        counts[row, example.prompt - 1 : length - 1] = True  # the position before a token predicts it
    inner = model.get_base_model()
    hidden = inner.model(input_ids=tokens, attention_mask=mask).last_hidden_state
    logits = inner.lm_head(hidden[counts]).float()
    return torch.nn.functional.cross_entropy(logits, tokens.roll(-1, 1)[counts])


def faster_dtype(file: Path, batch_seed: int = SEED) -> torch.dtype:
    """Return the type in which a step takes less time on this processor: bfloat16, unless float32 is faster."""
    seconds = {}
    for dtype in (torch.bfloat16, torch.float32):
        model, tokenizer = load(file, dtype)
        batch = next(batches(tokenizer, batch_seed, WIDTH // 2))
        loss_of(model, batch).backward()  # the first step of a shape takes longer
        started = time.monotonic()
        loss_of(model, batch).backward()
        seconds[dtype] = time.monotonic() - started
    return min(seconds, key=lambda dtype: seconds[dtype])


def train(file: Path, folder: Path, minutes: float, dtype: torch.dtype | None = None, seed: int = SEED) -> Progress:
    """Train for so many minutes in all, from the checkpoint in `folder` if there is one, and leave one there.

    A checkpoint is `adapter.pt`; it holds the adapter's weights, the optimizer's state and the progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dtype = dtype or faster_dtype(file)
    torch.manual_seed(seed)
    model, tokenizer = load(file, dtype)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.0)
    progress = _restore(folder, model, optimizer)
    print(f"{dtype}, {sum(weight.numel() for weight in weights):,} weights, from step {progress.steps}", flush=True)
    saved = shown = time.monotonic()
    shown_tokens, model_mode = progress.tokens, model.train()
    for batch in batches(tokenizer, seed, WIDTH, skip=progress.steps):
        if progress.seconds >= 60 * minutes:
            break
        started = time.monotonic()
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _rate(progress, 60 * minutes)
        loss = loss_of(model_mode, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _record(progress, float(loss), sum(len(example.tokens) for example in batch), time.monotonic() - started)
        if progress.steps % PROGRESS_STEPS == 0:
            now = time.monotonic()
            speed = (progress.tokens - shown_tokens) / (now - shown)
            print(
                f"step {progress.steps}  {progress.seconds / 60:.1f} of {minutes:g} min  {progress.tokens:,} tokens  "
                f"{speed:.0f} tokens/s  loss {progress.loss:.4f}",
                flush=True,
            )
            shown, shown_tokens = now, progress.tokens
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            _save(folder, model, optimizer, progress)
            saved = time.monotonic()
    _save(folder, model, optimizer, progress)
    return progress


def saved_adapter(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the adapter in a folder's checkpoint, by peft's names."""
    kept: dict[str, torch.Tensor] = torch.load(folder / "adapter.pt", weights_only=True)["adapter"]
    return kept


def _rate(progress: Progress, seconds: float) -> float:
    """Return the share of the learning rate at this point of the run."""
    done = min(1.0, progress.seconds / seconds)
    return min(1.0, (progress.steps + 1) / WARM_UP_STEPS) * (1 - (1 - LAST_LEARNING_RATE) * done)


def _record(progress: Progress, loss: float, tokens: int, seconds: float) -> None:
    kept = _KEPT if progress.steps else 0.0
    progress.loss = kept * progress.loss + (1 - kept) * loss
    progress.steps += 1
    progress.tokens += tokens
    progress.seconds += seconds


def _save(folder: Path, model: Any, optimizer: Any, progress: Progress) -> None:
    state = {
        "adapter": get_peft_model_state_dict(model, save_embedding_layers=False),
        "optimizer": optimizer.state_dict(),
        "progress": [progress.steps, progress.tokens, progress.seconds, progress.loss],
    }
    unfinished = folder / "adapter.pt.new"
    torch.save(state, unfinished)
    os.replace(unfinished, folder / "adapter.pt")


def _restore(folder: Path, model: Any, optimizer: Any) -> Progress:
    path = folder / "adapter.pt"
    if not path.exists():
        return Progress()
    state = torch.load(path, weights_only=True)
    set_peft_model_state_dict(model, state["adapter"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(*state["progress"])
