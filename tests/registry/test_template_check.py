"""A template that takes more memory or time than it may does so in a process of its own, and is refused."""

import hashlib
import sys
from pathlib import Path
from typing import Final

import pytest

from orchestrator.registry import template_check
from orchestrator.registry.gguf import read_header
from orchestrator.registry.template_check import EMBEDDED, judge_template
from orchestrator.registry.template_judge import judged

PLAIN: Final = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
LISTED: Final = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + PLAIN
TINY: Final = Path(template_check.__file__).parent / "tiny"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the verdicts that a test leaves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    judge_template.cache_clear()
    return tmp_path / "orchestrator" / "templates"


def test_a_verdict_is_found_once_and_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge_template(LISTED)
    assert (found.lost, found.takes_tools) == (None, True)
    assert not judge_template(PLAIN).takes_tools
    assert "loses words of the user" in str(judge_template("{{ messages[0].content }}").lost)
    assert len(list(kept.iterdir())) == 3
    monkeypatch.setattr(template_check, "_CHILD", "raise SystemExit(1)")
    judge_template.cache_clear()
    assert judge_template(LISTED) == found


def test_the_process_needs_no_package_but_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed" / "orchestrator"
    installed.mkdir(parents=True)
    (installed / "registry").symlink_to(TINY.parent)
    elsewhere = [folder for folder in sys.path if not (Path(folder) / "registry").is_dir()]
    monkeypatch.setattr("sys.path", [str(installed.parent), *elsewhere])
    assert judge_template(PLAIN).lost is None


def test_a_process_that_comes_to_no_verdict_is_a_reason_to_refuse(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2); b'a' * (1 << 29)"
    monkeypatch.setattr(template_check, "_CHILD", child)
    assert "takes more than 1024 MiB of memory or 60 s of time" in str(judge_template(PLAIN).lost)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert "cannot be checked" in str(judge_template(LISTED).lost)
    assert not kept.exists(), "it may come to another verdict the next time"


def test_where_nothing_can_be_kept_it_is_found_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert judge_template(PLAIN).lost is None


def test_the_template_of_the_embedded_models_is_known(kept: Path) -> None:
    for file in TINY.glob("*.gguf"):
        template = read_header(file).chat_template
        assert template is not None
        assert EMBEDDED[hashlib.sha256(template.encode()).hexdigest()] == judged(template) == judge_template(template)
        assert judge_template(template).lost is None
    assert not kept.exists()
