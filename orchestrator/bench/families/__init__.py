"""Tasks of one step that are made at random, by families, whose answers can be checked."""

from orchestrator.bench.families.code import Code
from orchestrator.bench.families.compare import Compare
from orchestrator.bench.families.example import Family
from orchestrator.bench.families.extract import Extract
from orchestrator.bench.families.merge import Merge
from orchestrator.bench.families.shell import Shell
from orchestrator.bench.families.summarize import Summarize

STEP_FAMILIES: dict[str, Family] = {
    family.name: family for family in (Extract(), Code(), Shell(), Summarize(), Compare(), Merge())
}
