"""The audit log finds whatever was edited, cut off, removed, added or moved."""

import fcntl
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from orchestrator.procedures.audit import FILE, HEAD_FILE, Audit, AuditHead, SealedPart, head_from
from orchestrator.procedures.errors import AuditDamaged, ProcedureRefused
from orchestrator.run.sandbox.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
Tamper = Callable[[sqlite3.Connection], object]


def filled(folder: Path, count: int = 5) -> Audit:
    audit = Audit(folder)
    for number in range(count):
        audit.append("test", "x", {"number": number})
    audit.close()
    return audit


def tampered(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("DROP TRIGGER no_delete")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_whole_log_is_verified_and_read_again(tmp_path: Path) -> None:
    filled(tmp_path)
    audit = Audit(tmp_path)
    audit.append("test", "y", {"text": "ü\n\u2028"})
    assert audit.verify() == 6
    assert [entry.data for entry in audit.entries("y")] == [{"text": "ü\n\u2028"}]
    assert [entry.number for entry in audit.entries(after=2)[:2]] == [3, 4]
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE entries SET body = replace(body, '\"number\":1}', '\"number\":7}') WHERE number = 2"],
        ["DELETE FROM entries WHERE number = 3"],
        ["DELETE FROM entries WHERE number = 1"],
        ["DELETE FROM entries WHERE number = 5"],
        ["DELETE FROM entries WHERE number > 2"],
        ["DELETE FROM entries"],
        [
            "UPDATE entries SET number = 99 WHERE number = 2",
            "UPDATE entries SET number = 2 WHERE number = 3",
            "UPDATE entries SET number = 3 WHERE number = 99",
        ],
        ["INSERT INTO entries (number, body, hash) SELECT 6, body, hash FROM entries WHERE number = 5"],
        ["UPDATE entries SET hash = '" + "0" * 64 + "' WHERE number = 4"],
    ],
)
def test_every_way_of_tampering_is_found(tmp_path: Path, statements: list[str]) -> None:
    audit = filled(tmp_path)
    tampered(tmp_path, *statements)
    with pytest.raises(AuditDamaged):
        audit.verify()


