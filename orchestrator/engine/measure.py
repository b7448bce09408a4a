"""Measure how long this model's steps take on this machine, or take what was measured before."""

import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from orchestrator.engine import curve_cache
from orchestrator.engine.attention import ANSWER, LONG, worth_keeping
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.curve import SIZES, Curve, Points
from orchestrator.engine.llama import Llama

ROUNDS = 3
SECONDS = 8.0
"""How long measuring may take, by the times of the steps measured so far."""
ATTENTION_SECONDS = 30.0
"""How long it may take to find the faster kind of attention, once for each model and machine."""
_SMALL = 16
"""Up to so many tokens, what a graph costs to make is no small part of a step."""

_LARGE = 256
"""Tokens of a prompt that are computed in one step."""

_DEEP = 1024
"""How many cells a token attends to when it is measured what they cost, as far as context and time allow."""


def known_curve(llama: Llama, spec: EngineSpec) -> Curve:
    """Return the curve of a loaded model for its threads: from the folder of curves, or measured and put there."""
    if spec.curves is None:
        return measure_curve(llama)
    folder = Path(spec.curves)
    settings = (llama.flash_attention, spec.experts, spec.exact, llama.split, spec.slots, len(spec.lora))
    key = _key(spec, llama.info.llama_cpp, llama.threads, *settings)
    if key is None:
        return measure_curve(llama)
    curve = curve_cache.load(folder, key)
    if curve is None:
        curve = measure_curve(llama)
        with suppress(OSError):  # a full disk costs a measurement next time
            curve_cache.store(folder, key, curve)
    return replace(curve, fills=llama.split)


def settle_attention(llama: Llama, spec: EngineSpec) -> None:
    """Let a model that may keep attention's scores do so if that takes clearly less time here.

    It is measured once, so that it is the same after every start. One that takes too long to measure stays as it is.
    Raises CannotLoad.
    """
    if spec.curves is None or not llama.may_keep_scores:
        return
    folder, key = Path(spec.curves), attention_key(spec, llama.info.llama_cpp, llama.threads)
    if key is None:
        return
    attention = curve_cache.load_attention(folder, key)
    if attention is None and _is_quick(llama):
        attention = _measure_attention(llama, spec)
        with suppress(OSError):
            curve_cache.store_attention(folder, key, attention)
    if attention not in (None, llama.flash_attention):
        llama.attend(spec, attention)


def attention_key(spec: EngineSpec, llama_cpp: str, threads: int) -> curve_cache.CurveKey | None:
    """Return what the measured kind of attention depends on, or None where the model file is gone."""
    return _key(spec, llama_cpp, threads, "attention", spec.splits_cache)


def _key(spec: EngineSpec, llama_cpp: str, threads: int, *settings: object) -> curve_cache.CurveKey | None:
    try:
        return curve_cache.curve_key(
            Path(spec.file),
            llama_cpp=llama_cpp,
            threads=threads,
            cpu=curve_cache.cpu_model(),
            settings="/".join(map(str, (spec.kv_type_k, spec.kv_type_v, *settings))),
        )
    except OSError:
        return None


def _is_quick(llama: Llama) -> bool:
    """Return whether there is time to measure attention."""
    watch = _Watch(llama, ATTENTION_SECONDS)
    watch.again([(0, _SMALL)])
    return watch.has_time(2 * ROUNDS * LONG)


