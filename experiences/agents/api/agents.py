"""REST: agents."""

from __future__ import annotations

from typing import Any

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.money import dollars
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ArchivableViewSet, RowOperations
from agentcore_site.rest.shapes import Shape
from experiences.agents.api.versions import AgentVersions
from experiences.agents.evolution_settings import MOST_EXECUTIONS, MOST_ROUNDS
from experiences.agents.presenters import AgentOut
from experiences.agents.selectors import with_rows
from experiences.agents.services.agent_tests import agent_test
from experiences.agents.services.agents import agent_archive, agent_create, agent_update
from experiences.learning.playbooks.leave_out import MOST
from experiences.models import AceRelease, Agent, AgentRuntime, Philosophy
from experiences.models.agent_lookup import agent_get, agents_visible


class AgentIn(Strict):
    renamed = {"endpoint": "endpoint_id", "prompt_pack": "prompt_pack_id", "reflector": "reflector_id"}

    name = serializers.CharField(max_length=120)
    slug = serializers.CharField(max_length=60, required=False, help_text="Default: made from the name.")
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)
    philosophy = serializers.ChoiceField(
        choices=Philosophy.choices,
        required=False,
        help_text="How the model is prompted. chat: system prompt, context and query, nothing else; the whole answer is"
        " graded. Default: chat for a language model without tools, else react.",
    )
    runtime = serializers.ChoiceField(choices=AgentRuntime.choices, required=False)
    environment = serializers.CharField(max_length=60, required=False, help_text="See `/api/v1/environments`.")
    environment_options = serializers.DictField(required=False)
    endpoint_id = serializers.CharField(
        source="endpoint",
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Id or name; see `/api/v1/model-endpoints`.",
    )
    own_model = serializers.CharField(
        max_length=165,
        required=False,
        allow_blank=True,
        write_only=True,
        help_text="In place of an endpoint: a model for which this site starts a model server, with an endpoint."
        " `smollm2`, `random`, or a folder below the site's `MODELS_FOLDER`. Needs the right to edit endpoints.",
    )
    model = serializers.CharField(
        max_length=120, required=False, allow_blank=True, help_text="Default: the endpoint's."
    )
    system_prompt = serializers.CharField(max_length=100_000, required=False, allow_blank=True)
    prompt_pack_id = serializers.CharField(
        source="prompt_pack",
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Id or name; see `/api/v1/prompt-packs`.",
    )
    pack_by_domain = serializers.BooleanField(
        required=False,
        help_text="Whether a job uses the prompt pack of its data's domain, if there is one. Default: false.",
    )
    tools = serializers.ListField(
        child=serializers.CharField(max_length=100), max_length=200, required=False, help_text="See `/api/v1/tools`."
    )
    tool_servers = serializers.ListField(
        child=serializers.UUIDField(), max_length=20, required=False, help_text="See `/api/v1/tool-servers`."
    )
    granted_tools = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=200), max_length=128),
        required=False,
        help_text="Names of the tools that the agent may call, by the id of their server, as in"
        " `/api/v1/tool-servers/{id}/offer`. A new server that is not named here: all its present tools.",
    )
    max_tokens = serializers.IntegerField(required=False, min_value=1, max_value=200_000)
    url = serializers.CharField(max_length=300, required=False, allow_blank=True)
    authorization = serializers.CharField(
        max_length=4000,
        required=False,
        allow_blank=True,
        write_only=True,
        help_text="Sent to `url` as the Authorization header; empty: the stored one is kept.",
    )
    inject_context = serializers.BooleanField(
        required=False,
        help_text="Whether the gateway puts `system` into each call of the agent's model: for an agent over HTTP that"
        " can't put `system` before its own prompt. Default: false.",
    )
    collects = serializers.BooleanField(required=False)
    reward = serializers.CharField(
        max_length=100,
        required=False,
        allow_blank=True,
        help_text="Default reward of its jobs; see `/api/v1/rewards`. Empty: the preset's.",
    )
    reward_options = serializers.DictField(required=False)
    grouped_execution = serializers.BooleanField(
        required=False, help_text="Whether the agent may be trained with training-free GRPO. Default: false."
    )
    reflector_id = serializers.CharField(
        source="reflector",
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Id or name of the endpoint of the model that derives lessons from rollouts, with its own price;"
        " null: the agent's endpoint.",
    )
    reflector_model = serializers.CharField(
        max_length=120, required=False, allow_blank=True, help_text="Model of that endpoint; empty: its default."
    )
    objective = serializers.CharField(
        max_length=2000,
        required=False,
        allow_blank=True,
        help_text="Description of a good answer, for the reflector.",
    )
    learning_objective = serializers.CharField(
        max_length=2000,
        required=False,
        allow_blank=True,
        help_text="Topics of the lessons, for the reflector.",
    )
    leave_out_rate = serializers.FloatField(
        min_value=0,
        max_value=MOST,
        required=False,
        help_text="Share of the contexts that leave out an item of the playbook, at random, to measure the item's"
        " effect; 0: none. Default: 0.1.",
    )
    ace_release = serializers.ChoiceField(
        choices=AceRelease.choices,
        required=False,
        allow_blank=True,
        help_text="Release of the playbook to services. direct: each new version at once; changes of enough"
        " confidence need no review. reviewed: with a deployed release. Empty, the default: reviewed; a service that"
        " makes the playbook sets the site's ACE_RELEASE. Changing it needs the permission to deploy.",
    )
    evolves = serializers.BooleanField(
        required=False, help_text="Whether its playbook evolves by itself. Default: false."
    )
    ace_delta_model = serializers.CharField(
        max_length=120, required=False, allow_blank=True, help_text="Model of the agent's endpoint; empty: the site's."
    )
    ace_min_confidence = serializers.FloatField(
        min_value=0, max_value=1, required=False, allow_null=True, help_text="At least the site's; null: the site's."
    )
    ace_max_sections = serializers.IntegerField(
        min_value=1, max_value=200, required=False, allow_null=True, help_text="At most the site's; null: the site's."
    )
    ace_evolution_frequency = serializers.IntegerField(
        min_value=1,
        max_value=MOST_EXECUTIONS,
        required=False,
        allow_null=True,
        help_text="Number of executions between two evolutions; null: the site's.",
    )
    ace_reflection_rounds = serializers.IntegerField(
        min_value=0,
        max_value=MOST_ROUNDS,
        required=False,
        allow_null=True,
        help_text="Maximum number of reflection rounds before changes are suggested, by the reflector or else the"
        " model that suggests changes; 0: none; null: the site's.",
    )
    ace_monthly_budget_usd = serializers.FloatField(
        min_value=0,
        max_value=1_000_000,
        required=False,
        allow_null=True,
        help_text="At most the site's; null: the site's.",
    )


