"""Who calls the engine of procedures, and with what rights."""

import os
import pwd
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.service.callers import Callers
from orchestrator.service.configuration import load_configuration

NOBODY = 65_530


def test_the_owner_of_the_state_folder_and_root_may_do_everything_and_other_users_nothing(tmp_path: Path) -> None:
    callers = Callers(tmp_path, {})
    for uid in (os.getuid(), 0):
        caller = callers.user(uid)
        assert (caller.roles, caller.person) == ({"owner", "operator", "approver"}, True)
    assert callers.user() == callers.user(os.getuid())
    assert callers.user().name == f"{pwd.getpwuid(os.getuid()).pw_name} (user {os.getuid()})"
    other = callers.user(NOBODY)
    assert (other.roles, other.person) == (frozenset(), False)


def test_a_folder_that_is_still_to_be_made_belongs_to_whoever_makes_it(tmp_path: Path) -> None:
    assert Callers(tmp_path / "later", {}).user().person


def test_holders_of_tokens_are_operators_and_no_persons_unless_the_configuration_says_so(tmp_path: Path) -> None:
    usual = Callers(tmp_path, {})
    for name, told in (("", "the API's token from ::1"), ("ann", "the token ann from ::1")):
        caller = usual.token(name, "::1")
        assert (caller.name, caller.roles, caller.person) == (told, {"operator"}, False)
    stated = Callers(tmp_path, {"token:ann": "owner approver", "token": "", f"user:{NOBODY}": "operator"})
    assert (stated.token("ann", "::1").roles, stated.token("ann", "::1").person) == ({"owner", "approver"}, True)
    assert stated.token("", "::1").roles == frozenset()
    assert stated.token("ben", "::1").roles == {"operator"}
    assert (stated.user(NOBODY).roles, stated.user(NOBODY).person) == ({"operator"}, False)


def test_the_owner_may_be_no_approver(tmp_path: Path) -> None:
    assert not Callers(tmp_path, {f"user:{os.getuid()}": "owner"}).user().person


def test_callers_come_from_the_configuration_and_bad_ones_are_refused(tmp_path: Path) -> None:
    def environ(text: str) -> dict[str, str]:
        return {"HOME": str(tmp_path), "ORCHESTRATOR_PROCEDURES_CALLERS": text}

    found = load_configuration(environ("token:ann=operator approver, user:1000=owner")).procedures.callers
    assert found == {"token:ann": "operator approver", "user:1000": "owner"}
    for text, told in (
        ("ann=operator", "'ann' is no caller"),
        ("token:a b=operator", "is no caller"),
        ("token=model", "'model' is no role"),
        ("token=a/b", "'a/b' is no role"),
        ("token=", "no list of pairs"),
    ):
        with pytest.raises(InputError, match=told):
            load_configuration(environ(text))
