"""Say what is typical of each role, from the generations that ended last."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from orchestrator.events import RoleRates
from orchestrator.journal.store import Measured


def role_rates(history: Iterable[Measured]) -> dict[str, RoleRates]:
    """Return the rates of every role in the history: tokens over seconds in all, and the median lengths.

    A rate that was never measured (no token, or no time) is the default one.
    """
    by_role: defaultdict[str, list[Measured]] = defaultdict(list)
    for one in history:
        by_role[one.role].append(one)
    return {role: _rates(known) for role, known in by_role.items()}


def _rates(known: Sequence[Measured]) -> RoleRates:
    typical = RoleRates()
    prefilled = sum(one.prompt_tokens - one.cached_tokens for one in known)
    return RoleRates(
        prefill_rate=_per_second(prefilled, sum(one.prefill_seconds for one in known)) or typical.prefill_rate,
        decode_rate=_per_second(sum(one.output_tokens for one in known), sum(one.decode_seconds for one in known))
        or typical.decode_rate,
        prompt_tokens=median(one.prompt_tokens for one in known),
        output_tokens=median(one.output_tokens for one in known),
    )


def _per_second(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0
