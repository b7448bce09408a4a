"""Diffs can be applied by programs that read unified diffs, and give back the new version."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.record.diffs import NO_END, unified_diff

TEXTS = st.lists(st.sampled_from(["a", "b", "", "-- x", "+y", "é", "c\r", "\x0c", "\u2028"]), max_size=12).map(
    "\n".join
)


def applied(old: str, diff: str) -> str:
    """Return what a program makes of `old` that follows the diff line by line."""
    lines, made, at = old.split("\n"), list[str](), 0
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for line in re.findall(r"[^\n]*\n", diff)[2:]:
        if head := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            start = int(head[1]) - (head[2] != "0")
            made += lines[at:start]
            at = start
        elif line == NO_END:
            continue
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert lines[at] in (line[1:], line[1:-1])
            made += lines[at : at + 1] if line[0] == " " else []
            at += 1
    joined = "".join(made + lines[at:])
    return joined[:-1] if _ends_without_line_end(diff) else joined


def _ends_without_line_end(diff: str) -> bool:
    """Return whether the last line of the new version is in the diff and has no end."""
    lines = re.findall(r"[^\n]*\n", diff)
    return any(note == NO_END and line[0] == "+" for line, note in pairwise(lines))


@given(TEXTS, TEXTS)
def test_a_diff_turns_the_old_version_into_the_new_one(old: str, new: str) -> None:
    diff = unified_diff("a.txt", old.encode(), new.encode())
    assert (diff == "") == (old == new)
    assert applied(old, diff) == new if diff else old == new


def test_a_new_file_a_binary_file_and_a_name_with_a_space() -> None:
    assert unified_diff("a.md", None, b"x\n") == "--- /dev/null\n+++ b/a.md\n@@ -0,0 +1 @@\n+x\n"
    assert unified_diff("a.md", b"x", b"y") == f"--- a/a.md\n+++ b/a.md\n@@ -1 +1 @@\n-x\n{NO_END}+y\n{NO_END}"
    assert unified_diff("a.bin", b"\0", b"x") == "Binary files a/a.bin and b/a.bin differ\n"
    assert unified_diff("a.txt", b"\xff", b"x") == "Binary files a/a.txt and b/a.txt differ\n"
    assert unified_diff("a b", b"x\n", b"y\n").splitlines()[:2] == ["--- a/a b\t", "+++ b/a b\t"]
