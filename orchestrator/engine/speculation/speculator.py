"""Propose as many draft tokens as pay off for the sequences of an engine."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama, Tokens, as_tokens
from orchestrator.engine.speculation.controller import (
    Acceptance,
    DraftCandidate,
    DraftSource,
    SpeculationController,
    common_draft_length,
    draft_lengths,
    model_acceptance,
    plain_seconds,
    sequence_acceptance,
)
from orchestrator.engine.speculation.draft_model import DraftModel
from orchestrator.engine.speculation.prompt_lookup import PromptLookup
from orchestrator.engine.step_cost.learned import SETTLED
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.registry.options import INVARIANT_MICRO_BATCH

_NOTHING = as_tokens(())
# After `_BASELINE_EVERY` drafted steps, `_BASELINE_STEPS` steps run without drafts: only these show what drafts save.
# This costs about 1 % of the savings.
_BASELINE_EVERY, _BASELINE_STEPS = 32, SETTLED
# If likely drafts looked too expensive in `_PROBE_EVERY` steps in a row, `_BASELINE_STEPS` steps verify up to
# `_PROBE_TOKENS` draft tokens per sequence: only this shows whether the believed cost is wrong. With more than
# `_PROBE_MAX_SEQUENCES` sequences drafts seldom pay off, so there is no probe.
_PROBE_EVERY, _PROBE_TOKENS, _PROBE_MAX_SEQUENCES = 128, 3, 4
_PROBABLY = 0.5  # acceptance rate
# the kinds of CannotLoad for an absent or broken file
_UNUSABLE_FILE = ("missing", "unreadable", "not-gguf", "corrupt")


@dataclass(slots=True)
class _State:
    lookup: PromptLookup | None
    acceptance: dict[DraftSource, Acceptance]
    indexed: int = 0  # output tokens that `lookup` has
    expected: int | None = None  # the next token according to prompt lookup
    drafted: int = 0  # draft tokens verified in the last step, without padding
    source: DraftSource = "lookup"


@dataclass(slots=True)
class _Proposal:
    # The draft model runs only after the number of tokens is decided.
    sequence: Sequence
    state: _State
    tokens: Tokens  # from prompt lookup; empty for a draft model
    max_tokens: int


@dataclass
class Speculator:
    """Chooses the draft tokens of each step, and learns from their acceptance."""

    llama: Llama
    spec: EngineSpec
    draft_model: DraftModel | None
    missing: str = ""  # why there is no draft model although the settings name one
    controller: SpeculationController = field(default_factory=SpeculationController)
    seconds: float = 0.0  # drafting time of the last step
    _since_baseline: int = 0
    _steps_too_expensive: int = 0
    _model: dict[DraftSource, Acceptance] = field(default_factory=model_acceptance)
    _states: dict[int, _State] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Whether speculation is on, and why, for the statistics."""
        if not self.missing:
            return self.controller.reason
        return f"{self.controller.reason}; {self.missing}" if self.spec.prompt_lookup else f"off: {self.missing}"

    @property
    def draft_model_seconds(self) -> float:
        return self.draft_model.seconds if self.draft_model is not None else 0.0

    def propose(self, sequences: list[Sequence], costs: StepCostModel, token_budget: int) -> list[Tokens]:
        """Return the draft tokens for each sequence, at most `token_budget` in total.

        In a split cache, shorter drafts are padded at the end.
        """
        started = time.monotonic()
        try:
            return self._propose(sequences, costs, token_budget)
        finally:
            self.seconds = time.monotonic() - started

    def _propose(self, sequences: list[Sequence], costs: StepCostModel, token_budget: int) -> list[Tokens]:
        if not self.controller.enabled and not self.spec.always_draft:
            self.controller.skip_step()
            return [_NOTHING] * len(sequences)
        proposals = [self._proposal(sequence) for sequence in sequences]
        if self._baseline_step_is_due():
            return [_NOTHING] * len(sequences)
        cost = self.draft_model.seconds_per_token(len(sequences)) if self.draft_model else 0.0
        candidates = [
            DraftCandidate(
                p.state.acceptance[p.state.source].rate,
                p.max_tokens,
                p.sequence.priority,
                depth=p.sequence.length,
                cost=cost if p.state.source == "draft" else 0.0,
                catch_up_cost=self._catch_up_cost(p),
            )
            for p in proposals
        ]
        lengths = self._lengths(candidates, costs, token_budget)
        if not any(lengths):
            lengths = self._probe_lengths(candidates, token_budget)
        else:
            self._steps_too_expensive = 0
        if self.spec.batch_invariant:
            lengths = self._fitting([sequence.seq for sequence in sequences], lengths)
        return self._tokens(proposals, lengths)

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
        length = max(0, min(_PROBE_TOKENS, *likely, room, token_budget // len(candidates)))
        return [length if self.llama.split else min(length, candidate.max_tokens) for candidate in candidates]

    def _baseline_step_is_due(self) -> bool:
        due = self._since_baseline >= _BASELINE_EVERY and not self.spec.always_draft
        if due:
            self._since_baseline += 1
            if self._since_baseline == _BASELINE_EVERY + _BASELINE_STEPS:
                self._since_baseline = 0
        return due

    def _catch_up_cost(self, proposal: _Proposal) -> float:
        if self.draft_model is None or proposal.state.source != "draft" or not proposal.max_tokens:
            return 0.0
        sequence = proposal.sequence
        return self.draft_model.catch_up_seconds(sequence) / (sequence.max_tokens - len(sequence.output))

    def _lengths(self, candidates: list[DraftCandidate], costs: StepCostModel, token_budget: int) -> list[int]:
        batch_invariant, split = self.spec.batch_invariant, self.llama.split
        if split:  # sequences with fewer proposals verify as many tokens, which have to fit behind what they hold
            room = self.llama.context_limit - max(candidate.depth for candidate in candidates)
            token_budget = min(token_budget, room * len(candidates))
        if self.spec.always_draft:
            length = (
                min(token_budget, INVARIANT_MICRO_BATCH - len(candidates)) if batch_invariant else token_budget
            ) // len(candidates)
            lengths = [max(0, min(length, candidate.max_tokens)) for candidate in candidates]
            return [max(lengths)] * len(candidates) if split else lengths
        if split:
            return [
                common_draft_length(costs, candidates, token_budget=token_budget, batch_invariant=batch_invariant)
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
        # Without a draft, compare the token that prompt lookup expected: this detects copying at no cost.
        if not drafted and state.expected is not None:
            drafted, accepted = 1, int(state.expected == sequence.output[-1])
        state.acceptance[state.source].observe(drafted, min(accepted, drafted))
        state.expected = None

    def record(self, costs: StepCostModel, depths: list[int], drafted: int, accepted: int, seconds: float) -> None:
        """Account for a step with drafts that only decoded sequences with `depths` cells."""
        self._since_baseline += 1
        plain = plain_seconds(costs, depths, len(depths) + accepted)
        self.controller.record(drafted, accepted, plain, seconds)

    def forget(self, sequence: Sequence) -> None:
        self._states.pop(sequence.number, None)
        if self.draft_model is not None and sequence.seq >= 0:
            self.draft_model.forget(sequence.seq)

    def _proposal(self, sequence: Sequence) -> _Proposal:
        state = self._states.get(sequence.number)
        if state is None:
            longest = self.spec.prompt_lookup.ngram if self.spec.prompt_lookup else 0
            lookup = PromptLookup(sequence.prompt, longest) if longest else None
            state = self._states[sequence.number] = _State(lookup, sequence_acceptance(self._model))
        remaining = sequence.max_tokens - len(sequence.output) - 1
        tokens, max_tokens = _NOTHING, 0
        if state.lookup is not None and self.spec.prompt_lookup:
            for token in sequence.output[state.indexed :]:
                state.lookup.append(token)
            state.indexed = len(sequence.output)
            state.source = "lookup"
            tokens = state.lookup.propose(max(0, min(self.spec.prompt_lookup.k, remaining)))
            max_tokens = len(tokens)
            state.expected = int(tokens[0]) if max_tokens else None
        speculation = self.spec.speculation
        if not max_tokens and self.draft_model is not None and speculation is not None:
            state.source = "draft"
            max_tokens = max(0, min(speculation.k, remaining))
        return _Proposal(sequence, state, tokens, max_tokens)

    def _tokens(self, proposals: list[_Proposal], lengths: list[int]) -> list[Tokens]:
        draft_counts = {
            index: min(length, p.max_tokens)
            for index, (p, length) in enumerate(zip(proposals, lengths, strict=True))
            if p.state.source == "draft" and length and p.max_tokens
        }
        model_drafts: dict[int, Tokens] = {}
        if draft_counts and self.draft_model is not None:
            drafted = self.draft_model.propose(
                [proposals[index].sequence for index in draft_counts], list(draft_counts.values())
            )
            model_drafts = dict(zip(draft_counts, drafted, strict=True))
        drafts = []
        for index, (proposal, length) in enumerate(zip(proposals, lengths, strict=True)):
            tokens = model_drafts.get(index, proposal.tokens)[:length]
            proposal.state.drafted = len(tokens)
            padding = np.zeros(length - len(tokens), np.int32)
            drafts.append(np.concatenate((tokens, padding)) if len(padding) else tokens)
        return drafts


def make_speculator(llama: Llama, spec: EngineSpec, beat: Callable[[float], None]) -> Speculator | None:
    """Return a speculator, or None if the settings ask for no drafts.

    `beat` is called before each draft model step with the seconds it may take. Raises CannotLoad if the target cannot
    remove tokens or the vocabularies differ.
    """
    if spec.prompt_lookup is None and spec.speculation is None:
        return None
    if not llama.can_share:
        raise CannotLoad("settings", f"{llama.info.architecture} models cannot take back tokens, so nothing is drafted")
    if spec.speculation is None:
        return Speculator(llama, spec, None)
    try:
        return Speculator(llama, spec, DraftModel(spec, llama, beat))
    except CannotLoad as error:
        # Drafts only save time, so a missing or broken file is not fatal.
        if error.kind not in _UNUSABLE_FILE:
            raise
        missing = f"the draft model {spec.speculation.draft} cannot be used: {error}"
        print(missing, file=sys.stderr, flush=True)
        return Speculator(llama, spec, None, missing)
