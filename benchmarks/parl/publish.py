"""Ship the adapter of the arm that wins, with its card: `python -m benchmarks.parl publish`.

It is shipped only if its gain over the frontdoor as it ships is certain. The packaged registry then names it, so that
installations have it from their first start, and the card in `registry/adapters/README.md` has its figures.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.page import rules_as_good
from benchmarks.parl.arms import SHIPPED, WINNER
from orchestrator.memrl.parl.promote import values_with
from orchestrator.registry.edit import change_role, replace_registry
from orchestrator.registry.strict_yaml import read_file
from orchestrator.run.frontdoor.planner import FRONTDOOR

NAME: Final = "tiny-large-frontdoor.gguf"
CARD: Final = "README.md"
LAST: Final = 10  # updates by whose reward the best seed is chosen, so that no held-out request has a say
COLUMNS: Final = ("success", "collapse", "spurious", "removable", "regret")


def best_seed(rewards: Mapping[int, Sequence[float]]) -> int:
    """Return the seed with the highest mean reward of its last updates, given those of all updates."""
    return max(rewards, key=lambda seed: fmean(rewards[seed][-LAST:]))


def card(found: Mapping[str, Any], seed: int) -> str:
    """Return the card of the adapter for the results of all arms."""
    rows = {row["name"]: row for row in found["rows"]}
    gain = found["gains"][SHIPPED]
    lines = [
        f"### {NAME}",
        "For the embedded model `tiny-large`, whose plans it teaches to regard the cores of the machine.",
        "",
        *([f"{why}.", ""] if (why := rules_as_good(found)) else []),
        "- **Training**: imitation of plans that are right, then GRPO in the harness with frozen workers"
        f" (`make parl`, arm `{WINNER}`, seed {seed}), in {found['hours']:.1f} hours on one core.",
        f"- **Gain** over the frontdoor as it ships, in answers less the price of time: {gain['gain']:+.3f}"
        f" ({gain['low']:+.3f} to {gain['high']:+.3f}) on {found['requests']} held-out requests, all seeds together.",
        "",
        f"| held-out requests | {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * len(COLUMNS)}",
        *(f"| {name} | {' | '.join(_share(rows[name][column]) for column in COLUMNS)} |" for name in (WINNER, SHIPPED)),
        "",
        "Shares with 95 % intervals over seeds and requests (`benchmarks/results/parl.json`). Removable are steps"
        " without which the answer is as right.",
    ]
    return "\n".join(lines) + "\n"


def _share(estimate: Mapping[str, float | None]) -> str:
    if estimate["value"] is None:
        return "-"
    return f"{estimate['value']:.0%} ({estimate['low']:.0%} to {estimate['high']:.0%})"


def with_card(page: str, text: str) -> str:
    """Return the page of all cards with this one in it, in place of an earlier one."""
    before = re.search(rf"^### {re.escape(NAME)}\n.*?(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    if before is not None:
        return page[: before.start()] + text + "\n" + page[before.end() :]
    first = re.search(r"^### ", page, re.MULTILINE)
    place = len(page) if first is None else first.start()
    return page[:place] + text + "\n" + page[place:]


def publish(adapter: Path, found: Mapping[str, Any], seed: int, registry: Path) -> bool:
    """Ship an adapter with the registry file `registry` if it is better for certain, and return whether it is.

    Raises OSError and RegistryError.
    """
    if found["gains"][SHIPPED]["low"] <= 0:
        return False
    folder = registry.parent / "registry" / "adapters"
    shutil.copyfile(adapter, folder / NAME)
    page = folder / CARD
    page.write_text(with_card(page.read_text(encoding="utf-8"), card(found, seed)), encoding="utf-8")
    content = read_file(registry)
    values = values_with((), Path("registry") / "adapters" / NAME)
    replace_registry(registry, content, change_role(content, registry, FRONTDOOR, values))
    return True
