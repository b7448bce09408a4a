"""Propose draft tokens for the sequences of an engine, from prompt lookup or a draft model, as many as pay."""

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
from registry.options import INVARIANT_MICRO_BATCH

_NOTHING = as_tokens(())
_BASELINE_EVERY, _BASELINE_STEPS = 32, SETTLED
"""After `_BASELINE_EVERY` steps with drafts, `_BASELINE_STEPS` steps are done without, because only these show what
drafts save. That costs about a hundredth of what is saved."""
_PROBE_EVERY, _PROBE_TOKENS, _PROBE_MAX_SEQUENCES = 128, 3, 4
"""When drafts that would probably be accepted looked too expensive in `_PROBE_EVERY` steps in a row, `_BASELINE_STEPS`
steps verify up to `_PROBE_TOKENS` draft tokens for each sequence: only this shows whether what is believed of their
cost is wrong. With more than `_PROBE_MAX_SEQUENCES` sequences drafts seldom pay, so there is no probe."""
_PROBABLY = 0.5
"""The acceptance rate from which draft tokens would probably be accepted."""
_UNUSABLE_FILE = ("missing", "unreadable", "not-gguf", "corrupt")
"""The kinds of CannotLoad that mean that the draft model's file is absent or broken."""


@dataclass(slots=True)
class _State:
    """What is known of one sequence."""

    lookup: PromptLookup | None
    acceptance: dict[DraftSource, Acceptance]
    seen: int = 0
    """How many tokens of the sequence's output `lookup` has been given."""
    expected: int | None = None
    """The next token according to prompt lookup."""
    drafted: int = 0
    """How many draft tokens the sequence verified in the last step, without padding."""
    source: DraftSource = "lookup"


@dataclass(slots=True)
class _Proposal:
    """What could be drafted for a sequence. The draft model is asked for tokens only after it is known how many pay."""

    sequence: Sequence
    state: _State
    tokens: Tokens
    """The draft tokens from prompt lookup; empty for a draft model."""
    max_tokens: int


