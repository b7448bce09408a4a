"""The README's figures are those of the committed results."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results as results_module
from benchmarks.engine import real_text
from registry.sources.catalogue import read_catalogue

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def goal(name: str, wanted: str) -> dict[str, Any]:
    """Return the only goal of a benchmark whose name begins so."""
    found = [one for one in results(name)["goals"] if one["name"] == wanted]
    assert len(found) == 1, f"{name} has {len(found)} goals called {wanted!r}"
    return dict(found[0])


def engine(wanted: str) -> str:
    """Return a goal of the engine's benchmark as the README puts it: the value, what was wanted, and how many cells
    reach it."""
    one = goal("engine", wanted)
    cells, reached = one["cells"], one["reached"]
    return f"{one['value']:.2f}|{one['goal'].split()[1]}|{reached if reached < cells else 'all'}|{cells}"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("ours ÷ llama-server, both warm", "{value} of a warm llama-server ({goal}; {reached} {cells})"),
        ("ours ÷ example server", "{value} of the bindings' example server ({goal}; {reached})"),
        ("ours ÷ one after the other, any width", "{value} of llama-cpp-python alone ({goal}; {reached})"),
        ("ours ÷ ceiling with the same KV layout", "{value} of a bare loop ({goal}; {reached})"),
        ("speculation ÷ its bound", "speculation {value} of what it can bring ({goal}; {reached} {cells})"),
        ("speculation ÷ no speculation", "{value} of none ({goal}; {reached})"),
        ("speculation ÷ llama-server's", "{value} of llama-server's ({goal}; {reached} {cells})"),
        ("ours ÷ llama-server, both cold, 16 requests", "sharing nothing {value} ({goal};"),
    ],
)
def test_what_the_engine_comes_to(wanted: str, told: str) -> None:
    value, least, reached, cells = engine(wanted).split("|")
    assert told.format(value=value, goal=least, reached=reached, cells=cells) in README


def test_what_a_shared_prefix_and_our_own_time_come_to() -> None:
    shared = goal("engine", "ours ÷ llama-server, both cold, 16 requests, prefix 1024")
    assert f"16 sharing 1,024 tokens {shared['value']:.1f} times a cold llama-server (6; both)" in README
    assert shared["reached"] == shared["cells"] == 2
    own = goal("engine", "own time per step outside llama.cpp")
    assert f"{100 * own['value']:.1f} % of a step is ours (2; {own['reached']} of {own['cells']})" in README


def test_what_the_user_s_own_path_comes_to() -> None:
    def value(wanted: str) -> float:
        found = goal("user_path", wanted)
        assert found["met"], "the README says that every interval reaches its goal"
        return float(found["value"])

    over = "ours ÷ llama-server over HTTP, "
    assert f"{value(over + 'own texts'):.2f} with own texts (1.0)" in README
    assert f"{value(over + '16 sharing a document, new'):.1f} where 16 share a new document (5)" in README
    assert f"{value(over + 'one core busy'):.1f} beside a busy loop on one core (1.0)" in README
    assert f"{value(over + 'each core busy'):.2f} beside one on each core (1.0)" in README
    one, each = (value(f"three steps, {which} core busy ÷ idle") for which in ("one", "each"))
    assert f"three steps take {one:.1f} and {each:.1f} times as long" in README
    lost = 1 - value("ours ÷ ours with threads that spin, idle machine")
    assert f"loses between nothing and {100 * lost:.0f} % on an idle machine (2)" in README


def test_what_the_daemon_costs() -> None:
    assert f"{goal('daemon', 'daemon overhead per step, ms')['value']:.1f} ms a step" in README
    waited = results("daemon")["parts"]["clients"]["submit"]["p95_ms"] / 1000
    assert f"{results('daemon')['parts']['clients']['clients']} wait to {waited:.1f} s" in README


def test_what_context_editing_brings() -> None:
    sent = goal("context", "prompt tokens, with as a share of without")["value"]
    computed = goal("context", "computed tokens, with as a share of without")
    assert f"sends {100 * sent:.0f} % of the prompt tokens with context editing" in README
    assert f"computes {computed['value']:.1f} times as many" in README
    assert f"({computed['goal'].split()[1]} were wanted" in README


def test_what_gates_and_escalation_bring() -> None:
    found = results("gates")
    total = {row["setup"]: row for row in found["rows"] if row["family"] == "all"}
    bare, gated = total["small without gates"], total["small with gates"]
    escalated, large = total["small with gates and escalation"], total["large without gates"]
    assert (
        f"of {found['tasks']} tasks the smallest model does {bare['right']} right and {bare['wrong']} wrong; "
        f"with gates {gated['right']}, and {gated['wrong']} wrong ones pass; "
        f"with escalation too {escalated['right']}, at {escalated['task_seconds']:.1f} s a task "
        f"instead of {bare['task_seconds']:.2f} (the largest alone: {large['right']})"
    ) in README
    kept = goal("gates", "speed that decoding keeps beside gates, embedded large")["value"]
    assert f"Decoding keeps {kept:.2f} of its speed" in README


def test_what_learned_routing_comes_to() -> None:
    parts = results("routing")["parts"]
    rows = {row["router"]: row for row in parts["families"]["rows"] if row["price"] == 0.1}

    def at(router: str) -> tuple[float, float]:
        return rows[router]["success"][0], rows[router]["cost"][0]

    assert (
        "rules that choose small models have {:.2f} right at {:.2f} of the large model's time".format(*at("rules"))
        in README
    )
    assert "the router after 300 outcomes {:.2f} at {:.2f}, after 1,000".format(*at("after 300")) in README
    assert (
        "after 1,000 {:.2f} at {:.2f}; the large model has {:.2f}".format(*at("after 1000"), at("always large")[0])
        in README
    )
    lost = goal("routing", "success on the old mix of tasks that is lost after a shift")
    assert f"success on the old ones changes by {-lost['value']:+.3f} (at most 0.02 were to be lost)" in README


def test_what_routing_between_two_real_models_comes_to() -> None:
    both = goal("routing", "APGR on MMLU, both outcomes seen")["value"]
    own = goal("routing", "APGR on MMLU, only the chosen outcome seen")["value"]
    recovered = goal("routing", "gap recovered on MMLU by the policy's own choices")["value"]
    share = goal("routing", "share of the strong model in the policy's own choices on MMLU")["value"]
    wrong = goal("routing", "calibration error on MMLU, weak model")["value"]
    assert (
        f"an APGR of {both:.2f} with both outcomes seen (0.66 were wanted; drawing has 0.5) and {own:.2f} with those "
        f"of its own choices (0.63), which recover {recovered:.2f} of the gap (0.68) at a strong share of {share:.2f}; "
        f"its calibration error is {wrong:.3f} (0.03)"
    ) in README
    spent = {row["part"]: row["p99_ms"] for row in results("routing")["parts"]["latency"]["rows"]}
    assert (
        f"A decision takes {spent['the whole router']:.1f} ms of CPU time at 100,000 episodes (2; 99th percentile"
        in README
    )


def test_what_prompt_lookup_brings_on_real_texts() -> None:
    found = json.loads(real_text.RESULTS.read_text("utf-8")) if real_text.RESULTS.exists() else None
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert results_module.with_section(readme, real_text.BEGIN, real_text.END, real_text.readme_item(found)) == readme


def held_out(*families: str) -> str:
    """Return the share of prompts that the large embedded model answers exactly: the least and the most, in percent."""
    rows = [row for row in results("tiny")["rows"] if (row["size"], row["grammar"]) == ("large", False)]
    found = [(200 * row["right"] + row["prompts"]) // (2 * row["prompts"]) for row in rows if row["family"] in families]
    assert len(found) == 2 * len(families), "each family has held-out names and held-out wordings"
    least, most = min(found), max(found)
    return f"{least} to {most}" if least < most else f"{least}"


def test_what_the_large_embedded_model_does() -> None:
    ordinary = held_out("plan", "extract", "summarize", "code", "shell", "merge", "retry", "judge")
    assert (
        f"the large one is exact on {ordinary} % of plans, extractions, summaries, code, commands, joins, retries and "
        f"verdicts, on {held_out('compare')} % of comparisons, and less where it acts: tools {held_out('tools')}, REPL "
        f"code {held_out('repl')}, summaries of its own context {held_out('condense')}, pruning {held_out('prune')} "
        "(guesswork)"
    ) in README
    kinds = {row["family"] for row in results("tiny")["rows"] if row["prompts"] == 200}
    assert len(kinds) == 13, "the README says that the embedded models know thirteen kinds of task"


def test_what_a_small_real_model_does() -> None:
    planned = {(row["system"], row["requests"]): row["right"] for row in results("adapter")["rows"]}
    done = [one["right"] for one in results("real_smollm2-135m")["results"] if one["kind"] != "plan"]
    assert (
        f"plans {planned['adapter', 'unseen']} of 50 natural requests rightly on which nothing was tuned, "
        f"{planned['prompt', 'unseen']} with the prompt that ships for other models, and "
        f"{planned['bare', 'unseen']} bare. It does {sum(done)} of {len(done)} small tasks rightly"
    ) in README


def test_the_card_of_the_adapter_says_what_was_measured() -> None:
    card = (ROOT / "registry" / "adapters" / "README.md").read_text(encoding="utf-8")
    rows = {(row["system"], row["requests"]): row for row in results("adapter")["rows"]}
    for requests in ("unseen", "tuning", "generated"):
        told = " | ".join(_share(rows.get((system, requests))) for system in ("adapter", "prompt", "bare"))
        assert f"| {told} |" in card
    shipped = read_catalogue()["smollm2-135m"].adapters["frontdoor"]
    assert results("adapter")["adapter"] == {"file": shipped.file, "sha256": shipped.sha256}
    assert hashlib.sha256(shipped.path.read_bytes()).hexdigest() == shipped.sha256


def _share(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, high = (round(100 * bound) for bound in row["interval"])
    return f"{row['right']} of {row['count']} ({low} to {high} %)"
