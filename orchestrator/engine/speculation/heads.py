"""Draft with a head that reads the model's states, for all sequences of a step together.

It is the model's own MTP head (DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 2.2), of which that of the first
draft token drafts the others, too, or an EAGLE-3 head (Li et al. 2025).
"""

import time
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import (
    CannotLoad,
    EagleHead,
    Head,
    Llama,
    Logits,
    MtpHead,
    States,
    Tokens,
    as_tokens,
    why_no_eagle_head,
    why_no_mtp_head,
)
from orchestrator.engine.speculation.drafter import UNUSABLE_FILE, Beat, CannotDraft, Drafter, Offer
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.sequence import Sequence

# Tokens of a sequence, at most, that the head has yet to read when it drafts. Without older ones, or after steps that
# were not followed, the head starts again with an empty cache: it needs little but the last state.
_MOST_UNREAD = 64
_RATIO_RATE = 0.1  # by which part a draft corrects how much longer its first token takes


@dataclass(slots=True)
class _Reading:
    seq: int  # in the head
    end: int = 0  # the head has read the tokens before this position
    followed: int = 0  # there are states for the tokens before this position
    unread: list[States] = field(default_factory=list)  # states for the tokens up to the last one

    @property
    def count(self) -> int:
        return sum(map(len, self.unread))


