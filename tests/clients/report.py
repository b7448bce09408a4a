"""Write what came of the clients: the results as JSON, and the page of the documentation from them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from orchestrator.bench import environment
from orchestrator.bench.goals import exactly
from tests.clients.suite import ABILITIES, CLIENTS
from tests.clients.trial import Outcome, Row

RESULTS_FILE: Final = results.FOLDER / "clients.json"
TOOL_CALLER_FILE: Final = results.FOLDER / "tool-caller.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"
SHOWN: Final[Mapping[Outcome, str]] = {"works": "yes", "fails": "**fails**", "lacks": "—", "absent": "not tried"}
TEXT: Final = """\
# Clients of other projects

These clients run unchanged against the daemon, at the versions that `tests/clients` pins. `make test-clients` installs
them, each for Python in an environment of its own because their requirements exclude each other, tries them, and writes
this page from `benchmarks/results/clients.json`.

{table}

A dash says that the client does not have the ability. The columns:

- *chat*, *streaming*, *structured* and *cancelling* are tried with SmolLM2-135M. A streamed answer comes in
  pieces and is the text of the chat. A structured answer has the form that was asked for. A cancelled answer ends in
  the daemon, too, which then writes less than half of the tokens that it writes otherwise. OpenAI Agents, which takes
  an answer that is cut off for an error, has a system prompt with which the model's answer ends by itself.
- *embeddings*: three vectors of one length, the same for equal texts. They are the daemon's lexical ones.
- *two tools*: "Look up the price of quartz, then add 12." by the client's own agent, or by a loop of requests
  where it has none, with the tool caller (`tests/data/tool_caller`), a very small model that writes calls as Hermes'
  models do, and as Llama 3 does. Both tools are called in order, and the answer is that of the last one. The model
  answers {right} of held-out requests exactly, by its syntax and the kind of request
  (`benchmarks/results/tool-caller.json`), so a wrong answer need not be the client's fault, or the daemon's.
{notes}"""


def document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results; `rows` are those of clients as they are written."""
    outcomes = [cell["outcome"] for row in rows for cell in row["cells"].values()]
    count = {outcome: outcomes.count(outcome) for outcome in SHOWN}
    goals = [
        exactly("abilities that fail", count["fails"], 0),
        exactly("abilities that could not be tried", count["absent"], 0),
    ]
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "command": "python -m tests.clients run",
        "abilities": {ability.name: ability.model for ability in ABILITIES},
        "count": count,
        "rows": [*rows],
        "goals": [{**asdict(goal), "interval": None} for goal in goals],
    }


def merged(row: Row) -> list[dict[str, Any]]:
    """Return the rows that were written last with this one in its place, in the order of the clients."""
    known = {one["client"]: one for one in read()["rows"]} if RESULTS_FILE.exists() else {}
    known[row.client] = asdict(row)
    return [known[client.name] for client in CLIENTS if client.name in known]


def table(found: Mapping[str, Any]) -> str:
    """Return the table of clients and abilities."""
    names = [*found["abilities"]]
    lines = [["client", "version", *names], ["---"] * (len(names) + 2)]
    for row in found["rows"]:
        cells = [SHOWN[row["cells"][name]["outcome"]] if name in row["cells"] else "" for name in names]
        version = next(iter(row["versions"].values()), "")
        lines.append([row["client"], version, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goal_lines(written: Mapping[str, Any]) -> list[str]:
    """Return a line for each goal of results that were written."""
    return [f"{goal['state']:6} {goal['name']}: {goal['value']} (goal: {goal['goal']})" for goal in written["goals"]]


def page(found: Mapping[str, Any]) -> str:
    """Return the page of the documentation."""
    return TEXT.format(table=table(found), right=_right(), notes=_notes(found))


def _right() -> str:
    """Return what share of the tool caller's answers is right, from the worst to the best kind of request."""
    measured = json.loads(TOOL_CALLER_FILE.read_text(encoding="utf-8"))
    shares = [row["share"] for row in measured["rows"]]
    return f"{100 * min(shares):g} to {100 * max(shares):g} %"


def _notes(found: Mapping[str, Any]) -> str:
    """Return what went wrong, and what was not tried."""
    told: dict[str, list[str]] = {"fails": [], "absent": []}
    for row in found["rows"]:
        reasons: dict[tuple[str, str], list[str]] = {}
        for name, cell in row["cells"].items():
            if cell["outcome"] in told:
                reasons.setdefault((cell["outcome"], cell["detail"]), []).append(name)
        for (outcome, detail), names in reasons.items():
            told[outcome].append(f"- {row['client']}, {', '.join(names)}: {' '.join(detail.split())}")
    parts = [("What fails", told["fails"]), ("What was not tried", told["absent"])]
    return "".join(f"\n## {title}\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts if lines)


def write(found: Mapping[str, Any]) -> None:
    """Write the results and the page."""
    results.write(RESULTS_FILE, dict(found))
    PAGE.write_text(page(json.loads(json.dumps(found))), encoding="utf-8")


def read() -> dict[str, Any]:
    """Return the results that were written last. Raises OSError."""
    found: dict[str, Any] = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    return found
