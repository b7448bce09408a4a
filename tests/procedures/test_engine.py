"""Planning, approving, executing and rolling back, on real files, a real registry and real databases."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.files import lock_folder
from orchestrator.procedures import retention
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import (
    AuditDamaged,
    ChangedMeanwhile,
    PlanUnusable,
    ProcedureBusy,
    ProcedureError,
    ProcedureForbidden,
    ProcedureInvalid,
    ProcedureRefused,
    StepFailed,
    UnknownExecution,
    UnknownProcedure,
)
from orchestrator.procedures.locks import Locks
from orchestrator.procedures.plan import plan_from_json
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.resources import PathResource
from orchestrator.procedures.retention import KEPT_CHECKPOINTS, old_parts, old_plans
from orchestrator.procedures.run import ExecutionWatcher
from orchestrator.registry.edit import replace_registry
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.forms import Form
from orchestrator.service.callers import Caller
from tests.procedures.maintained import HEAD, OWNER, NoArguments, contents, everything, execute, make_engine, make_world

MODEL = Caller("a model's plan", frozenset({"owner"}), person=False)


class TextArguments(Form):
    text: str


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path / "world")


def engine_for(world: Path, *texts: str, **operations: Operation[Any]) -> ProcedureEngine:
    return make_engine(world.parent / "home", world, *texts, more=operations)


def test_a_dry_run_shows_the_exact_changes_and_changes_nothing(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    plan = engine.plan("everything", {"folder": str(world)}, OWNER)
    shown = {step.id: step.shown for step in plan.steps}
    assert "+    description: changed" in shown["entry"].replace("{", "").replace("+  small: ", "+    ") or (
        "description: changed" in shown["entry"]
    )
    assert "-first line" in shown["change"]
    assert "+a note" in shown["create"]
    assert "big.bin" in shown["removed"]
    assert not plan.problems
    assert contents(world) == before
    assert not (world.parent / "home" / "procedures").exists()


def test_what_the_plan_shows_is_what_is_written(world: Path) -> None:
    engine = engine_for(world, everything())
    plan = engine.plan("everything", {"folder": str(world)}, OWNER)
    done = execute(engine, "everything", folder=str(world))
    assert done.state == "done"
    digest = next(step for step in plan.steps if step.id == "create").after[str(world / "new" / "note.txt")]
    assert (world / "notes.txt").read_text() == f"{digest}\n" == f"{done.outputs['digest']}\n"
    assert (world / "notes.txt").stat().st_mode & 0o777 == 0o600
    assert "# The small one." in (world / "registry.yaml").read_text()


def test_a_failure_undoes_everything_and_tells_what_it_was(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    failed = execute(engine, "everything", folder=str(world), fail=True)
    assert failed.state == "rolled back"
    assert failed.error == "step last: it was told to fail"
    assert contents(world) == before
    ended = engine.audit.last(1)[0].data
    assert ended["undone"] == ["entry", "create", "change", "copied", "removed", "scribble", "rows", "schema"]
    assert (world.parent / "home" / "procedures").stat().st_mode & 0o777 == 0o700


def test_an_execution_is_rolled_back_later_and_again_done(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    done = execute(engine, "everything", folder=str(world))
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert contents(world) == before
    assert execute(engine, "everything", folder=str(world)).state == "done"
    assert engine.audit.verify() > 0


def test_what_others_have_changed_since_is_not_rolled_back_unless_that_is_asked_for(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    done = execute(engine, "everything", folder=str(world))
    (world / "notes.txt").write_text("written by somebody else")
    with pytest.raises(ChangedMeanwhile, match=r"notes\.txt was changed since step change"):
        engine.rollback(done.id, OWNER)
    forced = engine.rollback(done.id, OWNER, force=True)
    assert forced.state == "rolled back"
    assert contents(world) == before
    kept = Path(forced.look_at[0].rpartition(" ")[2])
    assert any(path.read_bytes() == b"written by somebody else" for path in kept.rglob("*") if path.is_file())


def test_nothing_runs_without_an_approval_of_a_person_for_that_very_plan(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, MODEL), MODEL)
    with pytest.raises(ProcedureRefused, match="approval"):
        engine.execute(identity, MODEL)
    with pytest.raises(ProcedureRefused, match="only a person"):
        engine.approve(identity, engine.execution(identity).plan, MODEL)
    with pytest.raises(ProcedureRefused, match="accepted: that digest"):
        engine.approve(identity, "0" * 64, OWNER)
    engine.approve(identity, engine.execution(identity).plan[:16], OWNER)
    (world / "notes.txt").write_text("changed after the approval")
    with pytest.raises(ChangedMeanwhile, match="at change"):
        engine.execute(identity, MODEL)
    withdrawn = engine.execution(identity)
    assert (withdrawn.state, "plan it again" in withdrawn.error) == ("withdrawn", True)
    (world / "notes.txt").write_text("first line\nsecond line\n")
    assert {name: one[:2] for name, one in contents(world).items() if name == "notes.txt"} == {
        name: one[:2] for name, one in before.items() if name == "notes.txt"
    }
    assert [entry.kind for entry in engine.audit.entries(identity)] == ["planned", "refused", "approved", "withdrawn"]


def test_a_plan_that_was_changed_on_the_disk_is_not_executed(world: Path) -> None:
    engine = engine_for(world, everything())
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, OWNER), OWNER)
    engine.approve(identity, engine.execution(identity).plan, OWNER)
    path = engine.folder / "plans" / f"{identity}.json"
    path.write_text(path.read_text().replace("a note", "another note"))
    with pytest.raises(ProcedureError, match="not the one that was submitted"):
        engine.execute(identity, OWNER)


def test_a_caller_without_a_role_is_refused(world: Path) -> None:
    engine = engine_for(world, everything())
    stranger = Caller("token", frozenset({"operator"}), person=True)
    with pytest.raises(ProcedureRefused, match="accepted: owner"):
        engine.plan("everything", {"folder": str(world)}, stranger)
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, OWNER), OWNER)
    with pytest.raises(ProcedureRefused, match="needs one of the roles owner"):
        engine.approve(identity, engine.execution(identity).plan, stranger)
    assert engine.audit.last(1)[0].kind == "refused"


def test_unknown_names_and_wrong_inputs_are_told(world: Path) -> None:
    engine = engine_for(world, everything())
    with pytest.raises(UnknownProcedure, match=r"everything\?"):
        engine.plan("evrything", {}, OWNER)
    with pytest.raises(ProcedureInvalid, match=r"folder is required|inputs\.folder: is required"):
        engine.plan("everything", {}, OWNER)
    with pytest.raises(ProcedureInvalid, match=r"folder\?"):
        engine.plan("everything", {"foldr": "/x"}, OWNER)
    with pytest.raises(ProcedureInvalid, match="accepted: true or false"):
        engine.plan("everything", {"folder": "/x", "fail": "perhaps"}, OWNER)
    with pytest.raises(UnknownExecution):
        engine.execution("nothing")


def test_a_second_process_is_kept_out_of_the_state_folder_and_of_the_registry(world: Path) -> None:
    engine = engine_for(world, everything())
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, OWNER), OWNER)
    engine.approve(identity, engine.execution(identity).plan, OWNER)
    with Locks(engine.folder), pytest.raises(ProcedureBusy, match=f"process {os.getpid()}"):
        engine.execute(identity, OWNER)
    assert engine.execution(identity).state == "approved"
    with lock_folder(world):
        failed = engine.execute(identity, OWNER)
    assert failed.state == "rolled back"
    assert "another process is changing files" in failed.error


def test_the_registry_cannot_be_edited_while_a_procedure_changes_its_folder(world: Path) -> None:
    told: list[str] = []

    def look(_arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        path = world / "registry.yaml"
        with pytest.raises(RegistryError, match="being changed by another process"):
            replace_registry(path, path.read_bytes(), path.read_bytes())
        told.append("looked")
        return {}

    text = f"""\
