"""Train one model. A run continues from its checkpoint and ends after the last step."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.tiny import batches, corpus
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import SIZES, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.families.words import seeded
from orchestrator.memrl.parl.network import LlamaNetwork

MUON_RATE = 0.02
ADAM_RATE = 3e-3
SAVE_SECONDS = 150.0
REPORT_EVERY = 20
PROBE_EVERY = 1000
PROBED_EXAMPLES = 24
CHOOSING = ("choose summarize", "choose extract")


@dataclass(slots=True)
class TrainingProgress:
    """The progress of a training, and its cost for the model card."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def rate_at(size: Size, step: int) -> float:
    """Return the learning rate of `step` relative to the full one."""
    cycle, step = size.cycle_at(step)
    return cycle.peak * min(1.0, (step + 1) / cycle.warm_up, (cycle.steps - step) / (cycle.fall * cycle.steps))


class Training:
    """A model with its optimizers: Muon for the matrices of the blocks, AdamW for the rest (Jordan 2024)."""

    def __init__(self, size: Size, *, compiled: bool = True) -> None:
        """Begin a training; `compiled`: in bfloat16 by compiled code, which takes minutes to make. Else in float32."""
        torch.manual_seed(1)
        self.half = compiled
        self.size = size
        self.model = LlamaNetwork(size.layout)
        matrices = [p for p in self.model.blocks.parameters() if p.ndim == 2]
        rest = [p for name, p in self.model.named_parameters() if p.ndim != 2 or not name.startswith("blocks")]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95),
            torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.01),
        ]
        self.progress = TrainingProgress()
        self.loss = torch.compile(self._loss, dynamic=False) if compiled else self._loss

    def _loss(self, ids: Tensor, weights: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            logits = self.model(ids[:, :-1])
        losses = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].reshape(-1), reduction="none")
        return (losses * weights.view(-1)).sum() / weights.sum()

    def step(self, batch: batches.TrainingBatch) -> float:
        """Do one step and return its loss."""
        progress, started = self.progress, time.monotonic()
        loss = self.loss(*tensors(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, peak in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate_at(self.size, progress.step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += batch.weights.size
        progress.seconds += time.monotonic() - started
        return float(loss.item())

    def save(self, path: Path) -> None:
        """Write the whole state to `path` atomically."""
        progress = self.progress
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": (progress.step, progress.tokens, progress.seconds),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Load the state from `path` if it exists."""
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.progress = TrainingProgress(*state["progress"])


def tensors(batch: batches.TrainingBatch) -> tuple[Tensor, Tensor]:
    """Return the arrays of `batch` as tensors."""
    return torch.from_numpy(batch.ids), torch.from_numpy(batch.weights)


def probe(model: LlamaNetwork, tokenizer: Tokenizer) -> dict[str, tuple[float, float]]:
    """Return the share of exact answers of each kind, for held-out names and for held-out wordings.

    An answer whose every token is the likeliest one after the right beginning is what greedy decoding gives.
    """
    shares_by_name = {}
    for name in (*FAMILIES, *CHOOSING):
        shares = []
        for split in ("entity", "wording"):
            examples = [corpus.example(seeded(f"probe/{i}"), split, name) for i in range(PROBED_EXAMPLES)]
            encoded = [corpus.encode(tokenizer, example) for example in examples]
            ids = torch.zeros(len(encoded), max(len(e) for e, _ in encoded), dtype=torch.long)
            for row, (example, _) in enumerate(encoded):
                ids[row, : len(example)] = torch.tensor(example)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                best = model(ids[:, :-1]).argmax(-1)
            right = best == ids[:, 1:]
            exact = [bool(right[row, p - 1 : len(e) - 1].all()) for row, (e, p) in enumerate(encoded)]
            shares.append(sum(exact) / len(exact))
        shares_by_name[name] = (shares[0], shares[1])
    return shares_by_name


def train(size: Size, tokenizer: Tokenizer) -> None:
    """Train `size` to its last step, saving a checkpoint every few minutes, then record the cost."""
    training = Training(size)
    training.resume(size.checkpoint)
    progress, saved = training.progress, time.monotonic()
    for batch in batches.batches_from(size, progress.step):
        tokens, seconds = progress.tokens, progress.seconds
        loss = training.step(batch)
        if progress.step % REPORT_EVERY == 0:
            rate = (progress.tokens - tokens) / (progress.seconds - seconds)
            print(f"{size.name} step {progress.step} loss {loss:.3f} {rate:.0f} tokens/s", flush=True)
        if progress.step % PROBE_EVERY == 0:
            shares = probe(training.model, tokenizer)
            print("  " + ", ".join(f"{name} {a:.2f}/{b:.2f}" for name, (a, b) in shares.items()), flush=True)
        if time.monotonic() - saved > SAVE_SECONDS:
            training.save(size.checkpoint)
            saved = time.monotonic()
    training.save(size.checkpoint)
    record_cost(training)


def record_cost(training: Training) -> None:
    """Write what a training has cost into the file for it."""
    progress = training.progress
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    cost = {
        "parameters": parameters,
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds),
        "torch": torch.__version__,
    }
    training.size.cost.write_text(json.dumps(cost), encoding="utf-8")


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    train(SIZES[sys.argv[1]], Tokenizer.load(TOKENIZER_FILE))
