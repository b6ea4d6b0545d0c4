"""Organisations, members with their roles, and the keys that programs use."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.organizations import Membership, Organization, jobs_per_organization
from agentcore_site.tenancy.roles import Role

__all__ = [
    "ApiKey",
    "BrowserSession",
    "Erasure",
    "Invitation",
    "Mail",
    "Membership",
    "Organization",
    "Passkey",
    "ProviderAccount",
    "Scoped",
    "ScopedManager",
    "SecondFactor",
    "TokenFamily",
    "jobs_per_organization",
]


class ScopedManager(models.Manager):  # type: ignore[type-arg]
    """Reads go through ``visible_to``: what the actor's organisations own, and nothing else. ``path``: from a row to
    its organisation, also for the policies of rows (``agentcore_site.row_security``). ``needs``: the right without
    which an organisation's rows are not seen."""

    def __init__(self, path: str = "organization", *, needs: str = "view") -> None:
        super().__init__()
        self.path = path
        self.needs = needs

    def visible_to(self, actor: Actor | AbstractBaseUser) -> models.QuerySet:  # type: ignore[type-arg]
        actor = Actor.of(actor)
        if not actor.may_read:
            return self.none()
        seen = [one for one in actor.organization_ids if self.needs == "view" or actor.may(self.needs, one)]
        return self.filter(**{f"{self.path}__in": seen})


class Scoped(models.Model):
    """A row that belongs to an organisation."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    objects = ScopedManager()

    class Meta:
        abstract = True


class ApiKey(Scoped):
    """A program's key. Only its SHA-256 is kept; the key itself is shown once, when it is made.

    ``per_minute`` and ``monthly_micros`` (micro-dollars a month, UTC) limit its calls of models; null: not limited.
    ``addresses``: addresses and networks from which alone it opens anything; none: from everywhere.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(default=list)
    per_minute = models.PositiveIntegerField(null=True, editable=False)
    monthly_micros = models.BigIntegerField(null=True, editable=False)
    addresses = models.JSONField(default=list, db_default=models.Value([], models.JSONField()), editable=False)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def alive(self) -> bool:
        return self.revoked_at is None and self.expires_at > timezone.now()


def organization_id_of(value: Organization | uuid.UUID) -> uuid.UUID:
    return value.id if isinstance(value, Organization) else value


class Invitation(Scoped):
    """A person is asked to become a member. Only the digest of the link's token is kept."""

    OUTCOMES = [(name, name) for name in ("accepted", "declined", "revoked", "expired")]

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    email = models.EmailField(max_length=150)
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.STAKEHOLDER)
    can_export = models.BooleanField("may export data", default=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    sent_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(editable=False)
    outcome = models.CharField(max_length=10, choices=OUTCOMES, blank=True, editable=False)
    ended_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "email"], condition=models.Q(outcome=""), name="one_open_invitation_per_address"
            )
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.organization}"


class TokenFamily(models.Model):
    """A sign-in of a person's program: the tokens that came of it, each refresh token used up by the next."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="token_families")
    current = models.CharField(max_length=32, editable=False, help_text="The `jti` of the only valid refresh token.")
    previous = models.CharField(
        max_length=32, blank=True, editable=False, help_text="The `jti` of the refresh token before."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    renewed_at = models.DateTimeField(null=True, blank=True)
    ip = models.CharField(max_length=45, blank=True, db_default="", editable=False)
    program = models.CharField(
        max_length=300, blank=True, db_default="", editable=False, help_text="The user agent of the browser or program."
    )
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name_plural = "token families"

    def __str__(self) -> str:
        return f"sign-in of {self.user_id} at {self.created_at:%Y-%m-%d %H:%M}"


class SecondFactor(models.Model):
    """A person's authenticator (TOTP, RFC 6238). It counts once it was confirmed by a code of it.

    ``sealed`` is the secret, sealed with the site's key; ``last_step`` the period (of 30 s, since 1970) of the newest
    code that was taken, so that none is taken twice; ``recovery`` digests of the codes that are left.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="second_factor"
    )
    sealed = models.TextField(editable=False)
    last_step = models.BigIntegerField(default=0, editable=False)
    recovery = ArrayField(models.CharField(max_length=64), default=list, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    confirmed_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"authenticator of {self.user_id}"


class Passkey(models.Model):
    """A passkey of a person's: its identifier and its public key, with what was counted of its use by itself."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=60)
    credential_id = models.CharField(max_length=1400, unique=True, editable=False)
    key = models.BinaryField(editable=False)
    sign_count = models.BigIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return self.name


class ProviderAccount(models.Model):
    """A person's account at a provider of single sign-on. An address may pass to another person, a subject does not."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="provider_accounts")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_per_subject")]

    def __str__(self) -> str:
        return f"{self.user_id} at {self.issuer}"


class BrowserSession(models.Model):
    """Facts by which a person recognises a session of theirs. The row is deleted with its session."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="browser_sessions")
    session_key = models.CharField(max_length=40, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    used_at = models.DateTimeField(default=timezone.now, editable=False)
    ip = models.CharField(max_length=45, blank=True, editable=False)
    browser = models.CharField(
        max_length=300, blank=True, editable=False, help_text="The user agent of the browser or program."
    )

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"session of {self.user_id} since {self.created_at:%Y-%m-%d %H:%M}"


class Erasure(Scoped):
    """The report of an erasure by subject. It names no person: ``digests`` are keyed digests of the identifiers."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    digests = ArrayField(models.CharField(max_length=64))
    found: Any = models.JSONField(help_text="Number of rows with an identifier, by place.")
    left: Any = models.JSONField(
        help_text="Number of rows that still have an identifier: read-only or unreadable rows."
    )
    notes = ArrayField(models.CharField(max_length=300), default=list, blank=True)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{sum(self.found.values()):,} rows, {self.created_at:%Y-%m-%d}"


class Mail(Scoped):
    """A mail that waits to be sent, or was. Written in the transaction that it reports (``tenancy.mails``)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=200, blank=True, help_text="Name of the message; one message per name is queued.")
    recipients: Any = models.JSONField(help_text="Addresses of the recipients.")
    blind = models.BooleanField(default=False, help_text="The recipients do not see each other.")
    subject = models.CharField(max_length=200)
    body = models.TextField(blank=True, help_text="Empty after the message was sent.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    tries = models.PositiveSmallIntegerField(default=0)
    try_after = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "key"], condition=~models.Q(key=""), name="one_mail_per_key"
            )
        ]
        indexes = [models.Index(fields=["try_after"], name="mails_to_send", condition=models.Q(sent_at=None))]

    def __str__(self) -> str:
        return self.subject
