"""What all runs share: the registry, models, the journal, the sandbox and the ports that they were given."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.registry.models import Registry
from orchestrator.run.attempt_stream import ThinkingModels
from orchestrator.run.gates.contract import RunnerFor, no_runner
from orchestrator.run.journal.journal import Journal
from orchestrator.run.planning import Planner
from orchestrator.run.routing import Router
from orchestrator.run.state_folder import Clock
from orchestrator.run.steps.repl.session import Open
from orchestrator.run.steps.repl.subcalls import GenerateBatch
from orchestrator.run.steps.tools.contract import no_procedures
from orchestrator.run.steps.tools.servers import NO_TOOL_SERVERS, ToolServers
from orchestrator.task.events import PlanPersona

# `Propose` for the run with this id.
RunProposes = Callable[[str, str, Mapping[str, Any]], Awaitable[str]]


async def no_procedures_of_runs(_run: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Default for `RunProposes`: raise `ToolError`, as there are no procedures."""
    return await no_procedures(name, inputs)


async def sandbox_available() -> str:
    """Default for `why_no_sandbox`: the sandbox is available."""
    return ""


@dataclass(slots=True)
class Services:
    registry: Registry  # the one in force; entries that a run may still name are kept when its files change
    models: ThinkingModels
    journal: Journal
    clock: Clock
    batch: GenerateBatch  # as `Pool.generate_batch`
    sessions: Open  # opens sessions of interpreters in the sandbox
    router: Router
    planner: Planner
    cores: int = 0  # of the machine; 0 if unknown
    resident: Callable[[], frozenset[str]] = frozenset  # the models that need not be loaded first
    # Puts the personas that a run's plan defines into force.
    define_personas: Callable[[str, Sequence[PlanPersona]], None] = lambda run, personas: None
    gate_jobs: RunnerFor = no_runner
    tool_jobs: RunnerFor = no_runner
    why_no_sandbox: Callable[[], Awaitable[str]] = sandbox_available
    propose: RunProposes = no_procedures_of_runs  # keeps the plans of procedures that runs propose
    servers: ToolServers = NO_TOOL_SERVERS
