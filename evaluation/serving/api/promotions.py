"""REST: promotion of checkpoints, and its reversal."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.models import Release
from evaluation.serving.releases.presenters import ReleaseOut
from evaluation.serving.releases.promotion import agent_roll_back, checkpoint_promote
from evaluation.serving.releases.services import MOST_NOTE
from experiences.models.agent_lookup import agent_get
from training.services.checkpoints import checkpoint_of


class PromotionIn(Strict):
    note = serializers.CharField(max_length=MOST_NOTE, required=False, allow_blank=True)


PROMOTION: dict[str, Any] = {"request": PromotionIn, "responses": {201: ReleaseOut}}


class PromotionViewSet(ScopedViewSet):
    queryset = Release.objects.none()
    tag = "checkpoints"
    idempotent = ("promote", "roll_back")

    @extend_schema(
        summary="Promote a checkpoint",
        description="The agent's later jobs go on from it, and its newest release, which is answered, serves it. What"
        " is served changes with a deployment of that release only.",
        **PROMOTION,
    )
    def promote(self, request: Request, pk: UUID) -> Response:
        note = parsed(PromotionIn, request.data).get("note", "")

        def work() -> Response:
            made = checkpoint_promote(self.actor, checkpoint_of(self.actor, pk), note=note)
            return Response(ReleaseOut(made).data, status=201)

        return self.once(request, work)

    @extend_schema(
        summary="Roll an agent back",
        description="To the checkpoint that was promoted before the last one, for its later jobs and as its newest"
        " release, which is answered.",
        tags=["agents"],
        **PROMOTION,
    )
    def roll_back(self, request: Request, agent: str) -> Response:
        note = parsed(PromotionIn, request.data).get("note", "")

        def work() -> Response:
            made = agent_roll_back(self.actor, agent_get(self.actor, agent), note=note)
            return Response(ReleaseOut(made).data, status=201)

        return self.once(request, work)
