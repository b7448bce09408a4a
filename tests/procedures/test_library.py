"""Every procedure that ships: done for real, rolled back, and failed half-way, each time with nothing half-changed."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from orchestrator.cli.registry import with_made_personas
from orchestrator.memrl.episodes import Action, Outcome, Reward, Situation
from orchestrator.memrl.memory import Memory
from orchestrator.memrl.memory import MemoryOptions as MemoryRules
from orchestrator.memrl.parl.promote import values_with
from orchestrator.memrl.parl.weights import write_adapter
from orchestrator.memrl.router import named
from orchestrator.procedures import retention
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.installation import execution_body, procedures_engine
from orchestrator.procedures.library import SHIPPED, Library
from orchestrator.procedures.operations.frontdoor import TrainArguments
from orchestrator.procedures.ports import Operation, Program, Work
from orchestrator.procedures.ports import planning_work as work
from orchestrator.procedures.upkeep import Installation, Upkeep
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.journal.home import Home, HomeLock
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.migrations import VERSION
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.personas import PersonaProposal
from orchestrator.run.state_folder import StateFolder
from orchestrator.service.backup import backups, make_backup
from orchestrator.service.callers import Callers
from orchestrator.service.configuration import (
    Configuration,
    ProcedureSettings,
    RetentionSettings,
    load_configuration,
)
from orchestrator.task.events import (
    AdviceEstimate,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    RouteAdvice,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.lexical import LEARNING_DIMENSIONS, NAME, embed
from orchestrator.task.taskir.parse import task_from
from tests.memrl.parl.adapters import some_weights
from tests.orchestrator.older_journal import downgrade, version_of
from tests.orchestrator.service.test_retention import journaled
from tests.procedures.alone import upkeep_alone
from tests.procedures.maintained import NoArguments, contents

RECORDS: Final = Path(__file__).resolve().parents[2] / "examples" / "records"
TINY: Final = Path(__file__).resolve().parents[2] / "registry" / "tiny"
KEEPER: Final = "Speak as a lighthouse keeper of the last century would have spoken to his cat."
PROJECTIONS: Final = ("home/memory/index", "home/memory/graph")
"""What is made anew from the memory's database."""
OURS: Final = ("home/procedures/", "home/procedures", "home", "home/lock")
"""What belongs to the engine of procedures itself, and the lock of the state folder."""


OWNER: Final = Callers(Path.cwd(), {f"user:{os.getuid()}": "owner operator approver"}).user().caller


@dataclass(frozen=True)
class Case:
    """A procedure with inputs, and what has to hold when it is done."""

    name: str
    inputs: Callable[[Path], dict[str, Any]]
    holds: Callable[[Path], object]
    undone: bool = True
    """Whether it changes something that a rollback undoes."""
    prepare: Callable[[Path], object] = lambda _root: None
    """Makes what it needs."""
    takes_long: bool = False
    """Whether it is made to fail once only, before its last step, as a model takes part in it."""
    stays: tuple[str, ...] = ()
    """The beginnings of the names of what it leaves: what can be made anew, and the history of runs."""


def fail(_arguments: NoArguments, _work: object) -> dict[str, Any]:
    raise StepFailed("it was told to fail")


def fill_installation(root: Path) -> None:
    """Make a registry, a journal with two runs and a backup of it, a token and a folder of code."""
    home = root / "home"
    (root / "code").mkdir()
    (root / "code" / "good.py").write_text("x = 1\n")
    (root / "models").mkdir()
    (root / "small.gguf").write_bytes((TINY / "small.gguf").read_bytes())
    (root / "registry.yaml").write_text(
        f"""\
models:
  # The large one.
  large: {{file: {TINY}/large.gguf, threads: 1, context: 2048, slots: 2}}
  # The small one.
  small: {{file: small.gguf, threads: 1, context: 512, slots: 2}}
roles:
  frontdoor: {{model: large, tier: A}}
  worker: {{model: large, tier: C}}
"""
    )
    with Journal.open(home) as journal:
        for run, content, ended in (("R1", b"old", 1000.0), ("R2", b"new", time.time())):
            asyncio.run(journaled_on(journal, run, content, ended))
        make_backup(journal)
    (home / "api.token").write_text("a-token-of-more-than-twenty-characters\n")
    (home / "api.token").chmod(0o600)


