import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.files import Signature, Signatures, signature
from orchestrator.registry.load import load_registry
from orchestrator.registry.watch import Reload, Reloader, settled_changes
from tests.registry.conftest import WriteGguf

TEXT = """\
personas: personas.yaml
models:
  a: {file: a.gguf}
  b: {file: b.gguf}
roles:
  worker: {model: a, tier: C, system: Work.}
"""


@pytest.fixture
def folder(tmp_path: Path, write_gguf: WriteGguf) -> Path:
    for name in "ab":
        write_gguf(tmp_path / f"{name}.gguf")
    (tmp_path / "personas.yaml").write_text("personas: {p: {text: P}}")
    (tmp_path / "registry.yaml").write_text(TEXT)
    return tmp_path


@pytest.fixture
def reloader(folder: Path) -> Reloader:
    """One that has seen that nothing has changed since its registry was loaded."""
    made = Reloader(load_registry(folder / "registry.yaml"))
    assert [made.poll() for _ in range(4)] == [None] * 4
    return made


def _soon(reloader: Reloader) -> Reload:
    """Return what becomes of a change: the first look sees it, the second one sees that it has settled."""
    assert reloader.poll() is None
    reload = reloader.poll()
    assert reload is not None
    return reload


def _write(path: Path, content: str | bytes) -> None:
    """Replace a file as editors do. The new file is another inode, so that no clock is too coarse to tell."""
    new = path.with_suffix(".new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(new, path)


def test_a_change_is_adopted_once_it_has_settled(reloader: Reloader, folder: Path) -> None:
    _write(folder / "registry.yaml", TEXT.replace("Work.", "Do the work."))
    reload = _soon(reloader)
    assert reload.registry.roles["worker"].system == "Do the work."
    assert (reload.difference.roles.changed, reload.difference.retired) == (("worker",), frozenset())
    assert reload.problems == ()
    assert (reloader.status.adopted, reloader.status.problems) == (1, ())
    assert [reloader.poll() for _ in range(4)] == [None] * 4


def test_a_file_that_is_being_written_is_waited_for(reloader: Reloader, folder: Path) -> None:
    text = TEXT.replace("Work.", "Do the work.")
    for length in range(20, len(text), 25):
        _write(folder / "registry.yaml", text[:length])
        assert reloader.poll() is None
    _write(folder / "registry.yaml", text)
    assert _soon(reloader).problems == ()


def test_files_that_are_as_they_were_loaded_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reloader = Reloader(load_registry(folder / "registry.yaml"))
    monkeypatch.setattr("orchestrator.registry.watch.parse_file", None)
    assert [reloader.poll() for _ in range(4)] == [None] * 4


def test_a_change_before_the_first_look_is_not_missed(folder: Path) -> None:
    reloader = Reloader(load_registry(folder / "registry.yaml"))
    _write(folder / "registry.yaml", TEXT.replace("Work.", "Do the work."))
    assert _soon(reloader).registry.roles["worker"].system == "Do the work."


@pytest.mark.parametrize("name", ["a.gguf", "personas.yaml"])
def test_a_file_that_changed_after_it_was_loaded_is_read_again(folder: Path, name: str) -> None:
    reloader = Reloader(load_registry(folder / "registry.yaml"))
    _write(folder / name, "personas: {q: {text: Q}}")
    reload = _soon(reloader)
    assert reload.problems or reload.difference.personas.added == ("q",)


def test_an_edit_with_a_mistake_changes_nothing_and_is_reported_once(reloader: Reloader, folder: Path) -> None:
    before = load_registry(folder / "registry.yaml")
    _write(folder / "registry.yaml", TEXT.replace("tier: C", "teir: C").replace("b.gguf}", "b.gguf, slots: 3}"))
    reload = _soon(reloader)
    assert (reload.registry, bool(reload.difference)) == (before, False)
    assert "roles.worker.teir: unknown key; accepted: tier?" in "\n".join(map(str, reload.problems))
    assert reloader.status.problems == reload.problems
    assert [reloader.poll() for _ in range(4)] == [None] * 4
    _write(folder / "registry.yaml", TEXT)
    solved = _soon(reloader)
    assert (solved.problems, bool(solved.difference)) == ((), False)
    assert (reloader.status.problems, reloader.status.adopted) == ((), 0)
    _write(folder / "registry.yaml", TEXT.replace("b.gguf}", "b.gguf, slots: 3}"))
    assert _soon(reloader).registry.models["b"].slots == 3


FAR = "{backend: openai, base_url: 'https://host/v1', model: m, api_key_env: sk-never-tell}"


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("registry.yaml", "models: [", "registry.yaml:1: "),
        ("registry.yaml", "", "models: is required"),
        ("registry.yaml", TEXT + "extra: 1\n", "extra: unknown key"),
        ("registry.yaml", TEXT.replace("{model: a", "{model: c"), "there is no model 'c'; accepted: a, b"),
        ("registry.yaml", TEXT.replace("a.gguf", "gone.gguf"), "models.a.file: "),
        ("registry.yaml", TEXT.replace("  b: {file: b.gguf}", f"  b: {FAR}"), "models.b.api_key_env: is no name of an"),
        ("registry.yaml", None, "registry.yaml: cannot be read: No such file"),
        ("personas.yaml", "personas: {p: {text: x}, p: {text: y}}", "personas.p: the key is given twice"),
        ("personas.yaml", None, "personas.yaml: cannot be read: No such file"),
        ("a.gguf", "GGUF but not really", "models.a.file: "),
    ],
)
def test_whatever_is_wrong_the_registry_stays_until_it_is_right_again(
    reloader: Reloader, folder: Path, file: str, content: str | None, problem: str
) -> None:
    before, right = load_registry(folder / "registry.yaml"), (folder / file).read_bytes()
    if content is None:
        (folder / file).unlink()
    else:
        _write(folder / file, content)
    reload = _soon(reloader)
    assert reload.registry == before
    assert any(problem in str(found) for found in reload.problems), reload.problems
    assert "sk-never" not in str(reload.problems)
    _write(folder / file, right)
    assert _soon(reloader).problems == ()


