"""Begin with the KV cells of known beginnings of prompts that an earlier engine has kept, and keep them at the end.

They are those of system messages that the engine was told of: role's system prompt, with and without a persona.
"""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from orchestrator.engine.contract import EngineSpec, Message
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.kv.prefix_store import BadPrefix, keep_within, prefix_file, read_prefix, write_prefix
from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.kv.slots import Slots
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.worker.chat import ChatTemplate, prompt_tokens

MIN_STORED_TOKENS = 32
"""Fewer tokens than this are computed sooner than they are looked for."""


class WarmPrefixes:
    """What is kept of one model's beginnings. `restored` prefixes of `restored_tokens` were there from the start.

    Whatever goes wrong is told in the log and costs no more than computing them again.
    """

    def __init__(self, llama: Llama, spec: EngineSpec, template: ChatTemplate) -> None:
        self.restored = self.restored_tokens = 0
        self._llama = llama
        self._spec = spec
        self._key = ""
        self._most_bytes = spec.prefix_bytes
        self._folder = Path(spec.prefixes) if spec.prefixes is not None and llama.can_keep else None
        self._prefixes = () if self._folder is None else _prefixes(llama, template, spec.system_prompts)

    def restore(self, slots: Slots) -> None:
        """Put what was kept for this layout of the cache into free sequences, the longest first; what such a one begins
        with is there, too."""
        try:
            self._key = _key(self._llama, self._spec) if self._prefixes else ""
        except OSError as error:  # a file that has gone since it was loaded
            _log(f"no prefixes are kept: {error}")
            self._prefixes = ()
        if self._folder is not None and self._prefixes:
            keep_within(self._folder, self._most_bytes)  # an engine that was killed could not
        for tokens in self._prefixes:
            missing = len(tokens) - slots.tree.match(tokens)[1]
            if missing >= MIN_STORED_TOKENS and slots.insert_prefix(tokens, partial(self._fill, tokens)):
                self.restored += 1
                self.restored_tokens += len(tokens)

    def save(self, slots: Slots) -> None:
        """Keep what the sequences hold of the beginnings. They are cut for that, so nothing is computed after it."""
        kept: list[Tokens] = []
        for tokens in self._prefixes:
            source, length = slots.tree.match(tokens)
            alike = max((common_prefix(tokens, longer) for longer in kept), default=0)
            if length == len(tokens) and length - alike >= MIN_STORED_TOKENS:
                self._llama.truncate(source, length)
                kept.append(tokens)
                self._save(source, tokens)
        if self._folder is not None and kept:
            keep_within(self._folder, self._most_bytes)

    def _fill(self, tokens: Tokens, seq: int) -> bool:
        """Return whether an empty sequence now holds these tokens."""
        assert self._folder is not None, "without a folder there are no prefixes"
        path = prefix_file(self._folder, self._key, tokens)
        try:
            state = read_prefix(self._folder, self._key, tokens)
            if state is None:
                return False
            if not self._llama.restore(seq, state, len(tokens)):
                raise BadPrefix("llama.cpp does not take it")
        except (BadPrefix, OSError) as error:
            _log(f"the prefix in {path} is not used: {error}")
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return False
        return True

    def _save(self, seq: int, tokens: Tokens) -> None:
        assert self._folder is not None, "without a folder there are no prefixes"
        path = prefix_file(self._folder, self._key, tokens)
        if path.exists():
            return
        try:
            state = self._llama.state(seq)
            if len(state) <= self._most_bytes:
                write_prefix(self._folder, self._key, tokens, state)
                _log(f"a prefix of {len(tokens)} tokens is kept in {path} ({len(state)} bytes)")
        except OSError as error:
            _log(f"a prefix cannot be kept in {path}: {error}")


def _prefixes(llama: Llama, template: ChatTemplate, system_prompts: tuple[str, ...]) -> tuple[Tokens, ...]:
    """Return the tokens with which every prompt with one of these system messages begins, the longest first."""
    prefixes: dict[bytes, Tokens] = {}
    for text in system_prompts:
        try:
            one, other = (
                prompt_tokens(llama.vocab, template.segments((Message("system", text), Message("user", content))))
                for content in "a1"
            )
        except BadPrompt as error:
            _log(f"a system message is not looked for: {error}")
            continue
        prefix = one[: common_prefix(one, other)]
        if MIN_STORED_TOKENS <= len(prefix) < llama.context_limit:
            prefixes[prefix.tobytes()] = prefix
    return tuple(sorted(prefixes.values(), key=len, reverse=True))


def _key(llama: Llama, spec: EngineSpec) -> str:
    """Return a name for all that the cells depend on, down to their last bits."""
    adapters = [(Path(one.file).stat().st_size, Path(one.file).stat().st_mtime_ns, one.scale) for one in spec.lora]
    layout = llama.sequences if llama.split else 0
    settings = (
        spec.kv_type_k,
        spec.kv_type_v,
        llama.flash_attention,
        spec.experts,
        spec.batch_invariant,
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