def test_the_database_itself_refuses_changes(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for statement in ("UPDATE entries SET hash = ''", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


def test_nothing_is_appended_to_a_log_whose_end_was_cut_off(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    tampered(tmp_path, "DELETE FROM entries WHERE number = 5")
    with pytest.raises(AuditDamaged, match="the end is cut off"):
        audit.append("test", "x", {})


def test_a_head_that_lags_behind_one_entry_is_that_of_a_killed_process(tmp_path: Path) -> None:
    audit = filled(tmp_path, 4)
    head = (tmp_path / HEAD_FILE).read_bytes()
    filled(tmp_path, 1)
    (tmp_path / HEAD_FILE).write_bytes(head)
    audit.append("test", "x", {})
    assert audit.verify() == 6


def test_an_end_that_was_cut_off_with_its_head_is_found_by_a_head_kept_elsewhere(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    head = audit.head()
    tampered(tmp_path, "DELETE FROM entries WHERE number = 5")
    (tmp_path / HEAD_FILE).write_text(f"{audit.head()}\n")
    assert audit.verify() == 4
    with pytest.raises(AuditDamaged, match="cut off"):
        audit.verify(head_from(str(head)))


def test_a_log_that_was_written_anew_is_found_by_a_head_kept_elsewhere(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    with pytest.raises(AuditDamaged):
        audit.verify(AuditHead(3, "f" * 64))


def test_a_missing_head_is_told(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    (tmp_path / HEAD_FILE).unlink()
    with pytest.raises(AuditDamaged, match="gone"):
        audit.verify()


@pytest.mark.parametrize("text", ["", "1", "1:abc", f"x:{'0' * 64}", f"1:{'g' * 64}"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="accepted"):
        head_from(text)


FILLED = """\
import sys
from pathlib import Path
from orchestrator.procedures.audit import Audit
from orchestrator.procedures.errors import ProcedureError
log = Audit(Path(sys.argv[1]))
try:
    while True:
        log.append("planned", "one", {"text": "x" * 10_000})
except ProcedureError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_is_named(tmp_path: Path, sandbox: Sandbox) -> None:
    small = [sandbox.config.bwrap, "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(tmp_path)]
    command = [*small, sys.executable, "-c", FILLED, str(tmp_path / "folder")]
    filled = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert f"{tmp_path}/folder/{FILE}: the audit log cannot be used: " in filled.stderr
    assert re.search(r"; its file system has only [\d,]+ bytes free$", filled.stderr.strip()), filled.stderr


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    assert Audit(tmp_path).verify() == 0
    assert Audit(tmp_path).entries() == []


def test_several_logs_of_one_folder_append_in_turn(tmp_path: Path) -> None:
    first, second = Audit(tmp_path), Audit(tmp_path)
    for number in range(4):
        (first, second)[number % 2].append("test", "x", {"number": number})
    assert first.verify() == 4
    assert [entry.data["number"] for entry in second.entries()] == [0, 1, 2, 3]
    first.close()
    second.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: tampered(folder, "DELETE FROM entries WHERE number = 3"),
        lambda folder: (folder / HEAD_FILE).unlink(),
        lambda folder: (folder / FILE).unlink(),
        lambda folder: (folder / FILE).write_bytes(b"this is no database" * 1000),
    ],
)
def test_after_damage_a_new_log_is_begun_that_tells_of_it_and_the_old_one_is_kept(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    audit = filled(tmp_path)
    (tmp_path / "checkpoints" / "x").mkdir(parents=True)
    with pytest.raises(ProcedureRefused, match="is whole"):
        audit.begin_anew("somebody")
    damage(tmp_path)
    held = (tmp_path / FILE).read_bytes() if (tmp_path / FILE).exists() else None
    begun = audit.begin_anew("somebody")
    assert (begun.number, begun.kind, begun.data["caller"]) == (1, "begun_anew", "somebody")
    assert begun.data["damage"]
    kept = tmp_path / begun.data["kept"]
    assert (kept / "checkpoints" / "x").is_dir()
    assert ((kept / FILE).read_bytes() if held is not None else None) == held
    assert audit.append("test", "y", {}).number == 2
    assert audit.verify() == 2
    audit.close()


def test_a_process_that_is_killed_while_it_begins_a_new_log_leaves_one_to_begin(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    places: list[str] = []
    filled(tmp_path / "counted")
    tampered(tmp_path / "counted", "DELETE FROM entries WHERE number = 3")
    with Audit(tmp_path / "counted", places.append) as audit:
        audit.begin_anew("somebody")
    for number in range(1, len(places) + 1):
        folder, left = tmp_path / str(number), [number]
        filled(folder)
        tampered(folder, "DELETE FROM entries WHERE number = 3")

        def kill(_place: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        with Audit(folder, kill) as audit, pytest.raises(Killed):
            audit.begin_anew("somebody")
        with Audit(folder) as audit:
            begun = audit.begin_anew("somebody") if audit_is_damaged(audit) else audit.entries()[0]
            assert begun.kind == "begun_anew"
            assert audit.verify() == 1
        assert any(entries_in(path) == 4 for path in folder.glob(f"audit-*/{FILE}"))


def audit_is_damaged(audit: Audit) -> bool:
    try:
        audit.verify()
    except AuditDamaged:
        return True
    return False


def entries_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])


def test_queued_executions_are_those_that_have_neither_begun_nor_been_withdrawn_in_order(tmp_path: Path) -> None:
    with Audit(tmp_path) as log:
        for execution, kinds in {
            "a": ("planned", "queued"),
            "b": ("planned", "queued", "begun", "ended"),
            "c": ("planned", "queued", "withdrawn"),
            "d": ("planned", "approved"),
            "e": ("planned", "approved", "queued"),
        }.items():
            for kind in kinds:
                log.append(kind, execution, {})
        assert log.queued() == ["a", "e"]


def parts_of(folder: Path, count: int = 3, each: int = 4) -> Audit:
    """Return a log with so many sealed parts of so many entries, and one more entry."""
    audit = Audit(folder)
    for part in range(count):
        while audit.head().number < (part + 1) * each:
            audit.append("planned", f"x{part}", {"caller": f"user {part}"})
        assert audit.seal(0) is not None
    audit.append("planned", "last", {"caller": "user 9"})
    return audit


def test_full_parts_are_sealed_and_the_log_is_read_and_checked_across_them(tmp_path: Path) -> None:
    audit = parts_of(tmp_path)
    sealed = audit.sealed()
    assert [(part.first, part.last) for part in sealed] == [(1, 4), (5, 8), (9, 12)]
    assert audit.verify() == audit.head().number == 14
    entries = audit.entries()
    assert [entry.number for entry in entries] == list(range(1, 15))
    assert [entry.kind for entry in entries if entry.kind == "sealed"] == ["sealed"] * 3
    assert entries[4].data["hash"] == head_of_part(sealed[0]).hash
    assert [entry.number for entry in audit.entries(after=6)[:3]] == [7, 8, 9]
    assert [entry.number for entry in audit.last(7)] == list(range(8, 15))
    assert {entry.execution for entry in audit.entries("x1")} == {"x1"}
    assert audit.executions(2) == ["last", "x2"]
    assert len(audit.executions(caller="user 0")) == 4
    with Audit(tmp_path) as other:  # a process that begins to use it later
        assert other.append("test", "y", {}).number == 15
    assert audit.append("test", "y", {}).number == 16
    assert audit.verify(head_from(str(head_of_part(sealed[1])))) == 16
    audit.close()


def head_of_part(part: SealedPart) -> AuditHead:
    with closing(sqlite3.connect(part.path)) as connection:
        return AuditHead(
            *connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        )


def test_a_small_part_is_not_sealed_nor_one_that_somebody_else_writes(tmp_path: Path) -> None:
    with Audit(tmp_path) as audit, Audit(tmp_path) as other:
        audit.append("test", "x", {})
        assert audit.seal(1 << 20) is None
        other.append("test", "x", {})
        assert audit.seal(0) is None
        assert audit.append("test", "x", {}).number == 3
        other.close()
        assert audit.seal(0) is not None
        assert other.append("test", "x", {}).number == 5
        assert audit.verify() == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: tampered_part(parts[1], "UPDATE entries SET hash = '" + "0" * 64 + "' WHERE number = 6"),
        lambda parts: tampered_part(parts[2], "DELETE FROM entries WHERE number = 12"),
        lambda parts: tampered_part(parts[2], "UPDATE beginning SET number = 0"),
        lambda parts: parts[1].path.unlink(),
        lambda parts: parts[0].path.unlink(),
        lambda parts: parts[0].path.replace(parts[1].path),
    ],
)
def test_every_damage_of_a_sealed_part_is_found_and_a_new_log_keeps_all_of_them(
    tmp_path: Path, damage: Callable[[list[SealedPart]], object]
) -> None:
    audit = parts_of(tmp_path)
    parts = audit.sealed()
    damage(parts)
    with pytest.raises(AuditDamaged):
        audit.verify()
    left = sum(part.path.exists() for part in parts)
    kept = tmp_path / audit.begin_anew("somebody").data["kept"]
    assert len(list(kept.glob("audit-0*.db"))) == left
    assert (audit.sealed(), audit.verify()) == ([], 1)
    audit.close()


def tampered_part(part: SealedPart, statement: str) -> None:
    part.path.chmod(0o600)
    with closing(sqlite3.connect(part.path)) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("DROP TRIGGER no_delete")
        connection.execute(statement)
        connection.commit()


def test_the_oldest_parts_are_removed_and_the_rest_is_checked_from_there_on(tmp_path: Path) -> None:
    audit = parts_of(tmp_path)
    parts = audit.sealed()
    first, second = head_of_part(parts[0]), head_of_part(parts[1])
    with pytest.raises(ProcedureRefused, match="only the oldest"):
        audit.remove_sealed(parts[1:], "somebody")
    audit.remove_sealed(parts[:2], "somebody")
    removed = audit.last(1)[0]
    assert (removed.kind, removed.data["through"], removed.data["hash"]) == ("removed", 8, second.hash)
    assert audit.verify() == audit.head().number - 8
    assert audit.beginning() == second
    assert audit.verify(second) == audit.head().number - 8
    assert audit.entries()[0].number == 9
    with pytest.raises(ProcedureRefused, match="accepted: a head from entry 8 on"):
        audit.verify(first)
    with pytest.raises(AuditDamaged):
        audit.verify(AuditHead(8, "f" * 64))
    parts[2].path.unlink()
    with pytest.raises(AuditDamaged, match="no entry tells that they were removed"):
        audit.verify()
    audit.close()


def test_a_process_that_is_killed_while_it_seals_or_removes_a_part_leaves_a_whole_log(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def work(audit: Audit) -> None:
        audit.seal(0)
        audit.remove_sealed(audit.sealed(), "somebody")

    places: list[str] = []
    filled(tmp_path / "counted")
    with Audit(tmp_path / "counted", places.append) as audit:
        work(audit)
    assert len(places) > 5
    for number in range(1, len(places) + 1):
        folder, left = tmp_path / str(number), [number]
        filled(folder)

        def kill(_place: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        with Audit(folder, kill) as audit, pytest.raises(Killed):
            work(audit)
        with Audit(folder) as audit:
            audit.verify()
            count = audit.head().number
            assert audit.append("test", "y", {}).number == count + 1
            assert [entry.number for entry in audit.entries()] == list(range(audit.beginning().number + 1, count + 2))
            work(audit)
            audit.verify()
            assert audit.sealed() == []


def test_whoever_begins_a_new_log_waits_until_another_process_has_appended(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    tampered(tmp_path, "DELETE FROM entries WHERE number = 3")
    begun: list[str] = []
    with (tmp_path / HEAD_FILE).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = Thread(target=lambda: begun.append(audit.begin_anew("somebody").kind))
        thread.start()
        thread.join(0.2)
        assert begun == []
    thread.join(30)
    assert begun == ["begun_anew"]
    audit.close()
