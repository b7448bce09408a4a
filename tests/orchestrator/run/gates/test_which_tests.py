import pytest

from orchestrator.run.gates.planned import Scope, integration_tests, module_under_test, unit_tests, unseen_tests
from tests.orchestrator.run.gates.gate_steps import step


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("test_add.py", "add"),
        ("tests/test_add.py", "add"),
        ("add_test.py", "add"),
        ("test_add.py[2]", "add"),
        ("add.py", None),
        ("test_add.txt", None),
        ("testing.py", None),
    ],
)
def test_a_test_is_known_by_its_name(name: str, module: str | None) -> None:
    assert module_under_test(name) == module


def test_unit_tests_are_those_of_what_is_written() -> None:
    scope = Scope(step("add.py", "test_own.py", inputs=("add_test.py", "test_sub.py")), ("test_add.py", "test_mul.py"))
    assert unit_tests(scope) == ("test_own.py", "add_test.py", "test_add.py")
    assert integration_tests(scope) == ("test_sub.py",)
    assert unseen_tests(scope) == ("test_add.py",)


def test_an_output_does_not_hide_the_test_of_its_name() -> None:
    scope = Scope(step("add.py", "test_add.py"), ("test_add.py",))
    assert unit_tests(scope) == unseen_tests(scope) == ("test_add.py",)


def test_a_child_of_a_fan_out_is_tested_under_the_name_of_the_list() -> None:
    assert unit_tests(Scope(step("fn.py[3]"), ("test_fn.py",))) == ("test_fn.py",)


def test_text_has_no_tests() -> None:
    scope = Scope(step("notes.txt"), ("test_notes.py",))
    assert unit_tests(scope) == integration_tests(scope) == ()
