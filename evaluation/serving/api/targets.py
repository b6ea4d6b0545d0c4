"""REST: an agent's serving settings, its deployment in the form of other gateways, and its rule of small edits."""

from __future__ import annotations

from dataclasses import replace

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import dollars
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import require
from evaluation.serving.adapters.plans import plan_of_agent, tensorzero_of
from evaluation.serving.api.deployments import DeploymentDetail, DeploymentNote
from evaluation.serving.api.releases import ServingFilesOut
from evaluation.serving.deployments.edits import (
    MOST,
    MOST_A_MONTH,
    MOST_USD,
    edits_change,
    edits_sentence,
    edits_settings,
)
from evaluation.serving.deployments.gate import rule_of
from evaluation.serving.deployments.selectors import serving_of
from evaluation.serving.deployments.services import release_restore, serving_change
from evaluation.serving.models import AgentServing, DeploymentStrategy, Release
from experiences.agents.api.versions import AgentVersions
from experiences.models.agent_lookup import agent_get


class SmallEditsPatch(Strict):
    most = serializers.IntegerField(
        allow_null=True, min_value=1, max_value=MOST, help_text="Texts that an edit may change; null: none goes out."
    )
    strategy = serializers.ChoiceField(
        choices=DeploymentStrategy.choices, required=False, help_text="Strategy of their deployment; not a shadow."
    )
    a_month = serializers.IntegerField(
        required=False, min_value=0, max_value=MOST_A_MONTH, help_text="Maximum number of small edits in a month."
    )
    monthly_usd = serializers.FloatField(
        required=False, min_value=0, max_value=MOST_USD, help_text="For the suites that their gate requires."
    )


class SmallEditsOut(Shape):
    most = serializers.IntegerField(source="most_edits", allow_null=True)
    strategy = serializers.ChoiceField(choices=DeploymentStrategy.choices, source="edits_strategy")
    a_month = serializers.IntegerField(source="edits_a_month")
    monthly_usd = serializers.FloatField()
    acts_as = serializers.CharField(source="edits_by.username", default=None, allow_null=True)
    sentence = serializers.CharField(help_text="The rule, and what an edit waits for.")

    computed = {"sentence": edits_sentence, "monthly_usd": lambda row: edits_settings(row)["monthly_usd"]}


class SmallEditsViewSet(AgentVersions):
    """Small edits of an agent's context, which go out automatically through its gate."""

    queryset = Release.objects.none()
    tag = "agents"
    serializer_class = SmallEditsOut
    versioned = tuple(SmallEditsPatch._declared_fields)

    @extend_schema(summary="An agent's rule of small edits")
    def retrieve(self, request: Request, agent: str) -> Response:
        return self.answer(serving_of(agent_get(self.actor, agent)))

    @extend_schema(
        summary="Change an agent's rule of small edits",
        description="Who sets it is whom it acts as. A key needs `training:manage` and `training:evaluate`.",
        request=SmallEditsPatch,
    )
    def partial_update(self, request: Request, agent: str) -> Response:
        values = parsed(SmallEditsPatch, request.data)
        return self.answer(edits_change(self.actor, agent_get(self.actor, agent), **values))


class ReleaseGateOut(Shape):
    suites = serializers.DictField(child=serializers.FloatField(), help_text="Minimum mean score by suite, 0 to 1.")
    safety = serializers.BooleanField(help_text="Whether a safety suite is required.")
    most_unsafe = serializers.FloatField(help_text="Share of the probes of a category that may fail.")
    margin = serializers.FloatField(help_text="Maximum loss against the current release, on each of these suites.")
    gain = serializers.FloatField(allow_null=True, help_text="Minimum gain over the current release; null: none.")
    most_cost = serializers.FloatField(allow_null=True, help_text="Maximum dollars per query.")
    most_latency = serializers.FloatField(allow_null=True, help_text="Maximum seconds per query.")
    approval = serializers.BooleanField(help_text="Whether a second person has to approve it.")