@dataclass
class Speculator:
    """Chooses the draft tokens of each step, and learns from what becomes of them."""

    llama: Llama
    spec: EngineSpec
    draft_model: DraftModel | None
    missing: str = ""
    """Why there is no draft model although the settings ask for one; empty otherwise."""
    controller: SpeculationController = field(default_factory=SpeculationController)
    seconds: float = 0.0
    """How long drafting for the last step took."""
    _since_baseline: int = 0
    _steps_too_expensive: int = 0
    _model: dict[DraftSource, Acceptance] = field(default_factory=model_acceptance)
    _states: dict[int, _State] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Whether speculation is on, and why, in a sentence for statistics."""
        if not self.missing:
            return self.controller.reason
        return f"{self.controller.reason}; {self.missing}" if self.spec.prompt_lookup else f"off: {self.missing}"

    @property
    def draft_model_seconds(self) -> float:
        """How long the draft model has computed so far."""
        return self.draft_model.seconds if self.draft_model is not None else 0.0

    def propose(self, sequences: list[Sequence], costs: StepCostModel, token_budget: int) -> list[Tokens]:
        """Return the draft tokens that each decoding sequence verifies in this step, at most `token_budget` in all.

        With a split cache all sequences get equally many; those without enough proposals get padding at the end.
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
        """Return the lengths, shortened until the step fits into one micro-batch with what pads it."""
        length = max(lengths)
        while length and not self.llama.fits(seqs, 1 + length):
            length -= 1
        return [length] * len(seqs)

    def _probe_lengths(self, candidates: list[DraftCandidate], token_budget: int) -> list[int]:
        """Return how many tokens each sequence drafts although that looks too expensive: none, except in a probe."""
        likely = [one.max_tokens for one in candidates if one.acceptance >= _PROBABLY and one.max_tokens > 0]
        self._steps_too_expensive += bool(likely) and len(candidates) <= _PROBE_MAX_SEQUENCES
        if self._steps_too_expensive < _PROBE_EVERY or not likely:
            return [0] * len(candidates)
        if self._steps_too_expensive == _PROBE_EVERY + _BASELINE_STEPS - 1:
            self._steps_too_expensive = 0
        token_budget = (
            min(token_budget, INVARIANT_MICRO_BATCH - len(candidates)) if self.spec.batch_invariant else token_budget
        )
        left = self.llama.context_limit - max(candidate.depth for candidate in candidates)
        length = max(0, min(_PROBE_TOKENS, *likely, left, token_budget // len(candidates)))
        return [length if self.llama.split else min(length, candidate.max_tokens) for candidate in candidates]

    def _baseline_step_is_due(self) -> bool:
        """Count a step, and return whether it is to be done without drafts to show what drafts save."""
        due = self._since_baseline >= _BASELINE_EVERY and not self.spec.always_draft
        if due:
            self._since_baseline += 1
            if self._since_baseline == _BASELINE_EVERY + _BASELINE_STEPS:
                self._since_baseline = 0
        return due

    def _catch_up_cost(self, proposal: _Proposal) -> float:
        """Return how long the draft model must read before it can draft, in seconds per remaining output token."""
        if self.draft_model is None or proposal.state.source != "draft" or not proposal.max_tokens:
            return 0.0
        sequence = proposal.sequence
        return self.draft_model.catch_up_seconds(sequence) / (sequence.max_tokens - len(sequence.output))

    def _lengths(self, candidates: list[DraftCandidate], costs: StepCostModel, token_budget: int) -> list[int]:
        """Return how many tokens each sequence drafts, or verifies as padding with a split cache."""
        batch_invariant, split = self.spec.batch_invariant, self.llama.split
        if split:  # sequences with fewer proposals verify as many tokens, which have to fit behind what they hold
            left = self.llama.context_limit - max(candidate.depth for candidate in candidates)
            token_budget = min(token_budget, left * len(candidates))
        if self.spec.always_draft:
            each = (
                min(token_budget, INVARIANT_MICRO_BATCH - len(candidates)) if batch_invariant else token_budget
            ) // len(candidates)
            lengths = [max(0, min(each, candidate.max_tokens)) for candidate in candidates]
            return [max(lengths)] * len(candidates) if split else lengths
        if split:
            return [
                common_draft_length(costs, candidates, token_budget=token_budget, batch_invariant=batch_invariant)
            ] * len(candidates)
        return draft_lengths(costs, candidates, token_budget=token_budget, batch_invariant=batch_invariant)

    def drafted(self, sequence: Sequence) -> int:
        """Return how many tokens were drafted for a sequence in this step, without the padding behind them."""
        state = self._states.get(sequence.number)
        return 0 if state is None else state.drafted

    def observe(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Learn that the first `accepted` of `drafted` tokens of a sequence were accepted, padding not counted.

        When nothing was drafted, the token that prompt lookup expected is compared with the token that came. This
        notices copying at no cost, also where only drafts of high acceptance pay.
        """
        state = self._states.get(sequence.number)
        if state is None:
            return
        if not drafted and state.expected is not None:
            drafted, accepted = 1, int(state.expected == sequence.output[-1])
        state.acceptance[state.source].observe(drafted, min(accepted, drafted))
        state.expected = None

    def record(self, costs: StepCostModel, depths: list[int], drafted: int, accepted: int, seconds: float) -> None:
        """Account for a step that took `seconds` and only decoded sequences that hold `depths` cells, with drafts."""
        self._since_baseline += 1
        plain = plain_seconds(costs, depths, len(depths) + accepted)
        self.controller.record(drafted, accepted, plain, seconds)

    def forget(self, sequence: Sequence) -> None:
        """Drop what is known of a sequence that has ended."""
        self._states.pop(sequence.number, None)
        if self.draft_model is not None and sequence.seq >= 0:
            self.draft_model.forget(sequence.seq)

    def _proposal(self, sequence: Sequence) -> _Proposal:
        state = self._states.get(sequence.number)
        if state is None:
            longest = self.spec.prompt_lookup.ngram if self.spec.prompt_lookup else 0
            lookup = PromptLookup(sequence.prompt, longest) if longest else None
            state = self._states[sequence.number] = _State(lookup, sequence_acceptance(self._model))
        left = sequence.max_tokens - len(sequence.output) - 1
        tokens, max_tokens = _NOTHING, 0
        if state.lookup is not None and self.spec.prompt_lookup:
            for token in sequence.output[state.seen :]:
                state.lookup.append(token)
            state.seen = len(sequence.output)
            state.source = "lookup"
            tokens = state.lookup.propose(max(0, min(self.spec.prompt_lookup.k, left)))
            max_tokens = len(tokens)
            state.expected = int(tokens[0]) if max_tokens else None
        speculation = self.spec.speculation
        if not max_tokens and self.draft_model is not None and speculation is not None:
            state.source = "draft"
            max_tokens = max(0, min(speculation.k, left))
        return _Proposal(sequence, state, tokens, max_tokens)

    def _tokens(self, proposals: list[_Proposal], lengths: list[int]) -> list[Tokens]:
        """Return the draft tokens: from prompt lookup or made now by the draft model, padded to `lengths`."""
        wanted = {
            index: min(length, p.max_tokens)
            for index, (p, length) in enumerate(zip(proposals, lengths, strict=True))
            if p.state.source == "draft" and length and p.max_tokens
        }
        made: dict[int, Tokens] = {}
        if wanted and self.draft_model is not None:
            drafted = self.draft_model.propose([proposals[index].sequence for index in wanted], list(wanted.values()))
            made = dict(zip(wanted, drafted, strict=True))
        drafts = []
        for index, (proposal, length) in enumerate(zip(proposals, lengths, strict=True)):
            tokens = made.get(index, proposal.tokens)[:length]
            proposal.state.drafted = len(tokens)
            padding = np.zeros(length - len(tokens), np.int32)
            drafts.append(np.concatenate((tokens, padding)) if len(padding) else tokens)
        return drafts


def make_speculator(llama: Llama, spec: EngineSpec, beat: Callable[[float], None]) -> Speculator | None:
    """Return a speculator as the settings ask for, or None if they ask for no drafts.

    `beat` is called before each step of the draft model with the seconds that the step may take. If the draft model's
    file is missing or broken, that is printed and the speculator does without it, since drafts only save time. Raises
    CannotLoad where the settings are impossible: the target cannot take back tokens, or the vocabularies differ.
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
        if error.kind not in _UNUSABLE_FILE:
            raise
        missing = f"the draft model {spec.speculation.draft} cannot be used: {error}"
        print(missing, file=sys.stderr, flush=True)
        return Speculator(llama, spec, None, missing)
