"""Propose as many draft tokens as pay off for the sequences of an engine."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name

import numpy as np
import numpy.typing as npt

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama, Tokens, as_tokens
from orchestrator.engine.speculation.controller import (
    Acceptance,
    DraftCandidate,
    RefusalPauses,
    SpeculationController,
    common_draft_length,
    draft_lengths,
    model_acceptance,
    plain_seconds,
    sequence_acceptance,
)
from orchestrator.engine.speculation.drafter import Beat, CannotDraft, Drafter, MakeDrafter, Offer
from orchestrator.engine.step_cost.learned import SETTLED
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.registry.options import DRAFTING, INVARIANT_MICRO_BATCH, DraftName

_NOTHING = as_tokens(())
# After `_BASELINE_EVERY` drafted steps, `_BASELINE_STEPS` steps run without drafts: only these show what drafts save.
# This costs about 1 % of the savings.
_BASELINE_EVERY, _BASELINE_STEPS = 32, SETTLED
# If likely drafts looked too expensive in `_PROBE_EVERY` steps in a row, `_BASELINE_STEPS` steps verify up to
# `_PROBE_TOKENS` draft tokens per sequence: only this shows whether the believed cost is wrong. With more than
# `_PROBE_MAX_SEQUENCES` sequences drafts seldom pay off, so there is no probe.
_PROBE_EVERY, _PROBE_TOKENS, _PROBE_MAX_SEQUENCES = 128, 3, 4
_PROBABLY = 0.5  # acceptance rate


@dataclass(slots=True)
class _State:
    acceptance: dict[DraftName, Acceptance]  # by drafter
    drafter: DraftName  # that was asked last: the first with an offer, else the last one
    expected: int | None = None  # the next token, as `Offer.expected`
    drafted: int = 0  # draft tokens verified in the last step, without padding


@dataclass(slots=True)
class _Proposal:
    # Tokens are drafted only after their number is decided.
    sequence: Sequence
    state: _State
    max_tokens: int


@dataclass
class Speculator:
    """Chooses the draft tokens of each step, and learns from their acceptance."""

    llama: Llama
    spec: EngineSpec
    drafters: Mapping[DraftName, Drafter]  # in the order in which they are asked
    missing: str = ""  # why drafters that the settings name cannot be used
    controller: SpeculationController = field(default_factory=SpeculationController)
    seconds: float = 0.0  # drafting time of the last step
    _refusals: RefusalPauses = field(default_factory=RefusalPauses)
    _follows: bool = True  # whether the next step may draft
    _since_baseline: int = 0
    _steps_too_expensive: int = 0
    _model: dict[DraftName, Acceptance] = field(default_factory=model_acceptance)
    _states: dict[int, _State] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Whether speculation is on, and why, for the statistics."""
        if not self.missing:
            return self.controller.reason
        return f"{self.controller.reason}; {self.missing}" if self.drafters else f"off: {self.missing}"

    @property
    def computing_seconds(self) -> float:
        """The time that drafters have spent computing so far."""
        return sum(drafter.seconds for drafter in self.drafters.values())

    @property
    def wants_states(self) -> bool:
        """Whether to call `follow` after this step: not while the drafts that need it are off."""
        return self._follows and any(drafter.reads_states for drafter in self.drafters.values())

    def follow(self, sequence: Sequence, states: npt.NDArray[np.float32]) -> None:
        """Pass on the states from which the last tokens of a sequence were chosen, see `Drafter.follow`."""
        for drafter in self.drafters.values():
            if drafter.reads_states:
                drafter.follow(sequence, states)

    def set_threads(self, threads: int) -> None:
        for drafter in self.drafters.values():
            drafter.set_threads(threads)

    def propose(self, sequences: list[Sequence], costs: StepCostModel, token_budget: int) -> list[Tokens]:
        """Return the draft tokens for each sequence, at most `token_budget` in total.

        In a split cache, and with recurrent layers, shorter drafts are padded at the end.
        """
        started = time.monotonic()
        try:
            return self._propose(sequences, costs, token_budget)
        finally:
            self.seconds = time.monotonic() - started

    def _propose(self, sequences: list[Sequence], costs: StepCostModel, token_budget: int) -> list[Tokens]:
        if not self.drafters:
            return [_NOTHING] * len(sequences)
        if not self.controller.enabled and not self.spec.always_draft:
            self.controller.skip_step()
            self._follows = self.controller.enabled
            return [_NOTHING] * len(sequences)
        width = len(sequences)
        drafters = self.drafters
        if not self.spec.always_draft and self._refusals.skips(width):
            # The steps without a decision count, too: wrong costs are noticed no later.
            if self._steps_too_expensive:
                self._steps_too_expensive = min(self._steps_too_expensive + 1, _PROBE_EVERY - 1)
            drafters = {name: drafter for name, drafter in drafters.items() if not drafter.reads_states}
        self._follows = len(drafters) == len(self.drafters) or self._refusals.is_over(width)
        if not drafters:
            return [_NOTHING] * width
        proposals = [self._proposal(sequence, drafters) for sequence in sequences]
        if self._baseline_step_is_due():
            return [_NOTHING] * len(sequences)
        costs_per_token = {name: drafter.seconds_per_token(len(sequences)) for name, drafter in self.drafters.items()}
        candidates = [
            DraftCandidate(
                p.state.acceptance[p.state.drafter].rate,
                p.max_tokens,
                p.sequence.priority,
                depth=p.sequence.length,
                cost=costs_per_token[p.state.drafter],
                catch_up_cost=self._catch_up_cost(p),
            )
            for p in proposals
        ]
        lengths = self._lengths(candidates, costs, token_budget)
        pays = any(lengths)
        if pays:
            self._steps_too_expensive = 0
        else:
            lengths = self._probe_lengths(candidates, token_budget)
        # A probe takes several steps.
        if (pays or not any(lengths)) and any(self._reads_states(p) for p in proposals):
            self._refusals.record(width, refused=not pays)
        if self.spec.batch_invariant:
            lengths = self._fitting([sequence.seq for sequence in sequences], lengths)
        return self._tokens(proposals, lengths)

    def _reads_states(self, proposal: _Proposal) -> bool:
        return proposal.max_tokens > 0 and self.drafters[proposal.state.drafter].reads_states

    def _fitting(self, seqs: list[int], lengths: list[int]) -> list[int]:
        # Shorten the drafts until the step fits into one micro-batch together with its padding.
        length = max(lengths)
        while length and not self.llama.fits(seqs, 1 + length):
            length -= 1
        return [length] * len(seqs)

    def _probe_lengths(self, candidates: list[DraftCandidate], token_budget: int) -> list[int]:
        likely = [
            candidate.max_tokens
            for candidate in candidates
            if candidate.acceptance >= _PROBABLY and candidate.max_tokens > 0
        ]
        self._steps_too_expensive += bool(likely) and len(candidates) <= _PROBE_MAX_SEQUENCES
        if self._steps_too_expensive < _PROBE_EVERY or not likely:
            return [0] * len(candidates)
        # The probe is over.
        if self._steps_too_expensive == _PROBE_EVERY + _BASELINE_STEPS - 1:
            self._steps_too_expensive = 0
        token_budget = (
            min(token_budget, INVARIANT_MICRO_BATCH - len(candidates)) if self.spec.batch_invariant else token_budget
        )
        room = self.llama.context_limit - max(candidate.depth for candidate in candidates)
        length = max(
            0, min(_PROBE_TOKENS, self._most_rejected(len(candidates)), *likely, room, token_budget // len(candidates))
        )
        return [length if self._alike else min(length, candidate.max_tokens) for candidate in candidates]

    def _most_rejected(self, width: int) -> int:
        return self.llama.max_rollback if width <= self.llama.checkpoints else self.llama.free_rollback

    @property
    def _alike(self) -> bool:
        # llama.cpp computes streams, and recurrent states, together only if they have equally many tokens.
        return self.llama.split or not self.llama.can_cut_back

    def _baseline_step_is_due(self) -> bool:
        due = self._since_baseline >= _BASELINE_EVERY and not self.spec.always_draft
        if due:
            self._since_baseline += 1
            if self._since_baseline == _BASELINE_EVERY + _BASELINE_STEPS:
                self._since_baseline = 0
        return due

    def _catch_up_cost(self, proposal: _Proposal) -> float:
        if not proposal.max_tokens:
            return 0.0
        sequence = proposal.sequence
        seconds = self.drafters[proposal.state.drafter].catch_up_seconds(sequence)
        return seconds / (sequence.max_tokens - len(sequence.output))

    def _lengths(self, candidates: list[DraftCandidate], costs: StepCostModel, token_budget: int) -> list[int]:
        batch_invariant = self.spec.batch_invariant
        if self._alike:  # sequences with fewer proposals verify as many tokens, which have to fit behind what they hold
            room = self.llama.context_limit - max(candidate.depth for candidate in candidates)
            room = min(room, self._most_rejected(len(candidates)))
            token_budget = min(token_budget, room * len(candidates))
        if self.spec.always_draft:
            length = (
                min(token_budget, INVARIANT_MICRO_BATCH - len(candidates)) if batch_invariant else token_budget
            ) // len(candidates)
            lengths = [max(0, min(length, candidate.max_tokens)) for candidate in candidates]
            return [max(lengths)] * len(candidates) if self._alike else lengths
        if self._alike:
            return [
                common_draft_length(
                    costs,
                    candidates,
                    token_budget=token_budget,
                    batch_invariant=batch_invariant,
                    free_rollback=None if self.llama.can_cut_back else self.llama.free_rollback,
                )
            ] * len(candidates)
        return draft_lengths(costs, candidates, token_budget=token_budget, batch_invariant=batch_invariant)

    def drafted(self, sequence: Sequence) -> int:
        # without padding
        state = self._states.get(sequence.number)
        return 0 if state is None else state.drafted

    def observe(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Learn that the first `accepted` of `drafted` tokens were accepted, padding not counted."""
        state = self._states.get(sequence.number)
        if state is None:
            return
        # Without a draft, compare the token that was expected: this detects copying at no cost.
        if not drafted and state.expected is not None:
            drafted, accepted = 1, int(state.expected == sequence.output[-1])
        state.acceptance[state.drafter].observe(drafted, min(accepted, drafted))
        state.expected = None

    def record(self, costs: StepCostModel, depths: list[int], drafted: int, accepted: int, seconds: float) -> None:
        """Account for a step with drafts that only decoded sequences with `depths` cells."""
        self._since_baseline += 1
        plain = plain_seconds(costs, depths, len(depths) + accepted)
        self.controller.record(drafted, accepted, plain, seconds)

    def forget(self, sequence: Sequence) -> None:
        self._states.pop(sequence.number, None)
        for drafter in self.drafters.values():
            drafter.forget(sequence)

    def _proposal(self, sequence: Sequence, drafters: Mapping[DraftName, Drafter]) -> _Proposal:
        state = self._states.get(sequence.number)
        if state is None:
            state = self._states[sequence.number] = _State(sequence_acceptance(self._model), next(iter(drafters)))
        remaining = sequence.max_tokens - len(sequence.output) - 1
        offer = Offer(0)
        for name, drafter in drafters.items():
            state.drafter, offer = name, drafter.accept(sequence, remaining)
            if offer.length:
                break
        state.expected = offer.expected
        return _Proposal(sequence, state, offer.length)

    def _tokens(self, proposals: list[_Proposal], lengths: list[int]) -> list[Tokens]:
        proposed: dict[int, Tokens] = {}
        for name, drafter in self.drafters.items():
            counts = {
                index: min(length, p.max_tokens)
                for index, (p, length) in enumerate(zip(proposals, lengths, strict=True))
                if p.state.drafter == name and length and p.max_tokens
            }
            if counts:
                sequences = [proposals[index].sequence for index in counts]
                proposed |= zip(counts, drafter.propose(sequences, list(counts.values())), strict=True)
        drafts = []
        for index, (proposal, length) in enumerate(zip(proposals, lengths, strict=True)):
            tokens = proposed.get(index, _NOTHING)
            proposal.state.drafted = len(tokens)
            padding = np.zeros(length - len(tokens), np.int32)
            drafts.append(np.concatenate((tokens, padding)) if len(padding) else tokens)
        return drafts


def make_speculator(llama: Llama, spec: EngineSpec, beat: Beat) -> Speculator | None:
    """Return a speculator, or None if the settings ask for no drafts.

    Raises CannotLoad if the target cannot take tokens back, or if a drafter does not fit it.
    """
    if not spec.drafting:
        return None
    if not llama.max_rollback:
        raise CannotLoad("settings", f"{llama.info.architecture} models cannot take back tokens, so nothing is drafted")
    drafters: dict[DraftName, Drafter] = {}
    missing = []
    for name in spec.drafting:
        make: MakeDrafter = resolve_name(DRAFTING[name].drafter)
        try:
            drafters[name] = make(spec, llama, beat)
        except CannotDraft as error:
            print(error, file=sys.stderr, flush=True)
            missing.append(str(error))
    return Speculator(llama, spec, drafters, "; ".join(missing))
