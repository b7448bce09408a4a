"""Restore KV cells of system prompts that an earlier engine stored on disk, and store them for the next one."""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from orchestrator.engine.contract import EngineSpec, Message, SystemPrompt
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.kv.prefix_store import BadPrefix, keep_within, prefix_file, read_prefix, write_prefix
from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.kv.prompt_history import PromptHistory
from orchestrator.engine.kv.slots import Slots
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.registry.options import Adapters

# Computing a shorter prefix takes less time than reading it.
MIN_STORED_TOKENS = 32

_Prefix = tuple[Adapters, Tokens]  # adapters, in addition to the model's own, and tokens


class StoredPrefixes:
    """The stored prefixes of one model, of which `restored`, with `restored_tokens`, were read from disk.

    Failures are logged, never raised.
    """

    def __init__(self, llama: Llama, spec: EngineSpec, template: PromptTemplate) -> None:
        self.restored = self.restored_tokens = 0
        self._llama = llama
        self._spec = spec
        self._keys: dict[Adapters, str] = {}
        self._most_bytes = spec.prefix_bytes
        self._folder = Path(spec.prefixes) if spec.prefixes is not None and llama.can_fork else None
        self.prefixes: tuple[_Prefix, ...] = ()
        if self._folder is not None and llama.can_store:
            self.prefixes = _prefixes(llama, template, spec.system_prompts)

    def restore(self, slots: Slots, history: PromptHistory) -> None:
        """Put the prefixes that were stored for this cache layout into free sequences, and note them in `history`."""
        try:
            self._keys = {lora: _key(self._llama, self._spec, lora) for lora, _ in self.prefixes}
        except OSError as error:  # a file that has gone since it was loaded
            _log(f"no prefixes are kept: {error}")
            self.prefixes = ()
        if self._folder is not None and self.prefixes:
            keep_within(self._folder, self._most_bytes)  # an engine that was killed may have left too much
        # The longest come first, and shorter ones share their cells, unless those can be forked only at their end.
        for lora, tokens in self.prefixes:
            missing = len(tokens) - slots.match(tokens, lora)[1]
            if missing >= MIN_STORED_TOKENS and slots.insert_prefix(tokens, lora, partial(self._fill, lora, tokens)):
                self.restored += 1
                self.restored_tokens += len(tokens)
                history.note(tokens, lora)

    def save(self, slots: Slots) -> None:
        """Store the prefixes that sequences hold. These are truncated for it: nothing may be computed afterwards."""
        saved: list[_Prefix] = []
        for lora, tokens in self.prefixes:
            source, length = slots.match(tokens, lora)
            # Of a longer prefix, the first cells can be used alone, unless it can be forked only at its end.
            longer = [its for adapters, its in saved if adapters == lora and not self._llama.restores_ends]
            alike = max((common_prefix(tokens, its) for its in longer), default=0)
            if length == len(tokens) and length - alike >= MIN_STORED_TOKENS:
                self._llama.truncate(source, length)
                saved.append((lora, tokens))
                self._save(source, lora, tokens)
        if self._folder is not None and saved:
            keep_within(self._folder, self._most_bytes)

    def _fill(self, lora: Adapters, tokens: Tokens, seq: int) -> bool:
        assert self._folder is not None, "without a folder there are no prefixes"
        key = self._keys[lora]
        path = prefix_file(self._folder, key, tokens)
        try:
            state = read_prefix(self._folder, key, tokens)
            if state is None:
                return False
            if not self._llama.restore(seq, state, len(tokens)):
                raise BadPrefix("llama.cpp refuses it")
        except (BadPrefix, OSError) as error:
            _log(f"the prefix in {path} is not used: {error}")
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return False
        return True

    def _save(self, seq: int, lora: Adapters, tokens: Tokens) -> None:
        assert self._folder is not None, "without a folder there are no prefixes"
        key = self._keys[lora]
        path = prefix_file(self._folder, key, tokens)
        if path.exists():
            return
        try:
            state = self._llama.state(seq)
            if len(state) <= self._most_bytes:
                write_prefix(self._folder, key, tokens, state)
                _log(f"a prefix of {len(tokens)} tokens is kept in {path} ({len(state)} bytes)")
        except OSError as error:
            _log(f"a prefix cannot be kept in {path}: {error}")


def _prefixes(llama: Llama, template: PromptTemplate, system_prompts: tuple[SystemPrompt, ...]) -> tuple[_Prefix, ...]:
    prefixes: dict[tuple[Adapters, bytes], Tokens] = {}
    for text, lora, _ in system_prompts:
        if not llama.has_adapters(lora):
            continue
        try:
            first, second = (template.tokens((Message("system", text), Message("user", content))) for content in "a1")
        except BadPrompt as error:
            _log(f"a system prompt is not stored: {error}")
            continue
        # This is what all prompts with the system prompt have in common.
        prefix = first[: common_prefix(first, second)]
        if MIN_STORED_TOKENS <= len(prefix) < llama.context_limit:
            prefixes[lora, prefix.tobytes()] = prefix
    pairs = ((lora, tokens) for (lora, _), tokens in prefixes.items())
    return tuple(sorted(pairs, key=lambda pair: len(pair[1]), reverse=True))


def _key(llama: Llama, spec: EngineSpec, lora: Adapters) -> str:
    used = spec.lora + lora
    adapters = [
        (Path(adapter.file).stat().st_size, Path(adapter.file).stat().st_mtime_ns, adapter.scale) for adapter in used
    ]
    layout = llama.sequences if llama.split else 0
    # Everything that the last bits of the cells depend on.
    settings = (
        spec.kv_type_k,
        spec.kv_type_v,
        llama.flash_attention,
        spec.experts,
        llama.row_multiple,
        layout,
        adapters,
    )
    key = cost_cache.cache_key(
        Path(spec.file),
        llama_cpp=llama.info.llama_cpp,
        threads=0,
        cpu=cpu_model(),
        settings=repr(settings),
    )
    return key.name


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
