"""Agents, model endpoints and tool servers."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager

WATCHED: Final = timedelta(seconds=20)


class Philosophy(models.TextChoices):
    REACT = "react", "ReAct"
    COT = "cot", "Chain of thought"
    MULTI_AGENT = "multi_agent", "Multi-agent"
    AUTONOMOUS = "autonomous", "Autonomous"
    CHAT = "chat", "Chat"


WITHOUT_TOOLS: Final = frozenset({Philosophy.CHAT, Philosophy.COT})  # they offer a model no tools


class AceRelease(models.TextChoices):
    """Ways of a playbook's text to services (docs/ace.md). "" is not chosen: reviewed, until a service makes the
    playbook, which gives the agent the site's ``ACE_RELEASE``."""

    DIRECT = "direct", "Direct: each new version at once"
    REVIEWED = "reviewed", "Reviewed: with a deployed release"


class AgentRuntime(models.TextChoices):
    """Kinds of agent runtimes; only implemented ones are offered."""

    ACTION = "action", "Action policy (embedded, no key needed)"
    LLM = "llm", "Language model (an OpenAI-compatible endpoint)"
    HTTP = "http", "An external agent, over HTTP"


class EndpointKind(models.TextChoices):
    """Kinds of endpoints: all of them accept OpenAI's chat completions."""

    OPENAI = "openai", "OpenAI, or a compatible API"
    PORTKEY = "portkey", "Portkey gateway"
    OPENROUTER = "openrouter", "OpenRouter"
    VLLM = "vllm", "vLLM"
    OLLAMA = "ollama", "Ollama"
    WEIGHTS = "weights", "Model server (models trained on this site)"