id: locked
{HEAD}steps:
  - id: entry
    registry_update: {{set_model: {{id: small, values: {{description: changed}}}}}}
  - id: look
    depends_on: [entry]
    call: {{operation: look}}
"""
    engine = engine_for(world, text, look=Operation(name="look", description="Look.", form=NoArguments, run=look))
    assert execute(engine, "locked").state == "done"
    assert told == ["looked"]


def test_failures_are_handled_as_the_steps_say(world: Path) -> None:
    tries: list[str] = []

    def flaky(arguments: TextArguments, work: Work) -> Mapping[str, Any]:
        tries.append(work.key)
        (world / "notes.txt").write_text("half")
        if len(tries) < 3:
            raise StepFailed("not yet")
        assert arguments.text == "now"
        return {"tries": len(tries)}

    text = f"""\
id: flaky
{HEAD}on_failure: abort
steps:
  - id: broken
    on_failure: continue
    call: {{operation: end, arguments: {{fail: true}}}}
  - id: skipped
    depends_on: [broken]
    when: steps.broken.state == "done"
    wait: {{seconds: 0}}
  - id: often
    depends_on: [skipped]
    retries: 1
    on_failure: retry
    changes: {{paths: ["{world}/notes.txt"]}}
    call: {{operation: flaky, arguments: {{text: now}}}}
  - id: last
    depends_on: [often]
    call: {{operation: end, arguments: {{fail: "{{{{ steps.often.tries == 3 }}}}"}}}}
