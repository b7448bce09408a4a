import sys
from pathlib import Path

import pytest

from orchestrator.sandbox import SandboxUnavailable
from orchestrator.sandbox.identities import Identities
from orchestrator.sandbox.view import environment, installation_view


def test_the_view_shows_the_installation_and_no_more() -> None:
    readable = [Path(folder) for folder in installation_view().readable]
    for needed in (Path(sys.prefix), Path(sys.base_prefix), Path("/usr")):
        assert any(needed.is_relative_to(folder) for folder in readable)
    for hidden in (Path.home(), Path("/etc"), Path("/var"), Path.cwd(), Path("/")):
        assert not any(hidden.is_relative_to(folder) for folder in readable if folder != Path("/usr"))


@pytest.mark.parametrize("prefix", [Path("/"), Path.home(), Path.home().parent])
def test_an_installation_that_would_show_a_home_is_refused(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(SandboxUnavailable, match="needs a folder of its own"):
        installation_view()


def test_the_environment_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment(installation_view())
    monkeypatch.setenv("API_KEY", "ours")
    monkeypatch.setenv("LD_PRELOAD", "/ours.so")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert environment(installation_view()) == before
    assert not {"API_KEY", "LD_PRELOAD", "PYTHONPATH"} & set(before)


def test_uids_are_lent_once_at_a_time() -> None:
    identities = Identities(5000, 2)
    with identities.lend() as first, identities.lend() as second:
        assert {first, second} == {5000, 5001}
    with identities.lend() as again:
        assert again in (5000, 5001)