class HeadDrafter(Drafter):
    """Drafts with a head of the target, up to `k` tokens.

    The head reads answers, not prompts. For an MTP head, states would have to be computed for each token of a prompt;
    and any head would have to read it, which makes prompts slower even if nothing is drafted then.
    """

    reads_states = True

    def __init__(self, head: Head, k: int, target: Llama, beat: Beat) -> None:
        self._head = head
        self._k = k
        self._beat = beat
        self._cpu = CpuUse()
        self._threads = target.threads
        self.seconds = 0.0
        self._readings: dict[int, _Reading] = {}  # by sequence in the target's cache
        self._free = list(range(head.sequences))
        self._first_ratio = 1.0  # how many times as long as a further token the first one of a draft takes
        assumed = StepCostModel.assumed(self._warm_up(), most=head.sequences)
        self._step_costs = LearnedStepCosts(target.threads, assumed, widest=head.sequences, trusted=False)

    def seconds_per_token(self, width: int) -> float:
        """Return what a token of the longest draft costs if `width` sequences draft, reading included."""
        width = min(width, self._head.sequences)
        return self._step_costs.current.seconds(width, width) / width

    def catch_up_seconds(self, sequence: Sequence) -> float:
        """Return the seconds that unread tokens add to the first step of a draft."""
        reading = self._readings.get(sequence.seq)
        return 0.0 if reading is None else self._step_costs.current.prefill * max(0, reading.count - 1)

    def set_threads(self, threads: int) -> None:
        self._threads = threads
        self._head.set_threads(threads)
        self._step_costs.use_threads(threads)

    def follow(self, sequence: Sequence, states: States) -> None:
        reading = self._readings.get(sequence.seq)
        if reading is None:  # no more sequences are live than there are slots
            reading = self._readings[sequence.seq] = _Reading(self._free.pop())
        if reading.followed != sequence.length - len(states):
            reading.unread.clear()
        reading.followed = sequence.length
        reading.unread.append(states.copy())
        while len(reading.unread) > 1 and reading.count > _MOST_UNREAD:
            reading.unread.pop(0)

    def accept(self, sequence: Sequence, most: int) -> Offer:
        reading = self._readings.get(sequence.seq)
        can_read = reading is not None and reading.unread and reading.followed == sequence.length
        return Offer(max(0, min(self._k, most)) if can_read else 0)

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        """Return the `lengths` likeliest next tokens of each sequence. Each was followed up to its last token."""
        self._cpu.start()
        started = time.monotonic()
        depths = [sequence.length for sequence in sequences]
        seqs = [self._readings[sequence.seq].seq for sequence in sequences]
        self._announce(depths, max(lengths))
        tokens, states = self._read(sequences)
        first = time.monotonic() - started
        drafts = [[token] for token in tokens]
        batch = self._head.batch
        for step in range(1, max(lengths)):
            active = [index for index, length in enumerate(lengths) if length > step]
            batch.clear()
            for row, index in enumerate(active):
                batch.add_one(seqs[index], depths[index] + step - 1, drafts[index][-1])
                batch.states[row] = states[index]
            logits, after = self._decode()
            for row, (index, token) in enumerate(zip(active, logits.argmax(axis=1).tolist(), strict=True)):
                drafts[index].append(token)
                states[index] = after[row]
        for seq, depth in zip(seqs, depths, strict=True):  # the model's own states replace those of the head
            self._head.truncate(seq, depth)
        self._learn(depths, max(lengths), first)
        return [as_tokens(draft[:length]) for draft, length in zip(drafts, lengths, strict=True)]

    def _announce(self, depths: list[int], steps: int) -> None:
        costs, width, cells = self._step_costs.current, len(depths), sum(depths)
        tokens = (_MOST_UNREAD + steps) * width  # at most
        self._beat(0.0 if costs.is_short(tokens, steps * cells) else costs.seconds(tokens, width, steps * cells))

    def _learn(self, depths: list[int], length: int, first: float) -> None:
        # Learn what a token costs in the longest draft, reading included. To learn from each step of a draft would take
        # a good part of all that Python does. `first` are the seconds up to the first token.
        width, seconds = len(depths), self._cpu.stop()
        disturbed = self._cpu.disturbed(self._threads)
        step = (seconds - first) / (length - 1) if length > 1 else first / self._first_ratio
        if length > 1 and not disturbed:
            self._first_ratio += _RATIO_RATE * (first / step - self._first_ratio)
        price = (first + (self._k - 1) * step) / self._k
        self._step_costs.observe(width, width, price, sum(depths), disturbed=disturbed)

    def forget(self, sequence: Sequence) -> None:
        reading = self._readings.pop(sequence.seq, None)
        if reading is not None:
            self._head.truncate(reading.seq, 0)
            self._free.append(reading.seq)

    def _read(self, sequences: list[Sequence]) -> tuple[list[int], States]:
        # Read what was not read yet. The last tokens of each sequence, seldom more than were accepted in the last step,
        # come in the last call, which drafts.
        batch = self._head.batch
        most = min(1 + self._k, self._head.rows // len(sequences), batch.capacity // len(sequences))
        unread = self._encoded([self._unread(sequence) for sequence in sequences])
        starts = [max(0, len(states) - most) for states in unread]
        batch.clear()
        for sequence, states, start in zip(sequences, unread, starts, strict=True):
            if start:
                if batch.size + start > batch.capacity:
                    self._decode()
                    batch.clear()
                self._add(sequence, states, 0, start, outputs=0)
        if batch.size:
            self._decode()
            batch.clear()
        ends = []
        for sequence, states, start in zip(sequences, unread, starts, strict=True):
            self._add(sequence, states, start, len(states), outputs=len(states) - start)
            ends.append(batch.size - 1)
        logits, after = self._decode()
        return logits[ends].argmax(axis=1).tolist(), after[ends]

    def _unread(self, sequence: Sequence) -> States:
        reading = self._readings[sequence.seq]
        states = reading.unread[0] if len(reading.unread) == 1 else np.concatenate(reading.unread)
        if reading.end != sequence.length - len(states):
            self._head.truncate(reading.seq, 0)
        reading.end, reading.unread = sequence.length, []
        return states

    def _add(self, sequence: Sequence, states: States, start: int, end: int, *, outputs: int) -> None:
        # Add some of the last tokens, for each of which there is a state.
        batch, before = self._head.batch, len(sequence.output) - len(states)
        at = batch.size
        tokens = as_tokens(sequence.output[before + start : before + end])
        batch.add(self._readings[sequence.seq].seq, len(sequence.prompt) + before + start, tokens, outputs)
        batch.states[at : batch.size] = states[start:end]

    def _encoded(self, states: list[States]) -> list[States]:
        started = time.monotonic()
        encoded = self._head.encode(states)
        self.seconds += time.monotonic() - started
        return encoded

    def _decode(self) -> tuple[Logits, States]:
        started = time.monotonic()
        results = self._head.decode()
        self.seconds += time.monotonic() - started
        return results

    def _warm_up(self) -> float:
        # Return the seconds of a step of one token.
        times = []
        for _ in range(3):
            self._head.batch.clear()
            self._head.batch.add_one(0, 0, 0)
            started = time.monotonic()
            self._head.decode()
            times.append(time.monotonic() - started)
            self._head.truncate(0, 0)
        return min(times)


def load_mtp(spec: EngineSpec, target: Llama, beat: Beat) -> HeadDrafter:
    """Load an MTP head.

    Raises CannotDraft if the library lacks functions or the model a head, and CannotLoad if there is no memory.
    """
    assert spec.mtp is not None, "the option turns this drafter on"
    if problem := why_no_mtp_head(target):
        raise CannotDraft(f"the MTP head cannot be used: {problem}")
    return HeadDrafter(MtpHead(target, _rows(spec, spec.mtp.k)), spec.mtp.k, target, beat)


def load_eagle(spec: EngineSpec, target: Llama, beat: Beat) -> HeadDrafter:
    """Load an EAGLE-3 head.

    Raises CannotDraft if the library lacks functions, the model's architecture fits no head, or the file is broken, and
    CannotLoad if the head does not fit the model, or if there is no memory.
    """
    assert spec.eagle is not None, "the option turns this drafter on"
    name = f"the EAGLE-3 head {spec.eagle.file}"
    if problem := why_no_eagle_head(target):
        raise CannotDraft(f"{name} cannot be used: {problem}")
    try:
        head = EagleHead(spec, target, _rows(spec, spec.eagle.k))
    except CannotLoad as error:
        if error.kind not in UNUSABLE_FILE:
            raise
        raise CannotDraft(f"{name} cannot be used: {error}") from error
    return HeadDrafter(head, spec.eagle.k, target, beat)


def _rows(spec: EngineSpec, k: int) -> int:
    # Outputs of a step in which each sequence reads what was accepted in the last step, at most.
    return spec.slots * (1 + k)
