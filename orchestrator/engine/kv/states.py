"""Admit sequences of a model with recurrent layers, and choose which of their states stay for later requests.

Such a sequence can be forked where its state stands, which is at its end, and nowhere before. So states are kept of
finished sequences and of the starts of prompts: see `docs/adr/0037-states-are-kept-where-prompts-part.md`.
"""

from orchestrator.engine.kv.slots import NO_TOKENS, PooledSlots, PrefillSeconds
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.registry.options import Adapters


class StateSlots(PooledSlots):
    """The sequences of one pool, whose layers with attention have cells and whose recurrent layers have states.

    Each retained sequence has a state. There are at most as many as sequences beyond the slots.
    """

    def __init__(self, llama: Llama, slots: int, seconds: PrefillSeconds) -> None:
        super().__init__(llama, slots, seconds)
        self._most_retained = max(0, llama.sequences - slots)

    def match(self, tokens: Tokens, lora: Adapters = ()) -> tuple[int, int]:
        return self.tree.match_end(tokens, self._stands, lora)

    def note_read(self, seconds: float) -> None:
        pass  # few layers read the retained cells

    def checkpoint(self, seq: int) -> None:
        if not self._stands(seq) or self.tree.is_repeated(seq, NO_TOKENS, self._retained.__contains__):
            return
        if len(self._retained) == self._most_retained:
            victim, worth = self._victim(), self._inflation + self._value(seq)
            if victim is None or self._worth(victim) > worth:
                self._inflation = worth  # as if it had been kept and evicted
                return
            self._evict(victim)
        length, target = self._live[seq].computed, self._free.pop()
        self.tree.fork(seq, target, length)
        self._llama.fork(seq, target, length)
        self._keep(target, length)

    def _make_room(self, cells: int) -> bool:
        if len(self._retained) >= self._most_retained and (victim := self._victim()) is not None:
            self._evict(victim)
        return len(self._retained) < self._most_retained and super()._make_room(cells)

    def release(self, seq: int, computed: int, answer: Tokens = NO_TOKENS) -> None:
        del self._live[seq]
        self._admission_blocked = False
        length = computed + len(answer)
        is_usable = self._llama.held(seq) == length > 0
        if not is_usable or self.tree.is_repeated(seq, answer, self._retained.__contains__):
            self._remove(seq)
            return
        if len(answer):
            self.tree.extend(seq, answer)
        self._keep(seq, length)
        if len(self._retained) > self._most_retained and (victim := self._victim()) is not None:
            self._evict(victim)
        self._evict_until_within_limit()

    @property
    def _retained_cells(self) -> int:
        return self.finished_cells  # retained sequences are often prefixes of each other

    def _stands(self, seq: int) -> bool:
        # Whether its state is that after the tokens which the tree has of it.
        return seq in self._retained or 0 < self._live[seq].computed == self._llama.held(seq)

    def _value(self, seq: int) -> float:
        size = self._llama.state_bytes + self._llama.cell_bytes * self.tree.exclusive(seq)
        return self._seconds_of(seq, self.tree.distance(seq, self._retained)) / size