def _measure_attention(llama: Llama, spec: EngineSpec) -> curve_cache.Attention:
    """Return the kind that takes less time for a long prompt and an answer: the best of some rounds each, in turns."""
    times: defaultdict[curve_cache.Attention, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for attention in ("off", "on"):
            if attention != llama.flash_attention:
                llama.attend(spec, attention)
            times[attention].append(_answer(llama))
    return "off" if worth_keeping(min(times["off"]), min(times["on"])) else "on"


def _answer(llama: Llama) -> float:
    """Return about how long an answer to a long prompt takes."""
    watch = _Watch(llama)
    most = min(LONG, llama.context_limit - ROUNDS)
    seconds = 0.0
    while llama.held(0) < most:
        size = min(llama.batch.capacity, most - llama.held(0))
        seconds += watch.step([(0, size)], outputs=False, keep=True)
    seconds += ANSWER * median(watch.step([(0, 1)], keep=True) for _ in range(ROUNDS))
    llama.clear()
    return seconds


def measure_curve(llama: Llama) -> Curve:
    """Return the medians of a few rounds over all sizes, one round after the other, as noise comes in bursts.

    The small ones come first: when the time is up, what is left is those that would take longest.
    """
    watch = _Watch(llama)
    single = min(llama.micro_batch, llama.max_outputs, llama.context_limit - 1)
    many = _grid(min(llama.sequences, llama.micro_batch, llama.max_outputs))
    one = _grid(single)
    times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    watch.step([(0, 1)])  # the first of a kind allocates
    for _ in range(ROUNDS):
        for size in sorted({*many, *one}):
            if size in many and (size == 1 or watch.has_time(size)):
                times["many", size].append(watch.again([(seq, 1) for seq in range(size)]))
            if size in one[1:] and watch.has_time(size):
                times["one", size].append(watch.again([(0, size)]))
    first = median(times["many", 1])
    points = {kind: _points(kind, sizes, first, times) for kind, sizes in (("many", many), ("one", one))}
    prefill, per_cell = _depth(llama, watch, points["one"])
    llama.clear()
    return Curve(points["many"], points["one"], prefill, per_cell, fills=llama.split)


class _Watch:
    """Times steps, each from an empty cache."""

    def __init__(self, llama: Llama, seconds: float = SECONDS) -> None:
        self._llama = llama
        self._left = seconds
        self._token = llama.warm_seconds

    def has_time(self, tokens: int) -> bool:
        """Return whether a step of so many tokens should be done within the time that is left."""
        return self._token * tokens < self._left

    def again(self, shares: list[tuple[int, int]]) -> float:
        """Return the seconds of a step of a kind that was just done, as most are: llama.cpp then has its graph."""
        size = sum(count for _, count in shares)
        if size <= _SMALL and self.has_time(2 * size):
            self.step(shares)
        return self.step(shares)

    def step(self, shares: list[tuple[int, int]], *, outputs: bool = True, keep: bool = False) -> float:
        """Return the seconds of a step with `shares` (sequence, tokens); `keep` what is in the cache."""
        llama, batch = self._llama, self._llama.batch
        batch.clear()
        for seq, count in shares:
            tokens = np.arange(1, count + 1, dtype=np.int32) % llama.vocab.size
            batch.add(seq, llama.held(seq), tokens, count if outputs else 0)
        started = time.monotonic()
        llama.decode()
        seconds = time.monotonic() - started
        size = sum(count for _, count in shares)
        self._left -= seconds
        self._token = min(self._token, seconds / size)
        if not keep:
            for seq, _ in shares:
                llama.truncate(seq, 0)
        return seconds


def _grid(most: int) -> tuple[int, ...]:
    return tuple(sorted({min(size, most) for size in SIZES}))


def _points(kind: str, sizes: tuple[int, ...], first: float, times: dict[tuple[str, int], list[float]]) -> Points:
    measured = {1: first} | {size: median(times[kind, size]) for size in sizes[1:] if times[kind, size]}
    return Points(tuple(measured), tuple(measured.values()))


def _depth(llama: Llama, watch: _Watch, one: Points) -> tuple[float, float]:
    """Return what a prompt token costs in a large batch, and a cell for the token that attends to it."""
    size = min(_LARGE, llama.batch.capacity, llama.context_limit - ROUNDS)
    if size <= one.sizes[-1] or not watch.has_time(2 * size):
        return max(one.seconds[-1] / one.sizes[-1], 1e-9), 0.0
    prompt = watch.step([(0, size)], outputs=False, keep=True)
    depth = size
    while depth + size <= min(_DEEP, llama.context_limit - ROUNDS) and watch.has_time(2 * size):
        watch.step([(0, size)], outputs=False, keep=True)
        depth += size
    deep = [watch.step([(0, 1)], keep=True) for _ in range(ROUNDS)]  # not all models can take the token back
    return prompt / size, max(0.0, (median(deep) - one.seconds[0]) / depth)
