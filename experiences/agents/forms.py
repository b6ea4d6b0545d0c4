"""The form of an agent. Checking is the services' work; the form keeps what was typed and carries the messages."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Self, cast

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from agentcore_site.console.forms import NamesField, OptionsField, RowForm, SealedField, SealedTextarea
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.own_models import own_models, why_none_starts
from agentcore_site.tenancy.actors import Actor
from experiences.agents.endpoint_config import PURPOSES
from experiences.agents.evolution_settings import MOST_ROUNDS
from experiences.agents.option_fields import OptionsWidget, PluginOptionsField, options_context
from experiences.agents.selectors import endpoints_visible, tool_servers_visible, with_rows
from experiences.agents.services.agents import EDITABLE
from experiences.agents.toolset_of import tool_names
from experiences.learning.playbooks.leave_out import MOST
from experiences.lessons.selectors import packs_visible
from experiences.models import AceRelease, Agent, AgentRuntime, EndpointKind, ModelEndpoint, Philosophy, ToolServer
from experiences.rollouts.environments import environments
from experiences.rollouts.rewards import rewards

TEXTS = ("ace_delta_model", "ace_release")
EVOLUTION_SETTINGS = tuple(name for name in EDITABLE if name.startswith("ace_") and name not in TEXTS)
LIMITS = {
    "ace_reflection_rounds": " So often, at most, its reflector says what the executions teach before changes are"
    " suggested; 0: never. Each round is a question that is paid for.",
    "ace_min_confidence": " It may be higher.",
    "ace_max_sections": " It may be lower.",
    "ace_monthly_budget_usd": " It may be lower.",
}


def environment_choices() -> list[tuple[str, str]]:
    return [(name, f"{getattr(made, 'title', name)}: {made.description}") for name, made in environments.items()]


def reward_choices() -> list[tuple[str, str]]:
    named = [(name, f"{name}: {made.description}") for name, made in rewards.items()]
    return [("", "The preset's"), *named]


def tool_choices() -> list[tuple[str, str]]:
    return [(name, f"{name}: {description}") for name, description in tool_names()]


OWN = "own:"  # before the source of a model of our own
# Parts of an agent's form that are folded at first, with their fields.
PARTS: Final = {
    "options": ("environment_options",),
    "tools": ("tools", "tool_servers"),
    "prompt": ("prompt_pack", "pack_by_domain", "max_tokens"),
    "learning": (
        "reward",
        "reward_options",
        "grouped_execution",
        "objective",
        "learning_objective",
        "reflector",
        "reflector_model",
    ),
    "evolution": ("leave_out_rate", "ace_release", "evolves", "ace_delta_model", *EVOLUTION_SETTINGS),
    "details": ("slug", "description", "philosophy", "opted_out"),
}


class GrantedTools(forms.Widget):
    """The tools that were ticked, by the id of their server, of those servers whose tools were shown."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> dict[str, list[str]]:
        return {key: data.getlist(f"tools_of_{key}") for key in data.getlist("tools_shown")}


