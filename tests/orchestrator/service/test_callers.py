"""Who calls, and with what rights."""

import os
import pwd
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.service.callers import NOBODY, Access, Callers, Forbidden, granted, procedure_roles, user_key
from orchestrator.service.configuration import load_configuration
from orchestrator.service.permissions import ANY, OPEN, Permission, by_name, undeclared

NO_USER = 65_530


def test_the_owner_of_the_state_folder_and_root_may_do_everything_and_other_users_nothing(tmp_path: Path) -> None:
    callers = Callers(tmp_path, {})
    for uid in (os.getuid(), 0):
        access = callers.user(uid)
        assert access.permissions == set(Permission)
        assert (access.caller.roles, access.caller.person) == ({"owner", "operator", "approver"}, True)
    assert callers.user() == callers.user(os.getuid())
    assert callers.user().name == f"{pwd.getpwuid(os.getuid()).pw_name} (user {os.getuid()})"
    assert callers.user().key == callers.folder_owner() == user_key()
    other = callers.user(NO_USER)
    assert (other.key, other.permissions, other.caller.roles) == (f"user:{NO_USER}", frozenset(), frozenset())
    assert not other.caller.person


def test_a_user_without_a_name_is_not_the_user_whose_name_is_user(tmp_path: Path) -> None:
    assert Callers(tmp_path, {"user:user": "owner"}).user(NO_USER).permissions == frozenset()


def test_a_folder_that_is_still_to_be_made_belongs_to_whoever_makes_it(tmp_path: Path) -> None:
    assert Callers(tmp_path / "later", {}).user().caller.person


def test_the_token_of_the_api_is_operator_and_named_ones_have_what_they_are_given(tmp_path: Path) -> None:
    usual = Callers(tmp_path, {})
    own, ann = usual.token("", "::1"), usual.token("ann", "::1")
    assert (own.key, own.name, own.caller.roles) == ("token", "the API's token from ::1", {"operator"})
    assert own.permissions == set(Permission) - {Permission.APPROVE, Permission.OWN}
    assert (ann.key, ann.name, ann.permissions) == ("token:ann", "the token ann from ::1", frozenset())
    stated = Callers(
        tmp_path, {"token:ann": "owner approver", "token": "", "token:ben": "read:own submit", "user:0": "operator"}
    )
    assert stated.token("ann", "::1").caller.roles == {"owner", "approver"}
    assert stated.token("ann", "::1").caller.person
    assert stated.token("", "::1").permissions == frozenset()
    assert stated.token("ben", "::1").permissions == {Permission.READ_OWN, Permission.SUBMIT}
    assert stated.token("ben", "::1").caller.roles == frozenset()
    assert (stated.user(0).caller.roles, stated.user(0).caller.person) == ({"operator"}, False)


def test_the_owner_may_be_no_approver(tmp_path: Path) -> None:
    assert not Callers(tmp_path, {f"user:{os.getuid()}": "owner"}).user().caller.person


def test_words_of_permissions_and_of_roles_say_the_same() -> None:
    assert granted(["read:all", "submit", "operate", "teach"]) == granted(["operator"])
    assert Permission.READ_OWN in granted(["read:all"])
    assert granted(["visitor"]) == frozenset()
    assert procedure_roles(["own", "operate", "approve", "teach"]) == {"owner", "operator", "approver"}
    assert procedure_roles(["visitor", "owner", "submit"]) == {"visitor", "owner"}


def test_a_caller_sees_its_own_objects_and_with_a_permission_those_of_others() -> None:
    ann = Access("token:ann", words=("read:own",))
    assert (ann.sees("token:ann"), ann.sees("token:ben"), ann.sees("")) == (True, False, False)
    assert not NOBODY.sees("")
    everybody = Access("token:ann", words=("read:all",))
    assert (everybody.sees("token:ben"), everybody.sees("")) == (True, True)
    everybody.require_change("token:ann")
    with pytest.raises(Forbidden, match="lacks the permission operate"):
        everybody.require_change("token:ben")


def test_the_refusal_says_what_is_missing_and_what_to_write_into_the_configuration() -> None:
    ann = Access("token:ann", "the token ann from ::1")
    ann.require(OPEN)
    with pytest.raises(Forbidden) as refused:
        ann.require(ANY)
    assert "the token ann from ::1 may not do this: it lacks any permission; the owner grants it" in str(refused.value)
    assert '[server] callers = {"token:ann" = "read:own submit"}' in str(refused.value)
    with pytest.raises(Forbidden, match=r'lacks the permission teach; .*\{"token:ann" = "read:own teach"\}'):
        Access("token:ann", words=("read:own",)).require(Permission.TEACH)
    with pytest.raises(Forbidden):
        NOBODY.require(ANY)


def test_a_table_names_what_is_there_and_nothing_else() -> None:
    table = {Permission.SUBMIT: ("a", "b"), OPEN: ("c",)}
    assert by_name(table) == {"a": "submit", "b": "submit", "c": "open"}
    assert undeclared(["a", "b", "c"], table) == []
    assert undeclared(["a", "c", "d"], table) == [
        "d declares no permission",
        "b has a permission, but does not exist",
    ]


@pytest.mark.parametrize("name", ["SERVER", "PROCEDURES"])
def test_callers_come_from_the_configuration_and_bad_ones_are_refused(tmp_path: Path, name: str) -> None:
    """`callers` of [procedures] is where earlier versions had it."""

    def environ(text: str) -> dict[str, str]:
        return {"HOME": str(tmp_path), f"ORCHESTRATOR_{name}_CALLERS": text}

    found = load_configuration(environ("token:ann=operator approver, user:1000=read:own visitor")).server.callers
    assert found == {"token:ann": "operator approver", "user:1000": "read:own visitor"}
    for text, told in (
        ("ann=operator", "'ann' is no caller"),
        ("token:a b=operator", "is no caller"),
        ("token=model", "'model' is no permission or role"),
        ("token=a/b", "'a/b' is no permission or role"),
        ("token=read:everything", "'read:everything' is no permission or role"),
        ("token=", "no list of pairs"),
    ):
        with pytest.raises(InputError, match=f"^ORCHESTRATOR_{name}_CALLERS: .*{told}"):
            load_configuration(environ(text))


def test_callers_are_not_stated_in_two_places(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    environ = {"ORCHESTRATOR_CONFIG": str(file)}
    file.write_text('[procedures]\ncallers = {"token:ann" = "operator"}\n')
    assert load_configuration(environ).server.callers == {"token:ann": "operator"}
    file.write_text('[procedures]\ncallers = {}\n[server]\ncallers = {"token:ann" = "operator"}\n')
    with pytest.raises(InputError, match=r"procedures.callers has become server.callers, and both are stated"):
        load_configuration(environ)
