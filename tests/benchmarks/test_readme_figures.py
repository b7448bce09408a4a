"""The README's figures are those of the committed results."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import causes, page
from benchmarks import results as results_module
from orchestrator.bench.real.requests import real_requests
from orchestrator.registry.sources.catalogue import read_catalogue

ROOT = Path(__file__).parents[2]
MODELS = " ".join((ROOT / "docs" / "models.md").read_text(encoding="utf-8").split())
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_page_tells_the_committed_results() -> None:
    assert (ROOT / page.PAGE).read_text(encoding="utf-8") == page.page(results_module.published())


def test_every_goal_stands_on_the_page_with_what_was_measured() -> None:
    told = (ROOT / page.PAGE).read_text(encoding="utf-8")
    tables = [part.split("\n\n")[0].splitlines()[1:] for part in told.split("| goal | measured |")[1:]]
    lines = [line for table in tables for line in table if line.startswith("| ")]
    goals = [one for found in results_module.published().values() for one in found.get("goals", ())]
    assert sorted(line.split(" | ")[0] for line in lines) == sorted(f"| {one['name']}" for one in goals)
    missed = sum(one.get("state") == "missed" for one in goals)
    assert sum("| **missed**" in line for line in lines) == missed


def test_every_goal_that_is_not_met_has_a_cause() -> None:
    without = [
        (name, goal["name"])
        for name, results in results_module.published().items()
        for goal in results.get("goals", ())
        if goal.get("state") in ("open", "missed") and not page.subject_of(name).cause_of(goal["name"])
    ]
    assert without == []


def test_every_cause_is_of_a_goal() -> None:
    published = results_module.published()
    names = {name: [goal["name"] for goal in results.get("goals", ())] for name, results in published.items()}
    of_none = [
        (name, key)
        for name, goals in names.items()
        for key in page.subject_of(name).causes
        if not any(goal.startswith(key) for goal in goals)
    ]
    assert of_none == []
    for model in causes.ADAPTERS:
        assert any(page.subject_of(name).causes is causes.ADAPTERS[model] for name in names), model
    for model in causes.REAL_MODELS:
        assert f"{page.REAL_MODEL}{model}" in names


def _row(name: str, state: str) -> dict[str, Any]:
    return {"name": name, "value": 1.0, "goal": ">= 2", "state": state}


def test_the_page_says_why_goals_are_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = page.BenchmarkSubject(
        "Parts", "Of parts.", causes={"part": "All parts are slow.", "part 2": "It is broken.", "none": "Never shown."}
    )
    monkeypatch.setattr(page, "SUBJECTS", {**page.SUBJECTS, "parts": subject})
    states = {"part 1": "missed", "part 2": "open", "part 3": "open", "part 4": "met", "part 5": "not measured"}
    results = {"command": "make parts", "machines": ["a machine"], "goals": [_row(*goal) for goal in states.items()]}
    text = page.page({"parts": results})
    assert text.partition("Not met, and why:")[2].strip().splitlines() == [
        "- **part 1; part 3**: All parts are slow.",
        "- **part 2**: It is broken.",
    ]
    assert "Not met" not in page.page({"parts": results | {"goals": [_row("part 4", "met")]}})


def test_what_a_small_real_model_does() -> None:
    planned = {(row["system"], row["requests"]): row["right"] for row in results("adapter")["rows"]}
    done = [one["right"] for one in results("real_smollm2-135m")["results"] if one["kind"] in page.TASKS]
    assert (
        f"it plans {planned['adapter', 'unseen']} of 50 held-out requests correctly "
        f"({planned['prompt', 'unseen']} with the stock prompt, {planned['bare', 'unseen']} with none). "
        f"It does {sum(done)} of {len(done)} small tasks correctly"
    ) in MODELS


def test_the_readme_says_what_was_measured() -> None:
    ratios = {
        (row["workload"], row["system"]): row["median"]
        for row in results("critical_path")["ratios"]
        if (row["model"], row["state"]) == ("smollm2", "cold")
    }
    assert f"LangGraph on llama-server takes {ratios['shared', 'LangGraph']:.1f} times as long" in README
    assert f"it takes {ratios['irregular', 'LangGraph']:.2f} times" in README
    rows = [row for row in results("jobs")["table"] if row["model"] == "1.5b" and row["half"] == "tuning"]
    unseen = {
        row["arm"]: row
        for row in results("jobs")["table"]
        if (row["model"], row["half"], row["group"]) == ("1.5b", "held-out", "all")
    }
    ours, chat = unseen["orchestrator"], unseen["chat"]
    assert f"of {ours['of']} others, {ours['right']} are right, and {chat['right']} in one chat" in README
    false_done = {row["arm"]: row["false_done"] for row in rows if row["group"] == "all"}
    parts = {row["arm"]: f"{row['right'] / row['of']:.0%}"[:-1] for row in rows if row["group"] == "parts"}
    assert f"of those with independent parts {parts['orchestrator']} % and {parts['chat']} %." in README
    assert f"{false_done['orchestrator']} wrong answers look right, in one chat {false_done['chat']};" in README
    assert f"of the {ours['of']} others, {ours['false_done']} and {chat['false_done']}." in README
    ladder = {
        row["arm"]: f"{row['right']} of {row['of']}"
        for row in results("jobs")["table"]
        if (row["model"], row["half"], row["group"]) == ("ladder", "tuning", "all")
    }
    assert f"{ladder['orchestrator']} are right, and {ladder['chat']} in one chat" in README


def test_the_docs_say_what_a_training_of_the_frontdoor_gains() -> None:
    parl = results("parl")
    rows = {row["name"]: row for row in parl["rows"]}

    def share(name: str, figure: str) -> str:
        return f"{rows[name][figure]['value']:.0%}"[:-1]

    right, before = share("seconds", "success"), share("as shipped", "success")
    assert f"the embedded one, which ships so trained, does {right} % of unseen requests correctly, before" in README
    assert f"{parl['shipped']['row']['success']['value']:.0%}" == f"{right}%", "as the arm has, all seeds together"
    learning = " ".join((ROOT / "docs" / "learning.md").read_text(encoding="utf-8").split())
    gain = parl["gains"]["as shipped"]
    assert f"{right} % of held-out requests are answered correctly instead of {before} %" in learning
    assert f"the gain is {gain['gain']:.2f} ({gain['low']:.2f} to {gain['high']:.2f}) over the frontdoor" in learning
    assert f"at a scale of {parl['shipped']['scale']}:" in learning
    narrow, by_seconds = share("annealed", "collapse"), share("seconds", "collapse")
    assert (
        f"{narrow} % of the wide requests are planned too narrowly ({by_seconds} % if the cost is in seconds"
        in learning
    )
    assert (
        f"without it {share('performance only', 'collapse')} %, and {share('supervised', 'collapse')} % after imitation"
    ) in learning
    assert f"A training takes {round(6 * parl['hours'])}0 minutes of one core" in learning


@pytest.mark.parametrize(
    ("name", "figures", "sentence"),
    [
        ("chaos", (0, 1, 2), "{} of {} runs were done although engines, the daemon and the disk were harmed {} times"),
        ("daemon", (1,), "Of {} queued runs, all were done after the daemon was killed"),
        ("gates", (3, 0, 1), "embedded model does {} of {} tasks correctly, alone {}"),
        (
            "jobs",
            (0, 1),
            "answers {} % of 60 everyday requests correctly through the orchestrator, and {} % in one chat",
        ),
        ("user_path", (1,), "yes, {} times the speed at 16 chats"),
    ],
)
def test_the_readme_quotes_what_was_measured(name: str, figures: tuple[int, ...], sentence: str) -> None:
    headline = page.SUBJECTS[name].headline
    assert headline is not None
    numbers = re.findall(r"\b\d[\d,.]*\d\b|\b\d\b", re.sub(r"Qwen\S+", "", headline(results(name))))
    assert sentence.format(*(numbers[index] for index in figures)) in README


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("adapter", "smollm2-135m"),
        ("adapter_qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"),
        ("adapter_qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b"),
    ],
)
def test_the_cards_of_the_adapters_say_what_was_measured(name: str, model: str) -> None:
    shipped = read_catalogue()[model].adapters["frontdoor"]
    card = (ROOT / "registry" / "adapters" / "README.md").read_text(encoding="utf-8")
    card = card[card.index(f"### {Path(shipped.file).name}") :]
    rows = {(row["system"], row["requests"]): row for row in results(name)["rows"]}
    for requests in ("unseen", "wide", "tuning", "generated"):
        shares = " | ".join(_share(rows.get((system, requests))) for system in ("adapter", "prompt", "bare"))
        assert f"| {shares} |" in card
    assert results(name)["adapter"] == {"file": shipped.file, "sha256": shipped.sha256}
    assert hashlib.sha256(shipped.path.read_bytes()).hexdigest() == shipped.sha256
    right, count = (sum(rows["adapter", one][key] for one in ("unseen", "wide")) for key in ("right", "count"))
    assert shipped.plan_quality == round(right / count, 2), "of the requests that nobody tuned to"


@pytest.mark.parametrize("model", ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"])
def test_the_catalogue_says_what_was_measured_of_a_model(model: str) -> None:
    measured, counted = read_catalogue()[model].measured, results(f"real_{model}")["right"]
    assert measured is not None

    def share(*kinds: str) -> float:
        right, count = (sum(int(counted[kind][key]) for kind in kinds) for key in ("right", "of"))
        return right / count

    assert measured.plans == pytest.approx(share("plan"), abs=0.001)
    assert measured.answers == pytest.approx(share("extract", "count", "classify"), abs=0.001)
    assert measured.code == pytest.approx(share("code"), abs=0.001)


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        ("smollm2-135m", "unseen requests"),
        ("qwen2.5-coder-0.5b", "wide and narrow requests"),
        ("qwen2.5-coder-1.5b", "wide and narrow requests"),
    ],
)
def test_the_kinds_of_wrong_plans_are_those_of_the_unseen_requests(model: str, cause: str) -> None:
    unseen = {request.request for request in real_requests("unseen")}
    wrong = [row for row in results(f"real_{model}")["results"] if row["name"] in unseen and not row["right"]]
    assert f"Of the {len(wrong)} wrong plans" in causes.ADAPTERS[model][cause]


def test_the_card_says_what_was_measured_of_the_worker_and_the_judge() -> None:
    card = (ROOT / "registry" / "adapters" / "README.md").read_text(encoding="utf-8")
    families = results("adapter")["families"]
    rows = {(row["system"], row["tasks"]): row for row in families["rows"]}
    for tasks in dict.fromkeys(row["tasks"] for row in families["rows"]):
        assert f"| {tasks} | {_share(rows['plain', tasks])} | {_share(rows['adapter', tasks])} |" in card
    assert f"{families['adapter']['tokens']:,} tokens" in card


def _share(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, high = (round(100 * bound) for bound in row["interval"])
    return f"{row['right']} of {row['count']} ({low} to {high} %)"