def named_lines(text: str) -> dict[str, str]:
    """Values by name, of lines NAME=value. Raises ValidationError."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not all("=" in line for line in lines):
        raise ValidationError("A line is NAME=value.")
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


class EndpointForm(RowForm):
    """A model endpoint. A key that is stored already is kept when its field is left empty."""

    row_fields = ("name", "kind", "base_url", "model", "options")

    name = forms.CharField(max_length=80, help_text="Name shown in lists.")
    kind = forms.ChoiceField(choices=EndpointKind.choices, help_text="API of the endpoint.")
    base_url = forms.CharField(
        max_length=300,
        label="Base URL",
        help_text="Without /chat/completions, e.g. https://api.openai.com/v1 or http://127.0.0.1:11434/v1.",
    )
    model = forms.CharField(max_length=120, required=False, help_text="Default for agents without a model.")
    api_key = SealedField(
        label="API key",
        help_text="Stored encrypted and never shown again. Empty: keep the stored key.",
    )
    purpose_keys = forms.CharField(
        required=False,
        max_length=20_000,
        label="API keys by purpose",
        widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off", "spellcheck": "false", "class": "code"}),
        help_text=f"One per line, e.g. training=sk-..., for {', '.join(PURPOSES)}. Calls of that purpose send this key"
        " instead. Stored encrypted; training= keeps the stored key, and a line that is left out removes it.",
    )
    gateway_key = SealedField(
        label="Portkey key",
        help_text="Only for Portkey: the gateway's own key.",
    )
    virtual_key = SealedField(
        label="Portkey virtual key",
        help_text="Only for Portkey, if you use one.",
    )
    gateway_config = forms.CharField(
        required=False,
        max_length=20_000,
        label="Portkey config",
        widget=SealedTextarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
        help_text="Only for Portkey: a config as JSON. Stored encrypted and never shown again; a saved one is named by"
        " the option portkey_config.",
    )
    options = OptionsField(required=False, help_text="A JSON object; its options are listed at the side.")

    @classmethod
    def initial_of(cls, row: ModelEndpoint) -> dict[str, Any]:
        return super().initial_of(row) | {"purpose_keys": "\n".join(f"{name}=" for name in sorted(row.purpose_keys))}

    def clean_purpose_keys(self) -> dict[str, str]:
        return named_lines(self.cleaned_data["purpose_keys"])

    @classmethod
    def of(cls, row: Any, data: Any = None, **extra: Any) -> Self:
        form = super().of(row, data, **extra)
        kept = "A key is stored; empty: keep it." if row.api_key else "None is stored."
        form.fields["api_key"].help_text = f"{kept} Stored encrypted and never shown again."
        return form


class ToolServerForm(RowForm):
    """An MCP server. A stored token is kept when its field is left empty; another host requires it again."""

    row_fields = ("name", "transport", "url", "command")

    name = forms.SlugField(max_length=30, help_text="Prefix of its tool names.")
    transport = forms.ChoiceField(choices=ToolServer.Transport.choices)
    url = forms.CharField(max_length=300, required=False, label="Address", help_text="For streamable HTTP.")
    token = SealedField(
        help_text="Sent as a bearer token. Stored encrypted and never shown again.",
    )
    command = forms.CharField(
        max_length=500, required=False, help_text="For stdio: a command line that the site allows (MCP_COMMANDS)."
    )
    variables = forms.CharField(
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false", "class": "code"}),
        help_text="Environment of the program, one variable a line: SEARCH_API_KEY=... Stored encrypted; NAME= keeps"
        " it.",
    )
    tools = forms.CharField(
        required=False, label="Only these tools", help_text="Names, separated by commas; empty: all tools."
    )

    @classmethod
    def initial_of(cls, server: ToolServer) -> dict[str, Any]:
        variables = "\n".join(f"{name}=" for name in sorted(server.variables))
        return super().initial_of(server) | {"tools": ", ".join(server.tools), "variables": variables}

    def clean_variables(self) -> dict[str, str]:
        return named_lines(self.cleaned_data["variables"])

    def clean_tools(self) -> list[str]:
        return [name.strip() for name in self.cleaned_data["tools"].split(",") if name.strip()]


class AgentForm(RowForm):
    row_fields = tuple(name for name in EDITABLE if name not in ("endpoint", "reflector", "prompt_pack", "collects"))

    name = forms.CharField(max_length=120, help_text="Name shown in lists.")
    slug = forms.SlugField(
        max_length=60, required=False, help_text="Name in addresses and APIs; made from the name if left empty."
    )
    description = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="Purpose of the agent."
    )
    philosophy = forms.ChoiceField(
        required=False,
        choices=Philosophy.choices,
        help_text="How the model is prompted. Chat: system prompt, context and query, and nothing else. The others add"
        " instructions, and ReAct, Autonomous and Multi-agent call tools.",
    )
    runtime = forms.ChoiceField(
        choices=AgentRuntime.choices,
        initial=AgentRuntime.ACTION,
        help_text="What makes the decisions: a small policy, a language model, or a program of yours over HTTP.",
    )
    endpoint = forms.ChoiceField(
        required=False, label="Model endpoint", help_text="Service that runs the agent's model."
    )
    model = forms.CharField(
        max_length=120, required=False, help_text="Name used by the service; empty: the endpoint's model."
    )
    system_prompt = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="System prompt of the model before each task.",
    )
    prompt_pack = forms.ChoiceField(
        required=False, label="Prompt pack", help_text="Replaces the system prompt; lessons are bound to it."
    )
    pack_by_domain = forms.BooleanField(
        required=False,
        label="Choose the prompt pack by the domain of the data",
        help_text="A job uses the pack for the domain of its dataset; without one, the pack above.",
    )
    tools = NamesField(required=False, choices=tool_choices, widget=forms.CheckboxSelectMultiple)
    tool_servers = forms.MultipleChoiceField(required=False, label="Tool servers")
    granted_tools = forms.Field(required=False, widget=GrantedTools)
    max_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=200_000,
        initial=1024,
        help_text="Per answer; the maximum cost of a call is put on hold before the call.",
    )
    url = forms.CharField(
        max_length=300,
        required=False,
        label="Address of the agent",
        help_text="Only over HTTP: receives each task, with the address of a model and a key. Only admins can change"
        " this field.",
    )
    authorization = SealedField(
        max_length=4000,
        label="Authorization header of the agent",
        help_text="Sent to that address, e.g. Bearer ... Stored encrypted and never shown again. Empty: keep the"
        " stored one.",
    )
    inject_context = forms.BooleanField(
        required=False,
        label="Add the context to the agent's calls",
        help_text="Only over HTTP, for an agent that can't put the received system text before its own prompt.",
    )
    opted_out = forms.BooleanField(
        required=False,
        label="Recording disabled",
        help_text="No data of the agent is stored, so it can't be trained or evaluated.",
    )
    reward = forms.ChoiceField(
        choices=reward_choices,
        required=False,
        help_text="Default reward of the agent's jobs.",
    )
    reward_options = PluginOptionsField(rewards, "reward", label="Options of the reward")
    grouped_execution = forms.BooleanField(
        required=False,
        label="Allow training in groups (training-free GRPO)",
        help_text="Off for agents whose rollouts must not run in groups, such as agents in production.",
    )
    reflector = forms.ChoiceField(
        required=False,
        label="Endpoint of the reflector",
        help_text="Endpoint of the model that draws lessons from attempts, at its own price.",
    )
    reflector_model = forms.CharField(
        max_length=120,
        required=False,
        label="Model of the reflector",
        help_text="Name used by the service; empty: that endpoint's model, or the agent's.",
    )
    objective = forms.CharField(
        max_length=2000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        label="Good answers",
        help_text="Description of a good answer, for the reflector. Only rewards decide which lessons are kept.",
    )
    learning_objective = forms.CharField(
        max_length=2000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        label="Learning goal",
        help_text="Topics of the lessons, for the reflector.",
    )
    leave_out_rate = forms.FloatField(
        required=False,
        min_value=0,
        max_value=MOST,
        initial=0.1,
        label="Share of contexts without an item",
        help_text="Share of the contexts that leave out an item of the playbook, at random, to measure the item's"
        " effect; 0: none. The service must report context_id.",
    )
    ace_release = forms.ChoiceField(
        required=False,
        choices=[("", "Not chosen: reviewed, until a service makes the playbook"), *AceRelease.choices],
        label="Release of the playbook to services",
        help_text="Direct: changes of enough confidence are applied without a review. Only people who may deploy can"
        " change this field.",
    )
    evolves = forms.BooleanField(
        required=False,
        label="Evolve the playbook automatically",
        help_text="A model reads recent executions and changes the playbook.",
    )
    ace_delta_model = forms.CharField(
        max_length=120,
        required=False,
        label="Model that suggests changes",
        help_text="At the agent's endpoint; empty: the site's, else the agent's own.",
    )
    ace_min_confidence = forms.FloatField(required=False, label="Minimum confidence of a change")
    ace_max_sections = forms.IntegerField(required=False, label="Maximum items of the playbook")
    ace_evolution_frequency = forms.IntegerField(required=False, label="Executions between two evolutions")
    ace_reflection_rounds = forms.IntegerField(
        required=False, min_value=0, max_value=MOST_ROUNDS, label="Rounds of reflection"
    )
    ace_monthly_budget_usd = forms.FloatField(required=False, label="Dollars per month for evolution")
    environment = forms.ChoiceField(
        choices=environment_choices, initial="reasoning_gym", help_text="Source of the queries and the tools."
    )
    environment_options = PluginOptionsField(environments, "environment", label="Options of the environment")

    def __init__(self, *args: Any, actor: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.actor = actor
        own = "The site's own (LLM_BASE_URL)" if settings.LLM_BASE_URL else "None"
        named = [(str(endpoint.pk), f"{endpoint.name} ({endpoint.base_url})") for endpoint in endpoints_visible(actor)]
        endpoint = cast(forms.ChoiceField, self.fields["endpoint"])
        endpoint.choices = [("", own), *named]
        if actor.may_somewhere("endpoint.edit"):
            ours = [(OWN + one.source, f"{one.name}: {one.description}") for one in own_models().values()]
            endpoint.choices = [*endpoint.choices, ("A model of our own, whose server is started", ours)]
            own_text = "A model of our own gets its server and its endpoint with the agent."
            endpoint.help_text = f"{endpoint.help_text} {why_none_starts() or own_text}"
        cast(forms.ChoiceField, self.fields["reflector"]).choices = [("", "The agent's own endpoint"), *named]
        self.servers = list(tool_servers_visible(actor))
        cast(forms.ChoiceField, self.fields["tool_servers"]).choices = [
            (str(server.pk), server.name) for server in self.servers
        ]
        tools = cast(NamesField, self.fields["tools"])
        offered = tool_choices()
        held = [name for name in self["tools"].value() or () if name not in dict(offered)]
        tools.choices = [*offered, *((name, f"{name}: under its old name") for name in held)]
        if "philosophy" not in self.initial:
            by_tools = ("", "By its tools: Chat without tools, else ReAct")
            cast(forms.ChoiceField, self.fields["philosophy"]).choices = [by_tools, *Philosophy.choices]
        self.fields["ace_release"].disabled = not actor.may_somewhere("deployment.edit")
        for name in EVOLUTION_SETTINGS:
            of_site = f"Empty: the site's, {getattr(settings, name.upper()):g}."
            self.fields[name].help_text = of_site + LIMITS.get(name, "")
        stamped = [("", "None: its own system prompt"), *((str(pack.pk), pack.name) for pack in packs_visible(actor))]
        cast(forms.ChoiceField, self.fields["prompt_pack"]).choices = stamped

    @cached_property
    def open_parts(self) -> list[str]:
        """Folded parts of the form that hold an error, or another value than an empty form."""
        return [part for part, names in PARTS.items() if any(self._is_set(name) for name in names)]

    def _is_set(self, name: str) -> bool:
        field = self[name]
        return bool(field.errors) or str(field.value() or "") != str(field.field.initial or "")

    def options_context(self, name: str) -> dict[str, Any]:
        """Context of the inputs for the options in the field ``name``."""
        widget = cast(OptionsWidget, self.fields[name].widget)
        chosen = str(self[widget.chooser].value() or "")
        return options_context(name, widget.registry, chosen, self[name].data if self.is_bound else self[name].initial)

    @classmethod
    def initial_of(cls, agent: Agent) -> dict[str, Any]:
        chosen = {name: str(getattr(agent, f"{name}_id") or "") for name in ("endpoint", "reflector", "prompt_pack")}
        servers = [str(server.pk) for server in agent.tool_servers.all()]
        return super().initial_of(agent) | chosen | {"tool_servers": servers, "opted_out": not agent.collects}

    def values(self) -> dict[str, Any]:
        """Arguments for the services, without numbers that were left empty."""
        values = {**self.cleaned_data, "collects": not self.cleaned_data["opted_out"]}
        values["slug"] = values["slug"] or self.initial.get("slug", "")
        unsaid = [name for name in ("philosophy", "max_tokens", "leave_out_rate") if values[name] in (None, "")]
        for name in ("opted_out", *unsaid):
            del values[name]
        if values["endpoint"].startswith(OWN):
            source = values.pop("endpoint").removeprefix(OWN)
            values |= {"endpoint": ""} if values["runtime"] == AgentRuntime.ACTION else {"own_model": source}
        granted = values["granted_tools"] or {}
        values["granted_tools"] = {key: names for key, names in granted.items() if key in values["tool_servers"]}
        return with_rows(self.actor, values)

    def refuse(self, error: DomainError) -> None:
        places = {"environment": "environment_options", "own_model": "endpoint"}
        fields = {places.get(name, name.partition(".")[0]): text for name, text in error.fields.items()}
        super().refuse(type(error)(error.message, fields=fields))
