"""Train an MTP head for an embedded model: `python -m benchmarks.heads.train [--size large]`, some minutes.

The trunk stays as it ships, and the head learns its next tokens. A head drafts several tokens by reading its own
output, so it is trained on that as well (Li et al. 2025, EAGLE-3, section 3.2, training-time test), once it drafts
single tokens. No example comes twice: a head soon recites the examples that it has seen.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.heads.compose import head_file, head_shapes, write_head
from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import SIZES, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.families.words import Split, seeded
from orchestrator.memrl.parl.network import LlamaNetwork, load_network, rotate
from orchestrator.memrl.parl.shape import NORM_EPSILON

DRAFTED = 3  # tokens that it learns to draft one after the other
STEPS = 700
SINGLE = 0.5  # the share of the steps, at first, in which it learns to draft single tokens
ROWS = 16  # examples of a step
SORTED = 8  # batches whose examples are drawn together, then sorted by the length of the answer
LONGEST = 320  # tokens of an example
HELD_OUT = 8  # batches of held-out examples
MUON_RATE = 0.02
ADAM_RATE = 2e-3
REPORT_EVERY = 50


class Head(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """An MTP head, with the names of its tensors in the file, that starts as the last block of its trunk."""

    def __init__(self, trunk: LlamaNetwork, size: Size) -> None:
        super().__init__()
        self.heads, self.trunk = size.heads, [trunk]
        self.weights = nn.ParameterDict()
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
        for name, shape in head_shapes(size.width, size.hidden).items():
            self.weights[name.replace(".", "_")] = nn.Parameter(start.get(name, torch.ones(shape)).detach().clone())

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[name], NORM_EPSILON)

    def forward(self, tokens: Tensor, states: Tensor, drafted: int) -> list[Tensor]:
        """Return the logits [rows, length, vocabulary] of each of `drafted` tokens in a row.

        `tokens` [rows, length] are read with the states [rows, length, width] from which they were chosen. At index i,
        the draft starts earlier, so that its last token is the one after token i. At the beginning it is shorter.
        """
        trunk, w = self.trunk[0], self.weights
        rows, length = tokens.shape
        embedded = self._norm(trunk.embedding(tokens), "nextn_enorm")
        cosine, sine = trunk.cosine[:length], trunk.sine[:length]
        place = torch.arange(length)
        shape = (rows, length, self.heads, -1)
        keys, values, results = [], [], []
        for step in range(drafted):
            x = F.linear(torch.cat((embedded, self._norm(states, "nextn_hnorm")), dim=-1), w["nextn_eh_proj"])
            normed = self._norm(x, "attn_norm")
            query, key, value = (
                F.linear(normed, w[f"attn_{part}"]).view(shape).transpose(1, 2) for part in ("q", "k", "v")
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
            x = x + F.linear(mixed.transpose(1, 2).reshape(rows, length, -1), w["attn_output"])
            normed = self._norm(x, "post_attention_norm")
            gated = F.silu(F.linear(normed, w["ffn_gate_shexp"])) * F.linear(normed, w["ffn_up_shexp"])
            out = self._norm(x + F.linear(gated, w["ffn_down_shexp"]), "nextn_shared_head_norm")
            results.append(trunk.head(out))
            states = _moved(out, 1)
        return results


def _moved(x: Tensor, places: int) -> Tensor:
    # Towards the end of the last dimension but one.
    return F.pad(x, (0, 0, places, 0))[..., : x.shape[-2], :]


def load_trunk(size: Size) -> LlamaNetwork:
    """Return the shipped model as a network that does not learn."""
    trunk = load_network(size.shipped)
    trunk.requires_grad_(False)
    return trunk


@dataclass(frozen=True, slots=True)
class Answers:
    """What a head learns from: answers, as the trunk reads them."""

    tokens: Tensor  # [rows, length]
    states: Tensor  # [rows, length, width], from which the trunk chose each token
    after: Tensor  # [rows, length, width], from which it chooses the next one
    inside: Tensor  # [rows, length], whether a token other than the last follows


def answers(trunk: LlamaNetwork, tokenizer: Tokenizer, seed: str, split: Split) -> Iterator[Answers]:
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
            yield _read(trunk, pool[start : start + ROWS])


def _read(trunk: LlamaNetwork, rows: list[tuple[list[int], int]]) -> Answers:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    ends, prompts = (torch.tensor(part) for part in ([len(ids) for ids, _ in rows], [prompt for _, prompt in rows]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        x = trunk.embedding(ids)
        for block in trunk.blocks:
            x = block(x, trunk.cosine[:longest], trunk.sine[:longest])
        hidden = trunk.norm(x).bfloat16()
    places = prompts[:, None] + torch.arange(int((ends - prompts).max()))
    within, row = places.clamp(max=longest - 1), torch.arange(len(rows))[:, None]
    return Answers(ids[row, within], hidden[row, within - 1], hidden[row, within], places < ends[:, None] - 1)


def loss_of(head: Head, batch: Answers, drafted: int) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the loss, and for each drafted token (those accepted together with all before them, all).

    A token is accepted if the trunk says it.
    """
    wanted = head.trunk[0].head(batch.after.float()).detach()
    likely, best = wanted.float().softmax(-1), wanted.argmax(-1)
    place = torch.arange(batch.tokens.shape[1])
    total, right, counts = torch.zeros(()), batch.inside, []
    for step, logits in enumerate(head(batch.tokens, batch.states.float(), drafted)):
        used = batch.inside & (place >= step)
        if not used.any():
            break
        total = total + F.cross_entropy(logits[used].float(), likely[used]) / (1 + step)
        before = F.pad(right, (1, 0))[:, :-1] if step else right
        right = before & used & (logits.argmax(-1) == best)
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


def train(size: Size, steps: int) -> Head:
    """Return a trained head."""
    torch.manual_seed(1)
    head = Head(load_trunk(size), size)
    matrices = [p for p in head.parameters() if p.ndim == 2]
    optimizers = [
        torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95),
        torch.optim.AdamW([p for p in head.parameters() if p.ndim == 1], lr=ADAM_RATE),
    ]
    trunk, tokenizer = head.trunk[0], Tokenizer.load(TOKENIZER_FILE)
    held_out = list(islice(answers(trunk, tokenizer, "held-out heads", "entity"), HELD_OUT))
    batches = answers(trunk, tokenizer, "heads", "train")
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
    return head


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads.train", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = SIZES[options.size]
    torch.set_flush_denormal(True)
    weights = train(size, options.steps).weights
    tensors = {name: weights[name.replace(".", "_")].detach().numpy() for name in head_shapes(size.width, size.hidden)}
    write_head(tensors, options.out or head_file(size.name))


if __name__ == "__main__":
    main()