class AgentPatch(AgentIn):
    name = serializers.CharField(max_length=120, required=False)


class AgentTestIn(Strict):
    url = serializers.CharField(max_length=300, required=False, help_text="Default: the agent's own.")
    authorization = serializers.CharField(max_length=4000, required=False, write_only=True)
    inject_context = serializers.BooleanField(required=False, help_text="Default: the agent's own.")


class AgentTestOut(Shape):
    ok = serializers.BooleanField()
    message = serializers.CharField()
    answer = serializers.CharField()
    latency_ms = serializers.IntegerField()
    calls = serializers.IntegerField(help_text="That it made of its model.")
    context_arrives = serializers.BooleanField(
        allow_null=True, help_text="Whether one of them held the context that the agent was sent; null: no answer."
    )
    cost_usd = serializers.FloatField()

    computed = {"cost_usd": lambda found: dollars(found.cost_micros)}


class AgentFilters(filters.FilterSet):
    search = filters.CharFilter(field_name="name", lookup_expr="icontains", help_text="Text in the name.")
    environment = filters.CharFilter(field_name="environment")
    archived = Flag(
        field_name="archived_at", lookup_expr="isnull", exclude=True, help_text="Only archived, or only living."
    )

    class Meta:
        model = Agent
        fields: list[str] = []


NEW = OpenApiExample(
    "An agent on reasoning puzzles",
    {"name": "Tool router", "environment": "reasoning_gym", "philosophy": "react"},
    request_only=True,
)


class AgentViewSet(AgentVersions, ArchivableViewSet):
    queryset = Agent.objects.none()
    filterset_class = AgentFilters
    operations = RowOperations(
        "an agent",
        shapes=(AgentOut, AgentIn, AgentPatch),
        reads=(lambda actor: agents_visible(actor, archived=True).prefetch_related("tool_servers"), agent_get),
        writes=(agent_create, agent_update, agent_archive),
    )
    documented = {
        "create": {"examples": [NEW]},
        "retrieve": {"summary": "One agent, by id or slug"},
        "destroy": {"description": "It is hidden and takes no new jobs; its runs, checkpoints and trajectories stay."},
    }

    @extend_schema(summary="Give an agent over HTTP a small test task", request=AgentTestIn, responses=AgentTestOut)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, agent: str) -> Response:
        """With a key that is good for this call. What the agent asks its model is paid for like any call."""
        found = agent_test(self.actor, agent_get(self.actor, agent), **parsed(AgentTestIn, request.data))
        return Response(AgentTestOut(found).data)

    def values(self, request: Request, shape: type[Strict]) -> dict[str, Any]:
        return with_rows(self.actor, super().values(request, shape))
