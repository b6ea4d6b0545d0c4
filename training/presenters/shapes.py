"""Training jobs as programs read them: REST and JSON-RPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from agentcore_site.jobs.models import Priority, Reason, Status
from agentcore_site.lib.money import dollars
from agentcore_site.rest.shapes import Shape
from training.grading.selectors import errors_of
from training.models import TrainingRun
from training.presenters.grader_errors import GraderErrorsOut
from training.selectors.run_lessons import goes_on_from
from training.selectors.runs import best_label, done_criteria, estimated_completion, never_solved, run_verdict

PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
PRIORITY_NAMES = {int(value): name for name, value in PRIORITIES.items()}


class ProgressOut(serializers.Serializer[Any]):
    current_iteration = serializers.IntegerField(source="iteration")
    total_iterations = serializers.IntegerField()
    percent_complete = serializers.FloatField(source="job.percent")


class CostOut(Shape):
    tokens_consumed = serializers.IntegerField(source="tokens")
    cost_usd = serializers.FloatField()
    budget_remaining_usd = serializers.FloatField()

    computed = {
        "cost_usd": lambda run: dollars(run.spent_micros),
        "budget_remaining_usd": lambda run: dollars(run.limit_micros - run.spent_micros),
    }


def _proven(name: str) -> Callable[[TrainingRun], Any]:
    """Reads a figure of the held-out queries, or of the selection queries until there is one."""
    return lambda run: run.verdict.get(name, run.selection.get(name))


class MetricsOut(Shape):
    """Learning figures of a job; null until measured."""

    loss = serializers.FloatField(allow_null=True, source="metrics.loss")
    avg_reward = serializers.FloatField(allow_null=True, source="metrics.reward_mean")
    std_reward = serializers.FloatField(allow_null=True, source="metrics.reward_std")
    eval_success_rate = serializers.FloatField(allow_null=True, help_text="On the selection queries, or held-out ones.")
    success_rate = serializers.FloatField(
        allow_null=True, source="metrics.success_rate", help_text="Of the rollouts that it learns from."
    )
    baseline_success_rate = serializers.FloatField(allow_null=True)
    frac_reward_zero_std = serializers.FloatField(
        allow_null=True, source="metrics.frac_reward_zero_std", help_text="Groups without a learning signal."
    )

    computed = {
        "eval_success_rate": _proven("success_rate"),
        "baseline_success_rate": _proven("baseline_success_rate"),
    }


class PowerOut(serializers.Serializer[Any]):
    gain = serializers.FloatField(help_text="A true gain in success rate.")
    found = serializers.FloatField(help_text="In how many runs of one the gate lets it through.")
    rollouts = serializers.IntegerField(help_text="Of both sides, on average, until it is decided.")
    cost_usd = serializers.FloatField(help_text="What these rollouts cost.")


class GatePowerOut(serializers.Serializer[Any]):
    """The gate of a run that learns a context. Its power is simulated, for gains that differ between queries with a
    standard deviation of 15 points."""

    error = serializers.FloatField(help_text="How often a context that is no better may be let through.")
    n_queries = serializers.IntegerField()
    most_samples = serializers.IntegerField(help_text="Per query and side.")
    power = PowerOut(many=True)
    can_ship = serializers.BooleanField(help_text="Whether a gain of 20 points is found in every fifth run at least.")


class PlannedReflectionOut(serializers.Serializer[Any]):
    model = serializers.CharField(help_text="That says what attempts teach.")
    questions = serializers.IntegerField(help_text="At most.")
    cost_usd = serializers.FloatField(help_text="A part of the cost above.")


class PlannedTrainingCallsOut(serializers.Serializer[Any]):
    """Cost of the updates of a model at a model server."""

    model = serializers.CharField()
    updates = serializers.IntegerField(help_text="At most: an iteration without a difference in rewards makes none.")
    cost_usd = serializers.FloatField(help_text="A part of the cost above.")


class PromptOut(serializers.Serializer[Any]):
    """The prompt before the queries of a job, as it was chosen at the launch."""

    pack_id = serializers.UUIDField(allow_null=True, help_text="Null: the agent's system prompt.")
    pack = serializers.CharField(allow_null=True, help_text="The name of the prompt pack.")
    stamp = serializers.CharField(
        required=False,
        help_text="SHA-256 of its texts, which the job keeps to its end. Jobs of earlier releases: none.",
    )
    by_domain = serializers.BooleanField(help_text="Whether the pack was chosen by the domain of the data.")
    why = serializers.CharField()


class EstimateOut(serializers.Serializer[Any]):
    cost_usd = serializers.FloatField()
    cost_usd_p90 = serializers.FloatField(required=False, help_text="The upper end of the cost; see `cost_basis`.")
    cost_basis = serializers.ChoiceField(
        choices=["jobs", "factor", "guess"],
        required=False,
        help_text="jobs: nine times of ten below `cost_usd_p90`, as earlier jobs came out. factor: too few jobs ended;"
        " half more than what was measured. guess: nothing was measured; three times a first guess.",
    )
    seconds = serializers.FloatField()
    seconds_low = serializers.FloatField()
    seconds_high = serializers.FloatField()
    trajectories = serializers.IntegerField()
    n_train = serializers.IntegerField()
    n_selection = serializers.IntegerField()
    n_held_out = serializers.IntegerField()
    detectable_gain = serializers.FloatField(help_text="The smallest gain that the held-out queries can detect.")
    measured = serializers.BooleanField(help_text="From measured runs, or a first guess.")
    affordable_iterations = serializers.IntegerField(
        required=False, allow_null=True, help_text="How many iterations the money that is left is likely to buy."
    )
    gate = GatePowerOut(required=False, allow_null=True, help_text="Null for agents that choose actions.")
    reflection = PlannedReflectionOut(required=False, allow_null=True, help_text="Null where no lessons are proposed.")
    training_calls = PlannedTrainingCallsOut(
        required=False, allow_null=True, help_text="Null where no weights are trained."
    )
    prompt = PromptOut(
        required=False,
        allow_null=True,
        help_text="Null where it was not chosen yet, and of jobs of earlier releases, which act by their agent's own.",
    )
    warnings = serializers.ListField(child=serializers.CharField())


class RepairOut(serializers.Serializer[Any]):
    setting = serializers.CharField()
    value = serializers.JSONField(help_text="A number, or true.")
    text = serializers.CharField()


class RefusalOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    repairs = RepairOut(many=True, help_text="Changes of one setting that mend it.")


class FullEstimateOut(EstimateOut):
    config = serializers.DictField()
    refusals = RefusalOut(many=True, help_text="What a launch would be refused for now; empty if it would be taken.")


class CriterionOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    met = serializers.BooleanField(allow_null=True)
    detail = serializers.CharField()


@extend_schema_serializer(deprecate_fields=["job_id"])
class JobRow(Shape):
    """A training job in a list."""

    id = serializers.UUIDField(source="job_id")
    job_id = serializers.UUIDField(help_text="The former name of `id`.")
    title = serializers.CharField(source="job.title")
    agent_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent.slug", help_text="The agent's slug.")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True, source="job.status_reason")
    progress_percent = serializers.FloatField(source="job.percent")
    iteration = serializers.IntegerField()
    total_iterations = serializers.IntegerField()
    trajectories = serializers.IntegerField()
    cost_usd = serializers.FloatField()
    best_checkpoint = serializers.CharField(allow_null=True)
    note = serializers.CharField(help_text="What people say of it.")
    tags = serializers.ListField(child=serializers.CharField())
    created_by = serializers.CharField(allow_null=True, source="job.created_by.username")
    created_at = serializers.DateTimeField(source="job.created_at")
    started_at = serializers.DateTimeField(allow_null=True, source="job.started_at")
    finished_at = serializers.DateTimeField(allow_null=True, source="job.finished_at")

    computed = {"cost_usd": lambda run: dollars(run.spent_micros), "best_checkpoint": best_label}


class OriginOut(serializers.Serializer[Any]):
    """Starting point of a run: an earlier one of its agent, or none."""

    job_id = serializers.UUIDField(help_text="The earlier training job.")
    refused = serializers.IntegerField(help_text="Lessons that its gate refused, and that are tried again.")
    rollouts = serializers.IntegerField(help_text="Its rollouts, and those before it, that the effects begin with.")
    weight = serializers.FloatField(help_text="How much of them counts: less where the agent acts by something else.")
    changed = serializers.ListField(
        child=serializers.ChoiceField(choices=["model", "tools", "prompt"]), help_text="What it acts by that changed."
    )


class StatusOut(Shape):
    """State of a job: the result of ``training.get_status``, and a part of a whole job."""

    job_id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True, source="job.status_reason")
    priority = serializers.ChoiceField(choices=[*PRIORITIES])
    not_before = serializers.DateTimeField(
        allow_null=True, source="job.not_before", help_text="It does not start, or go on, before then."
    )
    progress = ProgressOut(source="*")
    metrics = MetricsOut(source="*")
    cost = CostOut(source="*")
    trajectories = serializers.IntegerField()
    best_checkpoint = serializers.CharField(allow_null=True)
    best_checkpoint_id = serializers.UUIDField(allow_null=True)
    verdict = serializers.CharField(help_text="Result or status, as a sentence.")
    estimated_completion_time = serializers.DateTimeField(allow_null=True)
    error = serializers.CharField(allow_null=True)
    grader_errors = GraderErrorsOut(many=True, help_text="Of each scorer that people judged on this data.")

    computed = {
        "grader_errors": errors_of,
        "priority": lambda run: PRIORITY_NAMES[run.job.priority],
        "best_checkpoint": best_label,
        "verdict": run_verdict,
        "estimated_completion_time": lambda run: (done := estimated_completion(run)) and done.isoformat(),
        "error": lambda run: run.job.error or None,
    }


@extend_schema_serializer(deprecate_fields=["job_id"])
class JobOut(StatusOut, JobRow):
    """A training job with everything about it."""

    requested = serializers.CharField(
        source="job.requested", help_text="What was asked of the worker and is not done yet: pause or cancel."
    )
    environment = serializers.CharField()
    environment_options = serializers.DictField()
    dataset_id = serializers.UUIDField(allow_null=True)
    preset = serializers.CharField()
    config = serializers.DictField()
    seed = serializers.IntegerField()
    continues = OriginOut(allow_null=True)
    continued_by = serializers.ListField(child=serializers.UUIDField(), help_text="Jobs that went on from this one.")
    n_train = serializers.IntegerField()
    n_selection = serializers.IntegerField()
    n_held_out = serializers.IntegerField()
    estimate = EstimateOut()
    warnings = serializers.ListField(child=serializers.CharField())
    criteria = CriterionOut(many=True, help_text="The acceptance criteria of the job, each met or not.")

    computed = {
        **StatusOut.computed,
        **JobRow.computed,
        "config": lambda run: run.configuration.as_dict(),
        "continues": goes_on_from,
        "continued_by": lambda run: [*run.continued_by.order_by("job__created_at").values_list("pk", flat=True)],
        "warnings": lambda run: [*run.warnings, *filter(None, [never_solved(run)])],
        "criteria": done_criteria,
    }


class CheckpointOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]
    agent_id = serializers.UUIDField()
    job_id = serializers.UUIDField(source="run_id", allow_null=True, help_text="null: it was uploaded.")
    parent_id = serializers.UUIDField(allow_null=True)
    iteration = serializers.IntegerField()
    sha256 = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    metrics = serializers.DictField()
    validation_score = serializers.FloatField(allow_null=True)
    validation_low = serializers.FloatField(
        allow_null=True, help_text="Lower bound of the validation reward; ranks checkpoints."
    )
    tags = serializers.ListField(child=serializers.CharField())
    promoted_at = serializers.DateTimeField(
        allow_null=True, help_text="An agent uses the checkpoint that was promoted last."
    )
    created_at = serializers.DateTimeField()
