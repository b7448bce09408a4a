from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.gates.findings import (
    MAX_EVIDENCE,
    MAX_LINE,
    MAX_MESSAGE,
    Finding,
    clip,
    format_findings,
    output_tail,
)

FINDINGS = st.lists(
    st.builds(Finding, st.just("a.py"), st.integers(0, 5), st.sampled_from(["", "F821"]), st.text(max_size=400)),
    min_size=1,
    max_size=20,
)


def test_each_problem_comes_with_its_line() -> None:
    found = [Finding("a.py", 2, "F821", "Undefined name `b`"), Finding("b.py", 0, "", "too deep")]
    formatted = format_findings(found, {"a.py": b"def f(a):\n    return b\n"})
    assert formatted == "a.py:2: F821 Undefined name `b`\n    return b\nb.py: too deep"


@given(FINDINGS, st.binary(max_size=500))
def test_evidence_is_bounded_and_the_first_problem_is_always_there(found: list[Finding], data: bytes) -> None:
    formatted = format_findings(found, {"a.py": data})
    one = len("a.py:5: F821 \n    ") + MAX_MESSAGE + MAX_LINE
    assert len(formatted) <= max(MAX_EVIDENCE, one) + len("\nand 19 more")
    assert formatted.startswith("a.py")
    assert clip(found[0].message, MAX_MESSAGE) in formatted


def test_what_is_left_out_is_counted() -> None:
    formatted = format_findings([Finding("a.py", 0, "", "x" * MAX_MESSAGE)] * 10, {})
    assert formatted.endswith("\nand 8 more")


@given(st.text(max_size=2000))
def test_the_tail_of_an_output_is_its_end(text: str) -> None:
    formatted = output_tail(text.encode("utf-8", "replace"))
    assert len(formatted) <= MAX_EVIDENCE + 2
    assert text.encode("utf-8", "replace").decode().strip().endswith(formatted.removeprefix("… "))
