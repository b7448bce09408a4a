"""Ship the adapter of the arm that wins, with its card: `python -m benchmarks.parl publish`.

It ships only if its gain over the frontdoor without it is certain, at a scale at which plans for other requests stay
right. The packaged registry then names it, so that installations have it from their first start, and the card in
`registry/adapters/README.md` has its figures.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.page import rules_as_good
from benchmarks.parl.arms import SHIPPED, WINNER
from benchmarks.tiny.evaluate import PROMPTS
from orchestrator.memrl.parl.promote import values_with
from orchestrator.registry.edit import change_role, replace_registry
from orchestrator.registry.strict_yaml import read_file
from orchestrator.run.frontdoor.planner import FRONTDOOR

NAME: Final = "tiny-large-frontdoor.gguf"
CARD: Final = "README.md"
LAST: Final = 10  # updates by whose reward the best seed is chosen, so that no held-out request has a say
COLUMNS: Final = ("success", "collapse", "spurious", "regret")


def best_seed(rewards: Mapping[int, Sequence[float]]) -> int:
    """Return the seed with the highest mean reward of its last updates, given those of all updates."""
    return max(rewards, key=lambda seed: fmean(rewards[seed][-LAST:]))


def card(results: Mapping[str, Any]) -> str:
    """Return the card of the adapter for the results of all arms, with its own in `shipped`."""
    shipped = results["shipped"]
    without, scaled = (shipped["plans"][scale] for scale in ("0.0", str(shipped["scale"])))
    rows = {row["name"]: row for row in (*results["rows"], shipped["row"])}
    gain = shipped["gain"]
    lines = [
        f"### {NAME}",
        "For the embedded model `tiny-large`, whose plans it teaches to regard the cores of the machine.",
        "",
        *([f"{why}.", ""] if (why := rules_as_good(results)) else []),
        "- **Training**: imitation of plans that are right, then GRPO in the harness with frozen workers"
        f" (`make parl`, arm `{WINNER}`, seed {shipped['seed']}), which took {results['hours']:.1f} hours of one core"
        " after the imitation.",
        f"- **Gain** over the frontdoor without it, in answers less the price of time: {gain['gain']:+.3f}"
        f" ({gain['low']:+.3f} to {gain['high']:+.3f}) on {results['requests']} held-out requests.",
        f"- **Scale**: {shipped['scale']}. In full it would unlearn some of the requests that it is not trained on: of"
        f" {PROMPTS} plans for held-out names and {PROMPTS} for held-out wordings, {_plans(without)} are right without"
        f" it, {_plans(scaled)} at this scale, and {_plans(shipped['plans']['1.0'])} at 1.0.",
        "",
        f"| held-out requests | {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * len(COLUMNS)}",
        *(
            f"| {shown} | {' | '.join(_share(rows[name][column]) for column in COLUMNS)} |"
            for name, shown in ((shipped["row"]["name"], "with it"), (SHIPPED, "without it"))
        ),
        "",
        "Shares with 95 % intervals over requests (`benchmarks/results/parl.json`).",
    ]
    return "\n".join(lines) + "\n"


def _plans(shares: Mapping[str, float]) -> str:
    return " and ".join(f"{share:.1%}" for share in shares.values())


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


def publish(adapter: Path, results: Mapping[str, Any], registry: Path) -> bool:
    """Ship an adapter with the registry file `registry` if it is better for certain, and return whether it is.

    `results` are the results of all arms, and in `shipped` those of this adapter.

    Raises OSError and RegistryError.
    """
    if results["shipped"]["gain"]["low"] <= 0:
        return False
    folder = registry.parent / "registry" / "adapters"
    shutil.copyfile(adapter, folder / NAME)
    page = folder / CARD
    page.write_text(with_card(page.read_text(encoding="utf-8"), card(results)), encoding="utf-8")
    content = read_file(registry)
    values = values_with((), Path("registry") / "adapters" / NAME, results["shipped"]["scale"])
    replace_registry(registry, content, change_role(content, registry, FRONTDOOR, values))
    return True