"""
    operation = Operation(name="flaky", description="Fail twice.", form=TextArguments, run=flaky)
    engine = engine_for(world, text, flaky=operation)
    failed = execute(engine, "flaky")
    states = {name: step.state for name, step in failed.steps.items()}
    assert states == {"broken": "failed", "skipped": "skipped", "often": "done", "last": "failed"}
    assert failed.state == "failed"
    assert len(set(tries)) == 1
    assert any("notes.txt, which stays so" in line for line in failed.look_at)
    assert engine.rollback(failed.id, OWNER).state == "rolled back"
    assert (world / "notes.txt").read_text() == "first line\nsecond line\n"


def test_a_step_that_the_plan_says_is_skipped_is_not_carried_out_where_its_condition_holds_by_now(world: Path) -> None:
    answer = {"text": "stay"}

    def turn(arguments: NoArguments, work: Work) -> Mapping[str, Any]:
        answer["text"] = "go"
        return {}

    def look(arguments: NoArguments, work: Work) -> Mapping[str, Any]:
        return answer

    text = f"""\
id: conditional
{HEAD}on_failure: abort
steps:
  - id: turn
    call: {{operation: turn}}
  - id: look
    depends_on: [turn]
    call: {{operation: look}}
  - id: write
    depends_on: [look]
    when: steps.look.text == "go"
    file_write: {{path: "{world}/went.txt", content: "gone"}}
"""
    turning = Operation(name="turn", description="Turn.", form=NoArguments, run=turn)
    looking = Operation(name="look", description="Look.", form=NoArguments, run=look, reads_only=True)
    engine = engine_for(world, text, turn=turning, look=looking)
    assert [step.runs for step in engine.plan("conditional", {}, OWNER).steps] == ["yes", "yes", "no"]
    failed = execute(engine, "conditional")
    assert failed.state == "failed"
    assert "make a new plan" in failed.error
    assert not (world / "went.txt").exists()
    assert execute(engine, "conditional").state == "done"
    assert (world / "went.txt").read_text() == "gone"


def test_compensations_undo_what_no_checkpoint_holds_and_their_failure_is_told(world: Path) -> None:
    done: list[str] = []

    def act(arguments: TextArguments, _work: Work) -> Mapping[str, Any]:
        done.append(arguments.text)
        if arguments.text == "undo bad":
            raise StepFailed("it cannot")
        return {"name": arguments.text}

    text = f"""\
id: compensated
{HEAD}steps:
  - id: good
    call: {{operation: act, arguments: {{text: good}}}}
    compensation: {{call: {{operation: act, arguments: {{text: "undo {{{{ steps.good.name }}}}"}}}}}}
  - id: bad
    depends_on: [good]
    call: {{operation: act, arguments: {{text: bad}}}}
    compensation: {{call: {{operation: act, arguments: {{text: "undo {{{{ steps.bad.name }}}}"}}}}}}
verification:
  - {{that: "false", otherwise: it never holds}}
"""
    engine = engine_for(world, text, act=Operation(name="act", description="Act.", form=TextArguments, run=act))
    failed = execute(engine, "compensated")
    assert done == ["good", "bad", "undo bad", "undo good"]
    assert failed.state == "rollback failed"
    assert failed.undone == ["step good: call act"]
    assert failed.look_at == ("step bad: its compensation has failed: it cannot",)
    assert failed.error == "verification: it never holds"


def test_secrets_are_used_and_never_written_down(
    world: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2-and-more")
    seen: list[str] = []

    def use(arguments: TextArguments, work: Work) -> Mapping[str, Any]:
        seen.append(arguments.text)
        work.say(f"{arguments.text} is used")
        return {"told": f"the secret was {arguments.text}"}

    def fail(arguments: TextArguments, _work: Work) -> Mapping[str, Any]:
        raise ValueError(f"bad key {arguments.text}")

    text = f"""\
id: hidden
{HEAD}inputs:
  key: {{type: secret, description: A key.}}
steps:
  - id: write
    file_write: {{path: "{world}/key", content: "{{{{ inputs.key }}}}", secret: true, mode: "600"}}
  - id: use
    depends_on: [write]
    call: {{operation: use, arguments: {{text: "{{{{ inputs.key }}}}"}}}}
  - id: fail
    depends_on: [use]
    call: {{operation: fail, arguments: {{text: "{{{{ inputs.key }}}}"}}}}
