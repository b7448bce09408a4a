"""Draft tokens with a smaller model, for all sequences of a step together."""

import dataclasses
from itertools import takewhile
from operator import eq

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama, Logits, Tokens, as_tokens
from orchestrator.engine.speculation.drafter import UNUSABLE_FILE, Beat, CannotDraft, Drafter, Offer
from orchestrator.engine.step_cost.attention_trial import apply_stored_attention
from orchestrator.engine.step_cost.calibration import assumed_step_costs, stored_step_costs
from orchestrator.engine.step_cost.idle import RepeatedCalibration
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from orchestrator.engine.step_cost.model import attended_cells
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.sequence import Sequence


class DraftModel(Drafter):
    """A smaller model with one sequence for each sequence of the target model.

    Its cache holds the text that drafting needed, and drafted tokens.
    """

    def __init__(self, spec: EngineSpec, target: Llama, beat: Beat) -> None:
        """Load the draft model of `spec`. Raises CannotLoad if the file or the vocabulary does not fit."""
        assert spec.speculation is not None, "a draft model needs a file"
        own = dataclasses.replace(
            spec.without_drafts(),
            file=spec.speculation.draft,
            context=target.context_limit,
            slots=target.sequences if target.split else -(-target.sequences // 2),
            threads=target.threads,
            kv_type_k="f16",
            kv_type_v="f16",
            experts=None,
            lora=(),
            adapters=(),
            batch_invariant=False,
            split=target.split,
            cells=None if target.split else target.context_limit * spec.slots,
            beyond_training=True,
        )
        self._llama = Llama(own)
        if problem := target.vocab.difference(self._llama.vocab, "the draft model"):
            raise CannotLoad("settings", f"{problem}; accepted: a draft model with the same vocabulary")
        apply_stored_attention(self._llama, own)
        self._spec = own
        self._k = spec.speculation.k
        measured = stored_step_costs(self._llama, own)
        self._step_costs = LearnedStepCosts(
            self._llama.threads,
            measured or assumed_step_costs(self._llama),
            widest=self._llama.sequences,
            trusted=measured is not None,
            known=lambda threads: stored_step_costs(self._llama, own, threads),
        )
        self._cpu = CpuUse()
        self._beat = beat
        self.seconds = 0.0
        # For each sequence: the number of text tokens in the cache, and the drafted tokens after them.
        self._held: dict[int, tuple[int, list[int]]] = {}

    def calibrations(self) -> tuple[RepeatedCalibration, ...]:
        return (RepeatedCalibration(self._llama, self._spec, lambda: self._step_costs),)

    def seconds_per_token(self, width: int) -> float:
        width = min(width, self._llama.sequences)
        return self._step_costs.current.seconds(width, width) / width

    def catch_up_seconds(self, sequence: Sequence) -> float:
        """Return the seconds to compute the unseen part of a text."""
        length, drafted = self._held.get(sequence.seq, (0, []))
        start = length + len(drafted)
        count = sequence.length - 1 - start
        costs = self._step_costs.current
        return costs.prefill * count + costs.per_cell * attended_cells(start, count) if count > 1 else 0.0

    def set_threads(self, threads: int) -> None:
        self._llama.set_threads(threads)
        self._step_costs.use_threads(threads)

    def accept(self, sequence: Sequence, most: int) -> Offer:
        # The cache takes up the output when it drafts: until then it costs time.
        return Offer(max(0, min(self._k, most)))

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        """Return the `lengths` most likely next tokens of each sequence. Each has at least one output token."""
        for sequence in sequences:
            self._catch_up(sequence)
        drafts = [sequence.output[-1:] for sequence in sequences]
        for step in range(max(lengths)):
            active = [index for index, length in enumerate(lengths) if length > step]
            active.sort(key=lambda index: sequences[index].seq)
            batch = self._llama.batch
            batch.clear()
            cells = 0
            for index in active:
                depth = sequences[index].length + step
                batch.add_one(sequences[index].seq, depth - 1, drafts[index][-1])
                cells += depth
            logits = self._draft_step(len(active), cells)
            for index, token in zip(active, logits.argmax(axis=1).tolist(), strict=True):
                drafts[index].append(token)
        for sequence, draft in zip(sequences, drafts, strict=True):
            self._held[sequence.seq] = sequence.length, draft[1:-1]
        return [as_tokens(draft[1:]) for draft in drafts]

    def forget(self, sequence: Sequence) -> None:
        if sequence.seq >= 0 and self._held.pop(sequence.seq, None) is not None:
            self._llama.truncate(sequence.seq, 0)

    def _catch_up(self, sequence: Sequence) -> None:
        # Not the last token: it starts the draft.
        start, end = self._keep(sequence), sequence.length - 1
        batch = self._llama.batch
        while start < end:
            chunk = _part(sequence, start, min(start + batch.capacity, end))
            batch.clear()
            batch.add(sequence.seq, start, chunk, 0)
            self._beat(self._step_costs.current.seconds(len(chunk), 1, attended_cells(start, len(chunk))))
            self._decode(0)
            start += len(chunk)

    def _draft_step(self, sequences: int, cells: int) -> Logits:
        # Steps that only read text are not observed: they compute no logits, most of the work of a small model.
        costs = self._step_costs.current
        self._beat(costs.seconds(sequences, sequences, cells))
        width = costs.padded_width(sequences, cells)
        before = self.seconds
        logits = self._decode(width)
        padded = width if self._llama.batch.size == width else 0
        disturbed = self._cpu.disturbed(self._llama.threads)
        self._step_costs.observe(sequences, sequences, self.seconds - before, cells, padded, disturbed=disturbed)
        return logits

    def _decode(self, width: int) -> Logits:
        self._cpu.start()
        logits = self._llama.decode(width)
        self.seconds += self._cpu.stop()
        return logits

    def _keep(self, sequence: Sequence) -> int:
        length, drafted = self._held.get(sequence.seq, (0, []))
        output = sequence.output[length - len(sequence.prompt) :] if drafted else []
        length += sum(takewhile(bool, map(eq, drafted, output)))
        # The last token is always recomputed, because its logits are needed.
        common: int = min(length, sequence.length - 1)
        self._llama.truncate(sequence.seq, common)
        return common


def load_draft_model(spec: EngineSpec, target: Llama, beat: Beat) -> DraftModel:
    """Load a draft model. Raises CannotDraft if its file is missing or broken, and CannotLoad if it does not fit."""
    assert spec.speculation is not None, "the option turns this drafter on"
    try:
        return DraftModel(spec, target, beat)
    except CannotLoad as error:
        if error.kind not in UNUSABLE_FILE:
            raise
        raise CannotDraft(f"the draft model {spec.speculation.draft} cannot be used: {error}") from error


def _part(sequence: Sequence, start: int, end: int) -> Tokens:
    prompt = len(sequence.prompt)
    if start >= prompt:
        return as_tokens(sequence.output[start - prompt : end - prompt])
    return np.concatenate((sequence.prompt[start:end], as_tokens(sequence.output[: max(0, end - prompt)])))
