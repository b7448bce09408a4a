"""Start the state of a run from the event by which it was accepted."""

from orchestrator.run.scheduler.run import RunState
from orchestrator.task.analysis import StepGraph
from orchestrator.task.events import RunAccepted
from orchestrator.task.failures import chain_of
from orchestrator.task.prediction import predict_run
from orchestrator.task.taskir.fields import REQUEST_LABEL


def fresh_state(accepted: RunAccepted) -> RunState:
    """Return the scheduler's state of a run after RunAccepted."""
    task = accepted.task

    def estimate(graph: StepGraph) -> dict[str, float]:
        return {name: prediction.seconds for name, prediction in predict_run(graph, accepted).items()}

    return RunState(
        mode=accepted.mode,
        escalation=chain_of(accepted),
        parallelism=task.plan.parallelism if task else None,
        agents=task.agents if task else (),
        labels=task.labels if task else (REQUEST_LABEL,),
        files=accepted.files,
        paths=task.paths_by_label if task else {},
        estimate=estimate,
        max_replans=accepted.max_replans,
        checks_answer=task is None or task.plan.check_answer,
        may_answer_directly=accepted.request is not None,
    )
