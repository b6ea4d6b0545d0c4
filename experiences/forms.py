"""The form of an agent. Checking is the services' work; the form keeps what was typed and carries the messages."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.errors import DomainError
from experiences.environments import environments
from experiences.models import Agent, Philosophy, Runtime

TITLES = {"reasoning_gym": "Reasoning gym", "dataset": "Datasets"}


def environment_choices() -> list[tuple[str, str]]:
    return [(name, f"{TITLES.get(name, name)}: {made.description}") for name, made in environments.items()]


class OptionsField(forms.CharField):
    """A JSON object as text; empty is {}."""

    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "class": "code", "placeholder": "{}"})

    def clean(self, value: Any) -> dict[str, Any]:
        text = (value or "").strip()
        if not text:
            return {}
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise ValidationError(f"This is not JSON: {error}.") from error
        if not isinstance(parsed, dict):
            raise ValidationError('Options are an object, e.g. {"families": ["gcd"]}.')
        return parsed


class AgentForm(forms.Form):
    name = forms.CharField(max_length=120, help_text="What people call it.")
    slug = forms.SlugField(
        max_length=60, required=False, help_text="Its name in addresses and APIs; made from the name if left empty."
    )
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="What it is for.")
    philosophy = forms.ChoiceField(choices=Philosophy.choices, initial=Philosophy.REACT, help_text="How it reasons.")
    runtime = forms.ChoiceField(choices=Runtime.choices, initial=Runtime.ACTION, help_text="How it acts.")
    environment = forms.ChoiceField(
        choices=environment_choices, initial="reasoning_gym", help_text="Where its queries and tools come from."
    )
    environment_options = OptionsField(required=False, label="Options of the environment", help_text="A JSON object.")

    @classmethod
    def of(cls, agent: Agent) -> AgentForm:
        """The form filled with an agent's values."""
        names = ("name", "slug", "description", "philosophy", "runtime", "environment")
        options = json.dumps(agent.environment_options, indent=2) if agent.environment_options else ""
        return cls(initial={name: getattr(agent, name) for name in names} | {"environment_options": options})

    def refuse(self, error: DomainError) -> None:
        """Puts a service's message where it belongs: at its field, else above the form."""
        known = {name: message for name, message in error.fields.items() if name in self.fields}
        for name, message in known.items():
            self.add_error("environment_options" if name == "environment" else name, message)
        if not known:
            self.add_error(None, error.message)
