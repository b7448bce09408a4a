"""The code of each gate, in the order of `planned.GATES`."""

from collections.abc import Mapping
from typing import Final

from orchestrator.run.gates.bench import BenchGate
from orchestrator.run.gates.build import Build
from orchestrator.run.gates.contract import Gate
from orchestrator.run.gates.format import Format
from orchestrator.run.gates.judge import JudgeGate
from orchestrator.run.gates.lint import Lint
from orchestrator.run.gates.planned import GATES
from orchestrator.run.gates.schema import Schema
from orchestrator.run.gates.security import Security
from orchestrator.run.gates.shellcheck import Shellcheck
from orchestrator.run.gates.tests import Integration, Unit
from orchestrator.run.gates.typecheck import Typecheck

_CLASSES: Final[tuple[type[Gate], ...]] = (
    Schema,
    Shellcheck,
    Format,
    Lint,
    Build,
    Typecheck,
    Security,
    Unit,
    Integration,
    BenchGate,
    JudgeGate,
)
_BY_NAME: Final = {gate.name: gate for gate in _CLASSES}

BUILTIN_GATES: Final[Mapping[str, Gate]] = {row.name: _BY_NAME[row.name]() for row in GATES}