def test_personas_that_the_registry_names_may_come_later(reloader: Reloader, folder: Path) -> None:
    _write(folder / "registry.yaml", TEXT.replace("personas.yaml", "later.yaml"))
    assert "later.yaml: cannot be read" in str(_soon(reloader).problems[0])
    (folder / "later.yaml").write_text("personas: {later: {text: Later.}}")
    assert list(_soon(reloader).registry.personas) == ["later"]


def test_a_model_that_could_not_be_used_before_is_no_problem(folder: Path) -> None:
    content = (folder / "b.gguf").read_bytes()
    (folder / "b.gguf").unlink()
    reloader = Reloader(load_registry(folder / "registry.yaml"))
    _write(folder / "registry.yaml", TEXT.replace("Work.", "Do the work."))
    reload = _soon(reloader)
    assert (reload.problems, reload.registry.roles["worker"].system) == ((), "Do the work.")
    (folder / "b.gguf").write_bytes(content)
    assert _soon(reloader).registry.models["b"].why_not is None


def test_a_remote_model_comes_with_its_key(reloader: Reloader, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_KEY", raising=False)
    text = TEXT.replace("roles:\n", f"  site: {FAR.replace('sk-never-tell', 'SITE_KEY')}\nroles:\n")
    _write(folder / "registry.yaml", text)
    assert "models.site.api_key_env: the environment variable SITE_KEY" in str(_soon(reloader).problems[0])
    monkeypatch.setenv("SITE_KEY", "secret")
    _write(folder / "registry.yaml", text + "# touched\n")
    assert _soon(reloader).registry.models["site"].why_not is None


def test_a_persona_and_the_file_it_is_in_are_followed(reloader: Reloader, folder: Path) -> None:
    _write(folder / "personas.yaml", "personas: {p: {text: Q}}")
    assert _soon(reloader).difference.personas.changed == ("p",)
    (folder / "other.yaml").write_text("personas: {o: {text: O}}")
    _write(folder / "registry.yaml", TEXT.replace("personas.yaml", "other.yaml"))
    moved = _soon(reloader).difference.personas
    assert (moved.added, moved.removed) == (("o",), ("p",))
    assert [reloader.poll() for _ in range(3)] == [None] * 3
    _write(folder / "other.yaml", "personas: {o: {text: other}}")
    assert _soon(reloader).registry.personas["o"].text == "other"


def test_a_model_comes_when_the_copying_of_its_file_has_ended(reloader: Reloader, folder: Path) -> None:
    content = (folder / "a.gguf").read_bytes()
    new = "  c: {file: c.gguf}\nroles:\n  other: {model: c, tier: C}\n"
    _write(folder / "registry.yaml", TEXT.replace("roles:\n", new))
    (folder / "c.gguf").write_bytes(content[:2000])
    waiting = _soon(reloader)
    assert "models.c.file: " in str(waiting.problems[0])
    assert "c.gguf: is truncated" in str(waiting.problems[0])
    assert not waiting.difference
    for length in (3000, 4000):
        (folder / "c.gguf").write_bytes(content[:length])
        assert reloader.poll() is None
    (folder / "c.gguf").write_bytes(content)
    complete = _soon(reloader)
    assert (complete.difference.models.added, complete.difference.roles.added) == (("c",), ("other",))
    assert complete.problems == ()


def test_a_model_whose_file_was_rewritten_is_loaded_anew(reloader: Reloader, folder: Path) -> None:
    content = (folder / "a.gguf").read_bytes()
    _write(folder / "a.gguf", content[:-4] + b"\x01\x02\x03\x04")
    assert _soon(reloader).difference.retired == {"a"}
    assert [reloader.poll() for _ in range(3)] == [None] * 3
    (folder / "a.gguf").unlink()
    gone = _soon(reloader)
    assert (gone.difference.retired, gone.registry.models["a"].why_not) == (frozenset(), None)
    _write(folder / "a.gguf", content)
    back = _soon(reloader)
    assert (back.difference.retired, back.problems) == ({"a"}, ())


def test_a_file_that_was_broken_is_noticed_when_it_is_whole_again(reloader: Reloader, folder: Path) -> None:
    content = (folder / "a.gguf").read_bytes()
    _write(folder / "a.gguf", content[:-100])
    assert not _soon(reloader).difference
    _write(folder / "a.gguf", content)
    assert _soon(reloader).difference.retired == {"a"}


def test_rights_that_are_given_later_are_noticed(folder: Path) -> None:
    path = folder / "registry.yaml"
    before = signature(path)
    os.chmod(path, 0o600)
    after = signature(path)
    assert before is not None
    assert after is not None
    assert before != after
    assert before.content == after.content


def test_what_cannot_be_looked_at_has_no_signature(folder: Path) -> None:
    assert signature(folder / "absent") is None
    assert signature(Path("a\0b")) is None


PIECES = st.sampled_from(
    [b"", b"\n", b":", b"  ", b"{", b"]", b"*a", b"&a ", b"!!int ", b"\xff", b"models:\n", b"a.gguf", b"~"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 12), PIECES), min_size=1, max_size=4))
