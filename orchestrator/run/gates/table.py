"""The code of each gate, in the order of `planned.GATES`."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Final

from orchestrator.run.gates.contract import Gate
from orchestrator.run.gates.planned import GATES

BUILTIN_GATES: Final[Mapping[str, Gate]] = {
    row.name: resolve_name(f"orchestrator.run.gates.{row.code}")() for row in GATES
}
