"""Make docs/benchmarks.md from the committed results. Pure.

Every figure that they tell is read from a file of benchmarks/results, so none can differ from what was measured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks import causes
from benchmarks.causes import Causes
from benchmarks.engine.cells import keeps_otherwise
from benchmarks.engine.names import OURS, SERVER
from benchmarks.engine.paired import ratio
from benchmarks.jobs.measure import HALVES
from orchestrator.memrl.reward import Stage

Results = Mapping[str, Any]  # the results of one benchmark as they are written

PAGE: Final = "docs/benchmarks.md"
RULES: Final = ("forced width", "each", "discover")  # Controls of the frontdoor's training that split by rules
# The systems that whole tasks are compared with.
PEERS: Final = ("one agent", "LangGraph", "greedy executor", "waves", "ours, discover")
WIDE_BOTH_RIGHT: Final = "wide, both right"
WIDE_REQUESTS: Final = "wide"  # a group of the requests that the frontdoor's plans are timed for
NOT_MET: Final = ("open", "missed")  # the states of goals whose cause is shown
LEAST_ROUNDS: Final = 5  # the number of rounds is named if there are fewer
REAL_MODEL: Final = "real_"  # Results of `orchestrator bench model NAME` are called this and the model's name
# Results of the frontdoor's adapters but the first one are called this and the model's name.
ADAPTER_OF: Final = "adapter_"
FIRST_ADAPTER: Final = "smollm2-135m"  # the model of the first one


@dataclass(frozen=True, slots=True)
class BenchmarkSubject:
    """What a file of results is about."""

    title: str
    about: str  # what was measured and how, in a few sentences
    # Makes the sentence of the overview; None: the overview leaves these results out.
    headline: Callable[[Results], str] | None = None
    table: Callable[[Results], Iterator[str]] | None = None  # makes the lines of a table of further results
    # Why goals are not met, by the goal's name or what it starts with. That of a goal that is met is not shown.
    causes: Causes = field(default_factory=dict)

    def cause_of(self, goal: str) -> str | None:
        """Return why a goal is not met, by the longest key that its name starts with; None without such a key."""
        keys = [key for key in self.causes if goal.startswith(key)]
        return self.causes[max(keys, key=len)] if keys else None


def goal(results: Results, name: str) -> float:
    """Return the value of the goal with this name. Raises KeyError if there is none."""
    for goal in results["goals"]:
        if goal["name"] == name:
            return float(goal["value"])
    raise KeyError(name)


def _whole_tasks(results: Results) -> str:
    some = (ratio for ratio in results["ratios"] if (ratio["model"], ratio["state"]) == ("smollm2", "cold"))
    ratios = {(ratio["workload"], ratio["system"]): ratio for ratio in some}
    shared, irregular = ratios["shared", "LangGraph"], ratios["irregular", "LangGraph"]
    return (
        f"When 16 steps read one new document of 1,000 tokens, LangGraph on llama-server takes {shared['median']:.1f} "
        f"times as long as ours; when 12 steps share nothing, {irregular['median']:.2f} times."
    )


def peer_table(results: Results) -> Iterator[str]:
    """Yield the lines of a table for each model and machine, and a picture of a run."""
    cold = [row for row in results["ratios"] if row["state"] == "cold"]
    ratios = {(row["model"], row["machine"], row["workload"], row["system"]): row for row in cold}
    for model, machine in dict.fromkeys((row["model"], row["machine"]) for row in cold):
        yield f"| {model}, cold | {' | '.join(PEERS)} | efficiency |"
        yield f"|---{'|---:' * (len(PEERS) + 1)}|"
        for workload, about in results["workloads"].items():
            measured = [ratios.get((model, machine, workload, system)) for system in PEERS]
            if not any(measured):
                continue
            rounds = max(row["rounds"] for row in measured if row is not None)
            about += f" ({rounds} {'rounds' if rounds > 1 else 'round'})" if rounds < LEAST_ROUNDS else ""
            efficiency = results["efficiency"].get(model, {}).get(workload)
            cells = [*map(_ratio, measured), "" if efficiency is None else f"{efficiency:.2f}"]
            yield f"| {workload}: {about} | {' | '.join(cells)} |"
        yield from ("", f"{model} on {machine}.", "")
    done = {(row["model"], row["workload"]) for row in cold}
    for model, names in results["left"].items():
        if missing := [name for name in names if (model, name) not in done]:
            yield from (f"Not measured yet with {model}: {', '.join(missing)}.", "")
    yield "![When each step of a run was computed, and its critical path](timeline.svg)"


def _ratio(row: Results | None) -> str:
    if row is None:
        return ""
    interval = "" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"{row['median']:.2f}{interval}"


def _simulator(results: Results) -> str:
    rows = [row for row in results["advice"] if row["workload"] == SHARED_AGENTS]
    if not rows:
        raise KeyError(SHARED_AGENTS)
    # The first machine is the one that it was measured on.
    best = min(rows[1:] or rows, key=lambda row: row["seconds"])
    off, unknowing = (100 * goal(results, name) for name in ("median over the workloads, warm", UNKNOWING))
    return (
        f"Off what was measured by {off:.0f} % in the median (warm), and by {unknowing:.0f} % when it is not told how "
        "many tokens answers have. "
        f"{SHARED_AGENTS} are predicted to take {best['seconds']:.0f} s on {best['machine']}: "
        f"{best['times_one_agent']:.1f} times as fast as one after the other."
    )


UNKNOWING: Final = "median, warm, the tokens of answers not known"
SHARED_AGENTS: Final = "100 agents, shared prefix"


def _advice(results: Results) -> Iterator[str]:
    twice_of = "twice the memory bandwidth, cores, memory"
    yield f"| machine | task | replicas | seconds | interval | times one agent | {twice_of} |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for row in results["advice"]:
        low, high = row["interval"]
        twice = ", ".join(
            f"**{ratio:.2f}**" if resource == row["bound_by"] else f"{ratio:.2f}"
            for resource, ratio in row["twice"].items()
        )
        cells = (row["machine"], row["workload"], row["replicas"], f"{row['seconds']:.1f}", f"{low:.1f} to {high:.1f}")
        yield f"| {' | '.join(map(str, cells))} | {row['times_one_agent']:.1f} | {twice} |"


def _cluster(cluster: Results) -> str:
    ten = [row["linear"] for row in cluster["rows"] if row["machines"] == 10]
    overhead = next(goal["value"] for goal in cluster["goals"] if goal["name"].startswith("seconds that each"))
    return (
        f"A step takes {1000 * overhead:.1f} ms longer on a node than on the head. Simulated, ten machines have "
        f"{min(ten):.2f} to {max(ten):.2f} of ten times the throughput of one."
    )


def _cluster_sizes(cluster: Results) -> Iterator[str]:
    low, high = cluster["three_nodes"]["interval"]
    yield (
        f"48 steps at once take {cluster['three_nodes']['median']:.2f} ({low:.2f} to {high:.2f}) times as long on "
        "three nodes as on one of them; all share the cores of this machine, so no gain is expected."
    )
    yield ""
    yield "| simulated load | machines | runs | steps | seconds | critical path of a run | throughput, of linear |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in cluster["rows"]:
        counts = " | ".join(f"{row[name]:,}" for name in ("machines", "runs", "steps"))
        seconds = f"{row['seconds']:,.1f} | {row['critical_path']:,.1f}"
        yield f"| {row['load']} | {counts} | {seconds} | {row['linear']:.2f} |"


def _jobs(results: Results) -> str:
    rows = {
        (row["half"], row["arm"]): row for row in results["table"] if (row["model"], row["group"]) == ("1.5b", "all")
    }

    def shares(half: str) -> str:
        ours, chat = (rows[half, arm] for arm in ("orchestrator", "chat"))
        return (
            f"{100 * ours['right'] / ours['of']:.0f} % of the {half} requests correctly with the orchestrator, and "
            f"{100 * chat['right'] / chat['of']:.0f} % in one chat"
        )

    measured = [shares(half) for half in HALVES if (half, "chat") in rows]
    return f"Qwen2.5-Coder-1.5B answers {'; '.join(measured)}."


def _job_counts(results: Results) -> Iterator[str]:
    yield "| model | half | jobs | by | right | seconds | tokens read | tokens written | failed | false done |"
    yield "|---|---|---|---|---:|---:|---:|---:|---:|---:|"
    for row in results["table"]:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.1f}"
        costs = f"{seconds} | {row['input_tokens']:.0f} | {row['output_tokens']:.0f}"
        right = f"{row['right']} of {row['of']}"
        names = f"{row['model']} | {row['half']} | {row['group']} | {row['arm']}"
        yield f"| {names} | {right} | {costs} | {row['failed']} | {row['false_done']} |"


def _engine(results: Results) -> str:
    return (
        "At worst, in tokens a second: "
        f"{goal(results, 'ours ÷ llama-server, both warm'):.2f} of a warm llama-server, "
        f"{goal(results, 'ours ÷ llama-server, both cold, 16 requests, prefix 1024'):.1f} of a cold one when 16 "
        "requests share 1,024 tokens, and with speculation "
        f"{goal(results, 'speculation ÷ no speculation'):.2f} of without it."
    )


def _user_path(results: Results) -> str:
    over = "ours ÷ llama-server over HTTP, "
    return (
        f"At worst, in speed: {goal(results, over + 'own texts'):.2f} of llama-server, "
        f"{goal(results, over + '16 sharing a document, new'):.1f} when 16 chats share a new document, "
        f"{goal(results, over + 'one core busy'):.1f} next to a busy loop on one of two cores."
    )


def _of_server(results: Results) -> Iterator[str]:
    """Yield the lines of a table of the chats and requests that are compared with llama-server, with their rounds."""
    rows = {(row["cell"], row["state"], row["system"]): row["seconds"] for row in results["rows"]}
    yield "| ours ÷ llama-server | rounds | in speed | 95 % interval |"
    yield "|---|---:|---:|---:|"
    for (cell, state, system), seconds in rows.items():
        if system == OURS and (others := rows.get((cell, state, SERVER))):
            both = min(len(seconds), len(others))
            speed = ratio(others[:both], seconds[:both])
            yield f"| {cell}, {state} | {both} | {speed.median:.2f} | {speed.low:.2f} to {speed.high:.2f} |"
    if missing := results["cells"]["left"]:
        yield from ("", f"Not measured yet: {', '.join(missing)}.")


def _of_server_otherwise(results: Results) -> Iterator[str]:
    """Yield the same lines for hybrids and models with sliding windows alone."""
    return _of_server({**results, "rows": [row for row in results["rows"] if keeps_otherwise(row["model"])]})


def _real_text(results: Results) -> str:
    return (
        f"Summaries come {goal(results, 'summarize: ours, lookup ÷ ours'):.2f} and edits "
        f"{goal(results, 'edit: ours, lookup ÷ ours'):.2f} times as fast with prompt lookup as without it."
    )


def _daemon(results: Results) -> str:
    done = goal(results, "queued runs that are done after a kill")
    return (
        f"A step costs {goal(results, 'daemon overhead per step, ms'):.1f} ms next to its engine's work; of 10,000 "
        f"queued runs, {done:,.0f} are done after the daemon was killed."
    )


def _chaos(results: Results) -> str:
    faults, minutes = sum(results["faults"].values()), results["seconds"] / 60
    return (
        f"{goal(results, 'runs done'):,.0f} of {goal(results, 'runs accepted'):,.0f} runs are done despite {faults} "
        f"faults in {minutes:.0f} minutes; lost: {goal(results, 'accepted runs that are lost'):,.0f}."
    )


def _gates(results: Results) -> str:
    right = {row["setup"]: row["right"] for row in results["rows"] if row["family"] == "all"}
    return (
        f"Of {results['tasks']} tasks the smallest model does {right['small without gates']} right, with gates "
        f"{right['small with gates']}, with escalation too {right['small with gates and escalation']}; the largest one "
        f"alone {right['large without gates']}."
    )


def _priority(results: Results) -> str:
    seconds = next(goal["value"] for goal in results["goals"] if goal["name"].startswith("seconds of a gate"))
    speeds = [goal["value"] for goal in results["goals"] if "next to urgent gates" in goal["name"]]
    return (
        f"Next to a busy loop on each core, a gate that needs 0.6 s takes {seconds:.1f} s. Next to urgent gates, "
        f"decoding keeps {min(speeds):.2f} of its speed."
    )


def _routing(results: Results) -> str:
    rows = {row["router"]: row for row in results["parts"]["families"]["rows"] if row["price"] == 0.1}

    def describe(router: str) -> str:
        return f"{rows[router]['success'][0]:.2f} right at {rows[router]['cost'][0]:.2f} of the large model's time"

    return (
        f"Rules that choose small models: {describe('rules')}. Learned, after 300 outcomes: {describe('after 300')}. "
        f"Always the large model: {rows['always large']['success'][0]:.2f}."
    )


def _parl(results: Results) -> str:
    rows = {row["name"]: row for row in results["rows"]}
    trained, ruled = rows["seconds"], rows[best_rule(results)]
    first = f"{why}. " if (why := rules_as_good(results)) else ""

    def rates(row: Results) -> str:
        collapse, success = row["collapse"]["value"], row["success"]["value"]
        return f"{success:.0%} right, {collapse:.0%} of wide requests collapsed"

    return f"{first}Trained: {rates(trained)}. Before training: {rates(rows['as shipped'])}. By rules: {rates(ruled)}."


def best_rule(results: Results) -> str:
    """Return the control that splits by a rule over which the trained frontdoor gains least."""
    return min(RULES, key=lambda name: float(results["gains"][name]["gain"]))


def rules_as_good(results: Results) -> str:
    """Return what says that a rule is as good as the trained frontdoor; empty if that is better for certain."""
    gain = results["gains"][name := best_rule(results)]
    if gain["low"] > 0:
        return ""
    gain_text = f"a gain of {gain['gain']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
    return f"Splitting by rules ({name}) is as good as the trained frontdoor, which has {gain_text} over it"


def parl_table(results: Results) -> Iterator[str]:
    """Yield the lines of a table of arms and controls, and of one for each worker that was timed by a real clock."""
    figures = ("success", "collapse", "spurious", "removable", "regret", "width", "seconds", "tokens")
    yield f"| arm or control | seeds | {' | '.join(figures)} |"
    yield f"|---|---:|{'---:|' * len(figures)}"
    for row in (*results["rows"], *_shipped_row(results)):
        cells = (_with_interval(row[figure]) for figure in figures)
        yield f"| {row['name']} | {row['seeds']} | {' | '.join(cells)} |"
    if results["rows"]:
        yield from _machine_table(results["rows"])
    if not results.get("clock"):
        yield from ("", "Not measured: critical paths by the clock of two real cores.")
    for worker, clock in results.get("clock", {}).items():
        yield from _clock_table(worker, clock)
    for model, training in results.get("larger", {}).items():
        yield from _larger_table(model, training)


def _shipped_row(results: Results) -> list[Results]:
    # the adapter of one seed, at the scale that it ships with
    if (shipped := results.get("shipped")) is None:
        return []
    return [{**shipped["row"], "name": f"the adapter that ships ({shipped['row']['name']})"}]


def _machine_table(rows: Sequence[Results]) -> Iterator[str]:
    figures = ("success", "collapse", "spurious", "regret", "width", "seconds")
    by_machine = {row["name"]: row["by_machine"] for row in rows}
    yield ""
    performances = "; ".join(f"{row['name']} {row['performance']:.3f}" for row in rows)
    yield (
        f"Right answers less the price of their time: {performances}. The arm that ships (`seconds`) was chosen before "
        "it was measured, since its cost is what a user waits for."
    )
    yield ""
    yield (
        "Seconds are the mean critical path of right answers, so an arm that answers more of the long requests "
        "correctly has more of them. By machine, the arm that ships; the width is that of requests whose best plan is "
        "wide on this machine:"
    )
    yield ""
    yield f"| machine | {' | '.join(figures)} | best plan's width |"
    yield f"|---|{'---:|' * (len(figures) + 1)}"
    for machine, row in by_machine["seconds"].items():
        cells = (*(row[figure] for figure in figures), by_machine["best plan"][machine]["width"])
        yield f"| {machine} | {' | '.join(map(_figure, cells))} |"


def _larger_table(model: str, training: Results) -> Iterator[str]:
    figures = ("performance", "success", "collapse", "spurious", "longer", "width")
    natural = "; ".join(
        f"{name}: {counts['trained']} of {counts['count']} instead of {counts['supervised']}"
        for name, counts in training["natural"].items()
    )
    stage = Stage(**training["settings"]["reward"]["stage"])
    yield ""
    yield (
        f"{model} with the adapter that ships, and with one in addition that `orchestrator frontdoor train` made in "
        f"{training['updates']} updates (one seed; {training['hours']:.1f} hours of one core that also did other work),"
        f" on {training['requests']} held-out requests. λ fell from {stage.first:g} to "
        f"{stage.at(training['updates'] - 1):.2g}. Right plans for natural requests, {natural}."
    )
    yield ""
    yield f"| adapters | {' | '.join(figures)} |"
    yield f"|---|{'---:|' * len(figures)}"
    for name, system in (("shipped", "current"), ("shipped and trained", "candidate")):
        yield f"| {name} | {' | '.join(_figure(training[system][figure]) for figure in figures)} |"


def _clock_table(worker: str, clock: Results) -> Iterator[str]:
    by_group = {row["group"]: row for row in clock["rows"]}
    own = by_group[WIDE_REQUESTS]["not_computing"]
    both = by_group.get(WIDE_BOTH_RIGHT, {}).get("steps")
    texts = clock["texts"]
    stands_in = "" if texts is None else f" It computes as many tokens as the answers of {texts} have, which steps get."
    yield ""
    yield (
        f"By the clock of {_machines(clock)[0]} (`{_command(clock)}`): the frontdoor's plans as it ships and one agent "
        f"in turn, {clock['rounds']} rounds, each run on new engines, the worker {worker}.{stands_in} In "
        f"{own['plan']:.1%} of the critical paths of wide plans, and {own['one agent']:.1%} of one agent's, no engine "
        "computes for them: that is the orchestrator's own time. Planning is no part of the path, only of the time "
        "until the answer. Off is the simulated share from the measured one, in the median over requests; seconds are "
        "medians of critical paths. The interval of a single request is one over rounds alone."
        + (" All wide requests that both answer correctly are planned as one step on two cores." if both == 1 else "")
    )
    yield ""
    yield (
        "| requests | count | steps of the plan | right | one agent right | critical path ÷ one agent's "
        "| longest of any request | simulated | off | until the answer ÷ one agent's | seconds | one agent's |"
    )
    yield f"|---|{'---:|' * 11}"
    for row in clock["rows"]:
        right, seconds = (row[name] for name in ("right", "seconds"))
        cells = (
            row["group"],
            row["requests"],
            f"{row['steps']:.1f}",
            *map(_figure, (right["plan"], right["one agent"])),
            _with_interval(row["path"]),
            _figure(row["longest"]),
            _figure(row["simulated_path"]),
            f"{row['simulated_off']:.0%}",
            _with_interval(row["wall"]),
            *map(_figure, (seconds["plan"], seconds["one agent"])),
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _with_interval(estimate: Results) -> str:
    if estimate["value"] is None:
        return "none"
    return f"{_figure(estimate['value'])} ({_figure(estimate['low'])} to {_figure(estimate['high'])})"


def _memory(results: Results) -> str:
    row = max(results["rows"]["memory"], key=lambda size: size["episodes"])
    return (
        f"Of {row['episodes']:,} episodes, the 20 that are most like a situation are found in "
        f"{row['retrieve_20_p99_ms']:.1f} ms (99th percentile), {100 * row['recall']:.0f} % of them the right ones."
    )


def _context(results: Results) -> str:
    sent = 100 * goal(results, "prompt tokens, with as a share of without")
    computed = goal(results, "computed tokens, with as a share of without")
    return (
        f"A step that gathers from 50 documents sends {sent:.0f} % of the prompt tokens, but computes {computed:.1f} "
        "times as many, as pruning breaks the shared prefix."
    )


def _procedures(results: Results) -> str:
    kills = sum(row.get("kills", 0) + row.get("second_kills", 0) for row in results["rows"])
    changed = int(goal(results, "half-changed after a kill"))
    (undone,) = (row for row in results["rows"] if row["part"] == "rollback")
    return (
        f"{kills:,} kills at random moments left {changed or 'nothing'} half-changed; an action costs "
        f"{goal(results, 'milliseconds per action besides its syncs'):.1f} ms besides its syncs; a file "
        f"of {undone['bytes'] / 2**30:.0f} GiB is removed with a checkpoint in {undone['seconds_to_remove']:.1f} s and "
        f"put back in {undone['seconds_to_put_back']:.2g} s."
    )


def _grammar(results: Results) -> str:
    speeds = [goal(results, f"tokens a second, llguidance ÷ ours, width {width}") for width in GRAMMAR_WIDTHS]
    right, count = (sum(form[key] for form in results["cases"]) for key in ("llguidance", "cases"))
    return (
        f"With llguidance, sequences decode {speeds[0]:.2f} (one) and {speeds[1]:.2f} (16) times as fast as with our "
        f"grammars, at worst; it judges {right} of {count} cases as wanted, ours all."
    )


GRAMMAR_WIDTHS: Final = (1, 16)


def _grammar_speeds(results: Results) -> Iterator[str]:
    yield "| model | schema | width | tokens | likeliest refused | llguidance ÷ ours, in speed | masks ahead ÷ ours |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for row in results["rows"]:
        ratios = " | ".join(map(_ratio, row["ratios"].values()))
        cells = (row["model"], row["schema"], row["width"], row["tokens"], row["rejections"]["ours"], ratios)
        yield f"| {' | '.join(map(str, cells))} |"


def _adapter(results: Results) -> str:
    rows = {(row["system"], row["requests"]): row for row in results["rows"]}
    counted = [rows["adapter", name] for name in ("unseen", "wide")]
    right, count = (sum(row[key] for row in counted) for key in ("right", "count"))
    return (
        f"With it, {results['model']} plans {right} of {count} natural requests correctly; of 50 of these "
        f"{rows['prompt', 'unseen']['right']} with the prompt that ships and {rows['bare', 'unseen']['right']} bare."
    )


def _tiny(results: Results) -> str:
    rows = [row for row in results["rows"] if (row["size"], row["grammar"]) == ("large", False)]
    share = {row["family"]: row["share"] for row in rows if row["split"] == "entity"}
    shares = (f"{100 * share[family]:.0f} % of {name}" for family, name in FAMILIES.items())
    return f"The largest is exact on {', '.join(shares)} about names that it never saw."


FAMILIES: Final = {"plan": "plans", "summarize": "summaries", "code": "functions", "compare": "comparisons"}


def _tool_caller(results: Results) -> str:
    shares = [goal["value"] for goal in results["goals"]]
    return f"It is exact on {100 * min(shares):.0f} to {100 * max(shares):.0f} % of held-out conversations."


def _clients(results: Results) -> str:
    failing = int(goal(results, "abilities that fail"))
    tried = results["count"]["works"] + results["count"]["fails"]
    return f"{len(results['rows'])} clients, unchanged: {tried - failing} of the {tried} things that they can do work."


TASKS: Final = ("extract", "count", "classify", "code")  # the kinds of small tasks that a real model does


def _real_model(results: Results) -> str:
    right = results["right"]
    done = [count for kind, count in right.items() if kind in TASKS]
    return (
        f"It plans {right['plan']['right']} of {right['plan']['of']} requests correctly, and does "
        f"{sum(count['right'] for count in done)} of {sum(count['of'] for count in done)} small tasks."
    )


SUBJECTS: Final[Mapping[str, BenchmarkSubject]] = {
    "jobs": BenchmarkSubject(
        "Better than one call",
        "Requests as people write them, with small files, and checks of the answers by code. One call is enough for "
        "some, others have independent parts, or code. One chat with the files pasted, a direct answer and the "
        "orchestrator alternate, with the same models at temperature 0. Seconds and tokens are medians. Points "
        "count each job once, however many rounds it has, and times are compared within a round and on the same "
        "processor. False done: wrong, and neither failed nor marked as doubtful. No frontdoor of these models plans "
        "correctly often enough to be asked, so the orchestrator answers directly too; it differs from one chat by the "
        "files that it reads, and by gates, retries, escalation and doubts. Prompts and rules were made with the "
        "results of the 60 tuning jobs at hand. The 90 that are held out were written when that was done, without a "
        "look at how requests are handled: first 28, of which most proved too hard for the model, then 26 simple ones, "
        "and 36 of everyday kinds. "
        "They were asked once, several at a time, so they have no seconds; what has no row here was not asked. By "
        "`planned`, the plan of the 1.5B with its adapter is followed whatever its quality: 18 jobs with parts were "
        "asked once, of which direct answers have eight right in one round.",
        _jobs,
        _job_counts,
        causes.JOBS,
    ),
    "critical_path": BenchmarkSubject(
        "Whole tasks compared with other ways to run a plan",
        "How many times as long as this orchestrator others take for the same plans, with the same model file, "
        "prompts, numbers of tokens and threads: medians of paired rounds with 95 % intervals, on new tasks whose "
        "texts no cache holds. One agent is llama-cpp-python in one growing conversation; LangGraph and a greedy "
        "executor in the manner of LLMCompiler run on llama-server with a slot for every step that can run at "
        "once; waves are our own with a barrier between waves, and discover drops an order that no artifact asks "
        "for. Efficiency is the time of the best schedule over ours. SmolLM2 does all tasks; generated models of "
        "150 and 500 million parameters, of which only the speed is real, do two.",
        _whole_tasks,
        peer_table,
        causes.CRITICAL_PATH,
    ),
    "simulate": BenchmarkSubject(
        "The simulator",
        "What the simulator predicts for this machine against what was measured on it, and what it says of larger "
        "ones. The machine is measured anew before and after each task, and answers have as many tokens as the real "
        "ones; the medians say what is off without that, too. Times of larger machines are predicted; so is how many "
        "times as fast a task is as its steps one after the other, and as with twice as much of a resource. What "
        "bounds a task is in bold: more of it helps most.",
        _simulator,
        _advice,
        causes.SIMULATE,
    ),
    "cluster": BenchmarkSubject(
        "Several machines",
        "Three nodes of a Ray cluster on this machine, each with an engine of one thread: what a step takes longer on "
        "a node than on the head, in pairs of rounds, and what the simulator says of the same. Then the simulator with "
        "1, 3, 10 and 100 machines of 96 cores that run a mixture of 35 billion parameters; the orchestrator takes "
        "there what it takes on this machine, and with 100 machines that is what bounds all loads: 7 ms of one core "
        "for each generation. Runs are submitted at one moment, as many for each machine, but for the 1,000 runs.",
        _cluster,
        _cluster_sizes,
        causes.CLUSTER,
    ),
    "engine": BenchmarkSubject(
        "The engine compared with its peers",
        "Tokens a second of generated models of 150 and 500 million parameters (only their speed is real), for one to "
        "64 requests at a time that share nothing, 64 or 1,024 tokens.",
        _engine,
        _of_server_otherwise,
        causes.ENGINE,
    ),
    "user_path": BenchmarkSubject(
        "Chats over HTTP",
        "SmolLM2-135M behind our daemon and behind llama-server, for 1, 4 and 16 chats at a time, on an idle machine "
        "and next to busy loops; and Qwen2.5-Coder-0.5B (`coder`) on an idle machine.",
        _user_path,
        _of_server,
        causes.USER_PATH,
    ),
    "grammar": BenchmarkSubject(
        "Grammars by llguidance",
        "Our grammars, which llama.cpp's sampler follows, next to llguidance "
        "([ADR 53](adr/0053-grammars-stay-with-llama-cpp.md)). Sequences sample greedily from the same logits, as the "
        "engine does, and take the tokens of the same text. If the likeliest token is refused, ours looks for one that "
        "is allowed, and llguidance computes a mask. With masks ahead, it computes those of all sequences in one call "
        "while the model decodes. A plan has white space in strings only. A case is a text that a grammar should "
        "accept or not, or a grammar that should be refused. Schemas are adapted to llguidance first, and GBNF is "
        "translated by the converter that it brings.",
        _grammar,
        _grammar_speeds,
        causes.GRAMMAR,
    ),
    "real_text": BenchmarkSubject(
        "Prompt lookup on real texts",
        "SmolLM2-135M summarises and edits real texts, with and without prompt lookup, next to llama-server's own.",
        _real_text,
        causes=causes.REAL_TEXT,
    ),
    "daemon": BenchmarkSubject(
        "The daemon",
        "What it costs, and what it bears: kills, queues, crowds and floods.",
        _daemon,
    ),
    "chaos": BenchmarkSubject(
        "Chaos",
        "Runs with gates and fan-outs on SmolLM2, while engines are killed and stopped, the daemon is killed, the disk "
        "is filled and runs are cancelled.",
        _chaos,
    ),
    "gates": BenchmarkSubject(
        "Gates and escalation", "200 tasks of the embedded models whose answers can be checked.", _gates
    ),
    "priority": BenchmarkSubject(
        "Gates on a busy machine",
        "How long a gate takes next to busy loops, and how much speed gates leave to two models that decode on all "
        "cores. A gate is urgent if its run waits for it.",
        _priority,
        causes=causes.PRIORITY,
    ),
    "routing": BenchmarkSubject(
        "Learned routing",
        "Held-out tasks of the embedded models' families, with every model and persona; answers of two real "
        "models to the questions of MMLU and GSM8K (RouteLLM); and the predecessor's faults.",
        _routing,
        causes=causes.ROUTING,
    ),
    "parl": BenchmarkSubject(
        "The frontdoor's training",
        "Arms whose rewards differ, three seeds each, and controls without training, on held-out requests: other "
        "names, width 16, another family, another worker. Answers come from real engines, seconds from the assumed "
        "machines with 2, 16 and 96 cores. As shipped is the frontdoor without an adapter. Removable is the share of "
        "steps without which a plan runs and its answer is as right, tried with the adapter that ships. Regret is by "
        "how much the critical path of a right answer is longer than that of the best plan.",
        _parl,
        parl_table,
        causes=causes.PARL,
    ),
    "memory": BenchmarkSubject(
        "The memory of outcomes at size",
        "What a million episodes cost in time and memory.",
        _memory,
        causes=causes.MEMORY,
    ),
    "context": BenchmarkSubject(
        "Context that edits itself", "A step that gathers from 50 documents.", _context, causes=causes.CONTEXT
    ),
    "procedures": BenchmarkSubject("Procedures", "What they cost, and what is left after kills.", _procedures),
    "adapter": BenchmarkSubject(
        "The frontdoor's adapter",
        "Natural requests, and whether their plans are right.",
        _adapter,
        causes=causes.ADAPTERS[FIRST_ADAPTER],
    ),
    "tiny": BenchmarkSubject(
        "The embedded models", "Held-out prompts of thirteen kinds of task over made-up records.", _tiny
    ),
    "tiny-seeds": BenchmarkSubject("The embedded models, trained anew", "Whether other seeds lead to models as good."),
    "tool-caller": BenchmarkSubject(
        "The tool caller",
        "The tiny model of the tests that calls tools.",
        _tool_caller,
        causes=causes.TOOL_CALLER,
    ),
    "clients": BenchmarkSubject(
        "Clients of other projects", "What [each of them](clients.md) does with our daemon.", _clients
    ),
    "divergence": BenchmarkSubject(
        "Text at temperature 0",
        "How many texts differ from those that `batch_invariant` gives, when they are computed in batches, from a "
        "shared pool of the KV cache, or with drafts. There is no goal.",
    ),
}  # the subjects by the names of their files, in the order of the page


def subject_of(name: str) -> BenchmarkSubject:
    """Return the subject of a file of results. Raises KeyError for one that is not known."""
    if name not in SUBJECTS and name.startswith(REAL_MODEL):
        model = name.removeprefix(REAL_MODEL)
        about = "100 natural requests whose plans are checked, and 40 small tasks whose answers are."
        return BenchmarkSubject(f"A real model: {model}", about, _real_model, causes=causes.REAL_MODELS.get(model, {}))
    if name.startswith(ADAPTER_OF):
        subject, model = SUBJECTS["adapter"], name.removeprefix(ADAPTER_OF)
        return replace(subject, title=f"{subject.title} of {model}", causes=causes.ADAPTERS.get(model, {}))
    return SUBJECTS[name]


def page(results: Mapping[str, Results]) -> str:
    """Return the page of all benchmarks for their results by the names of their files.

    Raises KeyError for results of an unknown name.
    """
    lines = [
        "# Benchmarks",
        "",
        "Every goal that was set, and what was measured for it, also if it was missed. This page is written from "
        "`benchmarks/results`, by the benchmarks themselves; `python -m benchmarks.results` writes it again.",
        "",
        "A ratio is paired: both sides ran alternately, in one run, on one machine, with the same model and tokens. "
        "Intervals are of 95 %. A goal is met if the value itself reaches what was wanted, open if only the better end "
        "of its interval does, and missed otherwise. A goal that holds for many cells shows its worst one, and is "
        "missed if one cell misses it. Below each table stands why goals are not met.",
        "",
        *_overview(results),
        "",
    ]
    for name in _ordered(results):
        lines += [*_section(subject_of(name), name, results[name]), ""]
    return "\n".join(lines)


def _overview(results: Mapping[str, Results]) -> Iterator[str]:
    yield "| measured by | in short | goals met |"
    yield "|---|---|---:|"
    for name in _ordered(results):
        subject = subject_of(name)
        if subject.headline is not None:
            measured_by = f"[{subject.title}](#{_anchor(subject.title)})<br>`{_command(results[name])}`"
            yield f"| {measured_by} | {_in_short(subject.headline, results[name])} | {_met(results[name])} |"


def _in_short(headline: Callable[[Results], str], results: Results) -> str:
    try:
        return headline(results)
    except KeyError:
        return "Measured in part."


def _ordered(results: Mapping[str, Results]) -> list[str]:
    order = [*SUBJECTS]
    return sorted(results, key=lambda name: (order.index(name) if name in SUBJECTS else order.index("adapter"), name))


def _section(subject: BenchmarkSubject, name: str, results: Results) -> Iterator[str]:
    yield f"## {subject.title}"
    yield ""
    yield subject.about
    yield ""
    machines = ", and ".join(_machines(results))
    yield f"`{_command(results)}`, {machines}; all figures are in `benchmarks/results/{name}.json`."
    goals: Sequence[Results] = results.get("goals", ())
    if goals:
        yield ""
        yield "| goal | measured | 95 % interval | wanted | state |"
        yield "|---|---:|---:|---:|---|"
        for row in goals:
            interval = row.get("interval")
            bounds = "" if interval is None else f"{_figure(interval[0])} to {_figure(interval[1])}"
            yield f"| {row['name']} | {_figure(row['value'])} | {bounds} | {row.get('goal', '')} | {_reached(row)} |"
        yield from _causes(subject, goals)
    if subject.table is not None:
        yield ""
        yield from subject.table(results)


def _causes(subject: BenchmarkSubject, goals: Sequence[Results]) -> Iterator[str]:
    """Yield the lines of a list of the goals that are not met, with their causes. Goals of one cause share a line."""
    names = defaultdict[str, list[str]](list)
    for row in goals:
        cause = subject.cause_of(row["name"]) if row.get("state") in NOT_MET else None
        if cause is not None:
            names[cause].append(row["name"])
    if names:
        yield from ("", "Not met, and why:", "")
        yield from (f"- **{'; '.join(of_cause)}**: {cause}" for cause, of_cause in names.items())


def _reached(goal_row: Results) -> str:
    if "goal" not in goal_row:
        return ""
    text = "**missed**" if goal_row["state"] == "missed" else str(goal_row["state"])
    if goal_row["value"] is not None and goal_row.get("cells", 1) > 1:
        text += f", {goal_row['reached']} of {goal_row['cells']}; worst: {goal_row['where']}"
    return text


def _met(results: Results) -> str:
    goals = [goal for goal in results.get("goals", ()) if "goal" in goal]
    return f"{sum(goal['state'] == 'met' for goal in goals)} of {len(goals)}" if goals else ""


def _command(results: Results) -> str:
    return str(results["command"])


def _machines(results: Results) -> list[str]:
    """Return the machines that these results, or their parts, were measured on."""
    each = results.get("machines")
    if isinstance(each, list):
        return each
    if each is not None:  # by cell
        machines = [*each.values()]
    else:
        machines = (
            [results["machine"]] if "machine" in results else [part["machine"] for part in results["parts"].values()]
        )
    return [*dict.fromkeys(f"{machine['processor']} with {machine['cores']} cores" for machine in machines)]


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return "".join(
        character for character in title.lower().replace(" ", "-") if character.isalnum() or character == "-"
    )


def _figure(value: float | bool | None) -> str:
    """Return a figure with three digits, or more if it is a large one."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".removesuffix(".")