"""
    use_operation = Operation(name="use", description="Use.", form=TextArguments, run=use)
    fail_operation = Operation(name="fail", description="Fail.", form=TextArguments, run=fail)
    engine = engine_for(world, text, use=use_operation, fail=fail_operation)
    with pytest.raises(ProcedureInvalid, match="never the secret itself"):
        engine.plan("hidden", {"key": "hunter2-and-more"}, OWNER)
    identity = engine.submit(engine.plan("hidden", {"key": "env:MY_SECRET"}, OWNER), OWNER)
    engine.approve(identity, engine.execution(identity).plan, OWNER)
    told: list[str] = []
    failed = engine.execute(identity, OWNER, ExecutionWatcher(say=lambda _step, said: told.append(said)))
    engine.close()
    assert told == ["(secret) is used"]
    assert "hunter2" not in caplog.text
    assert "ValueError" in caplog.text
    assert seen == ["hunter2-and-more"]
    assert failed.state == "rolled back"
    assert "bad key (secret)" in failed.error
    assert not (world / "key").exists()
    for path in (world.parent / "home").rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_a_cancelled_execution_stops_and_is_undone(world: Path) -> None:
    engine, before = engine_for(world, everything()), contents(world)
    plan = engine.plan("everything", {"folder": str(world)}, OWNER)
    identity = engine.submit(plan, OWNER)
    engine.approve(identity, plan.digest, OWNER)

    def say(step: str, text: str) -> None:
        assert (step, text) == ("scribble", "one.txt")
        engine.cancel(identity, OWNER)

    ended = engine.execute(
        identity, OWNER, ExecutionWatcher(say=lambda step, text: say(step, text) if "one" in text else None)
    )
    assert ended.state == "rolled back"
    assert "cancelled" in ended.error
    assert contents(world) == before


def test_an_execution_that_begins_while_it_is_cancelled_does_not_go_on(world: Path) -> None:
    engine = engine_for(world, f"id: slow\n{HEAD}steps:\n  - id: one\n    wait: {{seconds: 100}}\n")
    plan = engine.plan("slow", {}, OWNER)
    for _ in range(20):
        identity = engine.submit(plan, OWNER)
        engine.approve(identity, plan.digest, OWNER)
        with ThreadPoolExecutor() as threads:
            execution = threads.submit(engine.execute, identity, OWNER)
            engine.cancel(identity, OWNER)
        assert engine.execution(identity).state in ("withdrawn", "rolled back")
        assert execution.exception() is None or isinstance(execution.exception(), ProcedureRefused)


def test_a_step_whose_time_is_over_fails(world: Path) -> None:
    text = f"id: slow\n{HEAD}steps:\n  - id: one\n    timeout_seconds: 0.05\n    wait: {{seconds: 100}}\n"
    failed = execute(engine_for(world, text), "slow")
    assert failed.state == "rolled back"
    assert "its time is over" in failed.error


def test_a_plan_that_would_fail_is_told_and_not_kept(world: Path) -> None:
    text = f"""\
id: wrong
{HEAD}steps:
  - id: one
    registry_update: {{set_model: {{id: smal, values: {{context: 5}}}}}}
  - id: two
    call: {{operation: endd, arguments: {{}}}}
  - id: three
    call: {{operation: end, arguments: {{fial: true}}}}
  - id: four
    file_write: {{path: relative/path, content: x}}
"""
    engine = engine_for(world, text)
    plan = engine.plan("wrong", {}, OWNER)
    assert len(plan.problems) == 4
    assert "small?" in plan.problems[0]
    assert "end?" in plan.problems[1]
    assert "fail?" in plan.problems[2]
    assert "relative path" in plan.problems[3]
    with pytest.raises(ProcedureRefused, match="this plan would fail"):
        engine.submit(plan, OWNER)


def test_a_withdrawn_execution_cannot_be_executed(world: Path) -> None:
    engine = engine_for(world, everything())
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, OWNER), OWNER)
    engine.withdraw(identity, OWNER)
    with pytest.raises(ProcedureRefused, match="is withdrawn"):
        engine.execute(identity, OWNER)


def test_an_irreversible_step_is_told_after_a_rollback(world: Path) -> None:
    text = f"""\
id: sent
{HEAD}permissions: {{destructive: true}}
steps:
  - id: one
    irreversible: a letter was sent
    call: {{operation: end, arguments: {{fail: false}}}}
  - id: two
    depends_on: [one]
    call: {{operation: end, arguments: {{fail: true}}}}
"""
    ended = execute(engine_for(world, text), "sent")
    assert ended.state == "rollback failed"
    assert ended.look_at == ("step one: it cannot be undone: a letter was sent",)


def test_an_operation_is_told_that_it_was_undone_after_its_changes_were_put_back(world: Path) -> None:
    notes, told = world / "notes.txt", list[tuple[str, str, str]]()
    before = notes.read_text()

    def write(arguments: TextArguments, work: Work) -> Mapping[str, Any]:
        if work.attempt == 1:
            raise StepFailed("not at once")
        notes.write_text(arguments.text)
        told.append(("done", work.key, arguments.text))
        return {}

    def undone(arguments: TextArguments, work: Work) -> None:
        told.append((notes.read_text(), work.key, arguments.text))

    write_operation = Operation(
        name="write",
        description="Write.",
        form=TextArguments,
        run=write,
        changes=lambda _: [PathResource(notes)],
        undone=undone,
    )
    steps = """steps:
  - id: write
    retries: 1
    call: {operation: write, arguments: {text: new}}
