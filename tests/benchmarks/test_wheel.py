"""The wheel holds what runs, and leaves out what only trains the embedded models."""

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, and what may be one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_nothing_in_the_wheel_imports_what_is_left_out_or_only_needed_to_train() -> None:
    files = [file for package in WHEEL["packages"] for file in (ROOT / package).rglob("*.py")]
    left_out = {file for file in files if any(fnmatch(str(file.relative_to(ROOT)), one) for one in WHEEL["exclude"])}
    assert len(left_out) >= len(WHEEL["exclude"]), "every pattern matches a file"
    missing = {module(file) for file in left_out} | {"torch", "tokenizers"}
    wrong = {(module(file), name) for file in {*files} - left_out for name in imported(file) if name in missing}
    assert not wrong
