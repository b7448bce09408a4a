"""Guess tokens with a smaller model, for all sequences of a step together."""

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.curve import attended
from orchestrator.engine.curves import Curves
from orchestrator.engine.llama import CannotLoad, Llama, Logits, Tokens, as_tokens
from orchestrator.engine.measure import known_curve, settle_attention
from orchestrator.engine.sequence import Sequence


class DraftModel:
    """A model of its own with a sequence for each of the target's, which it follows at some distance.

    `seconds` is how long it has computed so far. Raises CannotLoad, also when its vocabulary is not the target's.
    """

    def __init__(self, spec: EngineSpec, target: Llama, beat: Callable[[float], None]) -> None:
        """`beat` is told before every step how many seconds it may take."""
        assert spec.draft is not None, "a draft model needs a file"
        own = dataclasses.replace(
            spec,
            file=spec.draft,
            context=target.context_limit,
            slots=target.sequences if target.split else spec.slots,
            threads=target.threads,
            kv_type_k="f16",
            kv_type_v="f16",
            experts=None,
            lora=(),
            exact=False,
            split=target.split,
            cells=None,
            prompt_lookup=None,
            draft=None,
            beyond_training=True,
        )
        self._llama = Llama(own)
        _check_vocabularies(target, self._llama)
        settle_attention(self._llama, own)
        self._curves = Curves(self._llama.threads, known_curve(self._llama, own))
        self._beat = beat
        self.seconds = 0.0
        self._known: dict[int, Tokens] = {}

    def seconds_per_token(self, width: int) -> float:
        """Return what a draft token costs when so many sequences draft together."""
        width = min(width, self._llama.sequences)
        return self._curves.now.seconds(width, width) / width

    def set_threads(self, threads: int) -> None:
        """Use this many threads from the next step on."""
        self._llama.set_threads(threads)
        self._curves.use(threads)

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        """Return the likeliest next tokens of each sequence, `lengths` of them."""
        texts = [np.concatenate((s.prompt, as_tokens(s.output))) for s in sequences]
        for sequence, text in zip(sequences, texts, strict=True):
            self._catch_up(sequence.seq, text)
        drafts = [text[-1:].tolist() for text in texts]
        for step in range(max(lengths)):
            active = [index for index, length in enumerate(lengths) if length > step]
            active.sort(key=lambda index: sequences[index].seq)
            batch = self._llama.batch
            batch.clear()
            for index in active:
                batch.add(sequences[index].seq, len(texts[index]) + step - 1, drafts[index][-1:], 1)
            logits = self._decode(len(active), sum(len(texts[index]) + step for index in active))
            for index, token in zip(active, logits.argmax(axis=1).tolist(), strict=True):
                drafts[index].append(token)
        for sequence, text, draft in zip(sequences, texts, drafts, strict=True):
            self._known[sequence.seq] = np.concatenate((text, as_tokens(draft[1:-1])))
        return [as_tokens(draft[1:]) for draft in drafts]

    def forget(self, seq: int) -> None:
        """Drop a sequence that has ended."""
        if self._known.pop(seq, None) is not None:
            self._llama.truncate(seq, 0)

    def _catch_up(self, seq: int, text: Tokens) -> None:
        """Compute what the model has not seen of a text, but for the last token."""
        start = self._keep(seq, text)
        batch = self._llama.batch
        while start < len(text) - 1:
            chunk = text[start : min(start + batch.capacity, len(text) - 1)]
            batch.clear()
            batch.add(seq, start, chunk, 0)
            self._decode(1, attended(start, len(chunk)))
            start += len(chunk)

    def _decode(self, sequences: int, cells: int) -> Logits:
        """Compute the batch, which has tokens of so many sequences, and learn what that takes."""
        size, curve = self._llama.batch.size, self._curves.now
        self._beat(curve.seconds(size, sequences, cells))
        width = curve.filled(sequences, cells) if size == sequences else 0
        started = time.monotonic()
        logits = self._llama.decode(width)
        seconds = time.monotonic() - started
        self.seconds += seconds
        self._curves.observe(size, sequences, seconds, cells, width if self._llama.batch.size == width else 0)
        return logits

    def _keep(self, seq: int, text: Tokens) -> int:
        """Cut what a sequence holds to what it has in common with `text`, and return how much that is.

        The last token is always computed anew: its logits are needed.
        """
        known = self._known.get(seq, as_tokens(()))
        length = min(len(known), len(text) - 1)
        different = np.flatnonzero(known[:length] != text[:length])
        common = int(different[0]) if len(different) else length
        self._llama.truncate(seq, common)
        return common


def _check_vocabularies(target: Llama, draft: Llama) -> None:
    ours, theirs = target.vocab, draft.vocab
    if ours.size != theirs.size:
        raise CannotLoad("settings", f"the draft model has {theirs.size} tokens, the model {ours.size}")
    for token in range(ours.size):
        if ours.text(token) != theirs.text(token):
            what = f"token {token} is {theirs.text(token)!r} in the draft model and {ours.text(token)!r} in the model"
            raise CannotLoad("settings", f"{what}; accepted: a draft model with the same vocabulary")
