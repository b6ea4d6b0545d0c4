"""Agents, model endpoints and tool servers as programs read them."""

from __future__ import annotations

from rest_framework import serializers

from agentcore_site.rest.shapes import Shape
from experiences.models import AceRelease, Agent, AgentRuntime, EndpointKind, Philosophy, ToolServer


class EndpointOut(Shape):
    """Keys and configs are never given out; ``has_api_key`` and its like say whether there is one."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=EndpointKind.choices)
    base_url = serializers.CharField()
    model = serializers.CharField()
    options = serializers.DictField()
    has_api_key = serializers.BooleanField(read_only=True)
    purpose_keys = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="Purposes that have a key of their own."
    )
    has_gateway_key = serializers.BooleanField(read_only=True)
    has_virtual_key = serializers.BooleanField(read_only=True)
    has_gateway_config = serializers.BooleanField(read_only=True)
    archived_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    computed = {
        "has_api_key": lambda endpoint: bool(endpoint.api_key),
        "purpose_keys": lambda endpoint: sorted(endpoint.purpose_keys),
        "has_gateway_key": lambda endpoint: bool(endpoint.gateway_key),
        "has_virtual_key": lambda endpoint: bool(endpoint.virtual_key),
        "has_gateway_config": lambda endpoint: bool(endpoint.gateway_config),
    }


class ToolServerOut(Shape):
    """Token and variables are never given out; ``has_token`` and ``variable_names`` say what there is."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    transport = serializers.ChoiceField(choices=ToolServer.Transport.choices)
    url = serializers.CharField()
    command = serializers.CharField()
    tools = serializers.ListField(child=serializers.CharField())
    has_token = serializers.BooleanField(read_only=True)
    variable_names = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="Of a program, which sees them."
    )
    created_at = serializers.DateTimeField()

    computed = {
        "has_token": lambda server: bool(server.token),
        "variable_names": lambda server: sorted(server.variables),
    }


class AgentOut(Shape):
    id = serializers.UUIDField()
    name = serializers.CharField()
    slug = serializers.CharField()
    description = serializers.CharField()
    philosophy = serializers.ChoiceField(choices=Philosophy.choices)
    runtime = serializers.ChoiceField(choices=AgentRuntime.choices)
    environment = serializers.CharField()
    environment_options = serializers.DictField()
    endpoint_id = serializers.UUIDField(allow_null=True, help_text="Of a language-model agent.")
    model = serializers.CharField()
    system_prompt = serializers.CharField()
    prompt_pack_id = serializers.UUIDField(allow_null=True, help_text="Replaces the system prompt.")
    pack_by_domain = serializers.BooleanField(
        help_text="Whether a job uses the prompt pack of its data's domain, if there is one."
    )
    tools = serializers.ListField(child=serializers.CharField())
    tool_servers = serializers.ListField(
        child=serializers.UUIDField(), read_only=True, help_text="Ids of its MCP servers."
    )
    granted_tools = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Names of the tools that the agent may call, by the id of their server.",
    )
    max_tokens = serializers.IntegerField()
    url = serializers.SerializerMethodField(
        help_text="Address at which an agent over HTTP receives its tasks; empty for roles without access to endpoints."
    )
    has_authorization = serializers.BooleanField(read_only=True)
    inject_context = serializers.BooleanField(
        help_text="Of an agent over HTTP: whether the gateway puts the context into each call of its model."
    )
    context_arrives = serializers.BooleanField(
        allow_null=True,
        help_text="Of an agent over HTTP: whether its context reached its model in the latest test task or training;"
        " null: unknown.",
    )
    collects = serializers.BooleanField(help_text="Whether its trajectories may be stored.")
    reward = serializers.CharField(help_text="Default reward of its jobs; empty: the preset's.")
    reward_options = serializers.DictField()
    grouped_execution = serializers.BooleanField(help_text="Whether the agent may be trained with training-free GRPO.")
    reflector_id = serializers.UUIDField(
        allow_null=True, help_text="Endpoint of the model that derives lessons from rollouts; null: the agent's own."
    )
    reflector_model = serializers.CharField(help_text="Empty: the endpoint's default, or the agent's own model.")
    objective = serializers.CharField(help_text="Description of a good answer.")
    learning_objective = serializers.CharField(help_text="Topics of the lessons.")
    leave_out_rate = serializers.FloatField(
        help_text="Share of the contexts that leave out an item of the playbook, to measure the item's effect."
    )
    ace_release = serializers.ChoiceField(
        choices=["", *AceRelease.choices],
        help_text="Release of the playbook to services: direct (each new version at once) or reviewed (with a deployed"
        " release). Empty: reviewed, until a service makes the playbook.",
    )
    evolves = serializers.BooleanField(help_text="Whether its playbook evolves by itself.")
    ace_delta_model = serializers.CharField(help_text="Empty, like null below: the site's setting.")
    ace_min_confidence = serializers.FloatField(allow_null=True)
    ace_max_sections = serializers.IntegerField(allow_null=True)
    ace_evolution_frequency = serializers.IntegerField(
        allow_null=True, help_text="Number of executions between two evolutions."
    )
    ace_reflection_rounds = serializers.IntegerField(
        allow_null=True, help_text="Maximum number of reflection rounds before changes are suggested."
    )
    ace_monthly_budget_usd = serializers.FloatField(allow_null=True)
    archived_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    computed = {
        "tool_servers": lambda agent: [server.pk for server in agent.tool_servers.all()],
        "has_authorization": lambda agent: bool(agent.authorization),
    }

    def get_url(self, row: Agent) -> str:
        return row.url if self.context["actor"].may("data.view", row.organization_id) else ""
