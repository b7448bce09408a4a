"""Predict a job before it runs: check its plan, and say what it should take, by what is known from earlier runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from orchestrator.pool.pool import Pool
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.direct import direct_answer, why_no_direct
from orchestrator.run.job import Job, check_job, known_rates
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.planning import PlannedTask
from orchestrator.run.record.forecast import Forecast, JobForecast
from orchestrator.run.sandbox.sandbox import Sandbox, SandboxOnDemand
from orchestrator.run.steps.tools.servers import Configured
from orchestrator.task.events import RoleRates
from orchestrator.task.modes import Mode
from orchestrator.task.prediction import pace_of, plan_key
from orchestrator.task.taskir.models import TaskIR


async def forecast_unopened(
    job: Job, task: TaskIR, registry: Registry, journal: JournalReader, servers: Configured
) -> JobForecast:
    """Return what can be predicted of the job of a task in a state folder that this process does not own.

    Raises InputError, and JournalError.
    """
    return await forecast_job(
        job,
        PlannedTask(task, mode=job.mode),
        registry=registry,
        journal=journal,
        rates=await asyncio.to_thread(known_rates, journal, registry),
        # It is not entered, so it loads nothing.
        pool=Pool(registry, journal.home.logs, footprints=journal.home.footprints),
        sandbox=SandboxOnDemand(),
        servers=servers,
    )


async def forecast_job(
    job: Job,
    planned: PlannedTask,
    *,
    registry: Registry,
    journal: JournalReader,
    rates: Mapping[str, RoleRates],
    pool: Pool,
    sandbox: Callable[[], Awaitable[Sandbox]],
    servers: Configured,
) -> JobForecast:
    """Return what can be predicted of a job from its plan. Raises InputError if the plan cannot be run here."""
    mode: Mode = planned.mode
    if job.request is not None and mode == "direct":
        mode = "as-planned"  # its one step is a document now
    checked = await check_job(
        replace(job, request=None, task=planned.task, mode=mode), registry, journal, sandbox, servers=servers
    )
    graph, files = checked.graph, checked.files
    assert graph is not None, "a task has a graph"
    sizes = {**checked.sizes, **await asyncio.to_thread(journal.sizes, checked.prior)}
    key = plan_key(graph, planned.task, rates, sizes, mode)
    earlier = await asyncio.to_thread(journal.earlier_runs, key.shape) if key is not None else []
    direct = None
    if job.request is not None and planned.mode != "direct" and why_no_direct(registry) is None:
        answer = await asyncio.to_thread(direct_answer, job.request, files, sizes, registry)
        direct = answer.predict(rates, sizes)
    models = {role: registry.roles[role].model for role in {step.actor for step in planned.task.plan.steps}}
    needed = sorted({*models.values()})
    return JobForecast(
        forecast=await asyncio.to_thread(Forecast.of, planned, graph, rates, sizes, pace_of(key, earlier)),
        warnings=checked.warnings,
        models=models,
        bytes_to_load={model: pool.bytes_to_load(model) for model in needed},
        memory_bytes=sum(pool.bytes_of(model) for model in needed),
        memory_budget=pool.budget,
        direct=direct,
    )
