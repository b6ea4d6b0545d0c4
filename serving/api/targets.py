"""REST: how an agent is served, as other gateways are told it."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from experiences.models.agent_lookup import agent_get
from serving.adapters.plans import plan_of_agent, tensorzero_of
from serving.api.releases import ServingFilesOut
from serving.models import Release


class ServingTargetViewSet(ScopedViewSet):
    queryset = Release.objects.none()

    @extend_schema(
        summary="How an agent is served, for TensorZero",
        description="The release that serves it, and the one on its way with its share of the sessions, as the"
        " configuration of TensorZero's gateway. It holds no key: the sentence names the variables that do.",
        tags=["agents"],
        responses={200: ServingFilesOut, 409: None},
    )
    def retrieve(self, request: Request, agent: str) -> Response:
        return Response(ServingFilesOut(tensorzero_of(plan_of_agent(agent_get(self.actor, agent)))).data)
