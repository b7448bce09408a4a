"""The audit log finds whatever was edited, cut off, removed, added or moved."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from procedures.audit import FILE, HEAD_FILE, Audit, Head, head_from
from procedures.errors import AuditDamaged, ProcedureRefused

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
    assert [entry.number for entry in audit.entries(after=2, limit=2)] == [3, 4]
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
        audit.verify(Head(3, "f" * 64))


def test_a_missing_head_is_told(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    (tmp_path / HEAD_FILE).unlink()
    with pytest.raises(AuditDamaged, match="gone"):
        audit.verify()


@pytest.mark.parametrize("text", ["", "1", "1:abc", f"x:{'0' * 64}", f"1:{'g' * 64}"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="accepted"):
        head_from(text)


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
