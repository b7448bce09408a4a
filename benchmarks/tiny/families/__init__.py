"""The task families that the embedded models are trained on, each a generator with a checker."""

from benchmarks.tiny.example import Family
from benchmarks.tiny.families.code import Code
from benchmarks.tiny.families.compare import Compare
from benchmarks.tiny.families.condense import Condense
from benchmarks.tiny.families.extract import Extract
from benchmarks.tiny.families.judge import Judge
from benchmarks.tiny.families.merge import Merge
from benchmarks.tiny.families.plan import PlanFamily
from benchmarks.tiny.families.prune import PruneFamily
from benchmarks.tiny.families.repl import Repl
from benchmarks.tiny.families.retry import RetryFamily
from benchmarks.tiny.families.shell import Shell
from benchmarks.tiny.families.summarize import Summarize
from benchmarks.tiny.families.tools import Tools

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        PlanFamily(),
        Extract(),
        Code(),
        Shell(),
        Summarize(),
        Compare(),
        Merge(),
        Judge(),
        Tools(),
        Repl(),
        PruneFamily(),
        Condense(),
        RetryFamily(),
    )
}
