"""Lessons with their history, prompt packs, and the questions that reflection asked."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import HashIndex
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models.agents import Agent

ITERATION: Final = "iteration"
# An effect that was not measured, in orders by effect: it comes last.
KNOWN_EFFECT: Final = Coalesce("effect", models.Value(-1e9))


class ExperienceStatus(models.TextChoices):
    """``proposed``: being tried; ``active``: measured and kept; ``pruned``: taken out by evidence, and can be brought
    back; ``quarantined``: came from untrusted text, and waits for a person."""

    PROPOSED = "proposed", "Proposed"
    ACTIVE = "active", "Active"
    PRUNED = "pruned", "Pruned"
    QUARANTINED = "quarantined", "Quarantined"


class ExperienceKind(models.TextChoices):
    """``experience``: advice that comparisons taught; ``exemplar``: a piece of an attempt that went well."""

    EXPERIENCE = "experience", "Lesson"
    EXEMPLAR = "exemplar", "Exemplar"


class PromptPack(Scoped):
    """The stamped frame of an agent's prompt: where it comes from, and how many experiences it has room for.

    ``stamp`` is the SHA-256 of its sources. A pack whose texts don't give its stamp is refused, wherever it is read.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=60)
    domain = models.CharField(
        max_length=60, blank=True, help_text="Domain of the prompt pack; its lessons have the same domain."
    )
    system = models.TextField(blank=True)
    injections = models.JSONField(default=list, blank=True, help_text="Texts after the system prompt.")
    experience_slots = models.PositiveSmallIntegerField(default=20)
    max_words = models.PositiveSmallIntegerField(
        default=32, help_text="Maximum number of words of each lesson of this domain."
    )
    sources = models.JSONField(default=list, blank=True, help_text="[{path, sha256}] of its source files.")
    stamp = models.CharField(max_length=64, editable=False)
    # Of texts that it had, whose lessons hold for the one that it has too. A job may still act by one of them.
    earlier_stamps = ArrayField(models.CharField(max_length=64), default=list, blank=True, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], condition=models.Q(archived_at=None), name="prompt_pack_name"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Experience(Scoped):
    """A lesson that may be part of an agent's context. Its text is at most ``max_words`` long and bears a stamp.

    ``handle`` is its name in prompts and on pages; it never changes and is never reused. ``stamp`` binds the text to
    the pack under which it was learned. ``weight`` is the probability that a rollout sees it; ``effect`` is its effect
    on the reward, with its standard error, by regression over ``rollouts`` rollouts; null until it was measured.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="experiences")
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="experiences")
    handle = models.CharField(max_length=16)
    kind = models.CharField(max_length=10, choices=ExperienceKind.choices, default=ExperienceKind.EXPERIENCE)
    task = models.CharField(
        max_length=200, blank=True, help_text="Query of the group from which the lesson was learned."
    )
    epoch = models.PositiveSmallIntegerField(default=1)
    group = models.CharField(
        max_length=40, blank=True, help_text="iteration/query of the group from which the lesson was learned."
    )
    domain = models.CharField(max_length=60, blank=True)
    summary = models.CharField(max_length=1000)
    why = models.TextField(blank=True)
    ground_truth = models.FloatField(
        null=True, help_text="Mean reward of the rollouts from which the lesson was learned."
    )
    relative_rank = models.FloatField(null=True, help_text="Mean rank of these rollouts within their group, 0 to 1.")
    tool_stats = models.JSONField(default=list, blank=True, help_text="[{tool, calls, tokens, latency_ms, cost_usd}]")
    stamp = models.CharField(max_length=64)
    status = models.CharField(max_length=12, choices=ExperienceStatus.choices, default=ExperienceStatus.PROPOSED)
    version = models.PositiveIntegerField(default=1)
    tokens = models.PositiveIntegerField(default=0)
    taught_by = ArrayField(
        models.UUIDField(), default=list, help_text="Trajectories from which the lesson was learned."
    )
    parents = ArrayField(
        models.CharField(max_length=16), default=list, help_text="Handles of the lessons merged into this one."
    )
    weight = models.FloatField(default=0.5)
    effect = models.FloatField(null=True)
    effect_error = models.FloatField(null=True)
    rollouts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "handle"]
        constraints = [models.UniqueConstraint(fields=["agent", "handle"], name="one_handle_per_agent")]
        indexes = [
            models.Index(fields=["agent", "status"]),
            models.Index(fields=["organization", "-created_at"]),
            models.Index(
                models.F("organization"), KNOWN_EFFECT.desc(), models.F("id").desc(), name="lessons_by_effect"
            ),
            # A sentence may be longer than a B-tree takes.
            HashIndex(fields=["summary"], name="lessons_by_sentence"),
        ]

    def __str__(self) -> str:
        return self.summary[:80]


class ExperienceChange(models.Model):
    """One line of an experience's history. Never updated (trigger); goes only with the experience.

    ``job`` is empty where a person acted, and where the job's row is gone: ``by`` says which (``by_iteration``).
    """

    experience = models.ForeignKey(Experience, on_delete=models.CASCADE, related_name="changes")
    at = models.DateTimeField(default=timezone.now)
    version = models.PositiveIntegerField()
    action = models.CharField(max_length=20)  # added, updated, merged, activated, pruned, restored, quarantined …
    before = models.TextField(blank=True)
    after = models.TextField(blank=True)
    why = models.TextField(blank=True)
    by = models.CharField(max_length=150, help_text="A person, or the iteration of a job.")
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = ScopedManager("experience__organization")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.action} by {self.by}"

    @staticmethod
    def by_iteration(number: int) -> str:
        """Value of ``by`` for a job. The name of a person has no space."""
        return f"{ITERATION} {number}"


class Question(Scoped):
    """One question that reflection asked a model, with what came of it. Its answer is used again after a crash, so
    that nothing is paid for twice; one that was refused is counted with its reason."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="questions")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="questions")
    key = models.CharField(max_length=120)
    stage = models.CharField(max_length=20)  # summary, lessons, operations, merge, insights, deltas
    iteration = models.PositiveIntegerField(default=0)
    epoch = models.PositiveSmallIntegerField(default=1)
    asked = models.CharField(max_length=64, help_text="SHA-256 of the prompt; a changed prompt needs a new answer.")
    model = models.CharField(
        max_length=120, blank=True, help_text="Model that answered; empty in rows of earlier releases."
    )
    usable = models.BooleanField()
    reason = models.CharField(max_length=300, blank=True, help_text="Reason for which the answer was refused.")
    reply = models.JSONField(null=True)
    repaired = models.BooleanField(default=False)
    calls = models.PositiveSmallIntegerField(default=1)
    tokens = models.PositiveIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    latency_ms = models.FloatField(default=0.0)
    own_ms = models.FloatField(default=0.0)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "key"], name="one_answer_per_question")]
        indexes = [models.Index(fields=["job", "stage"])]

    def __str__(self) -> str:
        return f"{self.stage} {self.key}"