"""
    engine = engine_for(world, f"id: notes\n{HEAD}{steps}", write=write_operation)
    done = execute(engine, "notes")
    assert (done.state, notes.read_text()) == ("done", "new")
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    key = f"{done.id}/write"
    assert told == [(before, key, "new"), ("done", key, "new"), (before, key, "new")]


def test_a_step_of_a_resumed_execution_is_not_told_that_it_was_undone(world: Path) -> None:
    told = list[str]()

    class Killed(BaseException):
        pass

    def begin(_arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        told.append("begun")
        if len(told) == 1:
            raise Killed
        return {}

    operation = Operation(
        name="begin",
        description="Begin.",
        form=NoArguments,
        run=begin,
        undone=lambda _arguments, _work: told.append("undone"),
    )
    text = f"id: begun\n{HEAD}on_interruption: resume\nsteps:\n  - {{id: begin, call: {{operation: begin}}}}\n"
    engine = engine_for(world, text, begin=operation)
    with pytest.raises(Killed):
        execute(engine, "begun")
    (recovered,) = engine.recover()
    assert (recovered.state, told) == ("done", ["begun", "begun"])


def test_values_of_a_models_entry_may_come_from_an_earlier_step(world: Path) -> None:
    operation = Operation(
        name="found",
        description="Return values.",
        form=TextArguments,
        run=lambda arguments, _work: {"values": {"description": arguments.text} if arguments.text else "none"},
    )
    text = f"""id: tune
{HEAD}inputs: {{text: {{description: A text.}}}}
steps:
  - id: find
    call: {{operation: found, arguments: {{text: "{{{{ inputs.text }}}}"}}}}
  - id: write
    depends_on: [find]
    registry_update: {{set_model: {{id: small, values: "{{{{ steps.find.values }}}}"}}}}
