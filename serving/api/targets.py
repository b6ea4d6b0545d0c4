"""REST: how an agent is served, as other gateways are told it, and which edits go out by themselves."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.schema import IDEMPOTENCY_KEY
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import require
from experiences.agents.api.versions import AgentVersions
from experiences.models.agent_lookup import agent_get
from serving.adapters.plans import plan_of_agent, tensorzero_of
from serving.api.deployments import DeploymentDetail, DeploymentNote
from serving.api.releases import ServingFilesOut
from serving.deployments.edits import MOST, MOST_A_MONTH, MOST_USD, edits_change, edits_settings, said_of_edits
from serving.deployments.selectors import serving_of
from serving.deployments.services import release_restore
from serving.models import DeploymentStrategy, Release


class SmallEditsPatch(Strict):
    most = serializers.IntegerField(
        allow_null=True, min_value=1, max_value=MOST, help_text="Texts that an edit may change; null: none goes out."
    )
    strategy = serializers.ChoiceField(
        choices=DeploymentStrategy.choices,
        required=False,
        help_text="How they go out; not a shadow.",
    )
    a_month = serializers.IntegerField(
        required=False, min_value=0, max_value=MOST_A_MONTH, help_text="Small edits that go out in a month, at most."
    )
    monthly_usd = serializers.FloatField(
        required=False, min_value=0, max_value=MOST_USD, help_text="For the suites that their gate asks for."
    )


class SmallEditsOut(Shape):
    most = serializers.IntegerField(source="most_edits", allow_null=True)
    strategy = serializers.ChoiceField(choices=DeploymentStrategy.choices, source="edits_strategy")
    a_month = serializers.IntegerField(source="edits_a_month")
    monthly_usd = serializers.FloatField()
    acts_as = serializers.CharField(source="edits_by.username", default=None, allow_null=True)
    sentence = serializers.CharField(help_text="The rule, and what an edit waits for.")

    computed = {"sentence": said_of_edits, "monthly_usd": lambda row: edits_settings(row)["monthly_usd"]}


class SmallEditsViewSet(AgentVersions):
    """Which edits of what an agent is told go out by themselves, through its gate."""

    queryset = Release.objects.none()
    versioned = tuple(SmallEditsPatch._declared_fields)

    @extend_schema(summary="An agent's rule of small edits", tags=["agents"], responses=SmallEditsOut)
    def retrieve(self, request: Request, agent: str) -> Response:
        return Response(SmallEditsOut(serving_of(agent_get(self.actor, agent))).data)

    @extend_schema(
        summary="Change an agent's rule of small edits",
        description="Who sets it is whom it acts as. A key needs `training:manage` and `training:evaluate`.",
        tags=["agents"],
        request=SmallEditsPatch,
        responses=SmallEditsOut,
    )
    def partial_update(self, request: Request, agent: str) -> Response:
        values = parsed(SmallEditsPatch, request.data)
        return Response(SmallEditsOut(edits_change(self.actor, agent_get(self.actor, agent), **values)).data)


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
        found = agent_get(self.actor, agent)
        require(self.actor, "data.view", found.organization_id)
        return Response(ServingFilesOut(tensorzero_of(plan_of_agent(found))).data)

    @extend_schema(
        summary="Serve the release before",
        description="The one that was served before the current one, at once and without asking the gate.",
        tags=["agents"],
        request=DeploymentNote,
        responses={201: DeploymentDetail},
        parameters=[IDEMPOTENCY_KEY],
    )
    def back(self, request: Request, agent: str) -> Response:
        note, found = parsed(DeploymentNote, request.data)["note"], agent_get(self.actor, agent)

        def work() -> Response:
            return Response(DeploymentDetail(release_restore(self.actor, found, note=note)).data, status=201)

        return self.once(request, work)
