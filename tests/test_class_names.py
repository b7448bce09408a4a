"""In the product one name stands for one thing."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "registry", "procedures", "memrl", "benchmarks")
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
"""A public class of a module. Parsing all files would take seconds."""


def test_no_class_name_stands_for_two_things() -> None:
    files = defaultdict[str, list[str]](list)
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for name in CLASS.findall(file.read_text(encoding="utf-8")):
                files[name].append(str(file.relative_to(ROOT)))
    assert len(files) > 1000
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