"""
    engine = engine_for(world, text, found=operation)
    assert execute(engine, "tune", text="quick").state == "done"
    assert "description: quick" in (world / "registry.yaml").read_text()
    failed = execute(engine, "tune", text="")
    assert failed.state == "rolled back"
    assert "accepted: keys and values" in failed.error


FREE = f"""\
id: free
{HEAD}permissions: {{roles: [owner], requires_approval: false}}
steps: [{{id: s, wait: {{seconds: 0}}}}]
"""


def test_what_somebody_without_the_right_proposes_waits_for_a_person_who_has_it(world: Path) -> None:
    engine, nobody = engine_for(world, FREE), Caller("the plan of run R", frozenset({"model"}), person=False)
    with pytest.raises(ProcedureForbidden, match="accepted: owner"):
        engine.plan("free", {}, nobody)
    plan = engine.plan("free", {}, nobody, proposed=True)
    with pytest.raises(ProcedureForbidden):
        engine.submit(plan, nobody)
    identity = engine.submit(plan, nobody, proposed=True)
    assert engine.needs_approval(identity)
    with pytest.raises(ProcedureForbidden):
        engine.execute(identity, nobody)
    with pytest.raises(ProcedureRefused, match="needs a person's approval"):
        engine.execute(identity, OWNER)
    engine.approve(identity, plan.digest, OWNER)
    assert engine.execute(identity, OWNER).state == "done"
    own = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    assert not engine.needs_approval(own)


def test_two_processes_do_not_begin_the_same_execution(world: Path) -> None:
    first, second = engine_for(world, FREE), engine_for(world, FREE)
    identity = first.submit(first.plan("free", {}, OWNER), OWNER)
    first.queue(identity, OWNER)
    assert first.execution(identity).state == "queued"
    assert second.execute(identity, OWNER).state == "done"
    with pytest.raises(ProcedureRefused, match="is done"):
        first.execute(identity, OWNER)


def test_a_missed_time_is_in_the_history_and_nothing_can_be_done_with_it(world: Path) -> None:
    engine = engine_for(world, FREE)
    identity = engine.miss("the schedule '0 * * * * free'", "free", "no daemon ran")
    (missed,) = engine.executions()
    assert (missed.id, missed.procedure, missed.state, missed.error) == (identity, "free", "missed", "no daemon ran")
    assert missed.is_over
    with pytest.raises(ProcedureError):
        engine.execute(identity, OWNER)


def test_a_new_log_after_damage_lets_procedures_run_again_and_only_the_owner_begins_it(world: Path) -> None:
    engine = engine_for(world, FREE)
    identity = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    (engine.folder / "audit.head").unlink()
    with pytest.raises(AuditDamaged):
        engine.execute(identity, OWNER)
    for caller in (Caller("the token", frozenset({"operator"}), person=True), MODEL):
        with pytest.raises(ProcedureForbidden):
            engine.begin_new_log(caller)
    engine.close()
    begun = engine.begin_new_log(OWNER)
    assert begun.data["caller"] == OWNER.name
    assert engine.executions() == []
    again = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    assert engine.execute(again, OWNER).state == "done"
    engine.audit.verify()


def test_a_failure_without_rollback_tells_what_stays_changed_and_what_was_put_back(world: Path) -> None:
    text = everything().replace("on_interruption:", "on_failure: abort\non_interruption:")
    engine = engine_for(world, text)
    failed = execute(engine, "everything", folder=str(world), fail=True)
    told = failed.to_json()
    assert failed.state == "failed"
    assert [line.partition(":")[0] for line in told["changed"]] == [
        f"step {name}" for name, step in failed.steps.items() if step.state == "done"
    ]
    assert told["undone"] == []
    assert len(told["look_at"]) == 8


def test_the_checkpoints_are_kept_however_often_schedules_were_missed_and_plans_were_proposed(world: Path) -> None:
    engine, before = engine_for(world, everything(), FREE), contents(world)
    done = execute(engine, "everything", folder=str(world))
    for _ in range(KEPT_CHECKPOINTS):
        engine.miss("the schedule '@hourly free'", "free", "no daemon ran")
        engine.submit(engine.plan("free", {}, OWNER), OWNER)
    assert execute(engine, "free").state == "done"
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert contents(world) == before


def test_what_a_caller_has_asked_for_is_found_however_much_came_after_it(world: Path) -> None:
    engine, schedule = engine_for(world, FREE), "the schedule '@hourly free'"
    own = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    missed = [engine.miss(schedule, "free", "no daemon ran") for _ in range(3)]
    assert [one.id for one in engine.executions_of(OWNER.name, 1)] == [own]
    assert engine.executions_of(schedule) == []
    assert [one.id for one in engine.missed_by(schedule, 2)] == missed[:0:-1]
    assert [one.id for one in engine.executions()] == [*missed[::-1], own]


def interrupted(world: Path, *, after: str) -> ProcedureEngine:
    """Return an engine that finds an execution interrupted, which a process had begun that was killed in a step."""

    class Killed(BaseException):
        pass

    def kill(_step: str, text: str) -> None:
        if text == after:
            raise Killed

    engine = engine_for(world, everything(), FREE)
    identity = engine.submit(engine.plan("everything", {"folder": str(world)}, OWNER), OWNER)
    engine.approve(identity, engine.execution(identity).plan, OWNER)
    with pytest.raises(Killed):
        engine.execute(identity, OWNER, ExecutionWatcher(say=kill))
    engine.close()
    return engine_for(world)


@pytest.mark.parametrize("damage", [b"", b"{}", b"no json", None])
def test_a_damaged_plan_is_put_back_from_its_copies_set_aside_and_keeps_no_other_from_running(
    world: Path, damage: bytes | None
) -> None:
    before = contents(world)
    engine = interrupted(world, after="two.txt")
    (identity,) = engine.audit.not_ended()
    plan = engine.folder / "plans" / f"{identity}.json"
    if damage is None:
        plan.unlink()
    else:
        plan.write_bytes(damage)
    assert execute(engine, "free").state == "done"
    ended = engine.execution(identity)
    assert (ended.state, ended.interruptions) == ("rollback failed", 1)
    assert "the plan" in ended.error
    assert "no compensation is carried out" in ended.look_at[0]
    assert all(step.state == "undone" for step in ended.steps.values())
    assert contents(world) == before
    assert not plan.exists()
    assert plan.with_name(f"{plan.name}.damaged").exists() == (damage is not None)
    assert engine.recover() == []
    with pytest.raises(PlanUnusable):
        engine.rollback(identity, OWNER)
    engine.audit.verify()


def test_a_plan_that_this_version_cannot_carry_out_any_more_is_treated_the_same(world: Path) -> None:
    before = contents(world)
    engine = interrupted(world, after="one.txt")
    (identity,) = engine.audit.not_ended()
    path = engine.folder / "plans" / f"{identity}.json"
    body = json.loads(path.read_text())
    body["definition"] = body["definition"].replace("category: test", "kategory: test")
    path.write_text(json.dumps(body))
    renamed = plan_from_json(body).digest
    with closing(sqlite3.connect(engine.audit.path)) as log:  # as if it had been submitted by another version
        log.execute("DROP TRIGGER no_update")
        log.execute("UPDATE entries SET body = replace(body, ?, ?)", (engine.execution(identity).plan, renamed))
        log.commit()
    (recovered,) = engine.recover()
    assert recovered.state == "rollback failed"
    assert "this version cannot carry it out" in recovered.error
    assert contents(world) == before


def test_an_execution_that_waits_with_a_damaged_plan_is_withdrawn_and_only_the_owner_stops_it(world: Path) -> None:
    engine, operator = engine_for(world, FREE), Caller("the token", frozenset({"operator"}), person=False)
    first, second = (engine.submit(engine.plan("free", {}, OWNER), OWNER) for _ in range(2))
    for identity in (first, second):
        (engine.folder / "plans" / f"{identity}.json").write_text("{")
    with pytest.raises(ProcedureForbidden, match="whose plan cannot be used"):
        engine.withdraw(first, operator)
    engine.withdraw(first, OWNER)
    with pytest.raises(PlanUnusable):
        engine.queue(second, OWNER)
    assert [engine.execution(one).state for one in (first, second)] == ["withdrawn", "withdrawn"]


def test_interrupted_executions_are_brought_to_their_end_by_owners_and_operators_only(world: Path) -> None:
    engine = interrupted(world, after="one.txt")
    with pytest.raises(ProcedureForbidden, match="accepted: owner, operator"):
        engine.recover(Caller("the plan of run R", frozenset({"model"}), person=False))
    assert [one.state for one in engine.recover(OWNER)] == ["rolled back"]


def test_whoever_is_no_person_cannot_approve_at_once_either_and_nothing_is_kept(world: Path) -> None:
    engine = engine_for(world, everything())
    digest = engine.plan("everything", {"folder": str(world)}, MODEL).digest
    with pytest.raises(ProcedureForbidden, match="only a person may"):
        engine.plan_and_submit("everything", {"folder": str(world)}, MODEL, digest)
    assert engine.executions() == []


def test_the_log_is_sealed_between_executions_which_are_found_and_rolled_back_all_the_same(world: Path) -> None:
    engine, before = engine_for(world, everything(), FREE), contents(world)
    engine.part_bytes = 0
    done = execute(engine, "everything", folder=str(world))
    for _ in range(3):
        assert execute(engine, "free").state == "done"
    assert len(engine.audit.sealed()) == 4
    assert [one.state for one in engine.executions()] == ["done"] * 4
    assert engine.execution(done.id).steps["entry"].state == "done"
    queued = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    engine.queue(queued, OWNER)
    assert execute(engine, "free").state == "done"
    assert engine.audit.queued() == [queued]
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert contents(world) == before
    assert engine.audit.verify() == engine.audit.head().number


def test_old_plans_and_parts_are_found_unless_their_executions_can_still_be_rolled_back_or_are_not_over(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEPT_CHECKPOINTS", 2)
    engine = engine_for(world, FREE)
    engine.part_bytes = 0
    ended = [execute(engine, "free").id for _ in range(4)]
    waiting = engine.submit(engine.plan("free", {}, OWNER), OWNER)
    later = time.time() + 10

    def plans(before: float) -> list[str]:
        return [path.stem for path in old_plans(engine.folder, engine.audit, before)]

    assert plans(later) == sorted(ended[:2])
    assert plans(time.time() - 3600) == []
    orphan = engine.folder / "plans" / "20200101-000000-abcdef.json"
    orphan.write_text("{}")
    assert plans(later) == sorted([orphan.stem, *ended[:2]])
    parts = old_parts(engine.audit, later)
    assert parts
    assert {execution for part in parts for execution in engine.audit.executions_in(part)[0]} <= set(ended[:2])
    assert old_parts(engine.audit, time.time() - 3600) == []
    engine.audit.remove_sealed(parts, "a test")
    engine.audit.verify()
    assert engine.execution(waiting).state == "planned"


def test_outputs_have_the_types_that_the_procedure_says(world: Path) -> None:
    text = f"id: typed\n{HEAD}steps: [{{id: s, wait: {{seconds: 0}}}}]\noutputs:\n"
    good = "  waited: {type: number, value: '{{ steps.s.seconds }}', description: How long.}\n"
    assert execute(engine_for(world, text + good), "typed").outputs == {"waited": 0.0}
    failed = execute(engine_for(world, text + good.replace("number", "string")), "typed")
    assert (failed.state, failed.error) == ("rolled back", "its outputs: waited is 0.0, and not a text")


def test_what_an_operation_leaves_needs_a_compensation(world: Path) -> None:
    operation = Operation(name="make", description="Make.", form=NoArguments, run=lambda _a, _w: {}, leaves="a letter")
    text = f"id: made\n{HEAD}steps:\n  - id: make\n    call: {{operation: make}}\n"
    engine = engine_for(world, text, make=operation)
    (problem,) = engine.plan("made", {}, OWNER).problems
    assert "make makes a letter, which nothing would undo; accepted: compensation" in problem
    engine = engine_for(
        world, text + "    compensation: {call: {operation: end, arguments: {fail: false}}}\n", make=operation
    )
    assert engine.plan("made", {}, OWNER).problems == ()


def test_of_a_step_that_changes_nothing_nothing_is_said_to_be_undone(world: Path) -> None:
    operation = Operation(name="look", description="Look.", form=NoArguments, run=lambda _a, _w: {})
    text = f"""\