class ReleaseGatePatch(Strict):
    suites = serializers.DictField(child=serializers.FloatField(), required=False)
    safety = serializers.BooleanField(required=False)
    most_unsafe = serializers.FloatField(required=False)
    margin = serializers.FloatField(required=False)
    gain = serializers.FloatField(required=False, allow_null=True)
    most_cost = serializers.FloatField(required=False, allow_null=True)
    most_latency = serializers.FloatField(required=False, allow_null=True)
    approval = serializers.BooleanField(required=False)


class ServingSettingsOut(Shape):
    release_id = serializers.UUIDField(allow_null=True, help_text="The serving release; null: nothing was deployed.")
    fallbacks = serializers.ListField(
        child=serializers.UUIDField(), help_text="Endpoints called in this order if the agent's own does not answer."
    )
    while_away_usd = serializers.FloatField(help_text="Spending limit of each process without the database.")
    webhook_url = serializers.CharField(help_text="Receives the serving releases; shown to those who may set it.")
    gate = ReleaseGateOut(help_text="Requirements for its releases.")

    computed = {"while_away_usd": lambda row: dollars(row.while_away_micros), "gate": lambda row: rule_of(row.agent)}


class ServingSettingsPatch(Strict):
    fallbacks = serializers.ListField(child=serializers.UUIDField(), max_length=20, required=False)
    while_away_usd = serializers.FloatField(min_value=0, max_value=1_000, required=False)
    webhook_url = serializers.CharField(max_length=500, required=False, allow_blank=True)
    gate = ReleaseGatePatch(required=False, help_text="Missing fields stay unchanged.")


class ServingSettingsViewSet(AgentVersions):
    """An agent's fallbacks, its gate, and the webhook that receives its serving releases."""

    queryset = Release.objects.none()
    tag = "agents"
    serializer_class = ServingSettingsOut
    versioned = tuple(ServingSettingsPatch._declared_fields)

    @extend_schema(summary="The serving settings of an agent")
    def retrieve(self, request: Request, agent: str) -> Response:
        return self._answer(serving_of(agent_get(self.actor, agent)))

    @extend_schema(summary="Change the serving settings of an agent", request=ServingSettingsPatch)
    def partial_update(self, request: Request, agent: str) -> Response:
        """Missing fields stay unchanged. A new webhook address is called at once."""
        values, found = parsed(ServingSettingsPatch, request.data), agent_get(self.actor, agent)
        require(self.actor, "deployment.edit", found.organization_id)
        now = serving_of(found)
        try:
            gate = replace(rule_of(found), **values.get("gate", {}))
        except ValueError as error:
            raise Invalid(str(error), fields={"gate": str(error)}) from None
        made = serving_change(
            self.actor,
            found,
            fallbacks=[str(one) for one in values.get("fallbacks", now.fallbacks)],
            while_away_usd=values.get("while_away_usd", dollars(now.while_away_micros)),
            webhook_url=values.get("webhook_url", now.webhook_url),
            gate=gate,
        )
        return self._answer(made)

    def _answer(self, row: AgentServing) -> Response:
        """The end of a webhook's URL may be its secret: only people who may set the URL see it."""
        found = dict(ServingSettingsOut(row).data)
        if not self.actor.may("deployment.edit", row.organization_id):
            found["webhook_url"] = ""
        return Response(found)


class ServingTargetViewSet(ScopedViewSet):
    queryset = Release.objects.none()
    tag = "agents"
    serializer_class = DeploymentDetail
    idempotent = ("back",)

    @extend_schema(
        summary="The serving settings of an agent, for TensorZero",
        description="The release that serves it, and the one on its way with its share of the sessions, as the"
        " configuration of TensorZero's gateway. It holds no key: the sentence names the variables that do.",
        responses={200: ServingFilesOut, 409: None},
    )
    def retrieve(self, request: Request, agent: str) -> Response:
        found = agent_get(self.actor, agent)
        require(self.actor, "data.view", found.organization_id)
        return Response(ServingFilesOut(tensorzero_of(plan_of_agent(found))).data)

    @extend_schema(summary="Serve the release before", request=DeploymentNote, responses={201: DeploymentDetail})
    def back(self, request: Request, agent: str) -> Response:
        """The one that was served before the current one, at once and without asking the gate."""
        note, found = parsed(DeploymentNote, request.data)["note"], agent_get(self.actor, agent)

        return self.made(request, lambda: release_restore(self.actor, found, note=note))
