"""Training runs: configuration, iterations, epochs, checkpoints."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.functional import cached_property

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.lib.registry import UnknownName
from agentcore_site.tenancy.models import Scoped, ScopedManager
from budgets.models import Budget
from experiences.lessons.job_prompt import with_pack, with_prompt
from experiences.models import Agent, Dataset, PromptPack
from experiences.rollouts.runtimes.base import calls_model
from training.config.versions import read
from training.grader_models import GraderJudgement, GraderSample
from training.learners import Learner, UnfitLearner, learner_of
from training.schema import GRPOConfig

__all__ = [
    "Epoch", "GraderJudgement", "GraderSample", "Iteration", "JobComment", "JobPin", "PolicyCheckpoint", "TrainingRun",
    "with_money",
]  # fmt: skip

# Up to some 100 KB each, which only the run and the next one read.
LARGE: Final = ("starting_rule", "shipped_rule", "known", "prompt")

# So that a release that knows no tags still writes a run.
NO_TAGS: Final = models.Value([], output_field=ArrayField(models.CharField(max_length=40)))

# Runs by whether their rollouts are a language model's (``TrainingRun.calls_model``).
OF_ACTIONS: Final = Q(policy_kind="action")
OF_MODELS: Final = ~OF_ACTIONS


class RunManager(ScopedManager):
    """Rows without what is large; it is read where it is asked for."""

    def get_queryset(self) -> QuerySet[TrainingRun]:
        return super().get_queryset().defer(*LARGE)


class TrainingRun(Scoped):
    """One training job's subject matter. ``job`` says how it is executed; this says what it learns.

    ``config`` is a whole ``GRPOConfig`` with its version (``configuration`` reads it); the latest figures are copied
    here so that lists read one narrow row.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="training_run")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="runs")
    dataset = models.ForeignKey(Dataset, null=True, blank=True, on_delete=models.PROTECT, related_name="runs")
    prompt_pack = models.ForeignKey(
        PromptPack,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="runs",
        help_text="Selected at launch by the domain of the data; empty: the agent's own prompt.",
    )
    # The text of that prompt as it was at the launch (experiences/lessons/job_prompt.py), by which the run and its
    # evaluations act to the end: a run is slices of work, and its groups are compared. Null: jobs of earlier releases.
    prompt = models.JSONField(null=True, blank=True, editable=False)
    environment = models.CharField(max_length=60)
    environment_options = models.JSONField(default=dict, blank=True)
    # The agent's runtime as the run was launched; what learns from it is named in ``config`` (``learner``).
    policy_kind = models.CharField(max_length=20, default="action")
    preset = models.CharField(max_length=30, blank=True)
    config = models.JSONField()
    seed = models.BigIntegerField()
    n_train = models.PositiveIntegerField(default=0)
    n_selection = models.PositiveIntegerField(default=0)
    n_held_out = models.PositiveIntegerField(default=0)
    estimate = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    library = models.JSONField(
        default=list, blank=True, help_text="Lessons at the start of the run, each with its weight."
    )
    # Rules that choose lessons by query, at the start and as shipped: null means all lessons.
    starting_rule = models.JSONField(null=True, blank=True, editable=False)
    shipped_rule = models.JSONField(null=True, blank=True, editable=False)
    shipped_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Starting point (training/services/starting_points.py): the earlier run, its estimates for this library, and their
    # provenance as shown on pages.
    continues = models.ForeignKey(
        "self", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="continued_by"
    )
    known = models.JSONField(null=True, blank=True, editable=False)
    origin = models.JSONField(default=dict, blank=True, editable=False)
    # The promoted checkpoint whose policy it went on from, and is measured against (training/services/promotion.py).
    starts_from = models.ForeignKey(
        "PolicyCheckpoint", null=True, blank=True, editable=False, on_delete=models.RESTRICT, related_name="begun"
    )
    objects: ClassVar[RunManager] = RunManager()

    iteration = models.PositiveIntegerField(default=0)
    total_iterations = models.PositiveIntegerField()
    trajectories = models.PositiveIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    budget_micros = models.BigIntegerField(help_text="Budget at launch, before any later change.")
    metrics = models.JSONField(default=dict, blank=True)
    selection = models.JSONField(default=dict, blank=True, help_text="The latest validation on the selection queries.")
    verdict = models.JSONField(
        default=dict, blank=True, help_text="Result of the held-out evaluation; empty until it is done."
    )
    best_checkpoint = models.ForeignKey(
        "PolicyCheckpoint", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    # What people say of it; nothing of its work reads that.
    note = models.CharField(max_length=2000, blank=True, default="", db_default="")
    tags = ArrayField(models.CharField(max_length=40), default=list, db_default=NO_TAGS, blank=True)

    class Meta:
        ordering = ["-job__created_at"]

    def __str__(self) -> str:
        return f"{self.agent} · {str(self.job_id)[-6:]}"

    @cached_property
    def configuration(self) -> GRPOConfig:
        """``config`` as this release reads it, written by this or an earlier one."""
        return read(self.config)

    @property
    def learner(self) -> Learner:
        """The learner of this run.

        Raises:
            UnknownName, UnfitLearner: the package that brought it is not installed any more.
        """
        return learner_of(self.policy_kind, str(self.config.get("learner", "")))

    @property
    def learns_context(self) -> bool:
        """True if the run learns lessons for a model's context; its policies then are context policies. False where the
        package of its learner is not installed any more: the pages of the run are shown all the same."""
        try:
            return self.learner.learns_context
        except (UnknownName, UnfitLearner):
            return False

    @property
    def calls_model(self) -> bool:
        """Whether its rollouts are a language model's, and paid for call by call."""
        return calls_model(self.policy_kind)

    @cached_property
    def acting_agent(self) -> Agent:
        """The agent as this run trains it: with the prompt that the run kept in place of its own. To be read only."""
        if self.prompt is not None:
            return with_prompt(self.agent, self.prompt)
        return with_pack(self.agent, self.prompt_pack)

    # Money is in the ledger, which is read with the run where a list needs it (``with_money``).

    @property
    def limit_micros(self) -> int:
        """Spending limit of the job now, in micro-dollars."""
        limit_micros, _ = self._booked_micros()
        return self.budget_micros if limit_micros is None else limit_micros

    @property
    def spent_micros(self) -> int:
        """Spending of the job in micro-dollars: all paid calls by the ledger, else the cost of its trajectories."""
        return max(self._booked_micros()[1] or 0, self.cost_micros)

    def _booked_micros(self) -> tuple[int | None, int | None]:
        if "booked_limit_micros" not in self.__dict__:
            row = Budget.objects.filter(job_id=self.job_id).values_list("limit_micros", "spent_micros").first() or (
                None,
                None,
            )
            self.__dict__["booked_limit_micros"], self.__dict__["booked_spent_micros"] = row
        return self.__dict__["booked_limit_micros"], self.__dict__["booked_spent_micros"]

    @property
    def baseline(self) -> str:
        """Name of the baseline of its gain: the agent before this run. A later run of an agent of a language model
        starts with active lessons and a playbook, which are in the context of both arms."""
        if self.starts_from is not None:
            return f"{self.starts_from.label}, from which it went on"
        active = [entry["lesson"] for entry in self.library if entry["lesson"].get("status", "active") == "active"]
        sections = sum(one.get("kind") == "section" for one in active)
        parts = [(len(active) - sections, "lesson"), (sections, "section of the playbook")]
        words = " and ".join(_counted(n, name) for n, name in parts if n)
        return f"what the run began with ({words})" if words else "the untrained baseline"

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        for name in ("booked_limit_micros", "booked_spent_micros", "configuration", "acting_agent"):
            self.__dict__.pop(name, None)
        super().refresh_from_db(*args, **kwargs)


def _counted(n: int, name: str) -> str:
    one, *rest = name.split(" ")
    return f"{n} {' '.join([one if n == 1 else one + 's', *rest])}"


def with_money(rows: QuerySet[TrainingRun]) -> QuerySet[TrainingRun]:
    """The rows with limit and spending of their jobs, in the same query."""
    booked = Budget.objects.filter(job_id=OuterRef("job_id"))
    return rows.annotate(
        booked_limit_micros=Subquery(booked.values("limit_micros")[:1]),
        booked_spent_micros=Subquery(booked.values("spent_micros")[:1]),
    )


class Iteration(models.Model):
    """One applied policy update. Unique per run: applied exactly once."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="iterations")
    number = models.PositiveIntegerField()
    trajectories = models.PositiveIntegerField()
    cost_micros = models.BigIntegerField(default=0)
    metrics = models.JSONField(default=dict)
    selection = models.JSONField(null=True)
    rollout_ms = models.FloatField()
    update_ms = models.FloatField()
    created_at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager("run__organization")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="iteration_applied_once")]

    def __str__(self) -> str:
        return f"iteration {self.number}"


class Epoch(models.Model):
    """One part of a run that learns a context: its cost by tool, the proposals and their outcomes, and the gate's
    decision. Written with its iterations, exactly once each."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="epochs")
    number = models.PositiveSmallIntegerField()
    iterations = models.PositiveIntegerField(default=0)
    metrics = models.JSONField(default=dict, help_text="Sums over its rollouts, in all and by tool.")
    changes = models.JSONField(default=list, help_text="Proposed changes of the library, each with its outcome.")
    gate = models.JSONField(null=True, help_text="Validation on the selection queries at the end of the epoch.")
    started_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    objects = ScopedManager("run__organization")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_row_per_epoch")]

    def __str__(self) -> str:
        return f"epoch {self.number}"


class PolicyCheckpoint(Scoped):
    """A policy that can be loaded again: parameters, optimiser, random state. Checked by SHA-256 on load.

    ``data`` holds up to 10 MB, ``path`` names an object in storage; exactly one of the two is set. Without a ``run`` it
    was uploaded. An agent uses its checkpoint that was promoted last.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="checkpoints")
    run = models.ForeignKey(TrainingRun, null=True, on_delete=models.CASCADE, related_name="checkpoints")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    iteration = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64, editable=False)
    size = models.PositiveIntegerField(editable=False, help_text="Size in bytes.")
    data = models.BinaryField(null=True, editable=False)
    path = models.CharField(max_length=300, blank=True, editable=False)
    metrics = models.JSONField(default=dict, blank=True)
    validation_score = models.FloatField(null=True, blank=True)
    validation_low = models.FloatField(
        null=True, blank=True, help_text="Lower bound of the validation reward; ranks checkpoints."
    )
    tags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    promoted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["run", "-iteration"], name="checkpoints_latest"),
            models.Index(
                fields=["agent", "-validation_low"],
                name="checkpoints_best",
                condition=Q(validation_low__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["run", "iteration"], name="one_checkpoint_per_iteration"),
            models.CheckConstraint(
                condition=(Q(data__isnull=False) & Q(path="")) | (Q(data__isnull=True) & ~Q(path="")),
                name="checkpoint_in_one_place",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The name that the public API uses, e.g. ``checkpoint-3f9a1c-iter140``."""
        return f"checkpoint-{str(self.run_id or self.id)[-6:]}-iter{self.iteration}"

    @staticmethod
    def digest(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()


class JobComment(Scoped):
    """A user's comment on a training job, in a thread on its page."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    text = models.CharField(max_length=2000)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    edited_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["run", "created_at"], name="comments_of_a_job")]

    def __str__(self) -> str:
        return f"{self.author or 'somebody'} on {self.run}"


class JobPin(Scoped):
    """A job that comes first in one person's list."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["person", "run"], name="one_pin_of_a_job")]

    def __str__(self) -> str:
        return f"{self.person}: {self.run}"
