"""Store the KV cells of prompts on disk, and restore them for prompts that start with the same tokens.

What an engine has computed outlasts it: see `docs/adr/0039-prompts-outlast-engines.md`.
"""

import hashlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.engine.contract import EngineSpec, HeldPrefix, PrefixFile
from orchestrator.engine.kv.prefix_store import BadPrefix, PrefixStore, StoredPrefix
from orchestrator.engine.kv.prefix_value import LEAST_TOKENS, pays
from orchestrator.engine.kv.slots import Slots
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.model import StepCostModel
from orchestrator.engine.worker.sequences import Sequences
from orchestrator.engine.worker.system_prompts import PromptStart
from orchestrator.registry.options import Adapters

QUIET_SECONDS: Final = 0.25  # Idle time before prompts are written, because more work often follows at once.
# Assumed: the time to open a file and to look at each one that is there, and bytes per second, of reading until some
# were read.
_OPEN_SECONDS = 0.002
_LOOK_SECONDS = 10e-6
_READ_RATE = 500e6
_WRITE_RATE = 200e6
_LEARNING_RATE = 0.3
_LEAST_STORED_ALL = 32  # with `EngineSpec.stores_all`: the fewest tokens that a file saves


@dataclass(frozen=True, slots=True)
class _Files:
    """What the model's file and, by name, its adapters were when they were loaded.

    That is their SHA-256, if the engine knows it, otherwise size and time of change.
    """

    model: cost_cache.CacheKey
    adapters: dict[str, tuple[int, int] | str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A retained sequence that is worth a file."""

    seq: int
    key: str
    tokens: Tokens
    size: int  # bytes of its state
    saved_seconds: float  # what its file would save, beyond those that are there


@dataclass(frozen=True, slots=True)
class _Export:
    """A prompt that another engine wants a file of."""

    number: int  # of the request
    tokens: Tokens
    lora: Adapters
    least: int  # tokens that the file must have
    writing: Iterator[None]  # what is still to be written for it


class StoredPrefixes:
    """The stored prompts of one model: `stored` of them were written here, and `restored` read, of `restored_tokens`.

    Failures are logged, never raised. `costs` returns the step costs; `announce` gets the seconds before a long read.
    `starts` are those with which many prompts start.
    """

    def __init__(
        self,
        llama: Llama,
        spec: EngineSpec,
        costs: Callable[[], StepCostModel],
        announce: Callable[[float], None],
        starts: Iterable[PromptStart] = (),
    ) -> None:
        self.stored = self.restored = self.restored_tokens = 0
        self._llama = llama
        self._spec = spec
        self._costs = costs
        self._announce = announce
        self._starts = tuple(starts)
        self._store: PrefixStore | None = None
        if spec.prefixes is not None and llama.can_fork and llama.can_store:
            try:
                # Now, since a file may be replaced while its old content is loaded.
                self._files = _files(llama, spec)
                self._store = PrefixStore(Path(spec.prefixes), spec.prefix_bytes)
            except OSError as error:
                _log(f"no prompts are stored: {error}")
        self._read_rate = _READ_RATE
        self._writing: Iterator[None] | None = None
        self._exports: deque[_Export] = deque()
        self._due: float | None = None  # when to look for prompts to write; None: there are none
        # Since the last work: what others remove is not written again and again.
        self._written: set[tuple[str, bytes]] = set()

    def restore(self, slots: Slots, tokens: Tokens, lora: Adapters) -> int:
        """Put the stored start of a prompt into the cache, if that takes less time than computing it.

        Returns how many tokens it has.
        """
        store = self._store
        if store is None:
            return 0
        held = slots.longest_shared_prefix(tokens, lora)[1]
        usable = len(tokens) - 1  # the last token is computed anyway, for its logits
        if not self._pays(held, usable, 0):
            return 0
        prefix = self._longest(store, tokens, lora)
        length = 0 if prefix is None else min(prefix.length, usable)
        if prefix is None or not self._pays(held, length, prefix.size):
            return 0
        if not slots.insert_prefix(tokens[:length], lora, partial(self._fill, store, prefix, length), prefix.tokens):
            return 0
        self.restored += 1
        self.restored_tokens += length
        return length

    def _longest(self, store: PrefixStore, tokens: Tokens, lora: Adapters) -> StoredPrefix | None:
        try:
            store.refresh()
            # The last token is computed anyway, and an end can only be used where it is.
            return store.longest(self._key(lora), tokens[:-1] if self._llama.restores_ends else tokens)
        except OSError as error:
            _log(f"no stored prompts can be read: {error}")
            return None

    def locate(self, slots: Slots, tokens: Tokens, lora: Adapters) -> HeldPrefix:
        """Return how many tokens of a prompt are in the cache or on disk, and the key of such cells."""
        if self._store is None:
            return HeldPrefix("", 0)
        prefix = self._longest(self._store, tokens, lora)
        held = slots.longest_shared_prefix(tokens, lora)[1]
        return HeldPrefix(self._key(lora), max(held, 0 if prefix is None else prefix.length))

    @property
    def exporting(self) -> bool:
        """Whether `write_exports` has something to do."""
        return bool(self._exports)

    def export(self, number: int, sequences: Sequences, tokens: Tokens, lora: Adapters, key: str, least: int) -> None:
        """Have `write_exports` return a file with at least the first `least` tokens of a prompt, for a request.

        It returns None instead if `key` is another one, if neither cache nor disk have as many tokens, or if the disk
        has no room for them.
        """
        writing: Iterator[None] = iter(())
        if self._store is None or key != self._key(lora):
            tokens = tokens[:0]  # no file has them
        else:
            try:
                writing = self._start_export(self._store, sequences, tokens, lora, least)
            except OSError as error:
                _log(f"a prompt cannot be stored for another engine: {error}")
        self._exports.append(_Export(number, tokens, lora, least, writing))

    def _start_export(
        self, store: PrefixStore, sequences: Sequences, tokens: Tokens, lora: Adapters, least: int
    ) -> Iterator[None]:
        # What writes the tokens that the cache has, unless a file has nearly as many.
        stored, llama = self._longest(store, tokens, lora), self._llama
        seq, length = sequences.slots.longest_shared_prefix(tokens, lora)
        least = max(least, stored.length + LEAST_TOKENS if stored is not None else 0)
        usable = length >= least and not llama.is_copied(seq)
        if not usable or (llama.restores_ends and length < llama.held(seq)):
            return iter(())
        held = sequences.content(seq)
        writing = store.write(
            self._key(lora),
            held,
            partial(llama.state, seq),
            size=llama.size_of_state(seq),
            seconds=self._costs().prompt_seconds(0, len(held)),
            cuts=not llama.restores_ends,
        )
        return iter(()) if writing is None else writing

    def write_exports(self) -> Iterator[tuple[int, PrefixFile | None]]:
        """Write the next piece of a file for another engine. Yields what is done, by the number of its request."""
        if not self._exports:
            return
        try:
            next(self._exports[0].writing)
            return
        except StopIteration:
            pass
        except OSError as error:
            _log(f"a prompt cannot be stored for another engine: {error}")
        export = self._exports.popleft()
        yield export.number, self._file_of(export)

    def _file_of(self, export: _Export) -> PrefixFile | None:
        store, tokens, lora = self._store, export.tokens, export.lora
        prefix = None if store is None or not len(tokens) else self._longest(store, tokens, lora)
        if store is None or prefix is None or prefix.length < export.least:
            return None
        try:
            digest = store.digest(prefix)
        except OSError:  # another engine has removed it
            return None
        with suppress(OSError):
            os.utime(prefix.path)  # it is used
        return PrefixFile(prefix.path.name, prefix.length, prefix.size, digest)

    def cancel_export(self, number: int) -> bool:
        """Give up a file that is being written; return whether there is one for the request with this number."""
        before = len(self._exports)
        self._exports = deque(export for export in self._exports if export.number != number)
        return len(self._exports) < before

    def note_work(self) -> None:
        """Note that the engine has just become idle, with other prompts in its cache than before."""
        if self._store is not None:
            self._due = time.monotonic() + QUIET_SECONDS
            self._written.clear()

    def wait(self) -> float | None:
        """Return the seconds to wait for work before the next `step`, or None if there is nothing to write."""
        if self._writing is not None:
            return 0.0
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def step(self, slots: Slots, seconds: float = float("inf")) -> bool:
        """Write the next piece of a prompt that a sequence holds; return whether there may be more.

        A prompt that takes longer than `seconds` is not started.
        """
        try:
            if self._writing is None:
                self._writing = self._start_writing(slots, seconds)
            if self._writing is not None:
                next(self._writing)
                return True
        except StopIteration:
            self.stored += 1
            self._writing = None
            return True
        except OSError as error:
            _log(f"a prompt cannot be stored: {error}")
        self._writing = self._due = None
        return False

    def save(self, slots: Slots, seconds: float) -> None:
        """Write the retained prompts, the most valuable first, until the seconds are used up.

        Nothing may be computed afterwards.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.step(slots, left):
            pass
        self._writing = None  # which removes an unfinished file
        if self._store is not None and not self._llama.keeps_states:
            self._save_starts(self._store, slots, until)

    def _save_starts(self, store: PrefixStore, slots: Slots, until: float) -> None:
        # What a longer prompt shares with others cannot be restored from its file, which has the content of its window:
        # system prompts, and documents.
        starts = list(self._starts)
        if self._llama.restores_ends:
            for _, lora, prompt in slots.retained_prefixes():
                starts.append((lora, prompt[: self._llama.vocab.end_of_documents(prompt)]))
        for lora, tokens in sorted(starts, key=lambda start: -len(start[1])):
            key, (seq, length) = self._key(lora), slots.match(tokens, lora)
            stored = store.longest(key, tokens)
            start = 0 if stored is None else stored.length
            if length < len(tokens) or self._llama.is_copied(seq) or time.monotonic() > until:
                continue
            self._llama.truncate(seq, length)
            size, saved = self._llama.size_of_state(seq), self._costs().prompt_seconds(0, length)
            if start < length and self._pays(start, length, size):
                state = partial(self._llama.state, seq)
                try:
                    for _ in store.write(key, tokens, state, size=size, seconds=saved, cuts=False) or ():
                        pass
                except OSError as error:
                    _log(f"the start of a prompt cannot be stored: {error}")

    def _start_writing(self, slots: Slots, seconds: float) -> Iterator[None] | None:
        if self._store is None:
            return None
        self._store.refresh()
        costs = self._costs()
        candidates = sorted(self._candidates(self._store, slots), key=lambda candidate: -candidate.saved_seconds)
        for candidate in candidates:
            if candidate.size > _WRITE_RATE * seconds:
                continue
            self._written.add((candidate.key, candidate.tokens.tobytes()))
            writing = self._store.write(
                candidate.key,
                candidate.tokens,
                partial(self._llama.state, candidate.seq),
                size=candidate.size,
                seconds=costs.prompt_seconds(0, len(candidate.tokens)),
                cuts=not self._llama.restores_ends,
            )
            if writing is not None:
                return writing
        return None

    def _candidates(self, store: PrefixStore, slots: Slots) -> Iterator[_Candidate]:
        llama, costs = self._llama, self._costs()
        for seq, lora, tokens in slots.retained_prefixes():
            key = self._key(lora)
            if llama.held(seq) != len(tokens) or llama.is_copied(seq) or (key, tokens.tobytes()) in self._written:
                continue
            stored = store.longest(key, tokens)
            start = 0 if stored is None else stored.length
            size = llama.size_of_state(seq)
            if self._pays(start, len(tokens), size):
                saved = costs.prompt_seconds(start, len(tokens) - start)
                yield _Candidate(seq, key, tokens, size, saved)

    def _pays(self, start: int, end: int, size: int) -> bool:
        # Whether to read the tokens of a prompt from `start` to `end` from a file of `size` bytes.
        if self._spec.stores_all:
            return end - start >= _LEAST_STORED_ALL
        return pays(end - start, self._costs().prompt_seconds(start, end - start), self._read_seconds(size))

    def _read_seconds(self, size: int) -> float:
        files = 0 if self._store is None else self._store.files
        return _OPEN_SECONDS + _LOOK_SECONDS * files + size / self._read_rate

    def _fill(self, store: PrefixStore, prefix: StoredPrefix, length: int, seq: int) -> bool:
        if self._llama.is_copied(seq):
            return False
        self._announce(self._read_seconds(prefix.size))
        started = time.monotonic()
        try:
            if not self._llama.restore(seq, store.read(prefix), prefix.tokens):
                raise BadPrefix("llama.cpp refuses it")
        except (BadPrefix, OSError) as error:
            _log(f"the prompt in {prefix.path} is not used: {error}")
            store.remove(prefix)
            return False
        rate = prefix.size / max(1e-6, time.monotonic() - started)
        self._read_rate += _LEARNING_RATE * (rate - self._read_rate)
        if length < prefix.tokens:
            self._llama.truncate(seq, length)
        return True

    def _key(self, lora: Adapters) -> str:
        # Everything that the last bits of the cells depend on.
        llama, spec = self._llama, self._spec
        basis = (
            self._files.model,
            [(self._files.adapters[adapter.file], adapter.scale) for adapter in spec.lora + lora],
            (spec.kv_type_k, spec.kv_type_v, llama.flash_attention, spec.experts),
            (spec.batch_invariant, llama.row_multiple),
            llama.sequences if llama.split and not llama.portable_states else 0,
        )
        return hashlib.sha256(repr(basis).encode()).hexdigest()[:32]


def _files(llama: Llama, spec: EngineSpec) -> _Files:
    # Raises OSError.
    model = cost_cache.cache_key(
        Path(spec.file), llama_cpp=llama.info.llama_cpp, threads=0, cpu=cpu_model(), settings=""
    )
    if (digest := spec.digests.get(spec.file)) is not None:
        model = replace(model, file_mtime_ns=0, file_sha256=digest)
    adapters = {*(adapter.file for adapter in spec.lora), *spec.adapters}
    return _Files(model, {file: spec.digests.get(file) or _version(file) for file in adapters})


def _version(file: str) -> tuple[int, int]:
    status = Path(file).stat()
    return status.st_size, status.st_mtime_ns


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
