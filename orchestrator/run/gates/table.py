"""All gates, in the order in which they check an artifact. A new gate is a file here and a row in `GATES`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.run.gates.bench import BenchGate
from orchestrator.run.gates.build import Build
from orchestrator.run.gates.contract import Gate, Language
from orchestrator.run.gates.format import Format
from orchestrator.run.gates.judge import JUDGE, JudgeGate
from orchestrator.run.gates.lint import Lint
from orchestrator.run.gates.schema import Schema
from orchestrator.run.gates.security import Security
from orchestrator.run.gates.shellcheck import Shellcheck
from orchestrator.run.gates.tests import Integration, Unit
from orchestrator.run.gates.typecheck import Typecheck


@dataclass(frozen=True, slots=True)
class GateRow:
    gate: Gate
    default_for: tuple[Language, ...] = ()  # outputs that it checks in a plan that cannot name gates
    program: str = ""  # that it runs, searched on the PATH
    module: str = ""  # of this Python that it runs
    role: str = ""  # of the registry that it asks; without a usable model, tasks may not name the gate


# A default needs nothing but the artifact, and fails nothing that works. `security` would fail much that is intended.
GATES: Final = (
    GateRow(Schema(), default_for=("json",)),
    GateRow(Shellcheck(), default_for=("shell",), program="shellcheck"),
    GateRow(Format(), default_for=("python",), program="ruff"),
    GateRow(Lint(), default_for=("python",), program="ruff"),
    GateRow(Build(), default_for=("python",)),
    GateRow(Typecheck(), module="mypy"),
    GateRow(Security(), program="ruff"),
    GateRow(Unit(), module="pytest"),
    GateRow(Integration(), module="pytest"),
    GateRow(BenchGate()),
    GateRow(JudgeGate(), role=JUDGE),
)

BUILTIN_GATES: Final[Mapping[str, Gate]] = {row.gate.name: row.gate for row in GATES}
