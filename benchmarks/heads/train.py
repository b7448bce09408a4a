"""Train a head for the embedded large model: `python -m benchmarks.heads.train mtp` or `eagle`, some minutes.

The trunk stays as it ships, and the head learns its next tokens. A head drafts several tokens by reading its own
output, so it is trained on that as well (Li et al. 2025, EAGLE-3, section 3.2, training-time test), once it drafts
single tokens. No example comes twice: a head soon recites the examples that it has seen.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.heads.compose import head_file, head_shapes, write_head
from benchmarks.heads.eagle import EAGLE_LAYERS, eagle_file, eagle_shapes, write_eagle
from benchmarks.heads.networks import EagleNetwork, Head, MtpNetwork, tensors_of
from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import SIZES, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.families.words import Split, seeded
from orchestrator.memrl.parl.network import LlamaNetwork, load_network

DRAFTED = 3  # tokens that it learns to draft one after the other
STEPS = {"mtp": 700, "eagle": 1000}
SINGLE = 0.5  # the share of the steps, at first, in which it learns to draft single tokens
ROWS = 16  # examples of a step
SORTED = 8  # batches whose examples are drawn together, then sorted by the length of the answer
LONGEST = 320  # tokens of an example
HELD_OUT = 8  # batches of held-out examples
MUON_RATE = 0.02
ADAM_RATE = 2e-3
REPORT_EVERY = 50
DRAFT_VOCABULARY = 640  # tokens that an EAGLE-3 head drafts
COUNTED = 2000  # examples in which the most frequent tokens are counted


def load_trunk(size: Size) -> LlamaNetwork:
    """Return the shipped model as a network that does not learn."""
    trunk = load_network(size.shipped)
    trunk.requires_grad_(False)
    return trunk


@dataclass(frozen=True, slots=True)
class Answers:
    """What a head learns from: answers, as the trunk reads them."""

    tokens: Tensor  # [rows, length]
    states: Tensor  # [rows, length, width], from which the trunk chose each token, as the head reads them
    after: Tensor  # [rows, length, width], from which it chooses the next one
    inside: Tensor  # [rows, length], whether a token other than the last follows


def answers(head: Head, tokenizer: Tokenizer, seed: str, split: Split) -> Iterator[Answers]:
    """Yield batches of answers, of about the same length, to ever new examples."""
    rng = seeded(seed)
    while True:
        pool: list[tuple[list[int], int]] = []
        while len(pool) < SORTED * ROWS:
            ids, prompt = corpus.encode(tokenizer, corpus.draw(rng, split, "mending"))
            if len(ids) <= LONGEST:
                pool.append((ids, prompt))
        pool.sort(key=lambda example: len(example[0]) - example[1])
        starts = list(range(0, len(pool), ROWS))
        rng.shuffle(starts)
        for start in starts:
            yield _read(head, pool[start : start + ROWS])


def _read(head: Head, rows: list[tuple[list[int], int]]) -> Answers:
    trunk, inputs = head.trunk[0], []
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    ends, prompts = (torch.tensor(part) for part in ([len(ids) for ids, _ in rows], [prompt for _, prompt in rows]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        x = trunk.embedding(ids)
        for block in trunk.blocks:
            inputs.append(x)
            x = block(x, trunk.cosine[:longest], trunk.sine[:longest])
        states, last = head.read(inputs, x).bfloat16(), trunk.norm(x).bfloat16()
    places = prompts[:, None] + torch.arange(int((ends - prompts).max()))
    within, row = places.clamp(max=longest - 1), torch.arange(len(rows))[:, None]
    return Answers(ids[row, within], states[row, within - 1], last[row, within], places < ends[:, None] - 1)


def loss_of(head: Head, batch: Answers, drafted: int) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the loss, and for each drafted token (those accepted together with all before them, all).

    A token is accepted if the trunk says it.
    """
    wanted = head.trunk[0].head(batch.after.float()).detach().float()
    # Of the tokens that the head can say, those are likely which are so for the trunk.
    likely, best = wanted[..., head.tokens].softmax(-1), wanted.argmax(-1)
    place = torch.arange(batch.tokens.shape[1])
    total, right, counts = torch.zeros(()), batch.inside, []
    for step, logits in enumerate(head.forward(batch.tokens, batch.states.float(), drafted)):
        used = batch.inside & (place >= step)
        if not used.any():
            break
        total = total + F.cross_entropy(logits[used].float(), likely[used]) / (1 + step)
        before = F.pad(right, (1, 0))[:, :-1] if step else right
        right = before & used & (head.tokens[logits.argmax(-1)] == best)
        counts.append((int(right.sum()), int(used.sum())))
    return total, counts


def acceptance(head: Head, batches: list[Answers]) -> list[float]:
    """Return the share of drafted tokens, by place in the draft, that are accepted together with all before them."""
    sums = [[0, 0] for _ in range(DRAFTED)]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch in batches:
            for total, (accepted, drafted) in zip(sums, loss_of(head, batch, DRAFTED)[1], strict=False):
                total[0] += accepted
                total[1] += drafted
    return [accepted / max(1, drafted) for accepted, drafted in sums]


def frequent_tokens(tokenizer: Tokenizer, count: int) -> Tensor:
    """Return the most frequent tokens of answers, sorted."""
    rng, seen = seeded("frequent tokens"), Counter[int]()
    for _ in range(COUNTED):
        ids, prompt = corpus.encode(tokenizer, corpus.draw(rng, "train", "mending"))
        seen.update(ids[prompt:])
    return torch.tensor(sorted(token for token, _ in seen.most_common(count)))


def train(head: MtpNetwork | EagleNetwork, steps: int) -> None:
    """Train a head that has learned nothing."""
    matrices = [p for p in head.parameters() if p.ndim == 2]
    optimizers = [
        torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95),
        torch.optim.AdamW([p for p in head.parameters() if p.ndim == 1], lr=ADAM_RATE),
    ]
    tokenizer = Tokenizer.load(TOKENIZER_FILE)
    held_out = list(islice(answers(head, tokenizer, "held-out heads", "entity"), HELD_OUT))
    batches = answers(head, tokenizer, "heads", "train")
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = loss_of(head, next(batches), 1 if step < SINGLE * steps else DRAFTED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer, peak in zip(optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            optimizer.param_groups[0]["lr"] = peak * min(1.0, (step + 1) / 20, (steps - step) / (0.6 * steps))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            shares = " ".join(f"{share:.3f}" for share in acceptance(head, held_out))
            print(f"step {step + 1} loss {loss.item():.3f} held-out acceptance in a row {shares}", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads.train", description=__doc__)
    parser.add_argument("kind", choices=("mtp", "eagle"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size, steps = SIZES["large"], options.steps or STEPS[options.kind]
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if options.kind == "mtp":
        mtp = MtpNetwork(load_trunk(size), size)
        train(mtp, steps)
        tensors = tensors_of(mtp, head_shapes(size.width, size.hidden))
        write_head({name: weights.numpy() for name, weights in tensors.items()}, options.out or head_file(size.name))
    else:
        tokens = frequent_tokens(Tokenizer.load(TOKENIZER_FILE), DRAFT_VOCABULARY)
        eagle = EagleNetwork(load_trunk(size), size, tokens)
        train(eagle, steps)
        tensors = tensors_of(eagle, eagle_shapes(size.width, size.hidden, len(tokens)))
        arrays = {name: weights.numpy() for name, weights in tensors.items()}
        write_eagle(size.shipped, arrays, tokens.numpy(), EAGLE_LAYERS, options.out or eagle_file(size.name))


if __name__ == "__main__":
    main()