class ModelEndpoint(Scoped):
    """Endpoint of models, and its key. Keys are sealed (``agentcore_site.vault``) and never shown again."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=12, choices=EndpointKind.choices, default=EndpointKind.OPENAI)
    base_url = models.CharField(max_length=300, help_text="Address without /chat/completions.")
    model = models.CharField(max_length=120, blank=True, help_text="Default model of its agents.")
    api_key = models.TextField(blank=True, editable=False)  # sealed
    purpose_keys = models.JSONField(default=dict, blank=True, editable=False)  # sealed keys in place of it, by purpose
    gateway_key = models.TextField(blank=True, editable=False)  # sealed; Portkey's own key
    virtual_key = models.TextField(blank=True, editable=False)  # sealed; of Portkey's
    gateway_config = models.TextField(blank=True, editable=False)  # sealed; a config of Portkey's, as JSON
    options = models.JSONField(default=dict, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                condition=models.Q(archived_at=None),
                name="endpoint_name_per_organization",
            )
        ]

    def __str__(self) -> str:
        return self.name


class ServerState(models.TextChoices):
    STARTING = "starting", "Starting"
    READY = "ready", "Ready"
    RESTARTING = "restarting", "Restarting"
    FAILED = "failed", "Failed"
    STOPPED = "stopped", "Stopped"


class EndpointServer(Scoped):
    """A model server that ``manage.py up`` keeps running for an endpoint (``agentcore_site.embedded.model_servers``).
    People set ``wanted``; ``up`` reports everything below it. ``place``: the id of the host and data folder.
    ``memory``: bytes that are resident. ``tokens_per_second``: of the latest answers, while the server worked."""

    endpoint = models.OneToOneField(
        ModelEndpoint, primary_key=True, on_delete=models.CASCADE, related_name="server", editable=False
    )
    place = models.CharField(max_length=120)
    source = models.CharField(max_length=165, help_text="A shipped model, or a folder below MODELS_FOLDER.")
    port = models.PositiveIntegerField()
    wanted = models.BooleanField(default=True)
    state = models.CharField(max_length=10, choices=ServerState.choices, default=ServerState.STARTING)
    reason = models.CharField(max_length=300, blank=True, help_text="Why it ended last.")
    restarts = models.PositiveIntegerField(default=0)
    memory = models.BigIntegerField(null=True)
    tokens_per_second = models.FloatField(null=True)
    adapters = models.PositiveIntegerField(null=True)
    ready_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["place", "port"]

    def __str__(self) -> str:
        return self.source

    @property
    def is_watched(self) -> bool:
        """True if ``manage.py up`` reported on this server in the last 20 seconds (``WATCHED``)."""
        return self.seen_at is not None and timezone.now() - self.seen_at < WATCHED


class ToolServer(Scoped):
    """An MCP server whose tools agents may use. Its token and the values of its variables are sealed like an
    endpoint's key.

    ``command`` starts a stdio server, if the site allows that command line (``MCP_COMMANDS``).
    """

    class Transport(models.TextChoices):
        HTTP = "http", "Streamable HTTP"
        STDIO = "stdio", "A program on the workers (stdio)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=30, help_text="Prefix of the names of its tools.")
    transport = models.CharField(max_length=5, choices=Transport.choices, default=Transport.HTTP)
    url = models.CharField(max_length=300, blank=True)
    command = models.CharField(max_length=500, blank=True)
    token = models.TextField(blank=True, editable=False)  # sealed
    variables = models.JSONField(default=dict, blank=True, editable=False)  # of a program, by name; sealed values
    tools = models.JSONField(default=list, blank=True, help_text="Names of the allowed tools; empty: all.")
    archived_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], condition=models.Q(archived_at=None), name="tool_server_name"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Agent(Scoped):
    """Something that acts and can get better. Training works on copies of its policy."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$")])
    description = models.TextField(blank=True)
    philosophy = models.CharField(max_length=20, choices=Philosophy.choices, default=Philosophy.REACT)
    runtime = models.CharField(max_length=10, choices=AgentRuntime.choices, default=AgentRuntime.ACTION)
    environment = models.CharField(max_length=60, default="reasoning_gym")
    environment_options = models.JSONField(default=dict, blank=True)
    endpoint = models.ForeignKey(ModelEndpoint, null=True, blank=True, on_delete=models.PROTECT, related_name="agents")
    model = models.CharField(max_length=120, blank=True)
    system_prompt = models.TextField(blank=True)
    prompt_pack = models.ForeignKey(
        "PromptPack",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="agents",
        help_text="Replaces the system prompt.",
    )
    pack_by_domain = models.BooleanField(
        "pack by the domain of the data",
        default=False,
        db_default=False,
        help_text="On: a job uses the prompt pack of its data's domain, if there is one.",
    )
    tools = models.JSONField(default=list, blank=True, help_text="Names of the tools that the agent may call.")
    url = models.CharField(
        max_length=300, blank=True, help_text="Address at which an agent over HTTP receives its tasks."
    )
    authorization = models.TextField(blank=True, default="", editable=False)  # sealed; what ``url`` wants to see
    inject_context = models.BooleanField(
        "context is put into its calls",
        default=False,
        help_text="On: the gateway puts the context of an agent over HTTP into each call of its model.",
    )
    context_arrives = models.BooleanField(
        null=True,
        editable=False,
        help_text="Latest check of an agent over HTTP: whether its context reaches its model.",
    )
    collects = models.BooleanField(
        "may be recorded",
        default=True,
        help_text="Off: its trajectories are not stored, so the agent can't be trained.",
    )
    tool_servers = models.ManyToManyField(ToolServer, blank=True, related_name="agents")
    granted_tools = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Names of the tools that the agent may call, by the id of their server.",
    )
    max_tokens = models.PositiveIntegerField(
        default=1024, help_text="Maximum length of each answer; limits the cost of a call."
    )

    # Its own defaults for training; a job that names another reward takes that one.
    reward = models.CharField(max_length=100, blank=True, help_text="Default reward of its jobs. Empty: the preset's.")
    reward_options = models.JSONField(default=dict, blank=True, help_text="Options of the default reward, by name.")
    grouped_execution = models.BooleanField(
        "may run in groups", default=False, help_text="On: the agent may be trained with training-free GRPO."
    )

    # How training jobs reflect on its attempts.
    reflector = models.ForeignKey(
        ModelEndpoint,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="reflected_agents",
        help_text="Endpoint of the model that derives lessons from rollouts. Empty: the agent's own endpoint.",
    )
    reflector_model = models.CharField(
        max_length=120, blank=True, help_text="Empty: the endpoint's default, or the agent's own model."
    )
    objective = models.CharField(max_length=2000, blank=True, help_text="Description of a good answer.")
    learning_objective = models.CharField(max_length=2000, blank=True, help_text="Topics of the lessons.")

    # Of an agent that was there before it could be set: 0 (migration 0015).
    leave_out_rate = models.FloatField(
        default=0.1,
        db_default=0.1,
        help_text="Share of the contexts that leave out an item of the playbook, to measure the item's effect.",
    )

    # How its playbook evolves (experiences/agents/evolution_settings.py). Empty: the site's setting of the same name.
    ace_release = models.CharField(
        "release of the playbook to services",
        max_length=8,
        choices=AceRelease.choices,
        blank=True,
        default="",
        db_default="",
        help_text="Empty: reviewed, until a service makes the playbook.",
    )
    evolves = models.BooleanField("evolves by itself", default=False, help_text="Off: its playbook changes by hand.")
    ace_delta_model = models.CharField(
        max_length=120, blank=True, help_text="Model that suggests changes of the playbook."
    )
    ace_min_confidence = models.FloatField(
        null=True, blank=True, help_text="Minimum confidence of a change that is applied."
    )
    ace_max_sections = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Maximum number of items of the playbook."
    )
    ace_evolution_frequency = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of executions between two evolutions."
    )
    ace_reflection_rounds = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Maximum number of reflection rounds before changes are suggested."
    )
    ace_monthly_budget_usd = models.FloatField(null=True, blank=True, help_text="Maximum cost of evolutions per month.")

    archived_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["organization", "slug"], name="agent_slug_per_organization")]

    def __str__(self) -> str:
        return self.name

    @property
    def serves_directly(self) -> bool:
        """True if services receive each new version of its playbook at once, without a release."""
        return self.ace_release == AceRelease.DIRECT

    @property
    def server_tools(self) -> list[tuple[ToolServer, list[str]]]:
        """Its tool servers, each with the tools that it may call of it."""
        return [(server, self.granted_tools.get(str(server.pk), [])) for server in self.tool_servers.all()]
