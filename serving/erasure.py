"""Erasure in releases and production traces: one that holds the words goes whole, since its content never changes.

An agent whose release went is served by none until another is deployed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import connection
from django.db.models import Q

from agentcore_site.tenancy.erasure import ErasureFinding, holding, places, rewritten
from experiences.erasure import ERASURE
from serving.models import (
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    Feedback,
    ProductionTrace,
    Release,
)

NOTE = "Releases were deleted: make new ones of what is left."


@places.register("releases")
def releases(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Release.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("note",), values=("bundle", "evidence"))
    ids = [str(pk) for pk in found.values_list("pk", flat=True)]

    def erase() -> None:
        AgentServing.objects.filter(release__in=ids).update(release=None)
        Deployment.objects.filter(Q(release__in=ids) | Q(previous__in=ids)).delete()
        with connection.cursor() as cursor:
            cursor.execute("SELECT serving_releases_delete(%s, %s, %s)", [ids, organization_id, ERASURE])

    return ErasureFinding(len(ids), erase, NOTE)


@places.register("production traces")
def production_traces(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = ProductionTrace.objects.filter(organization_id=organization_id)
    texts = ("session", "model", "endpoint", "error", "finish_reason")
    found = holding(mine, words, texts=texts, values=("metadata", "request", "response", "components"))
    ids = list(found.values_list("pk", flat=True))
    return ErasureFinding(len(ids), lambda: ProductionTrace.objects.filter(pk__in=ids).delete())


@places.register("feedback")
def feedback(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Feedback.objects.filter(organization_id=organization_id)
    return rewritten(mine, words, texts=("text",), names=("metric",))


@places.register("deployments")
def deployments(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    return rewritten(
        Deployment.objects.filter(organization_id=organization_id),
        words,
        texts=("note", "reason"),
        values=("verdict",),
    )


@places.register("timelines of deployments")
def deployment_events(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    found = holding(DeploymentEvent.objects.filter(deployment__organization_id=organization_id), words, texts=("note",))
    ids = list(found.values_list("pk", flat=True))
    return ErasureFinding(len(ids), lambda: DeploymentEvent.objects.filter(pk__in=ids).delete())


@places.register("sessions of deployments")
def observations(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The names of sessions, as callers gave them."""
    mine = CanaryObservation.objects.filter(deployment__organization_id=organization_id)
    return rewritten(mine, words, names=("session",))
