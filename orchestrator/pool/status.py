"""Describe the pool for people to look at."""

from dataclasses import dataclass
from typing import Literal

State = Literal["unavailable", "unloaded", "waiting", "loading", "ready", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model. `bytes` is what it holds of the budget; `requests` wait for it or use it, `active` of them generate.

    `threads` is what it computes with, `pid` its process, both None without one. `reason` says why it is unavailable
    or how its engine failed last.
    """

    model: str
    residency: str
    state: State
    bytes: int
    requests: int
    active: int
    threads: int | None
    pid: int | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The pool at one moment: bytes that models may take and have taken, physical cores, and every model."""

    budget: int
    used: int
    cores: int
    models: tuple[ModelStatus, ...]