id: looks
{HEAD}steps:
  - id: look
    call: {{operation: look}}
  - id: write
    depends_on: [look]
    file_write: {{path: "{world}/new.txt", content: x}}
verification:
  - {{that: "false", otherwise: it never holds}}
"""
    failed = execute(engine_for(world, text, look=operation), "looks")
    assert [step.state for step in failed.steps.values()] == ["undone", "undone"]
    assert failed.undone == [f"step write: {world}/new.txt"]


OVERLAPPING = """\
id: overlapping
version: 1.0.0
category: test
description: Changes what an earlier step has copied or changed.
inputs:
  fail: {type: boolean, description: Whether it fails at the end., default: false}
  folder: {type: path, description: The folder.}
steps:
  - id: keep
    checkpoint: {paths: ["{{ inputs.folder }}/notes.txt"]}
  - id: within
    depends_on: [keep]
    file_write: {path: "{{ inputs.folder }}/tree/one.txt", content: changed before the others}
  - id: scribble
    depends_on: [within]
    call: {operation: scribble, arguments: {folder: "{{ inputs.folder }}/tree"}}
  - id: blot
    depends_on: [scribble]
    call: {operation: blot, arguments: {text: "{{ inputs.folder }}/notes.txt"}}
  - id: last
    depends_on: [blot]
    call: {operation: end, arguments: {fail: "{{ inputs.fail }}"}}