def test_whatever_is_written_the_registry_in_force_can_be_used(
    folder: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    _write(folder / "registry.yaml", TEXT)
    before = load_registry(folder / "registry.yaml")
    content = TEXT.encode()
    for at, length, piece in changes:
        content = content[:at] + piece + content[at + length :]
    _write(folder / "registry.yaml", content)
    reloader = Reloader(before)
    assert reloader.poll() is None
    reload = reloader.poll()
    now = before if reload is None else reload.registry
    assert now.roles
    if reload is None or reload.problems:
        assert now == before
    else:
        assert now == load_registry(folder / "registry.yaml")


SIGNATURES = st.one_of(st.none(), st.builds(Signature, *(st.integers(0, 1) for _ in range(5))))
LOOKS = st.dictionaries(st.sampled_from([Path("a"), Path("b")]), SIGNATURES)


@given(acted=LOOKS, before=LOOKS, now=LOOKS)
def test_what_is_acted_on_is_new_and_still(acted: Signatures, before: Signatures, now: Signatures) -> None:
    found = settled_changes(acted, before, now)
    for file in now:
        still = file in before and before[file] == now[file]
        new = file not in acted or acted[file] != now[file]
        assert (file in found) == (still and new)
    assert all(found[file] == now[file] for file in found)
    assert settled_changes({**acted, **found}, now, now).keys().isdisjoint(found)
