"""The task families that the embedded models are trained on, each a generator with a checker."""

from benchmarks.tiny.families.condense import Condense
from benchmarks.tiny.families.judge import Judge
from benchmarks.tiny.families.plan import PlanFamily
from benchmarks.tiny.families.prune import PruneFamily
from benchmarks.tiny.families.repl import Repl
from benchmarks.tiny.families.retry import RetryFamily
from benchmarks.tiny.families.tools import Tools
from orchestrator.bench.families import STEP_FAMILIES
from orchestrator.bench.families.example import Family

_PLAN = PlanFamily()
FAMILIES: dict[str, Family] = (
    {_PLAN.name: _PLAN}
    | STEP_FAMILIES
    | {family.name: family for family in (Judge(), Tools(), Repl(), PruneFamily(), Condense(), RetryFamily())}
)
