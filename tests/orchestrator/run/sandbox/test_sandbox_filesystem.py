import sys
from pathlib import Path

import pytest

from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.filesystem import environment, host_filesystem
from orchestrator.run.sandbox.sandbox import UidPool


def test_the_view_shows_the_installation_and_no_more() -> None:
    readable = [Path(folder) for folder in host_filesystem().readable]
    for needed in (Path(sys.prefix), Path(sys.base_prefix), Path("/usr")):
        assert any(needed.is_relative_to(folder) for folder in readable)
    for hidden in (Path.home(), Path("/etc"), Path("/var"), Path.cwd(), Path("/")):
        assert not any(hidden.is_relative_to(folder) for folder in readable if folder != Path("/usr"))


@pytest.mark.parametrize("prefix", [Path("/"), Path.home(), Path.home().parent])
def test_an_installation_that_would_show_a_home_is_refused(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(SandboxUnavailable, match="needs a folder of its own"):
        host_filesystem()


def test_the_environment_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment(host_filesystem())
    monkeypatch.setenv("API_KEY", "ours")
    monkeypatch.setenv("LD_PRELOAD", "/ours.so")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert environment(host_filesystem()) == before
    assert not {"API_KEY", "LD_PRELOAD", "PYTHONPATH"} & set(before)


def test_uids_are_lent_once_at_a_time() -> None:
    uids = UidPool(5000, 2)
    with uids.acquire() as first, uids.acquire() as second:
        assert {first, second} == {5000, 5001}
    with uids.acquire() as again:
        assert again in (5000, 5001)
