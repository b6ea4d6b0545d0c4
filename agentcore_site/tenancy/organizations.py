"""Organisations and their members, below ``Actor``, which reads a person's memberships."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.roles import Role


def jobs_per_organization() -> int:
    """Limit of jobs for a new organisation."""
    return int(settings.JOBS_PER_ORGANIZATION)


class Organization(models.Model):
    """A tenant. Every row that is a tenant's carries its key."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120, unique=True)
    slug = models.SlugField(max_length=60, unique=True)
    max_active_jobs = models.PositiveIntegerField(
        default=jobs_per_organization, help_text="How many jobs may be queued, running or paused at once."
    )
    second_factor = models.BooleanField(
        "asks for a second factor",
        default=False,
        db_default=False,
        help_text="Members set up an authenticator at their next sign-in, and give a code of it from then on.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One person's role in one organisation."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.STAKEHOLDER)
    can_export = models.BooleanField(
        "may export data", default=False, help_text="The data permission: a developer needs it to export trajectories."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "user"], name="one_membership_per_person")]

    def __str__(self) -> str:
        return f"{self.user} is {self.get_role_display().lower()} at {self.organization}"