"""


def overlapping(world: Path) -> ProcedureEngine:
    """Return an engine with a procedure whose step `blot` changes what only the checkpoint of `keep` holds."""

    def blot(arguments: TextArguments, _work: Work) -> Mapping[str, Any]:
        Path(arguments.text).write_text("blotted")
        return {}

    return engine_for(
        world, OVERLAPPING, blot=Operation(name="blot", description="Blot.", form=TextArguments, run=blot)
    )


@pytest.mark.parametrize("fail", [False, True])
def test_what_later_steps_have_changed_of_a_checkpoint_or_of_an_earlier_step_was_not_changed_by_others(
    world: Path, fail: bool
) -> None:
    engine, before = overlapping(world), contents(world, times=False)
    ended = execute(engine, "overlapping", folder=str(world), fail=fail)
    assert ended.state == ("rolled back" if fail else "done")
    undone = ended if fail else engine.rollback(ended.id, OWNER)
    assert (undone.state, undone.look_at, undone.displaced) == ("rolled back", (), [])
    assert contents(world, times=False) == before


@pytest.mark.parametrize("name", ["notes.txt", "tree/one.txt", "tree/two.txt"])
def test_what_others_have_changed_of_it_since_is_only_put_back_where_that_is_asked_for(world: Path, name: str) -> None:
    engine, before = overlapping(world), contents(world, times=False)
    done = execute(engine, "overlapping", folder=str(world))
    (world / name).write_text("written by somebody else")
    with pytest.raises(ChangedMeanwhile, match="was changed since step"):
        engine.rollback(done.id, OWNER)
    forced = engine.rollback(done.id, OWNER, force=True)
    assert (forced.state, len(forced.look_at)) == ("rolled back", 1)
    kept = Path(forced.look_at[0].rpartition(" ")[2])
    assert any(path.read_bytes() == b"written by somebody else" for path in kept.rglob("*") if path.is_file())
    assert contents(world, times=False) == before


def test_a_guard_is_held_while_a_step_acts_and_while_it_is_put_back(world: Path) -> None:
    notes, told = world / "notes.txt", list[str]()
    before = notes.read_text()

    @contextmanager
    def guard(arguments: TextArguments, undoing: bool) -> Iterator[None]:
        told.append(f"{'undo' if undoing else 'act'} from {notes.read_text() == before}")
        yield
        told.append(f"to {notes.read_text() == before}")

    def write(arguments: TextArguments, _work: Work) -> Mapping[str, Any]:
        notes.write_text(arguments.text)
        if arguments.text == "bad":
            raise StepFailed("it cannot")
        return {}

    operation = Operation(
        name="write",
        description="Write.",
        form=TextArguments,
        run=write,
        changes=lambda _: [PathResource(notes)],
        guard=guard,
    )
    text = f"""\
id: guarded
{HEAD}inputs: {{text: {{description: A text.}}}}
steps:
  - id: write
    call: {{operation: write, arguments: {{text: "{{{{ inputs.text }}}}"}}}}
"""
    engine = engine_for(world, text, write=operation)
    done = execute(engine, "guarded", text="good")
    assert engine.rollback(done.id, OWNER).state == "rolled back"
    assert told == ["act from True", "to False", "undo from False", "to True"]
    told.clear()
    assert execute(engine, "guarded", text="bad").state == "rolled back"
    assert told == ["act from True", "undo from False", "to True", "to True"]