def installation_in(root: Path) -> Installation:
    """Return the installation that `fill_installation` has made in a folder."""
    home = root / "home"
    return Installation(
        home=home,
        registry=root / "registry.yaml",
        models=root / "models",
        token=home / "api.token",
        upkeep=upkeep_alone(home, root / "registry.yaml"),
    )


def registry_of(root: Path) -> Registry:
    """Return the registry with the personas that were made at run time."""
    return with_made_personas(load_registry(root / "registry.yaml"), root / "home")


async def journaled_on(journal: Journal, run: str, content: bytes, ended: float) -> None:
    await journaled(journal, run, content, ended=ended)


def runs_of(root: Path) -> list[str]:
    with JournalReader.open_to_read(root / "home") as journal:
        return sorted(row.run for row in journal.runs())


def last_backup(root: Path) -> str:
    return backups(root / "home")[-1].name


def add_keeper(root: Path) -> None:
    async def add() -> None:
        async with StateFolder(root / "home", registry_of(root)) as folder:
            await folder.personas.add(PersonaProposal(name="keeper", text=KEEPER))

    asyncio.run(add())


def fill_memory(root: Path) -> None:
    """Give the memory three episodes of which two are about nearly the same request."""
    memory = Memory.open(root / "home" / "memory", NAME, LEARNING_DIMENSIONS, MemoryRules(most_alike=0))
    letter = "Summarize the letter that the harbour master wrote to the council about the new quay"
    for number, text in enumerate((letter, f"{letter}.", "Write a song about rain.")):
        situation = Situation(task_type="doc", kind="generate", role="worker", text=text)
        memory.observe(
            situation,
            embed([text], LEARNING_DIMENSIONS)[0],
            Action("worker", "", "large"),
            outcome=Outcome(success=1.0, source="gate", by="unit", weight=1.0),
            reward=Reward(total=1.0),
            propensity=1.0,
            at=1000.0 + number,
            key=("R0", "S1", number),
        )
    memory.close()


def episodes(root: Path) -> int:
    memory = Memory.open(root / "home" / "memory", NAME, LEARNING_DIMENSIONS, MemoryRules(most_alike=0))
    try:
        stats = memory.stats()
        assert stats.index.vectors == stats.episodes
        return stats.episodes
    finally:
        memory.close()


def advised(root: Path, *, better: str) -> None:
    """Journal 120 runs whose models were drawn with equal chance: `better` succeeded always, the other one never.

    The memory advised `small`, and the rules `large`.
    """
    with Journal.open(root / "home") as journal:
        asyncio.run(_advised(journal, better))


