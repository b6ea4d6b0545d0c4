"""``training.evaluate``, a part of the public contract (docs/api.md#json-rpc)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from rest_framework import serializers

from agentcore_site.jobs.models import ACTIVE, Job, Status
from agentcore_site.lib.async_db import in_thread
from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.jsonrpc import Call, Method, Params, Table
from agentcore_site.rest.shapes import Shape
from evaluation.candidates import candidate_try
from evaluation.models import EvaluationRun
from evaluation.selectors import evaluation_get, primary_metrics
from evaluation.services import evaluation_of_agent
from experiences.models.agent_lookup import agent_get
from training.algorithm.inference import surely_apart
from training.selectors.runs import run_get

MAX_WAIT: Final = 300.0


class EvaluateParams(Params):
    """``eval_queries``: texts from the agent's pools, or rows {"query", "expected_outcome"}; default: the held-out
    queries."""

    agent_id: str
    eval_queries: Any = None
    checkpoint_id: str | None = None
    samples: int | None = None
    wait_seconds: float = 60.0
    against: Literal["began", "nothing"] = "began"


class CandidateParams(Params):
    """``lessons`` are the whole context of the candidate, a text each; ``job_id`` is the training job whose selection
    queries judge, and whose budget pays."""

    job_id: str
    lessons: list[str]
    samples: int | None = None
    wait_seconds: float = 60.0


class MeansOut(serializers.Serializer[Any]):
    """Means of the checkpoint; null if no query was measured in both arms."""

    success_rate = serializers.FloatField(allow_null=True, source="success_rate.trained")
    avg_reward = serializers.FloatField(allow_null=True, source="reward.trained")
    avg_steps = serializers.FloatField(allow_null=True, source="steps.trained")
    tool_usage_accuracy = serializers.FloatField(
        allow_null=True, source="tool_accuracy.trained", help_text="Null too if no tool was called."
    )


class EvaluationComparisonOut(Shape):
    baseline_success_rate = serializers.FloatField(allow_null=True, source="baseline")
    improvement_percent = serializers.FloatField(allow_null=True, help_text="Null if the baseline solved nothing.")
    improvement_points = serializers.FloatField(allow_null=True)
    p_value = serializers.FloatField()
    statistically_significant = serializers.BooleanField()

    computed = {
        "improvement_percent": lambda success: (
            round(100 * success["improvement"] / success["baseline"], 1) if success["baseline"] else None
        ),
        "improvement_points": lambda success: (
            None if success["improvement"] is None else round(100 * success["improvement"], 1)
        ),
        "statistically_significant": lambda success: surely_apart(
            success.get("p_corrected", success["p_value"]), success["low"], success["high"]
        ),
    }


class EvaluatedOut(Shape):
    """If not done in time, all fields but id and status are null or empty."""

    evaluation_id = serializers.UUIDField(source="job_id")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    metrics = MeansOut(allow_null=True)
    baseline_comparison = EvaluationComparisonOut(allow_null=True)
    evaluation_time_seconds = serializers.FloatField(allow_null=True, source="report.seconds")
    verdict = serializers.CharField()
    error = serializers.CharField(allow_null=True)

    computed = {
        "metrics": primary_metrics,
        "baseline_comparison": lambda evaluation: (found := primary_metrics(evaluation)) and found["success_rate"],
        "verdict": lambda evaluation: evaluation.report.get("verdict", ""),
        "error": lambda evaluation: evaluation.job.error or None,
    }


class TriedOut(EvaluatedOut):
    """``p_corrected`` is for all tries on the selection queries of the job, ``tries`` the number of this one."""

    checkpoint_id = serializers.UUIDField(help_text="To prove it: training.evaluate with this checkpoint.")
    tries = serializers.IntegerField(allow_null=True, source="report.tries")
    p_corrected = serializers.FloatField(allow_null=True)

    computed = EvaluatedOut.computed | {
        "p_corrected": lambda one: (found := primary_metrics(one)) and found["success_rate"].get("p_corrected"),
    }


async def evaluate(call: Call, params: EvaluateParams) -> dict[str, Any]:
    """Starts the evaluation and waits for it. If it is not done in time, ``metrics`` is null."""
    return await _waited(call, params, start, EvaluatedOut)


async def try_candidate(call: Call, params: CandidateParams) -> dict[str, Any]:
    """Starts the trial, once for the same texts, and waits for it, as ``evaluate`` does."""
    return await _waited(call, params, start_trial, TriedOut)


async def _waited(
    call: Call, params: Any, started: Callable[[Call, Any], EvaluationRun], shape: type[EvaluatedOut]
) -> dict[str, Any]:
    if not 0 <= params.wait_seconds <= MAX_WAIT:
        message = f"wait_seconds must be between 0 and {MAX_WAIT:g}."
        raise Invalid(message, fields={"wait_seconds": message})
    made = await in_thread(started)(call, params)
    job_id = made.job_id
    # Active, not "running": between two slices no worker has the job, and it is still not done.
    await call.until(lambda: not Job.objects.filter(id=job_id, status__in=ACTIVE).exists(), params.wait_seconds)
    return await in_thread(lambda: shape(evaluation_get(call.actor, job_id)).data)()


def start_trial(call: Call, params: CandidateParams) -> EvaluationRun:
    run = run_get(call.actor, params.job_id)
    return candidate_try(call.actor, run, lessons=params.lessons, samples=params.samples)[0]


def start(call: Call, params: EvaluateParams) -> EvaluationRun:
    agent = agent_get(call.actor, params.agent_id)
    queries = params.eval_queries
    if queries is not None and not isinstance(queries, list):
        message = "eval_queries must be a list of queries."
        raise Invalid(message, fields={"eval_queries": message})
    return evaluation_of_agent(
        call.actor,
        agent,
        checkpoint_id=params.checkpoint_id,
        queries=queries,
        samples=params.samples,
        against=params.against,
    )


METHODS: Final[Table] = {
    "training.evaluate": Method(
        EvaluateParams,
        "evaluate",
        evaluate,
        "Compare a checkpoint with the context that its run began with, or with no context.",
        EvaluatedOut,
    ),
    "training.try_candidate": Method(
        CandidateParams,
        "evaluate",
        try_candidate,
        "Try a candidate context on the selection queries of a job.",
        TriedOut,
    ),
}
