"""The forecast of a job: what it says of models, and of a request that is planned first."""

from pathlib import Path

from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from tests.orchestrator.run_jobs import ON_DEMAND, RECORDS, job, step


async def test_a_model_that_is_not_loaded_has_bytes_to_load(tmp_path: Path) -> None:
    asked = job([step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])])
    async with Orchestrator.open(tmp_path, ON_DEMAND) as orchestrator:
        expected = await orchestrator.forecast(asked)
        model = ON_DEMAND.roles["worker"].model
        assert expected.models == {"worker": model}
        assert expected.bytes_to_load[model] > 1_000_000
        await orchestrator.pool.load(model)
        assert (await orchestrator.forecast(asked)).bytes_to_load == {model: 0}


async def test_a_direct_answer_has_no_direct_alternative(tmp_path: Path) -> None:
    request = "Summarize a, b, c and d, then compare them"
    async with Orchestrator.open(tmp_path, ON_DEMAND) as orchestrator:
        planned = await orchestrator.forecast(Job(request, None, RECORDS, "as-planned"))
        assert planned.direct is not None
        assert planned.direct.seconds > 0
        assert planned.direct.generations == 0, "nothing has run here"
        direct = await orchestrator.forecast(Job(request, None, RECORDS, "direct"))
        assert direct.forecast.mode == "direct"
        assert direct.direct is None
        assert len(direct.forecast.graph.steps) == 1
