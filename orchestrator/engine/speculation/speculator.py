"""Draft tokens for the sequences of an engine: from prompt lookup or a draft model, as many as pay."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama, Tokens, as_tokens
from orchestrator.engine.speculation.controller import (
    BATCH_INVARIANT_QUERIES,
    Acceptance,
    Drafting,
    Ledger,
    Source,
    common_draft_length,
    draft_lengths,
    model_acceptance,
    plain_seconds,
    sequence_acceptance,
)
from orchestrator.engine.speculation.draft_model import DraftModel
from orchestrator.engine.speculation.prompt_lookup import Lookup
from orchestrator.engine.step_cost.learned import SETTLED
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.sequence import Sequence

_NOTHING = as_tokens(())
_PLAIN_EVERY, _PLAIN_STEPS = 32, SETTLED
"""After so many steps with drafts come so many without: only they tell what drafts save. That takes about a hundredth
of what is saved."""
_TRIED_EVERY, _TRIED_TOKENS, _TRIED_SEQUENCES = 128, 3, 4
"""After so many steps in a row in which drafts that would probably be accepted looked too dear, so few tokens are
drafted for as many steps as `_PLAIN_STEPS`: if what is known of their cost is wrong, only this tells. With more
sequences than that, drafts seldom pay."""
_PROBABLY = 0.5
"""How likely a draft token has to be accepted for that."""
_NO_FILE = ("missing", "unreadable", "not-gguf", "corrupt")


@dataclass(slots=True)
class _State:
    """What is known of one sequence. `seen` is how much of its output the lookup has, `found` the token it expects,
    `drafted` how many tokens the sequence was given to verify last."""

    lookup: Lookup | None
    acceptance: dict[Source, Acceptance]
    seen: int = 0
    found: int | None = None
    drafted: int = 0
    source: Source = "lookup"


@dataclass(slots=True)
class _Proposal:
    """What could be drafted for a sequence; the draft model is only asked for what is worth it."""

    sequence: Sequence
    state: _State
    tokens: Tokens
    most: int


@dataclass
class Drafts:
    """Decides on drafts and learns from what becomes of them. `draft` is None without a draft model, and `missing` says
    why there is none although there should be."""

    llama: Llama
    spec: EngineSpec
    draft: DraftModel | None
    missing: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0
    """How long the drafts of the last step took."""
    _since_plain: int = 0
    _too_dear: int = 0
    _model: dict[Source, Acceptance] = field(default_factory=model_acceptance)
    _states: dict[int, _State] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """Whether drafting goes on, and why."""
        if not self.missing:
            return self.ledger.reason
        return f"{self.ledger.reason}; {self.missing}" if self.spec.prompt_lookup else f"off: {self.missing}"

    @property
    def llama_seconds(self) -> float:
        """How long the draft model has computed so far."""
        return self.draft.seconds if self.draft is not None else 0.0

    def propose(self, sequences: list[Sequence], costs: StepCostModel, room: int) -> list[Tokens]:
        """Return the draft tokens that each decoding sequence verifies in this step, at most `room` in all."""
        started = time.monotonic()
        try:
            return self._propose(sequences, costs, room)
        finally:
            self.seconds = time.monotonic() - started

    def _propose(self, sequences: list[Sequence], costs: StepCostModel, room: int) -> list[Tokens]:
        if not self.ledger.on and not self.spec.always_draft:
            self.ledger.rest()
            return [_NOTHING] * len(sequences)
        proposals = [self._proposal(sequence) for sequence in sequences]
        if self._plain_is_due():
            return [_NOTHING] * len(sequences)
        cost = self.draft.seconds_per_token(len(sequences)) if self.draft else 0.0
        asked = [
            Drafting(
                p.state.acceptance[p.state.source].rate,
                p.most,
                p.sequence.priority,
                depth=p.sequence.length,
                cost=cost if p.state.source == "draft" else 0.0,
                toll=self._toll(p),
            )
            for p in proposals
        ]
        lengths = self._lengths(asked, costs, room)
        if not any(lengths):
            lengths = self._tried(asked, room)
        else:
            self._too_dear = 0
        return self._tokens(proposals, lengths)

    def _tried(self, asked: list[Drafting], room: int) -> list[int]:
        """Return how many tokens each sequence drafts although that looks too dear: none, but a few now and then."""
        likely = [drafting.most for drafting in asked if drafting.acceptance >= _PROBABLY and drafting.most > 0]
        self._too_dear += bool(likely) and len(asked) <= _TRIED_SEQUENCES
        if self._too_dear < _TRIED_EVERY or not likely:
            return [0] * len(asked)
        if self._too_dear == _TRIED_EVERY + _PLAIN_STEPS - 1:
            self._too_dear = 0
        room = min(room, BATCH_INVARIANT_QUERIES - len(asked)) if self.spec.batch_invariant else room
        left = self.llama.context_limit - max(drafting.depth for drafting in asked)
        length = max(0, min(_TRIED_TOKENS, *likely, left, room // len(asked)))
        return [length if self.llama.split else min(length, drafting.most) for drafting in asked]

    def _plain_is_due(self) -> bool:
        """Say whether this step is one of those that tell what a step without drafts takes."""
        due = self._since_plain >= _PLAIN_EVERY and not self.spec.always_draft
        if due:
            self._since_plain += 1
            if self._since_plain == _PLAIN_EVERY + _PLAIN_STEPS:
                self._since_plain = 0
        return due

    def _toll(self, proposal: _Proposal) -> float:
        """Return what the draft model has to read first, in seconds for each token that may come."""
        if self.draft is None or proposal.state.source != "draft" or not proposal.most:
            return 0.0
        sequence = proposal.sequence
        return self.draft.reading_seconds(sequence) / (sequence.max_tokens - len(sequence.output))

    def _lengths(self, asked: list[Drafting], costs: StepCostModel, room: int) -> list[int]:
        """Return how many tokens each sequence drafts; equally many with a split cache."""
        batch_invariant, split = self.spec.batch_invariant, self.llama.split
        if split:  # who has fewer proposals verifies as many tokens, which have to fit behind what it holds
            left = self.llama.context_limit - max(drafting.depth for drafting in asked)
            room = min(room, left * len(asked))
        if self.spec.always_draft:
            each = (min(room, BATCH_INVARIANT_QUERIES - len(asked)) if batch_invariant else room) // len(asked)
            lengths = [max(0, min(each, drafting.most)) for drafting in asked]
            return [max(lengths)] * len(asked) if split else lengths
        if split:
            return [common_draft_length(costs, asked, room=room, batch_invariant=batch_invariant)] * len(asked)
        return draft_lengths(costs, asked, room=room, batch_invariant=batch_invariant)

    def drafted(self, sequence: Sequence) -> int:
        """Return how many tokens were drafted for a sequence in this step; fillers behind them are none."""
        state = self._states.get(sequence.number)
        return 0 if state is None else state.drafted

    def observe(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Learn that `accepted` of `drafted` tokens of a sequence stayed. A filler that is right was luck.

        What a lookup expected and nobody verified is compared with the token that came: so copying is noticed at no
        cost, also where only very good drafts pay.
        """
        state = self._states.get(sequence.number)
        if state is None:
            return
        if not drafted and state.found is not None:
            drafted, accepted = 1, int(state.found == sequence.output[-1])
        state.acceptance[state.source].observe(drafted, min(accepted, drafted))
        state.found = None

    def record(self, costs: StepCostModel, depths: list[int], drafted: int, accepted: int, seconds: float) -> None:
        """Account for a step that did nothing but decode sequences of these depths, with drafts."""
        self._since_plain += 1
        plain = plain_seconds(costs, depths, len(depths) + accepted)
        self.ledger.record(drafted, accepted, plain, seconds)

    def forget(self, sequence: Sequence) -> None:
        """Drop what is known of a sequence that has ended."""
        self._states.pop(sequence.number, None)
        if self.draft is not None and sequence.seq >= 0:
            self.draft.forget(sequence.seq)

    def _proposal(self, sequence: Sequence) -> _Proposal:
        state = self._states.get(sequence.number)
        if state is None:
            longest = self.spec.prompt_lookup[0] if self.spec.prompt_lookup else 0
            lookup = Lookup(sequence.prompt, longest) if longest else None
            state = self._states[sequence.number] = _State(lookup, sequence_acceptance(self._model))
        left = sequence.max_tokens - len(sequence.output) - 1
        tokens, most = _NOTHING, 0
        if state.lookup is not None and self.spec.prompt_lookup:
            for token in sequence.output[state.seen :]:
                state.lookup.append(token)
            state.seen = len(sequence.output)
            state.source = "lookup"
            tokens = state.lookup.propose(max(0, min(self.spec.prompt_lookup[1], left)))
            most = len(tokens)
            state.found = int(tokens[0]) if most else None
        if not most and self.draft is not None:
            state.source = "draft"
            most = max(0, min(self.spec.draft_tokens, left))
        return _Proposal(sequence, state, tokens, most)

    def _tokens(self, proposals: list[_Proposal], lengths: list[int]) -> list[Tokens]:
        """Return the drafts: those looked up, those that the draft model makes now, and fillers behind them."""
        wanted = {
            index: min(length, p.most)
            for index, (p, length) in enumerate(zip(proposals, lengths, strict=True))
            if p.state.source == "draft" and length and p.most
        }
        made: dict[int, Tokens] = {}
        if wanted and self.draft is not None:
            drafted = self.draft.propose([proposals[index].sequence for index in wanted], list(wanted.values()))
            made = dict(zip(wanted, drafted, strict=True))
        drafts = []
        for index, (proposal, length) in enumerate(zip(proposals, lengths, strict=True)):
            tokens = made.get(index, proposal.tokens)[:length]
            proposal.state.drafted = len(tokens)
            fillers = np.zeros(length - len(tokens), np.int32)
            drafts.append(np.concatenate((tokens, fillers)) if len(fillers) else tokens)
        return drafts


def drafts_for(llama: Llama, spec: EngineSpec, beat: Callable[[float], None]) -> Drafts | None:
    """Return the drafts that the settings ask for, or None.

    Without the file of the draft model, or with a broken one, it goes on without drafts of it, for they only save time.
    Raises CannotLoad where what is asked for is impossible.
    """
    if spec.prompt_lookup is None and spec.draft is None:
        return None
    if not llama.can_share:
        raise CannotLoad("settings", f"{llama.info.architecture} models cannot take back tokens, so nothing is drafted")
    if spec.draft is None:
        return Drafts(llama, spec, None)
    try:
        return Drafts(llama, spec, DraftModel(spec, llama, beat))
    except CannotLoad as error:
        if error.kind not in _NO_FILE:
            raise
        missing = f"the draft model {spec.draft} cannot be used: {error}"
        print(missing, file=sys.stderr, flush=True)
        return Drafts(llama, spec, None, missing)