async def _advised(journal: Journal, better: str) -> None:
    task = task_from(
        {"objective": "x", "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}]}}
    )
    digest, now = journal.put(b"made"), time.time()
    estimates = tuple(
        AdviceEstimate(
            role="worker",
            persona="",
            model=model,
            thinking="",
            mode="",
            value=0.5,
            worth=0.5,
            error=0.1,
            price=0.0,
            head=0.5,
            head_part=1.0,
            support=1.0,
            probability=0.5,
        )
        for model in ("small", "large")
    )
    advice = RouteAdvice(
        asked="worker",
        role="worker",
        persona="",
        model="small",
        thinking="",
        mode="",
        confidence=0.9,
        followed=False,
        explored=True,
        why="a test",
        rules=named(Action("worker", "", "large")),
        estimates=estimates,
    )
    runs: dict[str, list[Event]] = {}
    for number in range(120):
        model, at = ("small", "large")[number % 2], now + number / 1000
        ended: Event = AttemptSucceeded(
            at=at, step="S1", number=1, outputs={"o": digest}, gates=(GateResult("unit", "passed"),)
        )
        if model != better:
            failure = Failure(FailureKind.CODE, "the tests have failed", final=True)
            ended = AttemptFailed(at=at, step="S1", number=1, failure=failure, gates=(GateResult("unit", "failed"),))
        runs[f"A{number}"] = [
            RunAccepted(at=at, run=f"A{number}", mode="as-planned", task=task),
            StepsPlanned(at=at, steps=task.plan.steps),
            PlanFinished(at=at, origin="taskir"),
            AttemptStarted(
                at=at,
                step="S1",
                number=1,
                role="worker",
                persona=None,
                model=model,
                reason="a test",
                propensity=0.5,
                advice=advice,
            ),
            ended,
            RunFinished(at=at, status="done" if model == better else "failed"),
        ]
    async with asyncio.TaskGroup() as group:  # all at once, so that they share the disk's syncs
        for run, events in runs.items():
            group.create_task(journal.append(run, events))


def use_of(root: Path) -> str:
    return load_configuration({"HOME": str(root)}).memory.use


def one_request(root: Path) -> str:
    """Write a file with the one request that a model is tuned on, and return its path."""
    (root / "requests.jsonl").write_text('{"prompt": "Summarize: The bell rang.", "max_tokens": 8}\n')
    return str(root / "requests.jsonl")


def tuned(root: Path) -> bool:
    """Return whether the registry has what the evidence says, and that is certain to be faster."""
    evidence = json.loads(max((root / "home" / "benchmarks").glob("large-tuning-*.json")).read_text())
    written = models(root)["large"].options.threads
    certain = evidence["ratio"] is not None and evidence["ratio"]["low"] > 1
    return (
        bool(evidence["tried"])
        and (evidence["found"] == {} or certain)
        and written == (evidence["found"].get("threads", 1))
    )


def models(root: Path) -> Any:
    return load_registry(root / "registry.yaml").models


CASES = [
    Case(
        "add-model",
        lambda _: {"file": str(TINY / "draft.gguf"), "id": "drafter", "role": "draft", "tier": "D"},
        lambda root: load_registry(root / "registry.yaml").roles["draft"].model == "drafter",
    ),
    Case(
        "get-model",
        lambda _: {"source": str(TINY / "medium.gguf"), "id": "medium"},
        lambda root: models(root)["medium"].why_not is None,
    ),
    Case(
        "update-model",
        lambda _: {"model": "small", "file": str(TINY / "medium.gguf")},
        lambda root: models(root)["small"].file == TINY / "medium.gguf",
        takes_long=True,
    ),
    Case("deprecate-model", lambda _: {"model": "small"}, lambda root: models(root)["small"].residency == "cold"),
    Case(
        "remove-model",
        lambda _: {"model": "small", "delete_file": True},
        lambda root: "small" not in models(root) and not (root / "small.gguf").exists(),
    ),
    Case(
        "set-residency",
        lambda _: {"model": "small", "residency": "hot"},
        lambda root: models(root)["small"].residency == "hot",
    ),
    Case("check-draft", lambda _: {"model": "large", "draft": "small"}, lambda _: True, undone=False),
    Case(
        "benchmark-model",
        lambda _: {"model": "small", "seconds": 0.1},
        lambda root: json.loads((root / "home/benchmarks/small.json").read_text())["decode_tokens_per_second"] > 0,
    ),
    Case(
        "backup",
        lambda root: {"folder": str(root / "elsewhere" / "backups")},
        lambda root: (root / "elsewhere/backups" / last_backup(root) / "journal.db").exists(),
    ),
    Case("restore-backup", lambda root: {"name": last_backup(root)}, lambda root: runs_of(root) == ["R1", "R2"]),
    Case("vacuum", lambda _: {"days": 30}, lambda root: runs_of(root) == ["R2"]),
    Case(
        "rotate-token",
        lambda _: {},
        lambda root: len((root / "home/api.token").read_text()) > 40,
    ),
    Case("verify-installation", lambda _: {}, lambda _: True, undone=False),
    Case(
        "upgrade-journal",
        lambda _: {},
        lambda root: version_of(root / "home" / "journal.db") == VERSION,
        prepare=lambda root: downgrade(root / "home" / "journal.db"),
    ),
    Case(
        "add-persona",
        lambda _: {"name": "keeper", "text": KEEPER},
        lambda root: "keeper" in registry_of(root).personas_in_use,
        stays=("home/objects",),
    ),
    Case(
        "retire-persona",
        lambda _: {"name": "keeper"},
        lambda root: "keeper" not in registry_of(root).personas_in_use,
        prepare=add_keeper,
    ),
    Case("rebuild-memory", lambda _: {}, lambda root: episodes(root) == 3, prepare=fill_memory, stays=PROJECTIONS),
    Case("compact-memory", lambda _: {}, lambda root: episodes(root) == 2, prepare=fill_memory, stays=PROJECTIONS),
    Case(
        "compare-routers",
        lambda _: {},
        lambda _: True,
        undone=False,
        prepare=lambda root: advised(root, better="small"),
    ),
    Case(
        "promote-router",
        lambda _: {},
        lambda root: use_of(root) == "on",
        prepare=lambda root: advised(root, better="small"),
    ),
    Case(
        "autotune-model",
        lambda root: {"model": "large", "seconds": 3, "only": "threads,replicas", "requests": one_request(root)},
        tuned,
        prepare=one_request,
        takes_long=True,
        stays=("home/curves", "home/benchmarks"),
    ),
    Case(
        "run-task",
        lambda _: {"request": "Summarize a", "folder": str(RECORDS)},
        lambda root: len(runs_of(root)) == 3,  # two that were there, and its own
        undone=False,
        takes_long=True,
        stays=("home/",),
    ),
    Case(
        "train-frontdoor",
        lambda _: {"updates": 1, "examples": 4, "requests": 1, "group": 2, "pairs": 6},
        lambda root: (root / "home" / "frontdoor" / "training-0" / "checkpoint.pt").exists(),
        takes_long=True,
        stays=("home/frontdoor", "home/logs"),
    ),
    Case("run-gates", lambda root: {"folder": str(root / "code"), "gates": ["lint"]}, lambda _: True, undone=False),
]


def everything_in(root: Path, stays: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the contents of the installation, without what a restored backup keeps beside the others."""
    return {
        name: found
        for name, found in contents(root, times=False).items()
        if not name.startswith(("home/procedures", "home/backups/replaced-", "own", *stays))
        and name not in OURS
        and name != "home/backups"
    }


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that tests copy, since many small transactions take longer than a copy of what they have made."""
    folder = tmp_path_factory.mktemp("filled")
    fill_installation(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, filled: Path) -> Path:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def engine(root: Path) -> Iterator[ProcedureEngine]:
    engine = procedures_engine(installation_in(root), {"HOME": str(root)})
    engine.ports = type(engine.ports)(
        registry=engine.ports.registry,
        places=engine.ports.places,
        operations={
            **engine.ports.operations,
            "fail": Operation(name="fail", description="Fail.", form=NoArguments, run=fail),
        },
        run_program=engine.ports.run_program,
    )
    yield engine
    engine.close()


def carry_out(engine: ProcedureEngine, name: str, inputs: dict[str, Any]) -> Any:
    plan = engine.plan(name, inputs, OWNER)
    identity = engine.submit(plan, OWNER)
    if plan.needs_approval:
        engine.approve(identity, plan.digest, OWNER)
    return engine.execute(identity, OWNER)


def failing_twin(root: Path, name: str, after: int) -> Library:
    """Return a library with a procedure like `name` that fails in a step which comes after so many others."""
    document = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    document["on_interruption"], document["on_failure"] = "rollback", "rollback"
    steps = document["steps"]
    for step in steps[after:]:
        step["depends_on"] = [*step.get("depends_on", []), "told_to_fail"]
    before = [step["id"] for step in steps[:after]]
    steps.insert(after, {"id": "told_to_fail", "depends_on": before, "call": {"operation": "fail"}})
    own = root / "own"
    own.mkdir(exist_ok=True)
    (own / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return Library([own])


def prepared(case: Case, root: Path, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make what a procedure needs, and return its inputs and all that there is before it. Skip without a sandbox."""
    if case.name == "run-gates":
        request.getfixturevalue("sandbox")
    if case.name == "train-frontdoor":
        pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    case.prepare(root)
    return case.inputs(root), everything_in(root, case.stays)


def test_every_procedure_that_ships_is_tested() -> None:
    assert {case.name for case in CASES} == set(Library().files())


@pytest.mark.parametrize("failures", [1, pytest.param(2, marks=pytest.mark.slow)], ids=["failed once", "failed twice"])
@pytest.mark.parametrize(
    "case",  # of those that change nothing there is little to put back
    [case if case.undone else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=[case.name for case in CASES],
)
def test_a_procedure_that_fails_half_way_leaves_everything_as_it_was(
    case: Case, root: Path, engine: ProcedureEngine, failures: int, request: pytest.FixtureRequest
) -> None:
    """It is made to fail half-way, and in the slow tests after all of its steps, too."""
    inputs, before = prepared(case, root, request)
    count = len(engine.library.procedure(case.name).form.steps)
    for after in [max(1, count - 1)] if case.takes_long else sorted({(count + 1) // 2, count})[:failures]:
        engine.library = failing_twin(root, case.name, after)
        failed = carry_out(engine, case.name, inputs)
        assert failed.error == "step told_to_fail: it was told to fail"
        assert failed.state == "rolled back", failed.look_at
        assert everything_in(root, case.stays) == before
    engine.audit.verify()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_procedure_does_what_it_says_and_is_undone(
    case: Case, root: Path, engine: ProcedureEngine, request: pytest.FixtureRequest
) -> None:
    inputs, before = prepared(case, root, request)
    done = carry_out(engine, case.name, inputs)
    assert done.state == "done", done.error
    assert case.holds(root)
    if case.undone:
        assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert everything_in(root, case.stays) == before
    engine.audit.verify()


def test_runs_that_come_meanwhile_stay_when_a_vacuum_is_rolled_back(root: Path, engine: ProcedureEngine) -> None:
    done = carry_out(engine, "vacuum", {"days": 30})
    with Journal.open(root / "home") as journal:
        asyncio.run(journaled_on(journal, "R3", b"later", time.time()))
        digest = journal.put(b"later")
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert runs_of(root) == ["R1", "R2", "R3"]
    with JournalReader.open_to_read(root / "home") as journal:
        assert journal.get(digest) == b"later"
        assert not journal.damage()
        assert len(journal.events("R1")) == 6


def test_old_plans_and_parts_of_the_log_are_removed_and_come_back_where_that_is_undone(
    root: Path, engine: ProcedureEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEPT_CHECKPOINTS", 1)
    engine.part_bytes = 0
    ended = [carry_out(engine, "rotate-token", {}).id for _ in range(3)]
    folder, parts = engine.folder / "plans", engine.audit.sealed()
    plans = {path.name: path.read_bytes() for path in folder.iterdir()}
    none = carry_out(engine, "vacuum", {})
    assert (none.outputs["plans"], none.outputs["parts"]) == (0, [])
    done = carry_out(engine, "vacuum", {"plan_days": 1e-9, "audit_days": 1e-9})
    assert (done.state, done.outputs["plans"]) == ("done", 3)
    assert done.outputs["parts"] == [part.path.name for part in parts]
    assert {path.stem for path in folder.iterdir()} == {none.id, done.id}
    assert engine.audit.verify() == engine.audit.head().number - parts[-1].last
    assert execution_body(engine, ended[-1])["no_plan"].endswith("the plan is not there any more")
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert {name: (folder / name).read_bytes() for name in plans} == plans
    assert engine.audit.verify() == engine.audit.head().number


def test_the_configuration_says_how_long_plans_are_kept(root: Path) -> None:
    settings = Configuration(retention=RetentionSettings(max_plan_days=1e-9))
    installation = Installation.of(root / "home", root / "registry.yaml", settings, Upkeep())
    with closing(procedures_engine(installation, {"HOME": str(root)})) as engine:
        first = engine.submit(engine.plan("verify-installation", {}, OWNER), OWNER)
        engine.withdraw(first, OWNER)
        (shown,) = [step.shown for step in engine.plan("vacuum", {}, OWNER).steps if step.id == "prune"]
    assert shown == f"remove {root}/home/procedures/plans/{first}.json"


def test_the_journal_is_not_replaced_under_a_daemon(root: Path, engine: ProcedureEngine) -> None:
    before = everything_in(root)
    with HomeLock(Home(root / "home")):
        failed = carry_out(engine, "restore-backup", {"name": last_backup(root)})
    assert failed.state == "rolled back"
    assert "in use by another process" in failed.error
    assert everything_in(root) == before


@pytest.mark.usefixtures("sandbox")
def test_gates_that_fail_fail_the_procedure(root: Path, engine: ProcedureEngine) -> None:
    (root / "code" / "bad.py").write_text("print(undefined)\n")
    failed = carry_out(engine, "run-gates", {"folder": str(root / "code"), "gates": "lint"})
    assert failed.state == "rolled back"
    assert "gate lint failed" in failed.error


def test_a_router_that_is_worse_is_only_journaled_and_one_that_is_not_certain_changes_nothing(
    root: Path, engine: ProcedureEngine
) -> None:
    configuration = root / ".config" / "orchestrator" / "config.toml"
    configuration.parent.mkdir(parents=True)
    text = '# mine\n[runs]\nmax_running = 2\n\n[memory]  # what was learned\nuse = "on" # for now\n'
    configuration.write_text(text)
    advised(root, better="large")
    uncertain = carry_out(engine, "promote-router", {"least": 1000})
    assert (uncertain.outputs["verdict"], configuration.read_text()) == ("not certain, nothing was changed", text)
    worse = carry_out(engine, "promote-router", {})
    assert (worse.state, worse.outputs["verdict"]) == ("done", "worse, use = shadow")
    assert worse.outputs["high"] < 0
    assert configuration.read_text() == text.replace('"on"', '"shadow"')
    assert engine.rollback(worse.id, OWNER).state == "rolled back"
    assert configuration.read_text() == text


def test_a_router_without_choices_is_not_judged(engine: ProcedureEngine) -> None:
    plan = engine.plan("promote-router", {}, OWNER)
    assert any("has no choice that the memory advised on" in problem for problem in plan.problems)


def test_the_present_setting_stays_where_another_one_is_not_certain_to_be_faster(
    root: Path, engine: ProcedureEngine
) -> None:
    before = (root / "registry.yaml").read_bytes()
    inputs = {"model": "large", "seconds": 1, "only": "prompt_lookup", "requests": one_request(root)}
    done = carry_out(engine, "autotune-model", inputs)
    assert (done.state, done.outputs["changed"]) == ("done", False)
    assert done.outputs["told"]
    assert (root / "registry.yaml").read_bytes() == before


def test_settings_that_change_answers_are_only_searched_where_that_is_allowed(
    root: Path, engine: ProcedureEngine
) -> None:
    inputs = {"model": "large", "seconds": 5, "only": "kv_types,experts,speculation"}
    shown = engine.plan("autotune-model", inputs, OWNER).steps[0].shown
    assert "kv_types: it changes answers; accepted: kv_types: true" in shown
    assert "speculation: no role has a smaller model with the same vocabulary" in shown
    allowed = engine.plan("autotune-model", {**inputs, "kv_types": True, "experts": True}, OWNER).steps[0].shown
    assert '{"kv_type_k": "q8_0", "kv_type_v": "q8_0"}' in allowed
    assert "experts: the model is no mixture of experts" in allowed


@pytest.mark.parametrize("better", [True, False])
def test_the_frontdoor_gets_an_adapter_that_is_better_with_certainty(
    root: Path, engine: ProcedureEngine, better: bool
) -> None:
    file = write_adapter(some_weights(0.1), TINY / "large.gguf", root / "a.gguf", alpha=16)
    report = {
        "complete": True,
        "better": better,
        "values": values_with((), file),
        "gain": 0.1,
        "low": 0.05 if better else -0.05,
        "high": 0.2,
        "curves": str(root / "curves.html"),
    }
    given = list[float]()

    def train(arguments: TrainArguments, _: Work) -> Mapping[str, Any]:
        given.append(arguments.history)
        return report

    trained = replace(engine.ports.operations["frontdoor.train"], run=train)
    engine.ports = replace(engine.ports, operations={**engine.ports.operations, "frontdoor.train": trained})
    before = (root / "registry.yaml").read_bytes()
    done = carry_out(engine, "train-frontdoor", {"history": 0.3})
    assert (done.state, done.outputs["changed"], given) == ("done", better, [0.3])
    role = load_registry(root / "registry.yaml").roles["frontdoor"]
    assert [each.file for each in role.lora] == ([str(file)] if better else [])
    assert role.plans_by_cores == better
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert (root / "registry.yaml").read_bytes() == before


def test_a_model_that_a_role_has_is_not_removed(engine: ProcedureEngine) -> None:
    plan = engine.plan("remove-model", {"model": "large"}, OWNER)
    assert any("there is no model 'large'" in problem for problem in plan.problems)


def test_programs_outside_the_sandbox_have_to_be_allowed(root: Path, engine: ProcedureEngine) -> None:
    program = Program(command=("/bin/echo", "hello"), sandbox=False, folder=root, files={}, stdin="")
    with pytest.raises(StepFailed, match="may not be run outside the sandbox"):
        engine.ports.run_program(program, work())
    settings = Configuration(procedures=ProcedureSettings(commands=("/bin/echo",)))
    allowed = procedures_engine(replace(installation_in(root), configuration=settings), {"HOME": str(root)})
    assert allowed.ports.run_program(program, work()).stdout == "hello\n"


@pytest.mark.usefixtures("sandbox")
def test_programs_in_the_sandbox_get_their_files(root: Path, engine: ProcedureEngine) -> None:
    files = {"in.txt": root / "code" / "good.py"}
    program = Program(command=("cat", "in.txt"), sandbox=True, folder=None, files=files, stdin="")
    ended = engine.ports.run_program(program, work())
    assert (ended.exit_code, ended.stdout) == (0, "x = 1\n")
