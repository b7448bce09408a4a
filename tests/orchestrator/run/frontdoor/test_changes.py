"""Which programs a request wants changed, in requests as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.request import changed_programs


@pytest.mark.parametrize(
    ("request_text", "named", "changed"),
    [
        ("The tests in test_a.py fail. Fix a.py, not the tests.", ("test_a.py", "a.py"), ("a.py",)),
        ("a.py does the same thing twice. Please move that into a function _f.", ("a.py",), ("a.py",)),
        ("Please extend a.py: f() takes a second argument.", ("a.py",), ("a.py",)),
        ("Can you rename f in a.py to g?", ("a.py",), ("a.py",)),
        ("Fix a.py and b.py.", ("a.py", "b.py"), ("a.py", "b.py")),
        ("Korrigiere den Fehler in rechnung.py.", ("rechnung.py",), ("rechnung.py",)),
        ("Corrige le bug de somme.py.", ("somme.py",), ("somme.py",)),
        ("Arregla suma.py.", ("suma.py",), ("suma.py",)),
        ("Change the port in config.yaml to 80.", ("config.yaml",), ("config.yaml",)),
        ("Fix the failing assertion in test_a.py.", ("test_a.py",), ("test_a.py",)),
        ("a.py needs a method. Also extend test_a.py.", ("a.py", "test_a.py"), ("a.py", "test_a.py")),
        ("Should a.py be a class?", ("a.py",), ()),
        ("Extend a.py and add a case to test_a.py.", ("a.py", "test_a.py"), ("a.py",)),
        ("What does a.py do?", ("a.py",), ()),
        ("Explain why a.py is slow and how to change it.", ("a.py",), ()),
        ("Review a.py and list what should be changed.", ("a.py",), ()),
        ("Add tests for a.py.", ("a.py",), ()),
        ("Write tests for a.py in test_a.py.", ("a.py",), ()),
        ("Update guide.md with the options of a.py.", ("guide.md", "a.py"), ()),
        ("Correct letter.md.", ("letter.md",), ()),
        ("Fix whatever is wrong.", (), ()),
    ],
)
def test_programs_that_an_order_is_about_are_changed(
    request_text: str, named: tuple[str, ...], changed: tuple[str, ...]
) -> None:
    assert changed_programs(request_text, named) == changed


def test_a_program_stays_if_its_new_version_has_another_name() -> None:
    request = "Fix the error in sort.py and save the result as sort_fixed.py."
    assert changed_programs(request, ["sort.py"], ["sort_fixed.py"]) == ()
    assert changed_programs("Fix sort.py and log the changes in log.md.", ["sort.py"], ["log.md"]) == ("sort.py",)


@given(st.text(max_size=200), st.lists(st.sampled_from(["a.py", "b.md", "test_a.py", "c.sh"]), unique=True))
def test_any_request_is_read(request_text: str, named: list[str]) -> None:
    assert {*changed_programs(f"{request_text} fix a.py", named)} <= {*named}
