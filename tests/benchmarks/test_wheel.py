"""The wheel holds what runs, and leaves out what only trains the embedded models."""

import ast
import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


IMPORT = re.compile(r"^[ \t]*(?:import [^\n]+|from [\w.]+ import (?:\([^)]*\)|[^\n]+))$", re.MULTILINE)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module that a file imports, and what may be one.

    Only the import statements are parsed: parsing all files takes many seconds.
    """
    found: set[str] = set()
    statements = "\n".join(statement[0].strip() for statement in IMPORT.finditer(path.read_text()))
    for node in ast.walk(ast.parse(statements)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def packed() -> tuple[set[Path], set[Path]]:
    """Return the files that the wheel holds, and those that it leaves out."""
    files = {file for package in WHEEL["packages"] for file in (ROOT / package).rglob("*.py")}
    left_out = {file for file in files if any(fnmatch(str(file.relative_to(ROOT)), one) for one in WHEEL["exclude"])}
    return files - left_out, left_out


def test_nothing_in_the_wheel_imports_what_is_left_out_or_only_needed_to_train() -> None:
    files, left_out = packed()
    assert len(left_out) >= len(WHEEL["exclude"]), "every pattern matches a file"
    missing = {module(file) for file in left_out} | {"torch", "tokenizers"}
    wrong = {(module(file), name) for file in files for name in imported(file) if name in missing}
    assert not wrong


def test_of_the_training_code_the_wheel_holds_only_what_the_benchmarks_need() -> None:
    files = {module(file): file for file in packed()[0]}
    of_training = {name for name in files if name.startswith("benchmarks.tiny.")}
    needed, to_read = set[str](), set(files) - of_training
    while to_read:
        needed |= to_read
        found = {name for one in to_read for name in imported(files[one]) if name in files}
        to_read = found - needed
    assert of_training <= needed
